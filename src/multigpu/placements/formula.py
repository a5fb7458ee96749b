"""What a step moves as a formula, read off a placement's row: the algebra behind `traffic.predicted_bytes`.

Symbols: P replicas; V and T bytes of all dense variables and of all tables that are looked up by row, S = V + T; E bytes of the
rows that all replicas look up in a step and I bytes of their ids; E_own and I_own the parts of these that a table's own device looks up
itself, which do not travel (a P-th where all replicas look up as many rows). Gradients are dense, as PyTorch's engine sends them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from multigpu.collectives.merge import merged_bytes
from multigpu.placements.row import Home, Placement
from multigpu.placements.traffic import ID_BYTES, KINDS, assign, cut_elements
from multigpu.workloads.base import Variable

Powers = tuple[int, int, int]
"""A coefficient c0 + c1 P + c2 P^2."""

ONE: Powers = (1, 0, 0)
ALL: Powers = (0, 1, 0)
OTHERS: Powers = (-1, 1, 0)
"""Once; to or from each of P replicas; to or from all but the one where it is."""

QUANTITIES = {
    "S": "S",
    "S_laid": r"\lceil S \rceil",
    "V": "V",
    "T": "T",
    "E": "E",
    "E_other": r"(E - E_{\mathrm{own}})",
    "I_other": r"(I - I_{\mathrm{own}})",
}
"""Of each quantity, how it is written; `_other` is all of it but the own part, `_laid` the same, filled up for P cuts."""

COEFFICIENTS: dict[Powers, str] = {
    ONE: "",
    ALL: "P",
    OTHERS: "(P - 1)",
    (2, 0, 0): "2",
    (-2, 2, 0): "2 (P - 1)",
    (0, -1, 1): "P (P - 1)",
}

Formula = dict[str, dict[str, Powers]]
"""Of each kind of traffic, its terms: quantity -> coefficient."""


@dataclass(frozen=True)
class Quantities:
    """The symbols' values in bytes, and P."""

    replicas: int
    variables: int
    tables: int
    rows: int
    own_rows: int
    ids: int
    own_ids: int
    laid: int

    def value(self, quantity: str) -> int:
        """Bytes of a quantity of `QUANTITIES`."""
        return {
            "S": self.variables + self.tables,
            "S_laid": self.laid,
            "V": self.variables,
            "T": self.tables,
            "E": self.rows,
            "E_other": self.rows - self.own_rows,
            "I_other": self.ids - self.own_ids,
        }[quantity]


def formula(placement: Placement) -> Formula:
    """The bytes that one step of the placement moves over all replicas (one cycle of steps, where it averages variables), by kind; kinds
    that move nothing are left out.

    Raises:
        ValueError: variables or tables are copies and others are not, or a part lives on other devices than its update runs on:
            what then travels depends on which device each variable falls to, and no row of the study is so.
    """
    row = placement
    if row.travels == "activations":
        raise ValueError(f"{row.name}: what it moves depends on where a model is cut, which `partition.partition_bytes` works out")
    found: Formula = {kind: {} for kind in KINDS}
    copies = {row.variables == "replica", row.embeddings == "replica"}
    if row.merge == "reduce_scatter":
        return {"all_gather": {"S_laid": (2, 0, 0) if row.variables == "cut" else ONE}, "reduce_scatter": {"S_laid": ALL}}
    if copies == {True} and row.algorithm is not None:
        return {"device_to_device": {"S": _all_links(row.algorithm)}}
    if copies == {True}:
        kind, coefficient = {
            "all_reduce": ("all_reduce", ALL),
            "average": ("all_reduce", ALL),
            "copy": ("device_to_device", (0, -1, 1)),
            "gpu0": ("device_to_device", (-2, 2, 0)),
            "halves": ("device_to_device", (-2, 2, 0)),
            "none": ("", ONE),
        }[row.merge]
        return {kind: {"S": coefficient}} if kind else {}
    apart = [home for home in (row.variables, row.embeddings) if home != row.update and "host" not in (home, row.update)]
    if copies != {False} or apart:
        raise ValueError(f"{row.name}: no formula follows from variables at {row.variables!r} and update at {row.update!r}")
    _whole(found, "V", row.variables, row.update)
    if row.lookup == "replica":
        _whole(found, "T", row.embeddings, row.update)
    else:
        _by_row(found, row.lookup, row.update)
    return {kind: _joined(terms) for kind, terms in found.items() if terms}


def _all_links(algorithm: str) -> Powers:
    """What an algorithm written out moves over all links together, in times S, as its own formula has it for P = 1 to 8."""
    wanted = [merged_bytes(algorithm, 1, 1, replicas) for replicas in range(1, 9)]
    for powers in COEFFICIENTS:
        if [powers[0] + powers[1] * p + powers[2] * p * p for p in range(1, 9)] == wanted:
            return powers
    raise ValueError(f"what {algorithm!r} moves is no multiple of S with a coefficient of {', '.join(filter(None, COEFFICIENTS.values()))}")


