"""Each placement as a small picture and a row of its settings, drawn from the row of data alone."""

from jinja2 import Environment, PackageLoader

from multigpu.placements import placements
from multigpu.placements.row import Home, Placement
from multigpu_study.placements.formula import formula_lines

PARTS = {"variables": "V", "embeddings": "E", "update": "U"}
"""Fields of a row that say where a part lives, with its letter in the picture."""

SHARES = ("balanced", "sharded", "sections", "split")
"""Homes of which each GPU has a part."""

PAGE = Environment(
    loader=PackageLoader("multigpu_study.placements", "."), trim_blocks=True, lstrip_blocks=True
).get_template("page.md.j2")
FIELDS = ["variables", "embeddings", "lookup", "compute", "reduction", "slots", "update", "travels"]


def held(placement: Placement, place: int | None) -> list[tuple[str, str, bool]]:
    """List the parts that live or run on GPU number `place` (None: the host) as (letter, part,
    whether it is only a share).
    """
    parts = []
    for part, letter in PARTS.items():
        home: Home = getattr(placement, part)
        if place is None:
            if home == "host":
                parts.append((letter, part, False))
        elif home in ("replica", *SHARES) or (home == "gpu0" and place == 0):
            parts.append((letter, part, home in SHARES))
    if place is not None:
        parts.append(("C", "compute", placement.travels == "activations"))
    return sorted(parts, key=lambda item: "VECU".index(item[0]))


def in_words(placement: Placement) -> str:
    """Describe the picture, for those who cannot see it."""
    homes = {
        "replica": "on every GPU",
        "host": "in host memory",
        "gpu0": "on the first GPU",
        "balanced": "dealt out over the GPUs, each variable whole",
    }
    homes["sharded"] = "sharded, a stretch on each GPU"
    homes["sections"] = "with their layers, spread over the GPUs"
    homes["split"] = "cut over the GPUs"
    compute = {"sections": "each GPU its layers", "split": "each GPU its part of every layer"}.get(
        placement.compute, "on every GPU"
    )
    return (
        "; ".join(f"{part} {homes[getattr(placement, part)]}" for part in PARTS)
        + f"; compute {compute}"
    )


def movement(placement: Placement) -> tuple[str, str]:
    """Between what a step moves data (none, gpus, host, both) and in which words."""
    if placement.travels == "activations":
        if placement.compute == "sections":
            how = "from stage to stage"
        else:
            how = "by collectives within the layers"
        return (
            "gpus",
            (
                f"activations and their gradients {how}; gradients of variables by all-reduce"
                " between copies of the model"
            ),
        )
    if placement.reduction == "none":
        return "none", "nothing"
    if placement.algorithm is not None:
        return "gpus", f"gradients, by all-reduce ({placement.algorithm.replace('_', ' ')})"
    if placement.reduction == "average":
        return "gpus", f"variables, by all-reduce after every {placement.semantics.every} steps"
    if placement.reduction == "all_reduce":
        return "gpus", "gradients, by all-reduce"
    if placement.variables == "sharded":
        return "gpus", "variables, by all-gather before each use; gradients, by reduce-scatter"
    if placement.reduction == "reduce_scatter":
        return "gpus", "gradients, by reduce-scatter; new values, by all-gather"
    if placement.reduction == "copy":
        return "gpus", "gradients, by plain copies"
    if placement.update == "replica":
        by = ", by halves" if placement.reduction == "halves" else ""
        return "gpus", f"gradients to the first GPU{by}, their sum back"
    homes = {placement.variables, placement.embeddings}
    out = f"variables out ({placement.travels} of embeddings)"
    if "host" in homes and placement.update != "host":
        which = "new values" if homes == {"host"} else "embeddings' new values"
        return "both", f"{out}, gradients between the GPUs, {which} back to the host"
    return "host" if "host" in homes else "gpus", f"{out}, gradients back"


def placements_page() -> str:
    """Every placement as a section, and the settings of all: Markdown (`page.md.j2`)."""
    shown = {one.__name__: one for one in (held, in_words, movement, formula_lines, runs_as)}
    return PAGE.render(shown, placements=list(placements().values()), fields=FIELDS, gpus=3)


def runs_as(placement: Placement) -> str:
    """Where it exists, as a sentence."""
    overlap = " Gradients are reduced while backward runs." if placement.overlap else ""
    names = {"torch": "PyTorch", "tensorflow": "TensorFlow"}
    shapes = {"one": "one process for all devices", "per_device": "a process a device"}
    ways = [
        f"in {names[engine.framework]} with {shapes[engine.processes]}"
        f" ({', '.join(engine.executions).replace('_', ' and ')})"
        for engine in placement.engines
    ]
    return f"It exists {' and '.join(ways)}.{overlap}"
