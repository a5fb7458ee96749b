"""Processes forked by one server that has imported what most tests need: each would take seconds to
import it anew.
"""

import multiprocessing
from multiprocessing import forkserver
from typing import Any

PRELOADED = [
    "tests.multigpu.equivalence.cases",
    "sklearn.datasets",
    "torch._dynamo",
    "tests.frozen",
]


def forking() -> Any:
    """The context of multiprocessing in which processes are forked so. A server that another test
    has started with less is replaced.
    """
    server = forkserver._forkserver  # type: ignore[attr-defined]
    if server._preload_modules != PRELOADED:
        server._stop()
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(PRELOADED)
    return context
