"""All that page 05 sets in one table: every placement, in every way of carrying it out, repeated and traced."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from multigpu.grid.entries import EXPERIMENTS, FEWEST, TRACED, Planned, ends_of, resnet50
from multigpu.grid.pytorch import OTHER_DISPATCHED, OTHER_GRAPHS, both_jobs, with_a_process_a_device
from multigpu.run import Run


def placement_table(devices: Sequence[int]) -> list[Planned]:
    """The NMT at 128 x 100 and ResNet-50 at 64 on the most of these devices under every placement of documents 000 and 001: a process a
    device, dispatched by one process, and captured where a graph can hold it. bf16; five repeats over four launches, and a trace of each.

    On one machine, so that rows compare: what other grids have measured there is not measured again. The documents' own placements first.
    """
    planned = []
    for most in ends_of(devices)[:1]:
        runs = _ways(most)
        planned += [Planned(run, "headline", _cost_s(run), FEWEST) for run in runs]
        planned += [Planned(Run(**run.model_dump(exclude_defaults=True) | TRACED), "screening", 1.5 + _cost_s(run)) for run in runs]
    return planned


def _ways(count: int) -> list[Run]:
    form: dict[str, Any] = {"precision": "bf16"}
    graph, one = form | {"execution": "captured"}, form | {"processes": "one"}
    ways = [(placement, form) for placement in with_a_process_a_device()]
    ways += [(placement, graph) for placement in ("ddp", "independent", *OTHER_GRAPHS, "staged_gpu0")]
    ways += [(placement, one) for placement in (*EXPERIMENTS, *OTHER_DISPATCHED)]
    ways.sort(key=lambda way: way[0].startswith(("staged", "replicated_ring", "replicated_server")))
    runs = [run for placement, more in ways for run in both_jobs(placement, count, more)]
    return runs + [resnet50(placement, count, 64, **one) for placement in ("make_parallel", "make_parallel_cpu")]


def _cost_s(run: Run) -> float:
    """Variables on the host are read, merged and written by its cores; one joined batch is gathered there piece by piece."""
    host = {"exp1": 2.5, "exp2": 3.5, "exp3": 1.5}.get(run.placement, 0.0) * (1.0 if run.model == "nmt000" else 0.4)
    return 1.5 + host + {"make_parallel": 1.0, "make_parallel_cpu": 9.0}.get(run.placement, 0.0)
