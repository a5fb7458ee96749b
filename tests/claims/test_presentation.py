"""Tables and the scoreboard: complete, valid, escaped, readable without colour."""

from __future__ import annotations

import json
import re
from collections import Counter
from html import escape
from xml.etree import ElementTree

import pandas as pd
import pytest

from multigpu import paths
from multigpu.claims import (
    VERDICTS,
    all_claims,
    claims_frame,
    evaluate_all,
    find_claim,
    scoreboard_svg,
    settings_frame,
    tables,
    to_html_table,
    to_json,
    to_markdown_table,
)
from multigpu.claims.results import Setting
from multigpu.claims.scoreboard import LOOKS
from multigpu.claims.tables import SYMBOLS, ours, page_title, tally
from multigpu.claims.wording import figure, figure_of, stated
from tests.claims.cases import CASES
from tests.claims.planted import table

ROWS = CASES["C2"].rows("holds") + CASES["C5"].rows("fails") + CASES["C15"].rows("holds", (1.0,))
SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture(scope="module")
def results():
    return evaluate_all(table(ROWS))


def test_without_records_every_row_is_there():
    empty = evaluate_all(pd.DataFrame())
    assert len(empty) == len(all_claims())
    assert {result.verdict for result in empty} == {"not yet measured", "cannot be tested here"}
    assert all(result.why for result in empty)


def test_claims_frame(results):
    frame = claims_frame(results).set_index("claim")
    assert len(frame) == len(all_claims()) and frame.index.is_unique
    assert list(frame.loc[["C2", "C5", "C15", "C19", "C6"], "verdict"]) == [
        "holds",
        "does not hold",
        "inconclusive",
        "cannot be tested here",
        "not yet measured",
    ]
    assert frame.loc["C2", "torch"] == "words/s of Exp2 over Exp4: 0.820x at 8 GPUs (95% 0.816-0.824), n = 5 over 2 launches"
    assert frame.loc["C2", "tensorflow"] == "–"
    assert len(frame.loc["C2", "record_keys"].split()) == 10
    assert frame.loc["C2", "test"].startswith("Test: words/s of Exp2 over Exp4 at most 0.93x. ")
    assert len(frame.loc["C2", "predicate"]) == 16


def test_an_interval_that_says_nothing_is_not_shown():
    """Bounds more than a hundredfold apart come of two launches that differ."""
    contrast = find_claim("C2").predicate.contrasts[0]
    setting = Setting(
        framework="torch",
        contrast=contrast.label,
        fields={"device_type": "cuda"},
        devices=8,
        estimate=1.5,
        low=0.9,
        high=2.5,
        n=5,
        launches=2,
        enough=True,
        verdict="inconclusive",
        text="",
        record_keys=(),
    )
    wide = setting.model_copy(update={"low": 0.01, "high": 300.0})
    assert figure_of(setting, contrast) == "1.50x at 8 GPUs (95% 0.90-2.50), n = 5 over 2 launches"
    assert figure_of(wide, contrast) == "1.50x at 8 GPUs (launches differ too much for an interval), n = 5 over 2 launches"
    many = [setting.model_copy(update={"fields": {"device_type": "cuda", "batch_size": batch}}) for batch in range(9)]
    assert "(95% intervals from 0.90 to 2.50) in 9 settings" in figure(many, contrast)
    said = figure([*many, wide], contrast)
    assert "from 0.90 to 2.50, in 1 setting launches differ too much for one) in 10 settings" in said


def test_settings_frame(results):
    frame = settings_frame(results)
    (row,) = frame[frame.claim == "C2"].to_dict("records")
    assert row["estimate"] == pytest.approx(0.82) and row["n"] == 5 and row["launches"] == 2 and row["enough"]
    (screening,) = frame[frame.claim == "C15"].to_dict("records")
    assert not screening["enough"] and pd.isna(screening["low"])


