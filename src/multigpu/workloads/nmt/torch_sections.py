"""What each section of a translation model computes, in PyTorch."""

from collections.abc import Callable
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from multigpu.workloads.nmt.description import STATES, cell_below, starts_from
from multigpu.workloads.nmt.recurrence import Cells, Packing, State, pack
from multigpu.workloads.nmt.torch import Nmt, host_lengths, unsorted
from multigpu.workloads.tensors import arithmetic_type

Values = dict[str, Tensor]
Compute = Callable[[Values], Values]
"""From arrays of the batch and tensors that earlier sections gave to what the section gives ("loss": the last one)."""


def section_functions(module: nn.Module) -> dict[str, Compute]:
    """Section -> what it computes. A section touches no variables but its own, so all others may stay on the meta device."""
    assert isinstance(module, Nmt)
    config = module.config
    found: dict[str, Compute] = {f"{side}_embedding": partial(_look_up, module, side) for side in ("source", "target")}
    for layer in range(config.encoder_layers):
        for stack in ("encoder_forward", "encoder_backward"):
            found[f"{stack}_{layer}"] = partial(_encoder_cell, module, stack, layer)
    for layer in range(config.decoder_cells):
        found[f"decoder_{layer}"] = partial(_decoder_cell, module, layer)
    last = f"decoder_{config.decoder_cells - 1}"

    def projection(values: Values) -> Values:
        targets = module._targets(values["target_output"], host_lengths(values, "target_length"))
        return {"loss": module.loss(values[last].flatten(0, 1), module.projection, targets.flatten())}

    return found | {"projection": projection}


def _look_up(module: Nmt, side: str, values: Values) -> Values:
    ids = values["source" if side == "source" else "target_input"]
    found = F.embedding(ids.t(), module.get_parameter(f"{side}_embedding"))  # (T, B, D)
    return {f"{side}_rows": found.to(arithmetic_type(found))}


def _cell(module: Nmt, name: str, x: Tensor, state: State, batch_sizes: Tensor | None = None) -> tuple[Tensor, State]:
    """One cell over all positions; states (1, B, D)."""
    kernel, bias = module.get_parameter(f"{name}_kernel"), module.get_parameter(f"{name}_bias")
    return module.recurrence(x, state, Cells([kernel], [bias], module.forget_bias, module.dropout), batch_sizes)


def _encoder_cell(module: Nmt, stack: str, layer: int, values: Values) -> Values:
    """Outputs travel as the batch is: (S, B, D) in the order of reading, which for the second direction is from the last word on."""
    name, hands_up = f"{stack}_{layer}", layer + 1 < module.config.encoder_layers
    x, lengths = values[f"{stack}_{layer - 1}" if layer else "source_rows"], host_lengths(values, "source_length")
    shortest, longest = (int(end) for end in lengths.aminmax())
    if shortest < 1:
        raise ValueError("source_length has a 0: an empty sentence leaves the decoder no state to start from")
    zero = x.new_zeros(1, x.shape[1], x.shape[2])
    turned = stack == "encoder_backward" and layer == 0
    if shortest == longest == x.shape[0]:
        output, (hidden, cell) = _cell(module, name, x.flip(0) if turned else x, (zero, zero))
    else:
        packing = pack(lengths, x.device)
        words = x.flatten(0, 1).index_select(0, packing.backwards if turned else packing.forwards)
        output, state = _cell(module, name, words, (zero, zero), packing.batch_sizes)
        hidden, cell = unsorted(state, packing.unsort)
        output = _padded(output, packing, x.shape) if hands_up else output
    given = {f"{name}_{state}": value[0] for state, value in zip(STATES, (hidden, cell), strict=True)}
    return given | ({name: output} if hands_up else {})


def _padded(words: Tensor, packing: Packing, shape: torch.Size) -> Tensor:
    """Packed words back in a batch (S, B, D), in the order of reading, zeros behind each sentence's last."""
    return words.new_zeros(shape).flatten(0, 1).index_copy(0, packing.forwards, words).view(shape)


def _decoder_cell(module: Nmt, layer: int, values: Values) -> Values:
    hidden, cell = (values[f"{starts_from(layer)}_{state}"][None] for state in STATES)
    output, _ = _cell(module, f"decoder_{layer}", values[cell_below(layer)], (hidden, cell))
    return {f"decoder_{layer}": output}