def _add(terms: dict[str, Powers], quantity: str, coefficient: Powers) -> None:
    a, b, c = terms.get(quantity, (0, 0, 0))
    terms[quantity] = (a + coefficient[0], b + coefficient[1], c + coefficient[2])


def _whole(found: Formula, quantity: str, home: Home, update: Home) -> None:
    """Every replica takes the whole variable and sends back a gradient of its size; a value updated elsewhere goes home."""
    _add(found["host_to_device" if home == "host" else "device_to_device"], quantity, ALL if home == "host" else OTHERS)
    _add(found["device_to_host" if update == "host" else "device_to_device"], quantity, ALL if update == "host" else OTHERS)
    if home != update:
        _add(found["device_to_host" if home == "host" else "host_to_device"], quantity, ONE)


def _by_row(found: Formula, home: Home, update: Home) -> None:
    """Every replica takes the rows that it looks up and sends back as many of gradients; devices that gather or add need the ids."""
    down, up = (("host_to_device", "E"), ("device_to_host", "E"))
    between = ("device_to_device", "E_other")
    for kind, quantity in (down if home == "host" else between, up if update == "host" else between):
        _add(found[kind], quantity, ONE)
    if (home, update) != ("host", "host"):
        _add(found["device_to_device"], "I_other", ONE)
    if home != update:  # the table goes to the update and its new value home
        _add(found["host_to_device"], "T", ONE)
        _add(found["device_to_host"], "T", ONE)


def _joined(terms: dict[str, Powers]) -> dict[str, Powers]:
    """V and T with one coefficient are S; quantities in the order of `QUANTITIES`."""
    if "V" in terms and terms.get("T") == terms["V"]:
        terms = {"S": terms["V"]} | {name: value for name, value in terms.items() if name not in ("V", "T")}
    return {name: terms[name] for name in QUANTITIES if name in terms}


def quantities(
    placement: Placement, variables: Sequence[Variable], lookups: Sequence[Mapping[str, int]], item_bytes: int = 4
) -> Quantities:
    """The symbols' values for these variables and look-ups (as `predicted_bytes` takes them: of each replica, table -> rows)."""
    sums = dict.fromkeys(("V", "T", "E", "E_own", "I", "I_own"), 0)
    for a in assign(placement, variables, len(lookups)):
        size = a.variable.elements * item_bytes
        if a.variable.kind != "embedding":
            sums["V"] += size
            continue
        sums["T"] += size
        where = a.update if a.update >= 0 else a.lookup
        for replica, rows in enumerate(lookups):
            count = rows.get(a.variable.name, 0)
            sums["E"] += count * a.variable.shape[1] * item_bytes
            sums["I"] += count * ID_BYTES
            if replica == where:
                sums["E_own"] += count * a.variable.shape[1] * item_bytes
                sums["I_own"] += count * ID_BYTES
    laid = cut_elements(placement, variables, item_bytes, len(lookups)) * item_bytes
    return Quantities(len(lookups), sums["V"], sums["T"], sums["E"], sums["E_own"], sums["I"], sums["I_own"], laid)


def evaluated(found: Formula, values: Quantities) -> dict[str, int]:
    """The formula's bytes by kind, kinds that move nothing left out; a collective among one moves nothing."""
    p = values.replicas
    moved = {
        kind: sum((c0 + c1 * p + c2 * p * p) * values.value(quantity) for quantity, (c0, c1, c2) in terms.items())
        for kind, terms in found.items()
        if p > 1 or kind not in ("all_reduce", "all_gather", "reduce_scatter")
    }
    return {kind: count for kind, count in moved.items() if count}


def latex(terms: Mapping[str, Powers]) -> str:
    """One kind's terms as a formula: `P V + E`."""
    return " + ".join(f"{COEFFICIENTS[coefficient]} {QUANTITIES[name]}".strip() for name, coefficient in terms.items())


PARTITIONED_LINES = {
    "sections": [
        "between devices $2 A$ (A: activations that cross from stage to stage; as much comes back in gradients)",
        "handed to the all-reduce $P S$ (P copies of the model, where there is more than one)",
    ],
    "split": [
        "handed to collectives $M X$ (X: what each of a copy's M devices brings to all places where parts are joined)",
        "handed to the all-reduce $P S$ (P copies of the model, where there is more than one; what all devices hold counts M times)",
    ],
}
"""What placements move whose bytes depend on where a model is cut, by their `compute`."""


def formula_lines(placement: Placement) -> list[str]:
    """The cost formula as Markdown with mathematics, a line a kind of traffic."""
    if placement.travels == "activations":
        return PARTITIONED_LINES[placement.compute]
    names = {
        "host_to_device": "host to devices",
        "device_to_host": "devices to host",
        "device_to_device": "between devices",
        "all_reduce": "handed to the all-reduce (where $P > 1$)",
        "all_gather": "handed to the all-gather (where $P > 1$)",
        "reduce_scatter": r"handed to the reduce-scatter ($\lceil S \rceil$: S filled up so that it can be cut into P)",
    }
    return [f"{names[kind]} ${latex(terms)}$" for kind, terms in formula(placement).items()] or ["nothing: $0$"]
