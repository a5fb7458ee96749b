"""Compute a step and its memory from a few numbers, in Python and in a page's JavaScript alike.

FORMULAS (`calculator.csv`) are texts that both read: numbers, names, + - * /, min, max, ceil. A
name is a setting, a number of the tables (`tables`: of a form of execution, of a placement), or an
earlier formula. The reduction is that of `forecast_reduction`, its cost that of `merge_cost`, what
a device keeps that of `placements.memory` for a model whose variables can be cut anywhere.
"""

import math
from collections.abc import Mapping
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from multigpu.analysis.forecast_reduction import NoFormula, demand_of
from multigpu.analysis.merge_cost import KINDS, kind_of, merge_costs
from multigpu.placements import placements
from multigpu.placements.row import Placement
from multigpu.spec.model import Init, Variable
from multigpu.spec.tables import table

TABLE = Path(__file__).parent / "calculator.yaml"

FORMULAS = {
    row["name"]: row["formula"] for row in table(Path(__file__).with_name("calculator.csv"))
}
MEMORY = ("variables", "gradients", "states", "activations", "pieces")
"""Parts of a device's memory, formulas `<part>_bytes`; pieces: received from other devices."""
FORMS = ("captured", "eager")


@cache
def _compiled() -> dict[str, Any]:
    return {name: compile(text, name, "eval") for name, text in FORMULAS.items()}


def calculate(numbers: Mapping[str, float]) -> dict[str, float]:
    """Return every formula's value; numbers: settings with those of a form and of a placement, e.g.
    `settings(...)`. NameError: a number is missing.
    """
    known: dict[str, Any] = {"min": min, "max": max, "ceil": math.ceil, "__builtins__": {}}
    known |= {name: float(value) for name, value in numbers.items()}
    for name, code in _compiled().items():
        known[name] = float(eval(code, known))  # constant texts of this module
    return {name: known[name] for name in FORMULAS}


def javascript() -> str:
    """Return the same as a JavaScript function `calculate(numbers)`, which returns an object."""
    numbers = dict.fromkeys(
        name
        for code in _compiled().values()
        for name in code.co_names
        if name not in FORMULAS and name not in ("min", "max", "ceil")
    )
    lines = [f"  const {name} = {text};" for name, text in FORMULAS.items()]
    return "\n".join(
        [
            "function calculate(numbers) {",
            "  const {min, max, ceil} = Math;",
            f"  const {{{', '.join(numbers)}}} = numbers;",
            *lines,
            f"  return {{{', '.join(FORMULAS)}}};",
            "}",
        ]
    )


def of_placement(row: Placement) -> dict[str, float]:
    """Return a placement's numbers: what it moves and keeps, as shares of the model's bytes.
    NoFormula: nothing here says it.
    """
    if row.compute != "replica" or row.copied_anew:
        raise NoFormula(f"{row.name}: not all of its devices keep the model")
    moved = demand_of(
        row, [Variable("model", (1, 1), "dense", Init("constant", 0.0))], item_bytes=1
    )
    cut, divided = row.variables == "sharded", row.update == "sharded"
    homes = row.variables not in ("replica", "sharded")
    kind = kind_of(row.name)
    return {
        name: float(value)
        for name, value in {
            "reduced": moved.reduced,
            "copied": moved.copied,
            "hosted": moved.host,
            "fetched": sum(moved.pulled) + sum(moved.pushed),
            "home_first": homes and row.update == "gpu0",
            "home_spread": homes and row.update == "balanced",
            "cut": cut,
            "scattered": cut or (divided and row.overlap),
            "divided": cut or divided,
            "library": row.reduction == "all_reduce" and row.overlap,
            "in_place": not (cut or divided or homes),
            "copies": row.variables == "replica" and row.reduction == "copy",
            "staged": row.staged,
            **{f"is_{name}": kind == name for name in KINDS},
        }.items()
    }


@cache
def tables() -> dict[str, dict[str, dict[str, Any]]]:
    """Return forms, placements and models by name, each with its numbers; `workflow/calculator.py`
    writes what they take from the Records.
    """
    known = yaml.safe_load(TABLE.read_text())
    chosen = {}
    for name, row in placements().items():
        facts, engines = row.semantics.facts, [one.framework for one in row.engines]
        plain = row.algorithm is None and row.loss == "replica" and row.reduction != "none"
        if plain and facts.is_equal_training and "torch" in engines:
            with suppress(NoFormula):
                chosen[name] = of_placement(row)
    forms = {}
    for form in FORMS:
        cost = merge_costs()[form]._asdict()
        forms[form] = {name: cost[name] for name in cost if name != "pairs"} | known["forms"][form]
        forms[form]["first_buckets"] = float(form == "eager")
    return {"forms": forms, "placements": chosen, "models": known["models"]}


def settings(form: str, placement: str, **numbers: float) -> dict[str, float]:
    """Return the numbers of `calculate`: those given, with those of the form and the placement.
    known: 1 where one_s was measured, else 0.
    """
    every = tables()
    return {**every["forms"][form], **every["placements"][placement], **numbers}
