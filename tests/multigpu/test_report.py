"""The report is whole, sends no request and comes out again; its explorer carries every point and
finds its Records.
"""

import contextlib
import io
import math
import re
from pathlib import Path

import nbformat
import pandas as pd
import pytest

from multigpu import paths
from multigpu.report import site as report
from multigpu.report.notebooks import execute_one
from multigpu.report.site import ReportError, build_report, grids_page
from tests.factory import make_record
from tests.further import but
from tests.refusals import refused

SVG = (
    '<svg xmlns="http://www.w3.org/2000/svg" width="10" height="10"><rect width="10"'
    ' height="10"/></svg>'
)
PROGRAM = "let drawn = 1; " * 10_000
STYLES = re.compile(r"""(?:url\(\s*["']?|@import\s+["'])(?:https?:)?//""", re.I)
REQUESTS = (
    re.compile(
        r"<(?:script|img|iframe|source|embed|object)\b[^>]*?\s"
        r"""(?:src|data)\s*=\s*["'](?:https?:)?//""",
        re.I,
    ),
    re.compile(r"""<link\b[^>]*?href\s*=\s*["'](?:https?:)?//""", re.I),
    STYLES,
)
DATE = re.compile(
    rb"\b\d{4}-\d\d-\d\d( \d\d:\d\d)?\b|\b\d{1,2} \w+ 20\d\d\b|\b\w+ \d{1,2}, 20\d\d\b"
)


