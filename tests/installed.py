"""Cases whose workload is installed: the study's own is not where the study is not."""

from collections.abc import Iterable
from typing import Any

import pytest

from multigpu.workloads import workloads

DEEPCONN = "deepconn" in workloads()
"""Whether the study's workload is there; `multigpu` and its tests do without it."""
needs_deepconn = pytest.mark.skipif(not DEEPCONN, reason="multigpu_study is not installed")


def installed(cases: Iterable[Any], at: int = 0) -> list[Any]:
    """The cases whose workload is there.
    at: where a case names it.
    """
    return [case for case in cases if case[at] in workloads()]
