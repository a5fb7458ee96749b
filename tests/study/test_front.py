"""What a reader meets first: the front's table, nine questions in two clicks, and kept comparisons
that are of their command.
"""

import json
import re
import shlex
from pathlib import Path

import pandas as pd
import pytest

from multigpu import compared, paths
from multigpu.cli.main import main
from multigpu.user_model.examining import Examined
from multigpu.user_model.page import lines
from tests.study.test_pages import Page

NOTEBOOKS, REPORT = paths.REPOSITORY / "notebooks", paths.REPOSITORY / "report"
LINK = re.compile(r"\]\((?:\.\./report/)?([\w-]+)\.(?:ipynb|md)(?:#([\w.-]+))?\)")
QUESTIONS = {
    "placement": r"where parameters should live",
    "slow": r"why is mine slower on two",
    "memory": r"does it fit in memory",
    "FSDP": r"transformer",
    "compile": r"compil",
    "8 GPUs": r"eight GPUs",
    "own model": r"your own model",
    "batch and learning": r"still learn",
    "input": r"feeding",
}
"""An engineer's question -> what a heading of the page that answers it says."""


def pages() -> dict[str, str]:
    """Every page's text that people wrote, by its name."""
    found = {path.stem: path.read_text(encoding="utf8") for path in REPORT.glob("*.md")}
    for path in NOTEBOOKS.glob("[0-9]*.ipynb"):
        cells = json.loads(path.read_text(encoding="utf8"))["cells"]
        found[path.stem] = "\n\n".join(
            "".join(cell["source"]) for cell in cells if cell["cell_type"] == "markdown"
        )
    return found


def headings(text: str) -> list[str]:
    return re.findall(r"^#+ (.+)$", re.sub(r"```.*?```", "", text, flags=re.S), flags=re.M)


def anchor(heading: str) -> str:
    """A heading's anchor as MyST makes it."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def test_links_between_pages_lead_somewhere() -> None:
    known = pages()
    links = [(name, *link) for name, text in known.items() for link in LINK.findall(text)]
    assert not [link for link in links if link[1] not in known], "no such page"
    anchors = {name: {anchor(one) for one in headings(text)} for name, text in known.items()}
    assert not [(*_, page, at) for *_, page, at in links if at and at not in anchors[page]]
    assert len(links) > 30


@pytest.mark.parametrize("question", QUESTIONS)
def test_an_engineers_question_is_answered_within_two_clicks(question: str) -> None:
    """By links of the text, not of the list of pages at the side."""
    known, seen = pages(), {"00-front"}
    for _ in range(2):
        seen |= {page for one in seen for page, _ in LINK.findall(known[one]) if page in known}
    answers = QUESTIONS[question]
    found = [
        page for page in seen if any(re.search(answers, h, re.I) for h in headings(known[page]))
    ]
    assert found, f"no page within two clicks of the front has a heading like {answers!r}"
    assert answers in QUESTIONS.values() and len(known) > 15


def test_the_front_begins_with_what_to_take_for_a_gpt_a_cnn_and_an_lstm(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its first table, before any figure, says of each placement and form, memory and rate."""
    monkeypatch.setenv(paths.PUBLISH, "1")
    page = Page(NOTEBOOKS / "00-front.ipynb", monkeypatch)
    shown: list[tuple[pd.DataFrame, str]] = []

    def table(rows: pd.DataFrame, columns: str, **_: str) -> None:
        shown.append((rows, columns))

    monkeypatch.setattr("multigpu_study.pages.table", table)
    page.run()
    rows, columns = shown[0]
    assert {"gpt", "cnn", "nmt", "deepconn"} <= set(rows["workload"])
    for word in ("how", "peak_memory_gib", "rate", "speedup"):
        assert re.search(rf"\b{word}\b", columns)
    first = where_of(rows)
    assert all(len(how.split(", ")) > 1 for how in rows["how"]), "placement and form"
    uncounted = rows["how"].str.contains("summed by copies")  # until they are measured anew
    assert (rows["peak_memory_gib"].notna() | uncounted).all() and rows["n"].gt(1).all()
    assert len(set(first)) == len(rows), "rows differ"


def where_of(rows: pd.DataFrame) -> list[tuple[str, str, int]]:
    return list(zip(rows["model"], rows["how"], rows["batch_size"], strict=True))


KEPT = sorted(path.parent for path in (paths.DATA / "comparisons").glob("*/comparison.json"))


@pytest.mark.parametrize("folder", KEPT, ids=lambda folder: folder.name)
def test_a_kept_comparison_is_of_its_command(folder: Path) -> None:
    result = compared(folder)
    told = "\n".join(lines(result))
    assert all(name in told for name in result.names) and result.verdict
    words = shlex.split((folder / "command.txt").read_text(encoding="utf8"))
    asked = {"--placements": "all"} | dict(zip(words[5::2], words[6::2], strict=True))
    assert words[:4] == ["python", "-m", "multigpu", "compare"]
    path, _, name = words[4].partition(":")
    assert (paths.REPOSITORY / path).is_file() and result.described.job.endswith(f"{path}:{name}")
    assert float(asked["--budget-s"]) == result.budget_s
    assert int(asked["--devices"]) == max(run.devices for run in result.runs)
    chosen = {run.placement for run in result.runs} - {"ddp", "independent"}
    named = {*asked["--placements"].split(",")}
    assert chosen <= named if named != {"all"} else len(chosen) > 10
    assert result.records and all(record.status == "ok" for record in result.records)


@pytest.mark.parametrize("folder", KEPT, ids=lambda folder: folder.name)
def test_kept_lines_of_fits_are_what_it_prints(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the formulas of today, of what the GPUs' host found out about the job: it is larger where
    there is a GPU.
    """
    result = compared(folder)
    run = result.runs[0]
    found = Examined(result.described, run.batch_size, run.precision)
    monkeypatch.setattr("multigpu.user_model.fits.examine_apart", lambda *_, **__: found)
    devices = str(max(run.devices for run in result.runs))
    job = shlex.split((folder / "command.txt").read_text(encoding="utf8"))[4]
    assert main(["fits", job, "--memory", "80", "--devices", devices]) == 0
    printed = [line.rstrip() for line in capsys.readouterr().out.rstrip().splitlines()]
    kept = (folder / "fits.txt").read_text(encoding="utf8").rstrip().splitlines()
    assert printed == [line.rstrip() for line in kept]
