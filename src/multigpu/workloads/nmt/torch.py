"""The translation models in PyTorch."""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from multigpu.kernels.lstm_launch import library_instead
from multigpu.spec.model import Model
from multigpu.workloads.nmt.description import STATES, NmtConfig, cell_below, starts_from
from multigpu.workloads.nmt.projection_loss import IGNORED, projected_cross_entropy
from multigpu.workloads.nmt.recurrence import Cells, State, fused, pack, persistent, stepwise
from multigpu.workloads.nmt.torch_sequences import (
    ends_of,
    host_lengths,
    interleaved,
    library_loss,
    padded,
    unsorted,
)
from multigpu.workloads.tensors import arithmetic_type, to_device

RECURRENCES: dict[str, Callable[..., tuple[Tensor, State]]] = {
    "fused": fused,
    "stepwise": stepwise,
    "persistent": persistent,
}


def build(
    model: Model,
    recurrence: str | None = None,
    cross_entropy: str | None = None,
    execution: str = "eager",
) -> nn.Module:
    """The module of a translation model, its parameters uninitialised. recurrence: "fused" (also
    None), "stepwise" or "persistent".
    cross_entropy: "library" (also None) or "fused" with the projection (`projection_loss.py`).
        execution: where steps become one CUDA graph ("captured"), the encoder's two directions
        stand side by side in it (a host that launches each kernel gains nothing).
    """
    return Nmt(
        model, RECURRENCES[recurrence or "fused"], cross_entropy == "fused", "captured" in execution
    )


