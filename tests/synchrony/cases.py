"""Short experiments that several tests use."""

from typing import Any

from multigpu.synchrony.experiment import Experiment

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
