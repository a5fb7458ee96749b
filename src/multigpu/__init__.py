"""A reproducible study of multi-GPU training. What a user of their own model needs is here and is
imported when it is asked for.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from multigpu.user_model.compare import compare
    from multigpu.user_model.fits import fits
    from multigpu.user_model.result import compared
    from multigpu.user_model.wrap import wrap
    from multigpu.workloads.own.job import SGD, Adam, AdamW, Job

__all__ = ["SGD", "Adam", "AdamW", "Job", "compare", "compared", "fits", "wrap"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    homes = {
        "compare": "multigpu.user_model.compare",
        "compared": "multigpu.user_model.result",
        "fits": "multigpu.user_model.fits",
        "wrap": "multigpu.user_model.wrap",
    }
    return getattr(importlib.import_module(homes.get(name, "multigpu.workloads.own.job")), name)
