"""What a server computes with vectors of parameters, wherever they lie: the one place that tells NumPy's arrays from a device's tensors."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np

Vector = Any
"""A NumPy array, or a tensor on a device; both know +, -, * and a product with a number."""


class Arithmetic(Protocol):
    """Where a server's vectors lie, and what its update needs beside + and *. No operation changes its arguments."""

    def place(self, array: np.ndarray) -> Vector:
        """The array's values where the server keeps its parameters."""

    def fetch(self, vector: Vector) -> np.ndarray:
        """The vector's values on the host; not to be written."""

    def zeros_like(self, vector: Vector) -> Vector:
        """As long, of the same type."""

    def divided(self, vector: Vector, count: int) -> Vector:
        """Every element divided by `count`, correctly rounded."""

    def squared_distance(self, one: Vector, other: Vector) -> float:
        """||one - other||^2, added up in an order of its own."""


class HostArithmetic:
    """NumPy's arrays in the host's memory."""

    def place(self, array: np.ndarray) -> Vector:
        return array

    def fetch(self, vector: Vector) -> np.ndarray:
        return np.asarray(vector)

    def zeros_like(self, vector: Vector) -> Vector:
        return np.zeros_like(vector)

    def divided(self, vector: Vector, count: int) -> Vector:
        return vector / count

    def squared_distance(self, one: Vector, other: Vector) -> float:
        return float(np.sum((one - other) ** 2))


ON_HOST = HostArithmetic()
