"""A placement's whole step as one CUDA graph, which the host launches once. Sentences of different
lengths are padded to few widths, with lengths and numbers of terms on the device.
"""

from collections.abc import Hashable
from dataclasses import dataclass, replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from multigpu.engines.torch.feed import Shard
from multigpu.engines.torch.recorder import CudaRecorder, RecordingFailed
from multigpu.engines.torch.trainer import Trainer
from multigpu.spec.errors import Unsupported
from multigpu.workloads.tensors import to_device

# steps of each new shape that run eagerly before its capture: libraries choose algorithms and
# allocate what they keep
EAGER_STEPS = 2
MOST_GRAPHS = 8  # shapes of batches that one Run may have: each graph keeps its own plan of memory
# widths are multiples of this, as document 000's buckets are wide: its own lengths then have six or
# seven shapes
WIDTH = 10
# which arrays a side's lengths are of
SIDES = {"source": ("source",), "target": ("target_input", "target_output")}


def is_ragged(shard: Shard) -> bool:
    """Whether the shard has sentences of different lengths."""
    return any(
        len(set(lengths.tolist())) > 1
        for name, lengths in shard.host.items()
        if name.endswith("_length")
    )


def with_few_shapes(shard: Shard, device: torch.device) -> Shard:
    """The shard padded to the grid, with its `_ends`, (B,) int32 on the device, and `terms`."""
    batch, placed = shard.batch, dict(shard.device)
    numbers = torch.tensor([batch.loss_terms[batch.rank], batch.global_loss_terms])
    lengths = [shard.host[f"{side}_length"] for side in SIDES]
    ends = to_device(torch.cat(lengths), device).int().split(len(lengths[0]))
    terms = to_device(numbers, device)
    for (side, names), end in zip(SIDES.items(), ends, strict=True):
        placed[f"{side}_ends"] = end.contiguous()
        for name in names:
            placed[name] = F.pad(placed[name], (0, -placed[name].shape[1] % WIDTH))
    return replace(shard, device=placed, terms=terms)


def shape_of(shard: Shard) -> Hashable:
    """What a graph has fixed of a shard: shapes, and what the device does not hold."""
    shapes = tuple((name, tuple(tensor.shape)) for name, tensor in shard.device.items())
    if shard.terms is not None:
        return shapes
    lengths = tuple(
        (name, tensor.numpy().tobytes())
        for name, tensor in shard.host.items()
        if name.endswith("_length")
    )
    lookups = tuple(tuple(sorted(each.items())) for each in shard.batch.lookups)
    return shapes, lengths, shard.batch.loss_terms, lookups


@dataclass
class Graph:
    """A captured step: `inputs` are the tensors that it reads, `loss` the one that it writes."""

    graph: torch.cuda.CUDAGraph
    inputs: Shard
    loss: Tensor


class CapturedTrainer:
    """Another trainer's steps, captured once a shape of batch and replayed on new data."""

    def __init__(self, trainer: Trainer) -> None:
        self.trainer = trainer
        if not self.device.cuda:
            raise Unsupported(
                "a captured step is a CUDA graph, which a CPU does not have: choose execution eager"
            )
        self.stream = torch.cuda.Stream(self.device.torch)
        self.graphs: dict[Hashable, Graph] = {}
        self.seen: dict[Hashable, int] = {}
        self.counted: dict[Hashable, dict[str, int]] = {}
        self.recorder = CudaRecorder(self.device.torch, torch.cuda.graph_pool_handle())

    def __getattr__(self, name: str) -> Any:
        return getattr(self.trainer, name)

    def step(self, shards: list[Shard]) -> list[Tensor]:
        losses = self._stepped(self._fitted(*shards))
        if self.trainer.follow is not None:
            self.trainer.follow()
        return losses

    def _stepped(self, shard: Shard) -> list[Tensor]:
        key = shape_of(shard)
        if key not in self.graphs:
            self.seen[key] = self.seen.get(key, 0) + 1
            if self.seen[key] <= EAGER_STEPS:
                return self._eager(shard, key)
            if len(self.graphs) >= MOST_GRAPHS:
                raise Unsupported(
                    "captured graphs have static shapes, and this input has more than"
                    f" {MOST_GRAPHS} shapes of batches"
                )
            self.graphs[key] = self._capture(shard, key)
        known = self.graphs[key]
        for name, target in known.inputs.device.items():
            if target.is_cuda:
                target.copy_(shard.device[name], non_blocking=True)
        if known.inputs.terms is not None and shard.terms is not None:
            known.inputs.terms.copy_(shard.terms, non_blocking=True)
        known.graph.replay()
        return [known.loss.clone()]

    def _fitted(self, shard: Shard) -> Shard:
        """The shard, in one of few shapes if its model can read lengths on the device."""
        fits = self.trainer.takes_terms and getattr(self.module, "reads_lengths_on_device", False)
        return with_few_shapes(shard, self.device.torch) if fits and is_ragged(shard) else shard

    def _eager(self, shard: Shard, key: Hashable) -> list[Tensor]:
        """A step on the stream that will be captured."""
        outer = torch.cuda.current_stream()
        self.stream.wait_stream(outer)
        with torch.cuda.stream(self.stream):
            losses, self.counted[key] = self.trainer.counted_step([shard])
        outer.wait_stream(self.stream)
        return losses

    def _capture(self, shard: Shard, key: Hashable) -> Graph:
        """The step as a graph; nothing runs yet."""
        fixed = {name: tensor.clone() for name, tensor in shard.device.items()}
        inputs = Shard(
            shard.batch, fixed, shard.host, None if shard.terms is None else shard.terms.clone()
        )
        try:
            with torch.cuda.stream(self.stream):
                graph, ((loss,), counted) = self.recorder.record(
                    lambda: self.trainer.counted_step([inputs])
                )
        except RecordingFailed as failed:
            assert failed.__cause__ is not None
            raise failed.__cause__ from None
        if counted != self.counted[key]:
            raise RuntimeError(
                f"the captured step moves {counted} bytes, the eager one {self.counted[key]}"
            )
        return Graph(graph, inputs, loss)

    def counted_step(self, shards: list[Shard]) -> tuple[list[Tensor], dict[str, int]]:
        losses = self.step(shards)
        return losses, self.counted[shape_of(self._fitted(*shards))]

    def close(self) -> None:
        for known in self.graphs.values():  # before the communicator whose kernels they hold
            known.graph.reset()
        self.graphs.clear()
        self.trainer.close()
