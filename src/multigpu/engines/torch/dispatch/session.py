"""One Run in one PyTorch process whose one thread dispatches for all devices. Every device has its own clock, the host one for all."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from torch import Tensor

from multigpu.engines.torch import session
from multigpu.engines.torch.devices import all_devices, give_back_memory
from multigpu.engines.torch.dispatch.trainer import Context
from multigpu.engines.torch.dispatch.wire import Wire
from multigpu.engines.torch.feed import Feed, Shard, make_feed


class Session(session.Session):
    """All replicas of a Run."""

    context: Context

    def _context(self, rank: int, shared: Path, timeout_s: float) -> Context:
        devices = all_devices(self.run, self.threads)
        return Context(self.run, devices, Wire(devices), self.source.capacity, shared)

    def _feeds(self) -> list[Feed]:
        if self.context.placement.loss != "gpu0":
            return super()._feeds()
        # a joined batch that is sliced lies on the first device
        return [make_feed(self.source, self.run.copy_of(device.rank), self.device) for device in self.devices.each]

    def _train(self, shards: list[Shard]) -> list[Tensor]:
        return self.trainer.step(shards)

    def _counted(self, shards: list[Shard]) -> tuple[list[Tensor], dict[str, int]]:
        return self.trainer.counted_step(shards)

    def _owned(self, rank: int) -> Iterator[tuple[str, Tensor]]:
        return self.trainer.owned(rank)

    def close(self) -> None:
        """As of one replica; the next Run's peak of memory must not count this one's."""
        self.devices.synchronise()  # copies may still be on their way to memory that is given back
        super().close()
        give_back_memory(self.devices.cuda)
