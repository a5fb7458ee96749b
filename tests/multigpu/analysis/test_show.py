"""What a page says and shows: figures as text, sentences that stand or fall, tables, pictures, the
four plots and their colours.
"""

import ast
import math
import re
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import matplotlib as mpl
import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from multigpu import paths
from multigpu.analysis import prose
from multigpu.analysis.axes import counts
from multigpu.analysis.compare import scaling, versus
from multigpu.analysis.estimate import FORMS, Estimate, estimate
from multigpu.analysis.frame import frame_of
from multigpu.analysis.limits import mfu_of
from multigpu.analysis.picture import RC, Picture, save, svg_text
from multigpu.analysis.plots import bars, dots, lines, timeline
from multigpu.analysis.points import Missing, one, points, where
from multigpu.analysis.prose import NotTrue, finding, require, say
from multigpu.analysis.show import of_machines, points_query, sources, table
from multigpu.analysis.style import OTHERS, PALETTE, in_order, look
from multigpu.placements import placements
from tests.factory import make_record
from tests.multigpu.analysis.planted import read_on_a_telephone, study
from tests.refusals import refused

POINTS = scaling(points(frame_of(study())))


@pytest.mark.parametrize(
    ("figure", "spec", "text"),
    [
        (Estimate(0.9657, 0.9612, 0.9701), "percent interval", "96.6% (96.1 to 97.0%)"),
        (Estimate(-0.0002), "percent", "0.0%"),
        (
            Estimate(1.548e6, 1.541e6, 1.556e6, unit="words/s"),
            "rate interval",
            "1.55 M words/s (1.54 to 1.56 M)",
        ),
        (Estimate(6033.0, unit="images/s"), "rate interval", "6,033 images/s (single run)"),
        (Estimate(0.01652, 0.0161, 0.017), "ms interval", "16.5 ms (16.1 to 17.0 ms)"),
        (Estimate(374_374_400.0), "bytes", "357 MiB"),
        (Estimate(3.54e11), "gb_per_s", "354 GB/s"),
        (Estimate(math.nan), "rate", "–"),
    ],
)
def test_figures_as_text(figure: Estimate, spec: str, text: str) -> None:
    assert format(figure, spec) == text


AS_TEXT = {
    "percent": {1.1: "110%", 1.099: "109.9%", 0.95: "95.0%", 0.94: "94%", 0.1: "10%", 0.09: "9.0%"},
    "times": {100: "100", 99.9: "99.9", 10: "10.0", 9.99: "9.99"},
    "rate": {
        **{1e6: "1.00 M", 999e3: "999 K", 1e5: "100 K", 99_900: "99.9 K", 2e4: "20.0 K"},
        **{19_999: "19,999", 100: "100", 99.94: "99.9"},
    },
    "ms": {0.1: "100 ms", 0.0999: "99.9 ms", 0.001: "1.0 ms", 0.00099: "0.99 ms"},
    "us": {0.1: "100 ms", 0.001: "1.0 ms", 0.00099: "990 µs", 1e-5: "10 µs", 9.9e-6: "9.9 µs"},
    "s": {10: "10 s", 9.9: "9.9 s"},
    "gib": {100: "100 GiB", 99.9: "99.9 GiB"},
    "bytes": {
        **{2**30: "1.0 GiB", 2**30 - 2**20: "1023 MiB", 10 * 2**20: "10 MiB", 2**20: "1 MiB"},
        **{9.5 * 2**20: "9.5 MiB", 1000 * 2**10: "1000 KiB", 10 * 2**10: "10 KiB"},
        **{9.5 * 2**10: "9.5 KiB", 2**10: "1 KiB", 1023: "1023 B"},
    },
    "gb_per_s": {1e10: "10 GB/s", 9.9e9: "9.9 GB/s"},
    "number": {5: "5", 1234567: "1,234,567", 100.4: "100", 99.94: "99.9"},
}
"""Form -> figures on both sides of where it changes its digits or its unit."""


@pytest.mark.parametrize("form", AS_TEXT)
def test_a_form_changes_its_digits_and_unit_where_it_says(form: str) -> None:
    assert set(AS_TEXT) == set(FORMS)
    assert {value: format(Estimate(value), form) for value in AS_TEXT[form]} == AS_TEXT[form]


