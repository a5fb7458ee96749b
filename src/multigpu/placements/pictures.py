"""Each placement as a small picture and a row of its settings, drawn from the row of data alone."""

from html import escape

from multigpu.placements import placements
from multigpu.placements.formula import formula_lines
from multigpu.placements.row import Home, Placement

PARTS = {"variables": "V", "embeddings": "E", "update": "U"}
"""Fields of a row that say where a part lives, with its letter in the picture."""

SHARES = ("sharded", "cut", "sections", "split")
"""Homes of which each GPU has a part."""

GPUS = 3
WIDTH, HEIGHT = 340, 132
BOX, GAP = 92, 20
HOST_Y, GPU_Y = 2, 84

FIELDS = ("variables", "embeddings", "lookup", "compute", "merge", "slots", "update", "travels")


def held(placement: Placement, place: int | None) -> list[tuple[str, str, bool]]:
    """What lives or runs on GPU number `place` (None: the host) as (letter, part, whether it is only a share)."""
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
    """What the picture shows, for those who cannot see it."""
    homes = {"replica": "on every GPU", "host": "in host memory", "gpu0": "on the first GPU", "sharded": "spread over the GPUs"}
    homes |= {"cut": "cut into a stretch for each GPU", "sections": "with their layers, spread over the GPUs", "split": "cut over the GPUs"}
    compute = {"sections": "each GPU its layers", "split": "each GPU its part of every layer"}.get(placement.compute, "on every GPU")
    return "; ".join(f"{part} {homes[getattr(placement, part)]}" for part in PARTS) + f"; compute {compute}"


def movement(placement: Placement) -> tuple[str, str]:
    """Between what a step moves data (none, gpus, host, both) and in which words."""
    if placement.travels == "activations":
        how = "from stage to stage" if placement.compute == "sections" else "by collectives within the layers"
        return "gpus", f"activations and their gradients {how}; gradients of variables by all-reduce between copies of the model"
    if placement.merge == "none":
        return "none", "nothing"
    if placement.algorithm is not None:
        return "gpus", f"gradients, by all-reduce ({placement.algorithm.replace('_', ' ')})"
    if placement.merge == "average":
        return "gpus", f"variables, by all-reduce after every {placement.semantics.every} steps"
    if placement.merge == "all_reduce":
        return "gpus", "gradients, by all-reduce"
    if placement.variables == "cut":
        return "gpus", "variables, by all-gather before each use; gradients, by reduce-scatter"
    if placement.merge == "reduce_scatter":
        return "gpus", "gradients, by reduce-scatter; new values, by all-gather"
    if placement.merge == "copy":
        return "gpus", "gradients, by plain copies"
    if placement.update == "replica":
        by = ", by halves" if placement.merge == "halves" else ""
        return "gpus", f"gradients to the first GPU{by}, their sum back"
    homes = {placement.variables, placement.embeddings}
    out = f"variables out ({placement.travels} of embeddings)"
    if "host" in homes and placement.update != "host":
        which = "new values" if homes == {"host"} else "embeddings' new values"
        return "both", f"{out}, gradients between the GPUs, {which} back to the host"
    return "host" if "host" in homes else "gpus", f"{out}, gradients back"


def _arrow(x1: float, y1: float, x2: float, y2: float) -> str:
    return f'<line x1="{x1:g}" y1="{y1:g}" x2="{x2:g}" y2="{y2:g}" marker-start="url(#tip)" marker-end="url(#tip)"/>'


def _box(x: float, y: float, width: float, name: str, parts: list[tuple[str, str, bool]]) -> str:
    drawn = [
        f'<rect class="box" x="{x}" y="{y}" width="{width}" height="46" rx="4"/><text class="name" x="{x + 7}" y="{y + 14}">{name}</text>'
    ]
    for index, (letter, part, share) in enumerate(parts):
        left = x + 7 + 20 * index
        kind = f"part {part}" + (" share" if share else "")
        drawn.append(
            f'<g class="{kind}"><rect x="{left}" y="{y + 21}" width="18" height="18" rx="2"/>'
            f'<text x="{left + 9}" y="{y + 34}" text-anchor="middle">{letter}</text></g>'
        )
    return "".join(drawn)


