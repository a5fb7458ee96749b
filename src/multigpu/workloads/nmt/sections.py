"""The translation models as sections, framework-free: look-ups, cells, projection with loss, in an order in which they can run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from multigpu.workloads.base import Section

if TYPE_CHECKING:
    from multigpu.workloads.nmt.description import NmtConfig

STATES = ("hidden", "cell")


def sections(config: NmtConfig) -> tuple[Section, ...]:
    """11 sections with two encoder layers: two look-ups, eight cells, the projection.

    An encoder cell gives its outputs to the cell above it and its last state to the decoder's cell that starts from it; a decoder's cell
    gives its outputs upwards. Words are looked up where they are first needed and padded positions travel too.
    """
    n = config.units
    cell_work = {"source": {"source_embedding": 16 * n * n}, "target": {"target_embedding": 16 * n * n}}
    found = [Section("source_embedding", ("source_embedding",), (), {"source_rows": {"source_embedding": n}}, {"rows": 0})]
    for layer in range(config.encoder_layers):
        for stack in ("encoder_forward", "encoder_backward"):
            cell = f"{stack}_{layer}"
            gives: dict[str, dict[str, int]] = {f"{cell}_{state}": {"rows": n} for state in STATES}
            if layer + 1 < config.encoder_layers:
                gives[cell] = {"source_embedding": n}
            takes: tuple[str, ...] = (f"{stack}_{layer - 1}",) if layer else ("source_rows",)
            found.append(Section(cell, (f"{cell}_kernel", f"{cell}_bias"), takes, gives, cell_work["source"]))
    found.append(Section("target_embedding", ("target_embedding",), (), {"target_rows": {"target_embedding": n}}, {"rows": 0}))
    for layer, cell in enumerate(config.cell_names("decoder")):
        takes = (cell_below(layer), *(f"{starts_from(layer)}_{state}" for state in STATES))
        gives = {cell: {"target_embedding": n}}
        found.append(Section(cell, (f"{cell}_kernel", f"{cell}_bias"), takes, gives, cell_work["target"]))
    work = {"target_embedding": 2 * n * config.target_vocabulary}
    found.append(Section("projection", ("projection",), (f"decoder_{config.decoder_cells - 1}",), {}, work))
    return tuple(found)


def cell_below(layer: int) -> str:
    """What a cell of the decoder reads."""
    return f"decoder_{layer - 1}" if layer else "target_rows"


def starts_from(layer: int) -> str:
    """The encoder's cell from whose last state a cell of the decoder starts: forward 0, backward 0, forward 1, backward 1."""
    return f"{('encoder_forward', 'encoder_backward')[layer % 2]}_{layer // 2}"
