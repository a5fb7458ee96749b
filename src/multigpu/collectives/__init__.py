"""All-reduce, written out from sends and receives: every `Algorithm` that a module of `algorithms/`
defines. Nothing here imports a framework before an algorithm runs.
"""

import importlib
import pkgutil
from functools import cache

from multigpu.collectives import algorithms as package
from multigpu.collectives.algorithm import Algorithm


@cache
def algorithms() -> dict[str, Algorithm]:
    """By name, in alphabetical order."""
    modules = [
        importlib.import_module(f"{package.__name__}.{info.name}")
        for info in pkgutil.iter_modules(package.__path__)
    ]
    found = {
        one.name: one
        for module in modules
        for one in vars(module).values()
        if isinstance(one, Algorithm)
    }
    return dict(sorted(found.items()))


def find_algorithm(name: str) -> Algorithm:
    """The algorithm called `name`, or a ValueError that names the known ones."""
    if name not in algorithms():
        raise ValueError(
            f"unknown all-reduce algorithm {name!r}: choose one of {', '.join(algorithms())}"
        )
    return algorithms()[name]