def executed(path: Path) -> Path:
    """A notebook as papermill leaves it: outputs, progress bars, and paths of this computer in its
    metadata.
    """
    new = nbformat.v4
    kernel = {"name": "python3", "display_name": "Python 3"}
    language = {"name": "python", "pygments_lexer": "ipython3"}
    notebook = new.new_notebook(
        metadata={
            "papermill": {"output_path": str(path)},
            "topic": "Decide",
            "kernelspec": kernel,
            "language_info": language,
        }
    )
    display = new.new_output("display_data", data={"image/svg+xml": SVG, "text/plain": "figure"})
    bar = new.new_output(
        "display_data", data={report.WIDGET: {"model_id": "1"}, "text/plain": "  0%|"}
    )
    table = (
        "<table class='dataframe'><thead><tr><th>GPUs</th></tr></thead>"
        "<tbody><tr><td>8</td></tr></tbody></table>"
        f"<script>before()</script><script>{PROGRAM}</script>"
    )
    notebook.cells = [
        new.new_markdown_cell(
            "# Does it scale?\n\nHow fast are\neight GPUs?\n\nFast: $S = R_N / R_1$."
        ),
        new.new_code_cell(
            'measure = "none"',
            metadata={"tags": ["parameters"], "papermill": {"status": "completed"}},
        ),
        new.new_code_cell(
            "draw()",
            outputs=[new.new_output("stream", name="stderr", text="100%|###|"), bar, display],
        ),
        new.new_code_cell(
            "table()",
            outputs=[new.new_output("display_data", data={"text/html": table, "text/plain": "t"})],
        ),
    ]
    nbformat.write(notebook, path)
    return path


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A report of a front page and one more, with a planted scoreboard; the latter changed after a
    first build.
    """
    folder = tmp_path_factory.mktemp("report")
    (folder / "notebooks").mkdir()
    executed(folder / "notebooks" / "00-front.ipynb")
    page = executed(folder / "notebooks" / "01-scaling.ipynb")
    (folder / "notebooks" / "02-stopped.failed.ipynb").write_text("{}")
    (folder / "figures").mkdir()
    (folder / "figures" / "headline.svg").write_text(SVG)
    (folder / "figures" / "headline.csv").write_text("GPUs,words/s\n8,1\n")
    with pytest.MonkeyPatch.context() as patch:
        planted = {
            "claims": lambda: "Planted claims.",
            "placements": lambda: "Planted placements.",
            "faults": lambda: "Planted faults.",
            "grids": grids_page,
        }
        patch.setattr(report, "FRAGMENTS", planted)
        patch.setattr(paths, "figures", lambda: folder / "figures")
        with contextlib.redirect_stderr(io.StringIO()) as said:
            build_report(folder / "html", folder / "notebooks")
            page.write_text(page.read_text().replace("eight GPUs", "sixteen GPUs"))
            index = build_report(folder / "html", folder / "notebooks", changed_only=True)
    assert said.getvalue() == "", "the report is built without a warning"
    return index.parent


def test_every_page_is_there(site: Path) -> None:
    for page in ("index", "claims", "method", "use", "glossary", "01-scaling"):
        assert (site / f"{page}.html").is_file()
    assert not (site / "02-stopped.failed.html").exists() and not (site / "00-front.html").exists()
    front = (site / "index.html").read_text()
    assert "How fast are" in front and "Decide" in front and 'href="01-scaling.html"' in front
    assert (site / "figures" / "headline.csv").is_file()
    assert "Planted claims." in (site / "claims.html").read_text()
    changed = site / "01-scaling.html"
    others = [site / f"{page}.html" for page in ("method", "glossary")]
    assert "sixteen GPUs" in changed.read_text()
    assert all(other.stat().st_mtime < changed.stat().st_mtime - 0.5 for other in others), (
        "the one that changed is built again"
    )


def test_no_page_sends_a_request_or_tells_of_this_computer(site: Path) -> None:
    for path in (path for path in site.rglob("*") if path.is_file()):
        content = path.read_bytes()
        assert str(site.parent).encode() not in content, path
        for pattern in {".html": REQUESTS, ".css": (STYLES,)}.get(path.suffix, ()):
            assert not pattern.search(content.decode()), path
    assert "<math" in (site / "method.html").read_text(), "formulas are MathML already"


def test_a_long_script_is_one_file_of_the_site(site: Path) -> None:
    (file,) = (site / "_static").glob("program-*.js")
    assert file.read_text() == PROGRAM
    for page in ("index", "01-scaling"):
        text = (site / f"{page}.html").read_text()
        loaded = f'<script>before()</script><script src="_static/{file.name}"></script>'
        assert loaded in text and PROGRAM not in text


@pytest.mark.timeout(300)
@pytest.mark.parametrize("made", but(["planted"], ["planted", "executed"]))
def test_two_builds_differ_in_nothing_but_their_date(
    made: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of the front page, planted or executed twice from the same Records."""
    monkeypatch.setattr(paths, "figures", lambda: tmp_path / "figures")
    (tmp_path / "figures").mkdir()
    front, found = paths.REPOSITORY / "notebooks" / "00-front.ipynb", []
    for folder in (tmp_path / "one", tmp_path / "other"):
        (folder / "executed").mkdir(parents=True)
        with contextlib.redirect_stderr(io.StringIO()):
            page = executed(folder / "executed" / front.name)
            if made == "executed":
                execute_one(front, page, {"records": str(paths.DATA)})
            site = build_report(folder / "html", folder / "executed").parent
        found.append(
            {
                file.relative_to(site): DATE.sub(b"", file.read_bytes())
                for file in site.rglob("*.html")
            }
        )
    one, other = found
    assert (
        len(one) > 4
        and one.keys() == other.keys()
        and not [name for name in one if one[name] != other[name]]
    )


def test_a_folder_that_is_no_report_is_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(report, "FRAGMENTS", {"claims": lambda: 1 / 0})
    told = "^the report's claims cannot be computed: ZeroDivisionError: division by zero$"
    refused(told, report.generated, error=ReportError)
    (tmp_path / "precious").write_text("kept")
    refused(
        "holds something that is no report", build_report, tmp_path, tmp_path, error=ReportError
    )
    assert (tmp_path / "precious").read_text() == "kept"


def test_a_page_folds_code_and_drops_progress(tmp_path: Path) -> None:
    notebook = report.publishable(nbformat.read(executed(tmp_path / "01-a.ipynb"), 4))
    assert "papermill" not in notebook.metadata
    _, first, second = notebook.cells
    assert first.source == 'measure = "none"\n\ndraw()', "a cell that shows nothing joins the next"
    assert [list(output.data) for output in first.outputs] == [["image/svg+xml", "text/plain"]]
    assert first.metadata.tags == second.metadata.tags == ["hide-input"]
    text = (
        "[a](../report/claims.md#c1) [b](03-launch.ipynb) [c](00-front.ipynb)"
        " [d](https://example.org/../a.ipynb)"
    )
    cell = report.in_the_site(
        nbformat.v4.new_notebook(cells=[nbformat.v4.new_markdown_cell(text)])
    ).cells[0]
    assert (
        cell.source == "[a](claims.md#c1) [b](03-launch.ipynb) [c](index.ipynb)"
        " [d](https://example.org/../a.ipynb)"
    )
    text = (
        "<work>/ipykernel_4349/2009.py:1: UserWarning: Reindexed.\n "
        " chosen\n<lib>/site-packages/tqdm/auto.py:21: TqdmWarning: No.\n"
    )
    cell = nbformat.v4.new_code_cell(
        "draw()", outputs=[nbformat.v4.new_output("stream", name="stderr", text=text)]
    )
    assert report.warnings_of(nbformat.v4.new_notebook(cells=[cell])) == [
        "UserWarning: Reindexed."
    ], "our own, and not a library's"