def test_ratios_of_figures_add_the_halves_of_their_intervals_in_quadrature() -> None:
    one, other = Estimate(6.0, 4.0, 9.0, frozenset("a")), Estimate(2.0, 1.0, 4.0, frozenset("b"))
    ratio = one / other
    half = math.exp(math.hypot(math.log(1.5), math.log(2)))
    assert (ratio.value, ratio.low, ratio.high) == pytest.approx((3.0, 3 / half, 3 * half))
    assert ratio.keys == {"a", "b"} and ratio.known
    assert not Estimate(1.0, 0.1, 1.0).is_too_few and Estimate(1.0, 0.1, 1.01).is_too_few
    assert not Estimate(1.0, -0.1, 9.0).is_too_few and not Estimate(1.0).is_too_few


@given(st.floats(1e-6, 1e12), st.sampled_from(sorted(FORMS)))
def test_what_is_written_is_near_what_was_measured(value: float, form: str) -> None:
    """The digits shown, in their unit, differ from the figure by less than 6%, or by half of the
    last digit.
    """
    text = format(Estimate(value), form).replace(",", "")
    digits = float(re.match(r"[\d.e+-]+", text)[0])  # type: ignore[index]
    factor = {"%": 100, "ms": 1e3, "µs": 1e6, "GB/s": 1e-9}.get(
        text.split()[-1].lstrip("0123456789.e+-"), 1
    )
    factor *= {"K": 1e-3, "M": 1e-6}.get(
        text.split()[1] if form == "rate" and " " in text else "", 1
    )
    factor *= (
        {"KiB": 2**-10, "MiB": 2**-20, "GiB": 2**-30}.get(text.split()[-1], 1)
        if form == "bytes"
        else 1
    )
    decimals = len(text.split()[0].rstrip("%").partition(".")[2])
    assert abs(digits - value * factor) <= max(0.06 * value * factor, 0.51 * 10**-decimals)


def test_an_estimate_comes_with_its_records_and_compares_by_its_whole_interval() -> None:
    pairs = versus(POINTS, where(POINTS, placement="ddp"))
    fields = {"workload": "nmt", "placement": "exp4", "devices": 8}
    row = one(pairs, **fields)
    found = estimate(pairs, **fields)
    assert (found.value, found.low, found.high) == (
        row["ratio"],
        row["ratio_low"],
        row["ratio_high"],
    )
    assert (
        found.keys == set(row["keys"].split(", "))
        and estimate(row, "rate").unit == "words/s"
        and f"{estimate(0.5):percent}" == "50%"
    )
    refused(
        "speedup_best",
        estimate,
        scaling(points(frame_of([make_record(devices=2)]))).iloc[0],
        "speedup_best",
        error=Missing,
    )
    gain, ratio = Estimate(1.9, 1.8, 2.0), Estimate(0.4, 0.35, 0.45, frozenset({"a"}))
    assert (
        1.7 < gain < 2.1
        and not gain > 1.85
        and not gain < Estimate(2.1, 1.95, 2.3)
        and Estimate(1.0, 0.9, 1.1) < gain
    )
    assert not Estimate(3.0) > 1 and not Estimate(3.0) < 9, (
        "a single run has no interval to compare"
    )
    assert gain / 2 == Estimate(0.95, 0.9, 1.0) and 1 - ratio == Estimate(
        0.6, 0.55, 0.65, frozenset({"a"})
    )
    assert (1 / ratio).low == pytest.approx(1 / 0.45) and (1 / ratio).keys == ratio.keys
    refused("no form of a figure", format, gain, "percents")


def test_what_is_not_true_is_left_out_and_stops_what_is_published(monkeypatch) -> None:
    shown: list[str] = []
    monkeypatch.setattr(prose, "display", lambda markdown: shown.append(markdown.data))
    space = {
        "say": say,
        "require": require,
        "one": one,
        "points": POINTS,
        "finding": finding,
        "show": prose.show,
        "linked": prose.linked,
    }
    first = "say(f'Said {1}.')\nrequire(float('nan') > 0, 'nothing is nothing')\nx = 1"
    for cell in (first, "one(points, placement='unheard')", "say(f'{x}')"):
        exec(compile(prose.EachCell().visit(ast.parse(cell)), "cell", "exec"), space)
    assert [line.partition(":")[0] for line in shown] == ["Said 1.", *["*Left out here"] * 3]
    assert (
        "nothing is nothing" in shown[1]
        and "placement=unheard" in shown[2]
        and "rests on" in shown[3]
    )
    figure = Estimate(2.0, 1.0, 3.0, frozenset({"abcdef0123456789"}), "words/s")
    space["figure"] = figure
    cell = "say(f'{figure:rate} and {2:>2}')"
    figures = {True: "[2 words/s](20-explorer.html#key=abcdef012)", False: "2 words/s"}
    for explorer, said in figures.items():
        exec(compile(prose.EachCell(explorer).visit(ast.parse(cell)), "cell", "exec"), space)
        assert shown[-1] == f"{said} and  2", "it leads to its point, where there is an explorer"
    monkeypatch.setenv(paths.PUBLISH, "1")
    with pytest.raises(NotTrue, match="two is one"), finding():
        require(2 == 1, "two is one")
    with pytest.raises(Missing), finding():
        one(POINTS, placement="unheard")