def test_json_says_everything_and_no_nan(results):
    items = json.loads(to_json(results), parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))
    assert len(items) == len(all_claims())
    second = items[1]
    assert second["claim"]["number"] == "C2" and second["verdict"] == "holds"
    assert second["by_framework"]["torch"]["record_keys"] == second["record_keys"]
    assert second["predicate_digest"] == find_claim("C2").predicate.digest


def test_markdown(results):
    lines = to_markdown_table(results).splitlines()
    assert len(lines) == len(all_claims()) + 2
    assert {line.count(" | ") for line in lines if not line.startswith("|--")} == {7}
    assert "✓ holds" in lines[3]


def told(cell: ElementTree.Element) -> str:
    """A cell's text without blanks and without the words that open what is folded."""
    for parent in list(cell.iter()):
        for summary in parent.findall("summary"):
            summary.text = ""
    return "".join(cell.itertext()).replace(" ", "")


def test_html(results):
    root = ElementTree.fromstring(to_html_table(results))
    rows = root.findall("tbody/tr")
    assert [row.get("id") for row in rows] == [claim.number for claim in all_claims()]
    assert {len(row) for row in rows} == {5}
    for row, result in zip(rows, results, strict=True):
        cell = row[3]
        assert cell.get("class") == "verdict-" + result.verdict.replace(" ", "-")
        assert SYMBOLS[result.verdict] in cell[0].text
        assert result.claim.figure in "".join(row[1].itertext())
        figures = [text for name in ("torch", "tensorflow") if (text := ours(result, name)) != "–"]
        assert all(text.replace(" ", "") in told(row[2]) for text in figures) and result.why.replace(" ", "") in told(cell), (
            "nothing is lost"
        )
    assert len(rows[1].findall("td/details/code")) == 10


def test_every_claim_has_the_page_that_shows_it():
    for page in {claim.page for claim in all_claims() if claim.page}:
        assert (paths.REPOSITORY / "notebooks" / f"{page}.ipynb").exists() and page_title(page) != page
    (row,) = re.findall('<tr id="C13">.*', to_html_table(evaluate_all(pd.DataFrame()), "notebooks/"))
    page = next(claim.page for claim in all_claims() if claim.number == "C13")
    assert f'<a href="notebooks/{page}.html">{page_title(page)}</a>' in row


def test_a_long_title_is_cut_at_its_colon_and_told_whole_when_pointed_at(monkeypatch: pytest.MonkeyPatch):
    """A row is as high as its highest cell: a title of 110 letters made every row of a page one of twelve lines."""
    monkeypatch.setattr(tables, "page_title", lambda page: f"Of {page}: what {60 * 'long '}title <says>")
    (row,) = re.findall('<tr id="C44">.*', to_html_table(evaluate_all(pd.DataFrame()), "notebooks/"))
    page = find_claim("C44").page
    whole, short = re.search(f'<a href="notebooks/{page}.html" title="([^"]*)">([^<]*)</a>', row).groups()
    assert whole == escape(f"Of {page}: what {60 * 'long '}title <says>") and short == f"Of {page}"


def test_what_decides_is_not_folded(results):
    """C29's deciding setting and those beside it stand open; of several contrasts, the first one whole."""
    rows = CASES["C29"].rows("fails") + CASES["C29"].rows("holds", (1.0,), batch_size=32)
    (row,) = re.findall('<tr id="C29">.*', to_html_table(evaluate_all(table(rows))))
    open_text = row.split("<details><summary>more")[0]
    assert "batch 64 (95%" in open_text and "1 further setting measured once: 1.13x" in open_text
    (many,) = re.findall('<tr id="C10">.*', to_html_table(evaluate_all(table(CASES["C10"].rows("holds")))))
    shown = many.split("</td>")[1].split("<details>")[0]
    assert "n = 5 over 2 launches;" in shown and "<summary>more" in many
    wordy = to_html_table([results[0].model_copy(update={"why": f"{300 * 'x'}; the rest"})])
    assert f"{300 * 'x'};<details><summary>more</summary>the rest</details>" in wordy, "what is too long by itself still ends somewhere"


