"""How the workers of one launch agree: over the launcher's store, never over a collective that a lost replica would block."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import torch.distributed as dist

from multigpu.measure.program import Stuck


@dataclass
class Votes:
    """One Run's messages among its replicas."""

    store: dist.Store
    prefix: str
    rank: int
    replicas: int

    def gather(self, name: str, value: Any, timeout_s: float) -> list[Any]:
        """Every replica's `value`, by rank, once all have given theirs.

        Raises:
            Stuck: one has not after `timeout_s`.
        """
        self.store.set(f"{self.prefix}/{name}/{self.rank}", json.dumps(value))
        keys = [f"{self.prefix}/{name}/{rank}" for rank in range(self.replicas)]
        try:
            self.store.wait(keys, timedelta(seconds=timeout_s))
        except RuntimeError as error:  # DistStoreError is one
            missing = [rank for rank, key in enumerate(keys) if not self.store.check([key])]
            raise Stuck(f"replicas {missing} did not reach {name!r} within {timeout_s:.0f} s") from error
        return [json.loads(self.store.get(key)) for key in keys]


def publish(store: dist.Store, key: str, value: Any) -> None:
    """Rank 0's word to all workers."""
    store.set(key, json.dumps(value))


def await_word(store: dist.Store, key: str) -> Any:
    """Wait, without a limit and without touching a GPU, for rank 0's word (if it dies, the launcher ends the wait)."""
    return json.loads(store.get(key))
