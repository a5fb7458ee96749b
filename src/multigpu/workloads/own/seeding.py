"""Seed the generators that a user's code draws from without naming them (the interpreter's, numpy's
and PyTorch's), alike in every process. Imports no framework.
"""

import random
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

FIRST_OF_TORCH = 67280421310721
"""With which PyTorch's generator begins in a process that never seeds it."""

ALONE = threading.RLock()
"""Held while something draws from the process's generators: threads share them."""

LOADED, MADE = 0, 1
"""Seeds of what a file draws while it is loaded, and of what a model draws while it is made."""


def seeds_of(*parts: int) -> list[int]:
    """Two seeds below 2**32: for the generator that is given, and for all others."""
    return [int(word) for word in np.random.SeedSequence(list(parts)).generate_state(2)]


def _torch() -> Any:
    """PyTorch's generator of the CPU, if imported: capturing steps need those of GPUs."""
    torch = sys.modules.get("torch")
    return getattr(torch, "default_generator", None)


def seed_all(seed: int, of_torch: int | None = None) -> None:
    """Begin the interpreter's, numpy's and PyTorch's own generators (by `of_torch`)."""
    random.seed(seed)
    np.random.seed(seed)  # noqa: NPY002  # what users draw from
    if (generator := _torch()) is not None:
        generator.manual_seed(seed if of_torch is None else of_torch)


def states() -> dict[str, bytes]:
    """Where each generator of this process stands, by the name of its library."""
    found = {
        "random": repr(random.getstate()).encode(),
        "numpy": repr(
            [part if not isinstance(part, np.ndarray) else part.tobytes() for part in _numpy()]
        ).encode(),
    }
    if (generator := _torch()) is not None:
        found["torch"] = generator.get_state().numpy().tobytes()
    return found


def _numpy() -> tuple[Any, ...]:
    state = np.random.get_state(legacy=True)  # noqa: NPY002
    assert isinstance(state, tuple)
    return state


@contextmanager
def undisturbed() -> Iterator[None]:
    """Whatever is drawn inside, the process's generators go on afterwards as if nothing was."""
    interpreter, numpy = random.getstate(), _numpy()
    generator = _torch()
    state = None if generator is None else generator.get_state()
    try:
        yield
    finally:
        random.setstate(interpreter)
        np.random.set_state(numpy)  # noqa: NPY002
        if generator is not None:
            generator.set_state(state)


@contextmanager
def drawing_alike(seed: int, of_torch: int | None = None) -> Iterator[None]:
    """Draw the same inside in every process; generators go on afterwards undisturbed."""
    with ALONE, undisturbed():
        seed_all(seed, of_torch)
        yield