def test_a_comparison_of_frameworks_stands_under_both_once():
    (row,) = re.findall('<tr id="C44">.*', to_html_table(evaluate_all(table(CASES["C44"].rows("fails")))))
    assert row.count("n = 5 over 2 launches") == 1 and "<div>PyTorch and TensorFlow: step time in TensorFlow over PyTorch" in row


def test_the_tally_counts_every_verdict(results):
    text = "".join(ElementTree.fromstring(tally(results)).itertext()).strip()
    counts = Counter(result.verdict for result in results)
    assert text.startswith(f"Of {len(all_claims())} claims ")
    assert [int(number) for number in re.findall(r"\S+ (\d+) ", text.split("claims ")[1])] == [counts[verdict] for verdict in VERDICTS]


def test_how_it_is_measured_is_said_where_it_is_not_as_usual(results):
    """C41's figure has no unit: what it is stands in its protocol."""
    said = {result.claim.number: tables.tested(result) for result in results}
    assert "Ljung and Box's Q over 20 lags, divided by 20" in said["C41"]
    assert "Warm-up left out; units over host time" not in said["C2"]


def test_the_page_of_claims_names_every_document():
    page = (paths.REPOSITORY / "report" / "claims.md").read_text()
    assert all(f"**{document}**" in page for claim in all_claims() for document in claim.documents)


def test_text_is_escaped(results):
    planted = results[0].claim.model_copy(update={"sentence": "<script>&", "figure": "a | b"})
    changed = [results[0].model_copy(update={"claim": planted, "why": "<b>"})]
    assert "<script>" not in to_html_table(changed) and "&lt;script&gt;&amp;" in to_html_table(changed)
    assert "a \\| b" in to_markdown_table(changed)
    assert "&lt;script&gt;" in scoreboard_svg(changed)


@pytest.mark.parametrize("columns", [4, 8, 16])
def test_scoreboard(results, columns):
    text = scoreboard_svg(results, columns=columns)
    root = ElementTree.fromstring(text)
    cells = [group for group in root.findall(f"{SVG}g") if "claim" in (group.get("class") or "").split()]
    assert {cell.find(f"{SVG}text").text for cell in cells} == {claim.number for claim in all_claims()}
    assert len(cells) == len(all_claims())
    width, height = (float(root.get(side)) for side in ("width", "height"))
    for box in root.iter(f"{SVG}rect"):
        assert 0 <= float(box.get("x")) <= width - float(box.get("width"))
        assert 0 <= float(box.get("y")) <= height - float(box.get("height"))
    title = root.find(f"{SVG}title").text
    assert title.startswith(f"Scoreboard of {len(all_claims())} claims: 1 holds, 0 holds here only,")
    assert root.get("role") == "img" and root.get("aria-labelledby")
    assert not re.search(r"https?://(?!www\.w3\.org/2000/svg)|<image|url\(", text)


def test_every_verdict_has_its_own_sign_and_look():
    assert set(SYMBOLS) == set(LOOKS) == set(VERDICTS)
    assert len(set(SYMBOLS.values())) == len({path for *_, path in LOOKS.values()}) == len(VERDICTS)


def test_filled_colours_differ_in_lightness():
    def luminance(colour: str) -> float:
        parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
        linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    def contrast(a: str, b: str) -> float:
        low, high = sorted((luminance(a), luminance(b)))
        return (high + 0.05) / (low + 0.05)

    filled = [look for look in LOOKS.values() if look[0] != "none"]
    assert all(contrast(fill, ink) >= 4.5 for fill, _, ink, _ in filled)
    fills = [fill for fill, *_ in filled]
    assert all(contrast(a, b) >= 1.6 for i, a in enumerate(fills) for b in fills[i + 1 :])


def test_a_test_in_words():
    equal = find_claim("C14").predicate.contrasts[0]
    assert stated(equal) == "speedup at batch 64 over that at batch 32 within 0.95x to 1.05x"
