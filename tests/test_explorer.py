"""The explorer carries every point, and its script finds them, opens their Records and says how to measure them again; a chart that a
reader moves is whole in the page, with its data, and fetches nothing.
"""

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
from multigpu.analysis.fields import POINT
from multigpu.analysis.frame import frame_of
from multigpu.analysis.points import points
from multigpu.collectives.record import CollectiveStore
from multigpu.explorer import encoded, explorable, explorer, records_held
from multigpu.record import Record, RecordStore
from multigpu.training.record import TrainingStore
from tests.refusals import refused

CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")
needs_browser = pytest.mark.skipif(CHROMIUM is None, reason="no browser here")


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Some committed Records as a folder of loose ones; figures are written beside it."""
    monkeypatch.setattr(paths, "figures", lambda: tmp_path / "figures")
    store = RecordStore(tmp_path / "data" / "runs")
    for record in list(RecordStore(paths.RUNS))[::400]:
        store.write(record)
    return store.root


def some_points(runs: Path) -> pd.DataFrame:
    records: list[Record] = list(RecordStore(runs))
    return points(frame_of(records))


def test_every_field_of_every_point_comes_back(runs: Path) -> None:
    table = some_points(runs)
    data = encoded(table, runs.parent)
    assert data["rows"] == len(table) > 5
    for name in POINT:
        column = data["columns"][name]
        texts = [column["values"][column["at"][row] if "at" in column else 0] for row in range(len(table))]
        wanted = ["" if pd.isna(one) else str(one).lower() if isinstance(one, bool) else str(one) for one in table[name].tolist()]
        assert texts == wanted, name
    assert data["columns"]["rate"]["numbers"] == pytest.approx([None if pd.isna(one) else one for one in table["rate"]], rel=1e-4)
    for row, keys in enumerate(table["keys"]):
        for record, key in zip(data["records"][row], keys.split(", "), strict=True):
            assert record.split()[0] == key
            assert re.fullmatch(rf"{key}\.\d\.json\.gz", Path(data["files"][int(record.split()[1])]).name), "its latest attempt"


def test_a_packed_record_is_named_by_its_archive_and_member() -> None:
    record = next(iter(RecordStore(paths.RUNS)))
    held = records_held(paths.RUNS)[record.machine.name, record.key]
    assert held.attempt == record.attempt and held.path.exists()
    data = encoded(points(frame_of([record])), paths.DATA)
    place = data["records"][0][0].split()
    assert paths.REPOSITORY / data["files"][int(place[1])] == held.path and place[2:] == ([f".{held.attempt}.json"] if held.packed else [])
    shown = {place.split()[0] for *_, place in data["others"]}
    for store in (CollectiveStore(paths.DATA / "collectives"), TrainingStore(paths.DATA / "training")):
        assert shown >= {one.key for one in store}


def test_without_points_it_says_so(tmp_path: Path) -> None:
    assert "no point yet" in explorer(points(frame_of([])), tmp_path, "").html


def opened(tmp_path: Path, shown: str, query: str) -> str:
    """The text of the explorer's table in a browser, at this hash."""
    (tmp_path / "_static").mkdir(exist_ok=True)
    shutil.copy(paths.REPOSITORY / "report" / "_static" / "explorer.js", tmp_path / "_static")
    page = tmp_path / "page.html"
    page.write_text(f"<!doctype html><meta charset=utf-8><body>{shown}</body>", encoding="utf-8")
    command = [str(CHROMIUM), "--headless", "--no-sandbox", "--disable-gpu", "--virtual-time-budget=2000", "--dump-dom"]
    found = subprocess.run([*command, f"{page.as_uri()}#{query}"], capture_output=True, text=True, timeout=100, check=True).stdout
    (tmp_path / "dom.html").write_text(found)
    body = found[found.index("<tbody>") : found.index("</tbody>")]
    return html.unescape(re.sub(r"<[^>]+>", "\n", body))


@needs_browser
def test_a_link_to_a_record_opens_its_point_and_its_command(runs: Path, tmp_path: Path) -> None:
    table = some_points(runs)
    shown = explorer(table, runs, "https://example.org/tree/main/").html
    key = table["keys"][3].split(", ")[0]
    record = next(one for one in RecordStore(runs) if one.key == key)
    text = opened(tmp_path, shown, f"key={key}")
    command = re.search(r"python -m multigpu measure (.*)", text)
    assert command is not None
    fields = dict(word.split("=", 1) for word in command[1].split())
    wanted = record.run.model_dump(exclude_defaults=True) | {"device_type": record.run.device_type}
    assert {name: str(value) for name, value in wanted.items()} == {name: value.replace("true", "True") for name, value in fields.items()}
    assert text.count(key) >= 1 and len(pd.read_csv(tmp_path / "figures" / "explorer.csv")) == len(table)


@needs_browser
def test_a_link_to_a_record_of_no_point_leads_to_its_file(runs: Path, tmp_path: Path) -> None:
    store = CollectiveStore(runs.parent / "collectives")
    record = next(iter(CollectiveStore(paths.DATA / "collectives")))
    file = store.write(record)
    opened(tmp_path, explorer(some_points(runs), runs, "..").html, f"key={record.key}")
    told = (tmp_path / "dom.html").read_text()
    assert f'href="../{file.as_posix()}"' in told and f"method={record.run.method}" in told and "what follows has" in told


@needs_browser
def test_a_link_chooses_rows(runs: Path, tmp_path: Path) -> None:
    table = some_points(runs)
    model = table["model"].value_counts().index[0]
    text = opened(tmp_path, explorer(table, runs, "").html, f"model={model}")
    others = set(table["model"]) - {model}
    assert text.splitlines().count(model) == table["model"].eq(model).sum()
    assert others and not others & set(text.splitlines())
    assert "No point" in opened(tmp_path, explorer(table, runs, "").html, "model=none_such")


DATA = pd.DataFrame({"x": [1, 2, 3], "y": [0.5, 0.25, 1 / 3], "name": ["a", "b", "</script>"]})


def test_everything_is_in_the_page() -> None:
    chosen = alt.param(name="K", value=1, bind=alt.binding_range(min=1, max=3, step=1))
    html = explorable(alt.Chart(DATA).mark_bar().encode(x="x", y="y").add_params(chosen), "bars", "A < B", "n = 1", DATA).html
    spec, options = (json.loads(text) for text in re.search(r'vegaEmbed\("#bars-chart", (\{.*\}), (\{[^{}]*\})\)', html).groups())  # type: ignore[union-attr]
    assert [row["y"] for row in next(iter(spec["datasets"].values()))] == DATA["y"].tolist() and options["actions"] is False
    assert spec["params"][0]["bind"]["max"] == 3 and 'id="bars-chart"' in html and "A &lt; B" in html
    outside = re.sub(r"<script>.*?</script>", "", html, flags=re.DOTALL)
    assert not re.search(r"<(script|link|img)", outside) and "import(" not in html, "nothing is fetched"
    assert html.count("<script>") == html.count("</script>") == 1, "data cannot end the script"
    csv = base64.b64decode(re.search(r"base64,([^\"]*)", html)[1]).decode()  # type: ignore[index]
    assert csv.splitlines()[0] == "x,y,name" and len(csv.splitlines()) == 4


def test_a_name_that_is_no_id_is_refused() -> None:
    refused("'a b' is no name for a chart", explorable, alt.Chart(DATA).mark_bar(), "a b", "", "", DATA)
