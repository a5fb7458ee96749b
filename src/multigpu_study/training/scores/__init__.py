"""Scores of trained models on held-out data, a module a workload (`training.evaluation` says what
is asked of it); other packages' workloads bring an `evaluate` of their own.
"""

from importlib.util import find_spec

from multigpu.workloads import part_of


def module_of(workload: str) -> str:
    """Return the name of the module that scores a workload's models; it may not be there."""
    own = f"{__name__}.{workload}"
    return own if find_spec(own) else part_of(workload, "evaluate")
