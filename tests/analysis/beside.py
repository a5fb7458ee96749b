"""Planted Records of both frameworks: TensorFlow's one graph, PyTorch as its Runs are by default."""

from __future__ import annotations

from typing import Any

from multigpu.record import Record
from tests.factory import make_record

TENSORFLOW: dict[str, Any] = {"framework": "tensorflow", "processes": "one", "execution": "graph", "precision": "tf32"}


def tf(rate: float, placement: str = "exp4", devices: int = 4, **more: Any) -> Record:
    return make_record(placement, devices, rate, **(TENSORFLOW | more))


def torch(rate: float, placement: str = "exp4", devices: int = 4, **more: Any) -> Record:
    return make_record(placement, devices, rate, **more)