class Nmt(nn.Module):
    """Summed cross entropies over a shard's target words; parameters as the description names."""

    forget_bias: Tensor
    projection: Tensor

    def __init__(
        self,
        model: Model,
        recurrence: Callable[..., tuple[Tensor, State]] = fused,
        fused_loss: bool = False,
        concurrent: bool = False,
    ) -> None:
        super().__init__()
        self.config: NmtConfig = model.config
        self.recurrence, self.concurrent = recurrence, concurrent
        self.loss: Callable[[Tensor, Tensor, Tensor], Tensor] = (
            projected_cross_entropy if fused_loss else library_loss
        )
        self.streams: dict[tuple[torch.device, str], torch.cuda.Stream] = {}
        for variable in model.variables:
            self.register_parameter(variable.name, nn.Parameter(torch.empty(variable.shape)))
        self.register_buffer("forget_bias", torch.empty(4 * self.config.units), persistent=False)
        self.reset_buffers()

    def reset_buffers(self) -> None:
        """Fill the constants anew, after the module was moved out of the meta device."""
        n = self.config.units
        self.forget_bias.zero_()
        self.forget_bias[n : 2 * n] = self.config.forget_bias  # gates i, f, g, o

    @property
    def reads_lengths_on_device(self) -> bool:
        """Whether a pass over sentences of different lengths can be planned without the host."""
        return self.recurrence is persistent and library_instead(self.projection.device) is None

    @property
    def dropout(self) -> float:
        return self.config.dropout if self.training else 0.0

    def lookups(self, batch: dict[str, Tensor]) -> dict[str, Tensor]:
        """Embedding variable -> the rows that this batch looks up, (B, S) and (B, T)."""
        return {"source_embedding": batch["source"], "target_embedding": batch["target_input"]}

    def forward(self, batch: dict[str, Tensor], rows: dict[str, Tensor] | None = None) -> Tensor:
        """The sum of the loss over the shard's target words, a float32 (or float64) scalar.

        batch: source (B, S), target_input and target_output (B, T), int64; source_length and
            target_length (B,), int64 and on the host. Of equal lengths nothing is planned or
            copied, and the pass can be captured. Where `reads_lengths_on_device`, also source_ends
            and target_ends (B,), int32 on the device, which say the same to a captured pass.
        rows: embedding variable -> rows looked up elsewhere, (B, S, units) or (B, T, units); its
            table is not touched.
        """
        rows = rows or {}
        ids = self.lookups(batch)
        source = self._embed("source_embedding", ids["source_embedding"], rows)  # (S, B, D)
        ends = batch.get("source_ends")
        if ends is None:
            state = self._encode(source, host_lengths(batch, "source_length"))
        else:
            state = self._encode_to(source, ends)
        target = self._embed("target_embedding", ids["target_embedding"], rows)  # (T, B, D)
        output, _ = self._run("decoder", target, state)  # (T, B, D)
        # (T, B)
        targets = self._targets(
            batch["target_output"], host_lengths(batch, "target_length"), batch.get("target_ends")
        )
        if (
            self.loss is projected_cross_entropy
            and (side := self._gradients(output.device)) is not None
        ):
            return projected_cross_entropy(
                output.flatten(0, 1), self.projection, targets.flatten(), side
            )
        return self.loss(output.flatten(0, 1), self.projection, targets.flatten())

    def encode(self, source: Tensor, lengths: Tensor) -> State:
        """The decoder's first state, (cells, B, units); source (B, S), lengths on the host."""
        return self._encode(self._embed("source_embedding", source, {}), lengths)

    def decode_step(self, words: Tensor, state: State) -> tuple[Tensor, State]:
        """The words before a position, (B,) int64, to logits (B, vocabulary) and new state."""
        output, state = self._run(
            "decoder", self._embed("target_embedding", words[:, None], {}), state
        )
        return output[0] @ self.projection.to(output.dtype), state

    def compile_parts(self) -> None:
        """Compile what follows the recurrence; the recurrence stays the library's call."""
        self.loss = torch.compile(self.loss, dynamic=False)

    def _embed(self, name: str, ids: Tensor, rows: dict[str, Tensor]) -> Tensor:
        """Rows of one table, time first: (B, T) -> (T, B, D)."""
        if name in rows:
            return rows[name].transpose(0, 1)
        return F.embedding(ids.t(), getattr(self, name))

    def _run(
        self,
        stack: str,
        x: Tensor,
        state: State,
        batch_sizes: Tensor | None = None,
        lengths: Tensor | None = None,
        beside: int = 1,
    ) -> tuple[Tensor, State]:
        """lengths: of persistent cells. beside: how many stacks run at once, with this one."""
        kernels, biases = (
            # by attribute: a copy that nn.DataParallel makes has tensors, and no parameters
            [getattr(self, f"{cell}_{part}") for cell in self.config.cell_names(stack)]
            for part in ("kernel", "bias")
        )
        more: dict[str, Any] = {}
        if self.recurrence is persistent:
            more = {"lengths": lengths, "beside": beside, "side": self._gradients(x.device)}
        cells = Cells(kernels, biases, self.forget_bias, self.dropout)
        return self.recurrence(x, state, cells, batch_sizes, **more)

    def _gradients(self, device: torch.device) -> torch.cuda.Stream | None:
        """The stream for gradients beside persistent cells; None: in their turn."""
        beside = self.recurrence is persistent and self.concurrent and device.type == "cuda"
        return self._stream(device, "gradients") if beside else None

    def _stream(self, device: torch.device, name: str) -> torch.cuda.Stream:
        return self.streams.setdefault((device, name), torch.cuda.Stream(device))

    def _encode(self, source: Tensor, lengths: Tensor) -> State:
        """The decoder's first state, (cells, B, D): source (S, B, D), lengths (B,) on the host."""
        shortest, longest = ends_of(lengths)
        # (L, B, D)
        zero = source.new_zeros(self.config.encoder_layers, source.shape[1], self.config.units)
        if shortest == longest:
            source = source[:longest]
            forwards, backwards = self._both_directions(source, source.flip(0), (zero, zero))
        else:
            packing = pack(lengths, source.device)
            words = source.flatten(0, 1)  # (S B, D)
            _, forwards = self._run(
                "encoder_forward",
                words.index_select(0, packing.forwards),
                (zero, zero),
                packing.batch_sizes,
            )
            _, backwards = self._run(
                "encoder_backward",
                words.index_select(0, packing.backwards),
                (zero, zero),
                packing.batch_sizes,
            )
            forwards = unsorted(forwards, packing.unsort)
            backwards = unsorted(backwards, packing.unsort)
        return interleaved(forwards, backwards)

    def _encode_to(self, source: Tensor, ends: Tensor) -> State:
        """As `_encode`, planned on the device: source (S, B, D), ends (B,) int32 beside it."""
        longest, batch = source.shape[:2]
        position = torch.arange(longest, device=source.device)[:, None]  # (S, 1)
        turned = torch.where(position < ends, ends - 1 - position, position) * batch + torch.arange(
            batch, device=source.device
        )
        zero = source.new_zeros(self.config.encoder_layers, batch, self.config.units)  # (L, B, D)
        words = source.flatten(0, 1).index_select(0, turned.flatten()).view_as(source)
        return interleaved(*self._both_directions(source, words, (zero, zero), ends))

    def _both_directions(
        self, source: Tensor, turned: Tensor, state: State, ends: Tensor | None = None
    ) -> tuple[State, State]:
        """The states after the last and the first position of sentences (S, B, D)."""
        if not (self.concurrent and source.is_cuda):
            _, forwards = self._run("encoder_forward", source, state, lengths=ends)
            _, backwards = self._run("encoder_backward", turned, state, lengths=ends)
            return forwards, backwards
        main = torch.cuda.current_stream(source.device)
        side = self._stream(source.device, "direction")
        side.wait_stream(main)
        with torch.cuda.stream(side):
            _, backwards = self._run("encoder_backward", turned, state, lengths=ends, beside=2)
        _, forwards = self._run("encoder_forward", source, state, lengths=ends, beside=2)
        main.wait_stream(side)
        # memory that the other stream works on is not to be given away meanwhile
        for tensor in (turned, *state):
            tensor.record_stream(side)
        for tensor in backwards:
            tensor.record_stream(main)
        return forwards, backwards

    def _targets(self, target: Tensor, lengths: Tensor, ends: Tensor | None = None) -> Tensor:
        """Targets, time first, padding ignored: (B, T) -> (T, B). ends: lengths on the device."""
        target = target.t()
        if ends is None and int(lengths.min()) >= target.shape[0]:
            return target
        position = torch.arange(target.shape[0], device=target.device)[:, None]  # (T, 1)
        return target.masked_fill(
            position >= (to_device(lengths, target.device) if ends is None else ends), IGNORED
        )


