"""The explorer carries every point and finds its Records; a chart needs nothing from elsewhere."""

import base64
import html
import json
import re
import shutil
import subprocess
from pathlib import Path

import altair as alt
import pandas as pd
import pytest

from multigpu import paths
from multigpu.analysis import show
from multigpu.analysis.fields import POINT
from multigpu.analysis.frame import frame_of
from multigpu.analysis.points import points
from multigpu.records.collective import CollectiveStore
from multigpu.records.record import RecordStore
from multigpu_study.report.explorer import choosing, encoded, explorable, explorer, records_held
from tests.factory import make_record, plant
from tests.refusals import refused


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Some committed Records as a folder of loose ones; figures are written beside it."""
    monkeypatch.setattr(paths, "figures", lambda: tmp_path / "figures")
    store = RecordStore(tmp_path / "data" / "runs")
    for record in list(RecordStore(paths.RUNS))[::400]:
        store.write(record)
    return store.root


@pytest.fixture
def table(runs: Path) -> pd.DataFrame:
    return points(frame_of(list(RecordStore(runs))))


def test_every_field_of_every_point_comes_back(runs: Path, table: pd.DataFrame) -> None:
    assert "no point yet" in explorer(points(frame_of([])), runs, "").html
    data = encoded(table, runs.parent)
    assert data["rows"] == len(table) > 5
    for name in POINT:
        column = data["columns"][name]
        texts = [
            column["values"][column["at"][row] if "at" in column else 0]
            for row in range(len(table))
        ]
        wanted = [
            "" if pd.isna(one) else str(one).lower() if isinstance(one, bool) else str(one)
            for one in table[name].tolist()
        ]
        assert texts == wanted, name
    assert data["columns"]["rate"]["numbers"] == pytest.approx(
        [None if pd.isna(one) else one for one in table["rate"]], rel=1e-4
    )
    for row, keys in enumerate(table["keys"]):
        for record, key in zip(data["records"][row], keys.split(", "), strict=True):
            assert record.split()[0] == key
            assert re.fullmatch(
                rf"{key}\.\d\.json\.gz", Path(data["files"][int(record.split()[1])]).name
            ), "its latest attempt"


def test_the_explorer_knows_the_mfu_of_tokens_alone() -> None:
    words, tokens = make_record(), make_record(workload="gpt", units_per_s=976e3)
    assert "mfu" not in encoded(points(frame_of([words])), paths.DATA)["columns"]
    data = encoded(points(frame_of([words, tokens])), paths.DATA)
    known = data["columns"]["mfu"]["numbers"]
    assert known[0] is None and known[1] == pytest.approx(488e3 * 860_101_632 / 989e12, rel=1e-4)


def test_a_packed_record_is_named_by_its_archive_and_member() -> None:
    record = next(iter(RecordStore(paths.RUNS)))
    held = records_held(paths.RUNS)[record.machine.name, record.key]
    assert held.attempt == record.attempt and held.path.exists()
    data = encoded(points(frame_of([record])), paths.DATA)
    place = data["records"][0][0].split()
    assert paths.REPOSITORY / data["files"][int(place[1])] == held.path and place[2:] == (
        [f".{held.attempt}.json"] if held.packed else []
    )


@pytest.mark.skipif(
    not (CHROMIUM := shutil.which("chromium") or shutil.which("google-chrome")),
    reason="no browser here",
)
def test_a_link_leads_to_rows_or_a_record_and_its_command(
    runs: Path, table: pd.DataFrame, tmp_path: Path
) -> None:
    store = CollectiveStore(runs.parent / "collectives")
    alone = next(iter(CollectiveStore(paths.DATA / "collectives")))
    file = store.write(alone)
    page, shown = tmp_path / "page.html", explorer(table, runs, "..").html
    page.write_text(f"<!doctype html><meta charset=utf-8><body>{shown}</body>", encoding="utf-8")
    (tmp_path / "_static").mkdir()
    shutil.copy(paths.REPOSITORY / "report" / "_static" / "explorer.js", tmp_path / "_static")

    def opened(query: str) -> tuple[str, str]:
        """What a browser makes of the page at this hash, and the text of the explorer's table."""
        command = [str(CHROMIUM), "--headless", "--no-sandbox", "--disable-gpu", "--dump-dom"]
        found = subprocess.run(
            [*command, "--virtual-time-budget=2000", f"{page.as_uri()}#{query}"],
            capture_output=True,
            text=True,
            timeout=100,
            check=True,
        ).stdout
        return found, html.unescape(
            re.sub(r"<[^>]+>", "\n", found[found.index("<tbody>") : found.index("</tbody>")])
        )

    key = table["keys"][3].split(", ")[0]
    run = next(one for one in RecordStore(runs) if one.key == key).run
    told = re.findall(r"python -m multigpu measure (.*)", opened(f"key={key}")[1])
    fields = dict(word.split("=", 1) for word in told[0].split())
    wanted = run.model_dump(exclude_defaults=True) | {"device_type": run.device_type}
    assert {name: str(value) for name, value in wanted.items()} == {
        name: value.replace("true", "True") for name, value in fields.items()
    }
    assert len(pd.read_csv(tmp_path / "figures" / "explorer.csv")) == len(table)
    whole, _ = opened(f"key={alone.key}")
    assert (
        f'href="../{file.as_posix()}"' in whole
        and f"method={alone.run.method}" in whole
        and "what follows has" in whole
    )
    model = table["model"].value_counts().index[0]
    lines, others = opened(f"model={model}")[1].splitlines(), set(table["model"]) - {model}
    assert (
        lines.count(model) == table["model"].eq(model).sum() and others and not others & set(lines)
    )
    assert "No point" in opened("model=none_such")[1]