def test_a_table_names_its_columns_and_says_what_is_missing() -> None:
    html = table(
        where(POINTS, workload="nmt"),
        "placement | rate | over = {n} of {n:number} | n",
        by="devices",
    ).html
    assert (
        html.count("<tr>") == 1 + len(where(POINTS, workload="nmt"))
        and html.count("rowgroup") >= POINTS["devices"].nunique()
    )
    assert "Exp4" in html and re.search(r"\d [MK]<wbr> \([\d.]+ to [\d.]+ [MK]\)", html)
    for heading in ("placement", "words/s", "over", "n"):
        assert re.search(f"<th[^>]*>{heading}</th>", html), (
            "the usual heading, or the one that is given"
        )
    assert (
        ">–<"
        in table(
            where(POINTS, placement="exp2", devices=8, batch_size=256), "speed = rate:rate"
        ).html
    )
    refused(".", table, where(POINTS, placement="nothing"), "rate", error=Missing)
    refused("no column 'rat'", table, POINTS, "placement | rat:rate")
    refused("'rates' is no form", table, POINTS, "rate:rates")


def test_sources_list_every_record_of_what_was_written_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    written: set[str] = set()
    for module in ("estimate", "show"):
        monkeypatch.setattr(f"multigpu.analysis.{module}.WRITTEN", written)
    nmt, cnn = (where(POINTS, workload=name) for name in ("nmt", "cnn"))
    assert sources().html == "<p>No Record.</p>"
    assert "images/s" in f"{estimate(cnn.iloc[0], 'rate'):rate}"
    assert "<code>ddp</code> &lt; 2" in table(cnn.iloc[1:2], "rate", note="`ddp` < 2").html
    html = sources(nmt).html
    keys = {key for own in [*nmt["keys"], *cnn["keys"].iloc[:2]] for key in own.split(", ")}
    assert f"page: {len(keys)}<" in html and all(
        html.count(f"<code>{key}</code>") == 1 for key in keys
    )


