"""The twenty questions of `questions.yaml`: every figure is computed again from the Records, and what was not measured can be."""

import math
import shlex
from typing import Any

import pytest
import yaml

from multigpu import paths
from multigpu.analysis.asked import measure_command
from multigpu.analysis.compare import versus
from multigpu.analysis.points import where
from multigpu.analysis.read import frames
from multigpu.command import parse_fields
from multigpu.notebooks import read_notebook
from multigpu.placements import find_placement
from multigpu.run import build_run

QUESTIONS: list[dict[str, Any]] = yaml.safe_load((paths.REPOSITORY / "tests" / "study" / "questions.yaml").read_text())
MEASURED = [one for one in QUESTIONS if "own" in one]


def test_twenty_questions_have_an_answer_each() -> None:
    """A figure, a section of a page, or what would measure it, if anything can."""
    assert [one["number"] for one in QUESTIONS] == list(range(1, 21))
    for one in QUESTIONS:
        assert {"own", "page", "measure", "why"} & set(one), one["number"]
        if "measure" in one:
            assert measure_command(build_run(**parse_fields(shlex.split(one["measure"])))).startswith("python -m multigpu measure ")
        place, _, section = one.get("page", "").partition("#")
        if place.endswith(".md"):
            assert f"## {section}" in (paths.REPOSITORY / place).read_text().splitlines()
        elif place:
            assert section in {cell.id for cell in read_notebook(paths.REPOSITORY / "notebooks" / f"{place}.ipynb").cells}
        for kind, names in one.get("semantics", {}).items():
            assert {find_placement(name).semantics.kind for name in names} == {kind}


@pytest.mark.parametrize("one", MEASURED, ids=lambda one: str(one["number"]))
def test_a_figure_follows_from_its_records_and_agrees_as_it_says(one: dict[str, Any]) -> None:
    """Of the pair with the Records that it names: two points that differ in the named fields alone."""
    table = frames(paths.RUNS)[1]
    own, base = (where(table[table["n"] > 0], machine=one["machine"], **one["common"], **one[side]) for side in ("own", "base"))
    assert set(one["own"]) == set(one["base"])
    pairs = versus(own, base, but=list(one["own"]))
    named = [all(any(key.startswith(begin) for key in keys.split(", ")) for begin in one["keys"]["own"]) for keys in pairs["keys"]]
    (pair,) = [row for _, row in pairs[named].iterrows()]
    figures = [pair[f"ratio{end}"] for end in ("", "_low", "_high")]
    assert [value for value in figures if not math.isnan(value)] == pytest.approx(one["ratio"], rel=0.01)
    for side, keys in (("own", pair["keys"]), ("base", pair["base_keys"])):
        known = keys.split(", ")
        assert len(known) == len(one["keys"][side]) and all(any(key.startswith(b) for key in known) for b in one["keys"][side])
    least, most = one["told"]
    _, low, high = figures
    verdict = "yes" if least <= low and high <= most else "no" if high < least or low > most else "open"
    assert one["agrees"] == (verdict if len(one["ratio"]) > 1 else "single run")
