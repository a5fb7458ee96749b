"""The twenty questions of `questions.yaml`: every figure is computed again from the Records, and what was not measured can be."""

import math
import shlex
from functools import cache
from typing import Any

import pandas as pd
import pytest
import yaml

from multigpu import paths
from multigpu.analysis.asked import measure_command
from multigpu.analysis.compare import versus
from multigpu.analysis.explain_text import explained
from multigpu.analysis.points import where
from multigpu.analysis.read import frames
from multigpu.command import parse_fields
from multigpu.notebooks import read_notebook
from multigpu.placements import find_placement
from multigpu.run import build_run

QUESTIONS: list[dict[str, Any]] = yaml.safe_load((paths.REPOSITORY / "tests" / "study" / "questions.yaml").read_text())
MEASURED = [one for one in QUESTIONS if "own" in one]


@cache
def measured() -> pd.DataFrame:
    table = frames(paths.RUNS)[1]
    return table[table["n"] > 0]


def counterpart(one: dict[str, Any]) -> pd.Series:
    """The pair with the Records that the question names: two points that differ in the named fields alone."""
    own, base = (where(measured(), machine=one["machine"], **one["common"], **one[side]) for side in ("own", "base"))
    assert set(one["own"]) == set(one["base"])
    pairs = versus(own, base, but=list(one["own"]))
    named = [all(any(key.startswith(begin) for key in keys.split(", ")) for begin in one["keys"]["own"]) for keys in pairs["keys"]]
    (pair,) = [row for _, row in pairs[named].iterrows()]
    return pair


def test_twenty_questions_have_an_answer_each() -> None:
    assert [one["number"] for one in QUESTIONS] == list(range(1, 21))
    for one in QUESTIONS:
        assert {"own", "page", "measure", "why"} & set(one), one["number"]


@pytest.mark.parametrize("one", MEASURED, ids=lambda one: str(one["number"]))
def test_a_figure_follows_from_its_records_and_agrees_as_it_says(one: dict[str, Any]) -> None:
    pair = counterpart(one)
    figures = [pair[f"ratio{end}"] for end in ("", "_low", "_high")]
    assert [value for value in figures if not math.isnan(value)] == pytest.approx(one["ratio"], rel=0.01)
    for side, keys in (("own", pair["keys"]), ("base", pair["base_keys"])):
        known = keys.split(", ")
        assert len(known) == len(one["keys"][side]) and all(any(key.startswith(b) for key in known) for b in one["keys"][side])
    least, most = one["told"]
    if len(one["ratio"]) == 1:
        verdict = "single run"
    else:
        low, high = figures[1:]
        verdict = "yes" if least <= low and high <= most else "no" if high < least or low > most else "open"
    assert one["agrees"] == verdict


@pytest.mark.parametrize("one", [one for one in QUESTIONS if "page" in one], ids=lambda one: str(one["number"]))
def test_a_page_has_the_section(one: dict[str, Any]) -> None:
    place, _, section = one["page"].partition("#")
    if place.endswith(".md"):
        assert f"## {section}" in (paths.REPOSITORY / place).read_text().splitlines()
    else:
        assert section in {cell.id for cell in read_notebook(paths.REPOSITORY / "notebooks" / f"{place}.ipynb").cells}
    for kind, names in one.get("semantics", {}).items():
        assert {find_placement(name).semantics.kind for name in names} == {kind}


@pytest.mark.parametrize("one", [one for one in QUESTIONS if one["agrees"] == "unmeasured"], ids=lambda one: str(one["number"]))
def test_what_was_not_measured_has_the_command_that_would(one: dict[str, Any]) -> None:
    if "measure" in one:
        command = measure_command(build_run(**parse_fields(shlex.split(one["measure"]))))
        assert command.startswith("python -m multigpu measure ")
    else:
        assert one["why"]


@pytest.mark.parametrize("number", [1, 3, 12])
def test_explain_speaks_of_the_point(number: int) -> None:
    """The command that a reader would type, in process: its answer is of the question's own point."""
    one = QUESTIONS[number - 1]
    text = explained(paths.RUNS, [one["keys"]["own"][0]])
    assert f"measured on {one['machine']}" in text and f"n = {len(one['keys']['own'])} over" in text