def test_a_link_to_the_explorer_names_the_machines_of_its_rows(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    here, there = (POINTS.head(1).assign(machine=name) for name in ("here", "there"))
    key = here["keys"].iloc[0].split(", ")[0][:9]
    assert f'explorer.html#key={key}"' in table(here, "rate", link="devices=2").html, "its point"
    base = here.assign(base_keys=POINTS["keys"].iloc[1])
    assert of_machines("devices=2", base) == f"key={key}|{POINTS['keys'].iloc[1][:9]}"
    here, there, base = (one.drop(columns="keys") for one in (here, there, base))
    both = dots(pd.concat([here, there]), "rate", "placement", "A finding", "", link="devices=2")
    assert both.link == "devices=2&machine=here|there", "without keys, as the page says"
    assert (
        of_machines("machine=elsewhere", here) == "machine=elsewhere"
        and of_machines("", here) == ""
    )
    monkeypatch.setattr("multigpu.analysis.show.PAGE_MACHINE", ["page"])
    assert of_machines("devices=2", here.drop(columns="machine")) == "devices=2&machine=page"


ROWS, WORDS = where(POINTS, workload="nmt", devices=8), {"title": "A finding", "caption": "n = 5"}
DRAWN = {
    "dots": lambda: dots(ROWS, "speedup_best", "placement", line_at=8, **WORDS),
    "lines": lambda: lines(
        where(POINTS, workload="nmt"), "devices", "speedup_best", ideal="x", **WORDS
    ),
    "bars": lambda: bars(ROWS, "rate", "placement", **WORDS),
    "timeline": lambda: timeline(
        ROWS.assign(compute_s=0.01, communication_s=0.002), "placement", **WORDS
    ),
}


@pytest.mark.parametrize("kind", DRAWN)
def test_a_plot_holds_its_words_its_data_and_the_placements_colours(kind: str, tmp_path) -> None:
    picture = DRAWN[kind]()
    html = save(picture, "planted", folder=tmp_path).html
    saved = {file: file.read_bytes() for file in tmp_path.iterdir()}
    assert "A finding" in html and "n = 5" in html and "<svg" in html and "download=" in html
    assert all(
        look(name).label in html and (kind == "timeline" or look(name).colour in html)
        for name in ROWS["placement"]
    )
    data = pd.read_csv(tmp_path / "planted.csv")
    assert set(data["placement"]) == set(POINTS["placement"]) and "keys" in data
    assert save(DRAWN[kind](), "planted", folder=tmp_path).html == html, (
        "equal figures are equal text"
    )
    assert {file: file.read_bytes() for file in tmp_path.iterdir()} == saved and len(saved) == 2
    assert read_on_a_telephone(picture) and html.count("<svg") == 2


def test_a_single_run_is_hollow_and_nothing_to_draw_is_said() -> None:
    single = points(frame_of([make_record("ddp", 2), make_record("exp4", 2)]))
    drawn = dots(single, "rate", "placement", "Single runs", "", form="rate")
    assert all(
        line.get_markerfacecolor() == "none"
        for line in drawn.axes[0].get_lines()
        if line.get_marker() not in ("None", None, "")
    )
    refused(
        ".", dots, where(single, placement="exp2"), "rate", "placement", "None", "", error=Missing
    )
    many = pd.concat([POINTS.assign(model=f"m{i}") for i in range(9)])
    refused(
        "at most 7",
        lines,
        where(many, placement="ddp", workload="nmt"),
        "devices",
        "rate",
        "Too many",
        "",
        hue="model",
    )


@pytest.fixture(scope="module")
def drawn() -> Picture:
    rows = pd.DataFrame(
        {
            "placement": ["ddp", "exp2"],
            "rate": [10.0, 4.0],
            "rate_low": [9.0, 3.0],
            "rate_high": [11.0, 5.0],
        }
    )
    return dots(rows, "rate", "placement", "The host costs", "Words per second; n = 5.")


def test_what_a_page_shows_is_self_contained_and_a_saved_drawing_takes_the_ink_of_its_page(
    drawn: Picture, tmp_path: Path
) -> None:
    html = save(drawn, "rates", folder=tmp_path).html
    svg = (tmp_path / "rates.svg").read_text()
    assert (
        "currentColor" in svg
        and "#1a1b1c" not in svg
        and "<metadata" not in svg
        and "prefers-color-scheme:dark" in svg
    )
    assert pd.read_csv(tmp_path / "rates.csv")["rate"].max() == 10
    assert (
        'role="img" aria-label="The host costs: ddp 10; Exp2 4"' in html
        and "<figcaption>Words per second" in html
        and 'download="rates.csv"' in html
    )
    assert [
        link
        for link in re.findall(r'(?:href|src)="([^"]*)"', html)
        if not link.startswith(("#", "data:"))
    ] == []
    assert "\n\n" not in html
    assert all(name.startswith("rates") for name in re.findall(r'\bid="([^"]*)"', html))
    # a style inside an SVG that stands in a page would reach the whole page
    for sheet in re.findall(r"<style[^>]*>(.*?)</style>", html, flags=re.DOTALL):
        for rule in re.findall(r"([^{}]+)\{", re.sub(r"@container [^{]*\{", "", sheet)):
            assert (
                rule.strip().startswith(("#rates-figure_1 ", "#rates-narrow-", "#rates-drawing"))
                and "," not in rule
            )


@pytest.mark.parametrize(
    ("name", "folder"), [("../escape", ""), ("", ""), ("a b", ""), ("1st", ""), ("bytes", "file")]
)
def test_a_figure_needs_a_plain_name_and_a_folder(
    drawn: Picture, tmp_path: Path, name: str, folder: str
) -> None:
    (tmp_path / "file").write_text("")
    refused(
        "cannot be written" if folder else "is no name for a figure",
        save,
        drawn,
        name,
        folder=tmp_path / folder,
    )


def test_a_drawing_keeps_its_words_and_no_count_touches_the_one_before() -> None:
    with mpl.rc_context(RC):
        picture = Picture(4, 3)
        axes = picture.add_subplot()
        axes.plot([2, 16, 32], [0.123456, 1, 0.5], marker="o")
        axes.set_title("A title of 0.123456")
        counts(axes, [2, 16, 17, 32])
    assert list(axes.get_xticks()) == [2, 16, 32]
    root = ElementTree.fromstring(svg_text(picture, "drawn"))
    names = {element.get("id") for element in root.iter() if element.get("id")}
    referred = {
        value[1:]
        for element in root.iter()
        for name, value in element.items()
        if name.endswith("href")
    }
    assert referred and referred <= names
    assert "A title of 0.123456" in [
        element.text for element in root.iter("{http://www.w3.org/2000/svg}text")
    ]
    lines = [element.get("d", "") for element in root.iter("{http://www.w3.org/2000/svg}path")]
    assert lines and not any(re.search(r"\.\d{3}", line) for line in lines)


LIGHT, DARK = "#ffffff", "#121212"


def luminance(colour):
    channels = np.array([int(colour[i : i + 2], 16) for i in (1, 3, 5)]) / 255
    linear = np.where(channels <= 0.04045, channels / 12.92, ((channels + 0.055) / 1.055) ** 2.4)
    return float(linear @ [0.2126, 0.7152, 0.0722])


def contrast(a, b):
    low, high = sorted([luminance(a), luminance(b)])
    return (high + 0.05) / (low + 0.05)


def test_placements_stand_out_on_light_and_dark_by_colours_and_markers_of_their_own_in_one_order():
    assert all(
        contrast(colour, page) >= 3 for colour in (*PALETTE, *OTHERS) for page in (LIGHT, DARK)
    )
    looks = [look(name) for name in placements()]
    assert len({x.colour for x in looks}) == len({x.marker for x in looks}) == len(looks)
    assert not {x.colour for x in looks} & set(OTHERS)
    assert look("ps_of_tomorrow").label == "ps_of_tomorrow"
    assert in_order(["exp1", "zzz", "exp2", "ddp", "independent", "ddp"]) == [
        "independent",
        "ddp",
        "exp2",
        "exp1",
        "zzz",
    ]


def test_perfect_scaling_is_perfect_between_its_ends_on_a_logarithmic_axis() -> None:
    """A straight line on the screen from (1, 1) to (8, 8) would pass 3.3 at two GPUs."""
    rows = pd.DataFrame({"devices": [1, 2, 4, 8], "speedup": [1.0, 1.9, 3.6, 6.0], "name": "ddp"})
    words = {"title": "Finding", "caption": "A caption.", "xlabel": "GPUs"}
    picture = lines(rows, "devices", "speedup", hue="name", ideal="x", **words)
    axes = picture.axes[0]
    assert axes.get_xscale() == "log"
    (perfect,) = [line for line in axes.lines if len(line.get_xdata()) > len(rows)]
    assert np.interp([2, 4], perfect.get_xdata(), perfect.get_ydata()) == pytest.approx([2, 4])


def of_tokens(**fields: Any) -> pd.Series:
    """A point of GPT-2 on one H200 in bf16."""
    row = {"workload": "gpt", "model": "gpt2_124m", "unit": "tokens", "gpu": "NVIDIA H200"}
    row |= {"precision": "bf16", "devices": 1, "sequence_length": pd.NA, "keys": "a"}
    return pd.Series(row | {"rate": 488e3, "rate_low": 480e3, "rate_high": 496e3} | fields)


def test_rates_of_tokens_say_their_mfu_and_of_which_peak() -> None:
    # 6 x 124,475,904 + 12 x 12 x 768 x 1,024 = 860,101,632 operations a token
    row = of_tokens()
    assert mfu_of(row) == pytest.approx(488e3 * 860_101_632 / 989e12)
    said = "MFU 0.42 of 989 TFLOP/s"
    assert f"{estimate(row, 'rate'):rate}" == f"488 K tokens/s, {said}"
    assert f"{estimate(row, 'rate'):rate interval}" == f"488 K tokens/s (480 to 496 K), {said}"
    assert said in str(table(row.to_frame().T, "rate")) and "MFU" not in f"{estimate(row, 'rate')}"
    assert "MFU 0.21" in f"{estimate(of_tokens(devices=2), 'rate'):rate}"
    # attention over 256 tokens instead of 1,024: 113,246,208 operations become a quarter
    short = mfu_of(of_tokens(sequence_length=256)) / mfu_of(row)
    assert short == pytest.approx(1 - 0.75 * 113_246_208 / 860_101_632)


@pytest.mark.parametrize(
    "unknown",
    [
        {"gpu": "NVIDIA A100-SXM4-80GB"},
        {"gpu": ""},
        {"precision": "tf32"},
        {"unit": "words", "workload": "nmt", "model": "nmt000"},
    ],
)
def test_no_mfu_is_said_where_no_peak_is_known(unknown: dict[str, str]) -> None:
    row = of_tokens(**unknown)
    assert math.isnan(mfu_of(row)) and "MFU" not in f"{estimate(row, 'rate'):rate interval}"


def test_a_row_that_rests_on_several_points_leads_to_each() -> None:
    held = ["a" * 20 + ", " + "b" * 20, "c" * 20, "d" * 20]
    row = pd.DataFrame({"keys": [", ".join(["b" * 20, "c" * 20])]})
    query = points_query(pd.DataFrame({"keys": held}), row)
    assert query == f"key={'a' * 9}|{'c' * 9}"
    assert of_machines(query, row) == query
