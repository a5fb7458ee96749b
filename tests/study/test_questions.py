"""Questions that today's users asked in public: each has a section in their words, a command that
runs, and a figure of Records or of a table beside them; or what would measure it.
"""

import re
import shlex
from functools import cache
from typing import Any

import pandas as pd
import pytest
import yaml
from docutils.nodes import make_id

from multigpu import paths
from multigpu.analysis.points import where
from multigpu.analysis.read import frames
from multigpu.cli.main import main
from multigpu.grids import find_grid
from multigpu.report.notebooks import read_notebook

QUESTIONS: list[dict[str, Any]] = [
    one
    for one in yaml.safe_load((paths.REPOSITORY / "tests/study/questions.yaml").read_text())
    if one["number"] > 20
]
TODAY = pytest.mark.parametrize("one", QUESTIONS, ids=lambda one: str(one["number"]))
SYMPTOMS = paths.DATA / "benchmarks" / "symptoms.csv"


@cache
def sections(page: str) -> dict[str, str]:
    """The text of each section of a page, by the anchor that the site gives its heading."""
    found, at = dict[str, str](), ""
    for cell in read_notebook(paths.REPOSITORY / "notebooks" / f"{page}.ipynb").cells:
        for part in re.split(r"^(?=#+ )", cell.source, flags=re.MULTILINE):
            if cell.cell_type == "markdown" and (head := re.match(r"#+ (.*)", part)):
                at = make_id(head[1])
            found[at] = found.get(at, "") + part
    return found


def test_they_are_counted_and_what_is_not_measured_too() -> None:
    assert [one["number"] for one in QUESTIONS] == list(range(21, 46))
    left = {one["number"] for one in QUESTIONS if "measure" in one}
    assert left <= {30, 41}, left


@TODAY
def test_its_section_has_the_words_of_the_thread(one: dict[str, Any]) -> None:
    page, _, anchor = one["section"].partition("#")
    assert anchor in sections(page), sorted(sections(page))
    text = sections(page)[anchor].lower()
    assert not [word for word in one["words"] if word.lower() not in text]
    if script := one.get("script"):
        assert (paths.REPOSITORY / script).is_file()


@TODAY
def test_every_page_of_symptoms_is_linked_from_where_people_look(one: dict[str, Any]) -> None:
    page = one["section"].partition("#")[0]
    first = "".join(sections("01-your-model").values())
    assert page in first or page in ("01-your-model", "04-all-reduce", "08-learning"), page


@pytest.mark.timeout(600)  # claims are all judged where none is kept
@TODAY
def test_its_command_runs(one: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    if "command" not in one:
        assert one["stuck"]  # test_stuck runs it on planted hangs
        return
    words = shlex.split(one["command"])
    assert main([*words, *(["--dry-run"] if words[0] == "measure" else [])]) == 0
    said = capsys.readouterr().out
    assert len(said) > 60 and "No Record" not in said


@TODAY
def test_its_figure_is_of_records_or_of_a_table(one: dict[str, Any]) -> None:
    if "point" in one:
        table = frames(paths.RUNS)[1]
        model = re.search(r"model=(\S+)", one["command"])
        batch = re.search(r"batch_size=(\d+)", one["command"])
        assert model and batch
        job = {"model": model[1], "batch_size": int(batch[1]), "devices": 2, "precision": "bf16"}
        for side in ("own", "base"):
            rows = where(table, **job, **one["point"][side])
            assert len(rows[rows["n"] > 0]), (one["number"], side)
    elif "figures" in one:
        assert len(where(pd.read_csv(SYMPTOMS), symptom=one["figures"]["symptom"])) >= 4
    elif "measure" in one:
        wanted = dict(word.split("=") for word in one["measure"].split())
        planned = [entry.run for entry in find_grid("symptoms", [1, 2])]
        hit = [
            run
            for run in planned
            if all(str(getattr(run, name)) == value for name, value in wanted.items())
        ]
        assert hit, "no entry of the grid measures it"
    else:
        text = sections(one["section"].partition("#")[0])[one["section"].partition("#")[2]]
        measured = re.search(r"estimate\(|table\(|hangs|require\(|\$ python -m multigpu", text)
        assert measured, "neither a figure nor what would measure it"


def test_what_a_table_says_of_n_against_two_halves_is_what_must_be() -> None:
    """What mends is equal to rounding, what does not is far from it; weights are by arithmetic."""
    half = where(pd.read_csv(SYMPTOMS), symptom="half_batches").set_index("case")
    apart = half[half["quantity"].eq("apart")]
    mended = apart["remedy"].notna() | apart.index.str.startswith("no layer")
    assert (apart.loc[mended, "value"] < 1e-12).all() and mended.sum() == 5
    assert (apart.loc[~mended, "value"] > 0.05).all() and (~mended).sum() == 5
    weights = half["value"].to_dict()
    tokens = [float(weights[f"weight of a token of rank {rank}"]) for rank in range(2)]
    assert 8 * tokens[0] + 2 * tokens[1] == pytest.approx(10)
    assert tokens[1] / tokens[0] == pytest.approx(4)
