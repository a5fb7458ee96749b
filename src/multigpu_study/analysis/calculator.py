"""Compute a step and its memory from a few numbers, in Python and in a page's JavaScript alike.

FORMULAS are texts that both languages read: numbers, names, + - * /, min, max, ceil. A name is a
setting, a number of the tables (`tables`: of a form of execution, of a placement), or the name of
an earlier formula. The reduction is that of `forecast_reduction`, what it costs that of
`merge_cost`, what a device keeps that of `placements.memory` for a model whose variables can be cut
anywhere.
"""

from __future__ import annotations

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

TABLE = Path(__file__).parent / "calculator.yaml"

FORMULAS = {
    "several": "min(1, devices - 1)",
    "in_node": "min(devices, node)",
    "nodes": "ceil(devices / node)",
    "bytes": "4 * parameters",
    "owned": "home_first + home_spread * max(1 / devices, largest)",
    # seconds of one merge over the links inside a node, and between nodes
    "inside_s": "2 * (in_node - 1) * (reduced * bytes / in_node / link + min(1, reduced) * latency)"
    " + (in_node - 1) * (copied + fetched * owned) * bytes / link"
    " + (devices - 1) * hosted * bytes / host_link",
    "between_s": "2 * (nodes - 1) * (reduced * bytes / nodes / (in_node * network)"
    " + min(1, reduced) * network_latency)"
    " + (devices - in_node) * (copied + fetched * owned + hosted / in_node) * bytes / network",
    # one replica's computing, as measured or by its operations and bytes
    "modelled_s": "used * 3 * flops * batch / peak + passes * activations * batch / memory"
    " + floor_s",
    "compute_s": "known * one_s + (1 - known) * modelled_s",
    "merging": "is_beside * beside + is_after * after + is_homes * homes",
    "lost_s": "several * (merging * (inside_s + between_s) + share * compute_s + meeting_s)",
    "step_s": "compute_s + lost_s",
    "faster": "known * (1 + several * (low - 1)) + (1 - known) * one_low",
    "slower": "known * (1 + several * (high - 1)) + (1 - known) * one_high",
    "step_low_s": "step_s * faster",
    "step_high_s": "step_s * slower",
    "rate": "devices * batch / step_s",
    "rate_low": "rate / slower",
    "rate_high": "rate / faster",
    "efficiency": "compute_s / step_s",
    "efficiency_low": "efficiency / (1 + several * (high - 1))",
    "efficiency_high": "min(1, efficiency / (1 + several * (low - 1)))",
    # bytes of the fullest device
    "variables_bytes": "bytes * (1 - cut + cut / devices)",
    "gradients_bytes": "bytes * (1 - scattered + scattered / devices)",
    "states_bytes": "slots * bytes * (in_place + divided / devices + owned)",
    "pieces_bytes": "(devices - 1) * bytes * (copies + owned) + staged * bytes * (1 + owned)"
    " + several * cut * max(4 * largest * bytes, bytes - gradients_bytes - states_bytes)"
    " + (scattered - cut) * 3 * largest * bytes",
    "activations_bytes": "activations * batch",
    "memory_bytes": "variables_bytes + gradients_bytes + states_bytes + pieces_bytes"
    " + activations_bytes",
    "memory_low_bytes": "memory_bytes * peak_low",
    "memory_high_bytes": "memory_bytes * peak_high",
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
    """Return a placement's numbers: shares of the model's bytes moved and kept. Or NoFormula."""
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
            "in_place": not (cut or divided or homes),
            "copies": row.variables == "replica" and row.reduction == "copy",
            "staged": row.staged,
            **{f"is_{name}": kind == name for name in KINDS},
        }.items()
    }


@cache
def tables() -> dict[str, dict[str, dict[str, Any]]]:
    """Return forms, placements and models with their numbers (`workflow/calculator.py`'s)."""
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
    return {"forms": forms, "placements": chosen, "models": known["models"]}


def settings(form: str, placement: str, **numbers: float) -> dict[str, float]:
    """Return the numbers of `calculate`: those given, with those of the form and the placement.
    known: 1 where one_s was measured, else 0.
    """
    every = tables()
    return {**every["forms"][form], **every["placements"][placement], **numbers}
