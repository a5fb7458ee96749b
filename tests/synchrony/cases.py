"""Short experiments that several tests use."""

from typing import Any

from multigpu.synchrony.experiment import Experiment
from multigpu.synchrony.server import Server

EXPONENTIAL = {"kind": "exponential", "scale_s": 1.0}
REGRESSION = {"kind": "linear_regression", "features": 6, "rows": 200, "batch_size": 16}
SIX = (("sync", None), ("k_sync", 3), ("k_batch_sync", 6), ("async", None), ("k_async", 3), ("k_batch_async", 6))
"""The protocols with a K for 5 workers; the batch variants with more gradients than workers."""


def timed(protocol: str, gradients: int | None = None, **fields: Any) -> Experiment:
    """Without gradients: 5 workers, exponential times, 200 updates."""
    fields = {"workers": 5, "law": EXPONENTIAL, "updates": 200, **fields}
    return Experiment(protocol=protocol, gradients=gradients, **fields)


def trained(protocol: str, gradients: int | None = None, **fields: Any) -> Experiment:
    """The same with gradients, of linear regression."""
    return timed(protocol, gradients, **{"problem": REGRESSION, "rate": {"kind": "constant", "rate": 0.02}, **fields})


def check_accounts(run: Server, updates: int) -> None:
    """Every batch that was started is in one account, and the gradients of so many updates were applied."""
    a = run.accounts
    assert a.started == a.applied + a.waiting + a.running + a.cancelled + a.lost
    assert a.applied == updates * run.experiment.gradients_per_update and len(run.update_times_s) == updates
    assert (a.cancelled > 0) == (run.experiment.protocol in ("k_sync", "k_batch_sync"))