Values = dict[str, Tensor]
Compute = Callable[[Values], Values]
"""From the batch's arrays and earlier sections' tensors to what the section gives."""


def section_functions(module: nn.Module) -> dict[str, Compute]:
    """Section -> its function, which touches no variables but the section's own."""
    assert isinstance(module, Nmt)
    config = module.config
    found: dict[str, Compute] = {
        f"{side}_embedding": partial(_look_up, module, side) for side in ("source", "target")
    }
    for layer in range(config.encoder_layers):
        for stack in ("encoder_forward", "encoder_backward"):
            found[f"{stack}_{layer}"] = partial(_encoder_cell, module, stack, layer)
    for layer in range(config.decoder_cells):
        found[f"decoder_{layer}"] = partial(_decoder_cell, module, layer)
    last = f"decoder_{config.decoder_cells - 1}"

    def projection(values: Values) -> Values:
        targets = module._targets(values["target_output"], host_lengths(values, "target_length"))
        return {
            "loss": module.loss(values[last].flatten(0, 1), module.projection, targets.flatten())
        }

    return found | {"projection": projection}


def _look_up(module: Nmt, side: str, values: Values) -> Values:
    ids = values["source" if side == "source" else "target_input"]
    found = F.embedding(ids.t(), getattr(module, f"{side}_embedding"))  # (T, B, D)
    return {f"{side}_rows": found.to(arithmetic_type(found))}


def _cell(
    module: Nmt, name: str, x: Tensor, state: State, batch_sizes: Tensor | None = None
) -> tuple[Tensor, State]:
    kernel, bias = getattr(module, f"{name}_kernel"), getattr(module, f"{name}_bias")
    return module.recurrence(
        x, state, Cells([kernel], [bias], module.forget_bias, module.dropout), batch_sizes
    )


def _encoder_cell(module: Nmt, stack: str, layer: int, values: Values) -> Values:
    """Outputs travel as (S, B, D) in the order of reading, from a sentence's last word too."""
    name, hands_up = f"{stack}_{layer}", layer + 1 < module.config.encoder_layers
    x = values[f"{stack}_{layer - 1}" if layer else "source_rows"]
    lengths = host_lengths(values, "source_length")
    shortest, longest = ends_of(lengths)
    zero = x.new_zeros(1, x.shape[1], x.shape[2])
    turned = stack == "encoder_backward" and layer == 0
    if shortest == longest == x.shape[0]:
        output, (hidden, cell) = _cell(module, name, x.flip(0) if turned else x, (zero, zero))
    else:
        packing = pack(lengths, x.device)
        words = x.flatten(0, 1).index_select(0, packing.backwards if turned else packing.forwards)
        output, state = _cell(module, name, words, (zero, zero), packing.batch_sizes)
        hidden, cell = unsorted(state, packing.unsort)
        output = padded(output, packing, x.shape) if hands_up else output
    given = {
        f"{name}_{state}": value[0] for state, value in zip(STATES, (hidden, cell), strict=True)
    }
    return given | ({name: output} if hands_up else {})


def _decoder_cell(module: Nmt, layer: int, values: Values) -> Values:
    hidden, cell = (values[f"{starts_from(layer)}_{state}"][None] for state in STATES)
    output, _ = _cell(module, f"decoder_{layer}", values[cell_below(layer)], (hidden, cell))
    return {f"decoder_{layer}": output}