def test_every_notebook_but_the_front_page_has_one_topic(tmp_path: Path) -> None:
    ours = sorted((paths.REPOSITORY / "notebooks").glob("[0-9]*.ipynb"))
    grouped = report.by_topic(ours)
    assert list(grouped) == ["Decide", "Understand", "Evidence"]
    assert sorted(path for paths_ in grouped.values() for path in paths_) == [
        path for path in ours if path.stem != report.FRONT
    ]
    own = tmp_path / "07-own.ipynb"
    nbformat.write(nbformat.v4.new_notebook(), own)
    assert report.by_topic([own]) == {report.LAST: [own]}, "it names none"
    folder = paths.REPOSITORY / "notebooks"
    tree = report.navigation([folder / "20-explorer.ipynb", folder / "01-your-model.ipynb"])
    assert tree.index("01-your-model") < tree.index("20-explorer") < tree.index("glossary")


def test_a_fault_is_survived_where_its_launch_has_a_later_record() -> None:
    told = [
        ("ok", "a.0", 1),
        ("out_of_memory", "a.0", 3),
        ("ok", "a.1", 8),
        ("out_of_memory", "b.0", 5),
        ("failed", "a.1", 20),
    ]
    records = [
        make_record(
            repeat=number,
            status=status,
            launch_id=launch,
            measured_at=f"2026-01-02T03:04:{second:02}+00:00",
        )
        for number, (status, launch, second) in enumerate(told)
    ]
    names = ["a killed agent", "a killed worker", "a killed worker"]
    kills = pd.DataFrame({"fault": names, "recovered_s": [9.0, 2.0, 4.0], "lost": [0, 0, 1]})
    kills = kills.assign(device_type="cpu")
    planted = pd.DataFrame(
        {"fault": ["a rank that stops"] * 2, "recovered_s": [30.0, float("nan")]}
    ).assign(device_type="cuda")
    table = report.fault_table(kills, report.failures(records), planted).set_index("fault")
    names = ["GPU, planted: a rank that stops", "GPU: out_of_memory"]
    counted = table.loc[names, ["tried", "survived", "last", "median_s"]].to_numpy().tolist()
    assert counted == [[2, 1, 1, 30.0], [2, 1, 1, 5.0]]
    assert table.loc["GPU: failed", ["tried", "survived", "last"]].tolist() == [1, 0, 1]
    columns = ["tried", "survived", "median_s", "most_s", "lost"]
    assert table.loc["CPU: a killed worker", columns].tolist() == [2, 2, 3.0, 4.0, 1]
    assert table.loc["CPU: a killed agent", "lost"] == 0, "counted, and none"
    assert math.isnan(table.loc["GPU, planted: a rank that stops", "lost"]), "not counted"


def test_the_method_pages_counts_of_faults_are_those_of_the_soaks() -> None:
    text = " ".join((paths.REPOSITORY / "report" / "method.md").read_text().split())
    counted = r"which (\d+) processes were killed, (\d+) Runs hung and (\d+) asked for memory"
    found = []
    for name, earlier in (("soak", 50), ("soak-gpu", 0)):  # 50 kills are of the first soak
        rows = pd.read_csv(report.FAULTS / f"{name}.csv")
        kinds = [rows["fault"].str.contains(kind).sum() for kind in ("killed", "hangs", "memory")]
        found.append((str(kinds[0] - earlier), *map(str, kinds[1:])))
        assert rows["lost"].sum() == 0
    assert re.findall(counted, text) == found
    assert "All 1,000 Runs of one soak have their Record" in text