DATA = pd.DataFrame({"x": [1, 2, 3], "y": [0.5, 0.25, 1 / 3], "name": ["a", "b", "</script>"]})


def test_everything_is_in_the_page() -> None:
    chart = choosing(DATA, name=("of", "all", "all"), x=("at", 2)).mark_bar().encode(x="x", y="y")
    html = explorable(chart, "bars", "A < B", "n = 1", DATA, link="model=a&devices=2").html
    spec, options = (
        json.loads(text)
        for text in re.search(r'vegaEmbed\("#bars-chart", (\{.*\}), (\{[^{}]*\})\)', html).groups()
    )  # type: ignore[union-attr]
    assert [row["y"] for row in next(iter(spec["datasets"].values()))] == DATA[
        "y"
    ].tolist() and options["actions"] is False
    assert [(one["value"], one["bind"]["options"]) for one in spec["params"]] == [
        ("all", ["all", "a", "b", "</script>"]),
        (2, [1, 2, 3]),
    ]
    assert 'id="bars-chart"' in html and "A &lt; B" in html
    assert "20-explorer.html#model=a&amp;devices=2" in html
    outside = re.sub(r"<script>.*?</script>", "", html, flags=re.DOTALL)
    assert not re.search(r"<(script|link|img)", outside) and "import(" not in html, (
        "nothing is fetched"
    )
    assert html.count("<script>") == html.count("</script>") == 2, "data cannot end the script"
    csv = base64.b64decode(re.search(r"base64,([^\"]*)", html)[1]).decode()  # type: ignore[index]
    assert csv.splitlines()[0] == "x,y,name" and len(csv.splitlines()) == 4
    refused(
        "'a b' is no name for a chart", explorable, alt.Chart(DATA).mark_bar(), "a b", "", "", DATA
    )


MARKUP = "<img src=x onerror=alert(1)></script>"


def test_markup_in_a_name_is_text_on_a_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(paths, "figures", lambda: tmp_path / "figures")
    record = make_record()
    store = plant(RecordStore(tmp_path / "data" / "runs"), [record])
    table = points(frame_of([record])).assign(model=MARKUP, placement=MARKUP)
    page = explorer(table, store.root, "..").html
    assert MARKUP not in page and "alert(1)" in page
    assert page.count("</script>") == 2, "of the data, and of the program that reads them"
    rows = pd.DataFrame({"model": [MARKUP], "devices": [1]})
    shown = show.table(rows, "model | devices", title=MARKUP, note=MARKUP).html
    assert "<img" not in shown and shown.count("&lt;img") == 3