def picture(placement: Placement) -> str:
    """An SVG of where a step's parts live and what moves; colours come from the page's style, so that it works in the dark."""
    left = (WIDTH - GPUS * BOX - (GPUS - 1) * GAP) / 2
    xs = [left + index * (BOX + GAP) for index in range(GPUS)]
    drawn = [_box(left, HOST_Y, GPUS * BOX + (GPUS - 1) * GAP, "host", held(placement, None))]
    drawn += [_box(x, GPU_Y, BOX, f"GPU {index}", held(placement, index)) for index, x in enumerate(xs)]
    kind, _ = movement(placement)
    arrows = []
    if kind in ("host", "both"):
        arrows += [_arrow(x + BOX / 2, HOST_Y + 49, x + BOX / 2, GPU_Y - 4) for x in xs]
    if kind in ("gpus", "both"):
        arrows += [_arrow(x + BOX + 2, GPU_Y + 30, x + BOX + GAP - 2, GPU_Y + 30) for x in xs[:-1]]
    tip = (
        '<defs><marker id="tip" viewBox="0 0 6 6" refX="5" refY="3" markerWidth="5" markerHeight="5" orient="auto-start-reverse">'
        '<path d="M0 0 L6 3 L0 6 z"/></marker></defs>'
    )
    label_of_all = f"{escape(placement.title)}: {in_words(placement)}"
    return (
        f'<svg class="placement" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{label_of_all}">'
        f'{tip}{"".join(drawn)}<g class="arrows">{"".join(arrows)}</g></svg>'
    )


def placements_page() -> str:
    """Every placement as a section: summary, picture, cost formula, meaning; then one table of all rows' settings. Markdown."""
    sections = [
        f"(placement-{placement.name})=\n### {placement.title} (`{placement.name}`)\n\n{placement.summary}\n\n"
        f'<figure class="placement">{picture(placement)}<figcaption>A step moves: {movement(placement)[1]}.</figcaption></figure>\n\n'
        f"{cost(placement)}\n\n"
        f"{placement.semantics.sentence} {runs_as(placement)} Source: {placement.source}."
        for placement in placements().values()
    ]
    return "\n\n".join([*sections, "### All rows", settings_table()])


def settings_table() -> str:
    """The settings of every placement, a row each, as HTML."""
    head = "".join(f"<th>{field}</th>" for field in ("placement", *FIELDS))
    cells = {
        placement.name: "".join(f"<td>{str(getattr(placement, field)).replace('_', ' ')}</td>" for field in FIELDS)
        for placement in placements().values()
    }
    rows = "".join(f"<tr><th>{name}</th>{own}</tr>" for name, own in cells.items())
    return f'<div class="wide"><table class="plain settings"><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table></div>'


def cost(placement: Placement) -> str:
    """The bytes that a step moves over all replicas, as formulas in the page's Markdown."""
    when = "a step" if placement.semantics.every == 1 else f"in {placement.semantics.every} steps"
    return f"Bytes {when}: {'. '.join(formula_lines(placement))}."


def runs_as(placement: Placement) -> str:
    """Where it exists, as a sentence."""
    overlap = " Merging starts before backward has ended." if placement.overlap else ""
    names = {"torch": "PyTorch", "tensorflow": "TensorFlow"}
    shapes = {"one": "one process for all devices", "per_device": "a process a device"}
    ways = [
        f"in {names[engine.framework]} with {shapes[engine.processes]} ({', '.join(engine.executions).replace('_', ' and ')})"
        for engine in placement.engines
    ]
    return f"It exists {' and '.join(ways)}.{overlap}"
