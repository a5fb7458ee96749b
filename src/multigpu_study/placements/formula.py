"""Write the bytes that a step moves as a formula: `traffic.predicted_bytes`, asked of one variable
on a few replicas at a time. P: replicas; V and T: bytes of all dense variables and of all tables
that are looked up by row, S = V + T; E: bytes of the rows that all replicas look up in a step and I
of their ids; E_own and I_own: the parts that a table's own device looks up itself, which do not
travel (a P-th where all look up as many). Gradients are dense, as PyTorch's engine sends them.
"""

from collections.abc import Mapping
from pathlib import Path

from multigpu.placements.row import Placement
from multigpu.placements.traffic import ID_BYTES, KINDS, predicted_bytes
from multigpu.spec.model import Init, Variable
from multigpu.spec.tables import table

Powers = tuple[int, int, int]
"""A coefficient c0 + c1 P + c2 P^2."""

ROWS = table(Path(__file__).with_name("formula_lines.csv"))
SAID = {row["of"]: row["line"] for row in ROWS}
"""Of each kind of traffic and each quantity, how it is written; `_other`: all but the own part;
`_laid`: filled up."""

NOTHING: Powers = (0, 0, 0)
COEFFICIENTS: dict[Powers, str] = {
    (1, 0, 0): "",
    (0, 1, 0): "P",
    (-1, 1, 0): "(P - 1)",
    (2, 0, 0): "2",
    (-2, 2, 0): "2 (P - 1)",
    (0, -1, 1): "P (P - 1)",
}

Formula = dict[str, dict[str, Powers]]
"""Of each kind of traffic, its terms: quantity -> coefficient."""

ASKED = range(2, 9)
"""Replicas: a collective among one moves nothing."""
DENSE = Variable("dense", (6720,), "dense", Init("constant", 0.0))
TABLE = Variable("table", (1680, 100), "embedding", Init("constant", 0.0))
"""The variables asked about, of 4 bytes an element; cut over so many, neither is filled up."""


def times(coefficient: Powers, replicas: int) -> int:
    """Its value at this P."""
    return coefficient[0] + coefficient[1] * replicas + coefficient[2] * replicas**2


def formula(placement: Placement) -> Formula:
    """Bytes that one step (or cycle) moves over all replicas, by kinds that move some; a ValueError
    where the variables' devices decide.
    """
    row, homes = placement, {placement.variables, placement.embeddings}
    if row.travels == "activations":
        raise ValueError(
            f"{row.name}: what it moves depends on where a model is cut, which"
            " `partition.partition_bytes` works out"
        )
    apart = row.update != "host" and homes - {"host", row.update}
    if row.reduction != "reduce_scatter" and homes != {"replica"} and ("replica" in homes or apart):
        raise ValueError(
            f"{row.name}: no formula follows from variables at {row.variables!r} and update at"
            f" {row.update!r}"
        )
    found: Formula = {}
    for kind in KINDS:
        terms = {"V": _of_whole(row, DENSE, kind), "T": _of_whole(row, TABLE, kind)}
        if terms["V"] == terms["T"]:
            terms = {"S_laid" if row.reduction == "reduce_scatter" else "S": terms["V"]}
        (own, _), (other, ids) = _of_rows(row, kind, 0), _of_rows(row, kind, 1)
        terms |= {"E": (own, 0, 0), "E_other": (other - own, 0, 0), "I_other": (ids, 0, 0)}
        if terms := {
            quantity: coefficient
            for quantity, coefficient in terms.items()
            if coefficient != NOTHING
        }:
            found[kind] = terms
    return found


def _of_whole(placement: Placement, variable: Variable, kind: str) -> Powers:
    moved = [
        predicted_bytes(placement, [variable], [{}] * replicas).get(kind, 0) for replicas in ASKED
    ]
    for coefficient in (NOTHING, *COEFFICIENTS):
        if moved == [times(coefficient, replicas) * variable.elements * 4 for replicas in ASKED]:
            return coefficient
    known = ", ".join(filter(None, COEFFICIENTS.values()))
    raise ValueError(
        f"{placement.name}: what moves {kind} is no multiple of a variable with a coefficient of"
        f" {known}"
    )


def _of_rows(placement: Placement, kind: str, replica: int) -> tuple[int, int]:
    """How often a row of a table of replica 0's device moves when this replica looks it up, and how
    often its id does.
    """
    asked = [{TABLE.name: int(rank == replica)} for rank in range(2)]
    with_row, without = (
        predicted_bytes(placement, [TABLE], each).get(kind, 0)
        for each in (asked, [{TABLE.name: 0}] * 2)
    )
    rows, ids = divmod(with_row - without, TABLE.shape[1] * 4)
    return rows, ids // ID_BYTES


def latex(terms: Mapping[str, Powers]) -> str:
    """One kind's terms as a formula: `P V + E`."""
    return " + ".join(
        f"{COEFFICIENTS[coefficient]} {SAID[name]}".strip() for name, coefficient in terms.items()
    )


def formula_lines(placement: Placement) -> list[str]:
    """The cost formula as Markdown with mathematics, a line a kind of traffic; or what a placement
    moves whose bytes depend on where a model is cut, by its `compute`.
    """
    if placement.travels == "activations":
        return [row["line"] for row in ROWS if row["of"] == placement.compute]
    return [f"{SAID[kind]} ${latex(terms)}$" for kind, terms in formula(placement).items()] or [
        "nothing: $0$"
    ]
