"""What PyTorch is asked: the documents' placements with a process a device, in each form of execution, and one process for all."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from multigpu.grid.entries import (
    ENDS,
    EXPERIMENTS,
    FEWEST,
    OTHER_PLACEMENTS,
    TRACED,
    Planned,
    Tier,
    ends_of,
    nmt,
    resnet50,
)
from multigpu.placements import placements
from multigpu.run import Run

OTHER_GRAPHS = ("exp4", "ps_gpu0", "replicated_copy", "replicated_allreduce")
"""Placements beside ddp and independent replicas that a CUDA graph can hold."""

OTHER_DISPATCHED = ("replicated_allreduce", "replicated_copy", "independent", "ps_gpu0")
"""Placements beside 000's that one process can dispatch for any model."""


def placements_repeated(devices: Sequence[int]) -> list[Planned]:
    """What claims need of them with repeats: Exp1 and Exp3 on the NMT at 128 x 100 on 1, 4 and 8 (C3, C10), and on the most GPUs
    ResNet-50 merged after backward, by the library and by copies (C22, C29); on 3, where document 000's speedup ends, Exp1 to Exp4
    and ddp on the NMT (C1, C11); and all other ways that page 05 sets beside their bounds, on the most GPUs and on one
    (`_ways_beside_bounds`). bf16.
    """
    ends = [count for count in sorted(devices, reverse=True) if count in ENDS]
    planned = [
        Planned(resnet50(placement, count, batch, precision="bf16"), "headline", 3.5, FEWEST)
        for count in ends[:1]
        for placement in ("replicated_allreduce", "replicated_copy")
        for batch in (64, 256)
    ]
    three = [(3, placement) for placement in (*EXPERIMENTS, "ddp") if 3 in devices]
    planned += [
        Planned(nmt(placement, count, 128, precision="bf16"), "headline", 3.0, FEWEST)
        for count, placement in (*((count, placement) for count in ends for placement in ("exp3", "exp1")), *three)
    ]
    known = {entry.run for entry in planned}
    return planned + [Planned(run, "headline", 2.5, FEWEST) for run in _ways_beside_bounds(ends_of(devices)) if run not in known]


def _ways_beside_bounds(counts: Sequence[int]) -> list[Run]:
    """The NMT at 128 x 100 and ResNet-50 at 64 under every placement that the headline leaves out: a process a device, captured, and
    dispatched by one process (on one device Exp1 to Exp4 alone, which differ there).
    """
    form: dict[str, object] = {"precision": "bf16"}
    runs = []
    for count in counts:
        ways: list[tuple[str, dict[str, object]]] = [(placement, form) for placement in OTHER_PLACEMENTS]
        ways += [(placement, form | {"execution": "captured"}) for placement in OTHER_GRAPHS]
        dispatched = (*EXPERIMENTS, *OTHER_DISPATCHED) if count == max(counts) > 1 else EXPERIMENTS
        ways += [(placement, form | {"processes": "one"}) for placement in dispatched]
        runs += [run for placement, more in ways for run in both_jobs(placement, count, more)]
    return runs


def both_jobs(placement: str, count: int, form: Mapping[str, object]) -> list[Run]:
    """The NMT at 128 x 100, where it is captured with projection and loss in one piece, and ResNet-50 at 64."""
    loss: dict[str, object] = {"cross_entropy": "fused"} if "execution" in form else {}
    return [nmt(placement, count, 128, **form, **loss), resnet50(placement, count, 64, **form)]


def captured(devices: Sequence[int]) -> list[Planned]:
    """The whole step as one CUDA graph: the headline's jobs with the host taken out. bf16.

    Headline on 1, 4 and 8: ddp on the NMT with projection and loss in one piece, at 128 and 360 x 100, and on ResNet-50 at 32,
    64 and 256, with independent replicas beside three of the five. Screening: the other placements that a graph can hold, the
    library's own loss, other sizes of buckets, and what the eager side lacks for comparison.
    """
    form = {"precision": "bf16", "execution": "captured"}
    repeated: list[Planned] = []
    once: list[Run] = []
    for count in sorted(devices, reverse=True):
        tier: Tier = "headline" if count in ENDS else "screening"
        for placement in ("ddp", "independent"):
            runs = [nmt(placement, count, 128, cross_entropy="fused", **form)]
            runs += [resnet50(placement, count, batch, **form) for batch in (64, 256)]
            rest = [nmt(placement, count, 360, cross_entropy="fused", **form), resnet50(placement, count, 32, **form)]
            if placement == "ddp":
                runs += rest
            else:
                once += rest
            repeated += [Planned(run, tier, 2.7, FEWEST) for run in runs]
        once += [nmt("ddp", count, 128, **form), nmt("ddp", count, 128, cross_entropy="fused", precision="bf16")]
        once.append(resnet50("ddp", count, 32, precision="bf16"))
        if count in ENDS:
            for placement in OTHER_GRAPHS:
                once += [nmt(placement, count, 128, cross_entropy="fused", **form), resnet50(placement, count, 64, **form)]
            if count > 1:
                once += [nmt("ddp", count, 128, cross_entropy="fused", bucket_mib=size, **form) for size in (1, 100, 400)]
    return repeated + [Planned(run, "screening", 2.7) for run in once]


def traces(devices: Sequence[int]) -> list[Planned]:
    """Three steps of the headline's smaller jobs under the profiler, under every placement with a process a device, captured
    where the headline is, and dispatched by one process for Exp1-Exp4: phases, launch skew, exposed communication, copies and
    kernels. On the most devices also all else that page 05 compares (`_traces_of_the_rest`), and Exp4 and Exp2 in TF32 beside one
    device, since TensorFlow's are traced in that. They enter no throughput. Screening.
    """
    planned = []
    form: dict[str, object] = {"precision": "bf16"} | TRACED
    for count in sorted(devices, reverse=True):
        for placement in with_a_process_a_device():
            host = 5.0 if placement in EXPERIMENTS[:3] else 0.0
            planned += [
                Planned(nmt(placement, count, 128, **form), "screening", 3.0 + host),
                Planned(resnet50(placement, count, 64, **form), "screening", 3.0 + host),
            ]
        one_graph = form | {"execution": "captured"}
        planned.append(Planned(nmt("ddp", count, 128, cross_entropy="fused", **one_graph), "screening", 3.0))
        planned.append(Planned(resnet50("ddp", count, 64, **one_graph), "screening", 3.0))
        planned += [Planned(nmt(placement, count, 128, processes="one", **form), "screening", 6.0) for placement in EXPERIMENTS]
    ends, tf32 = ends_of(devices), form | {"precision": "tf32"}
    planned += [Planned(nmt(placement, count, 128, **tf32), "screening", 5.0) for count in ends for placement in ("exp4", "exp2")]
    return planned + [entry for most in ends[:1] for entry in _traces_of_the_rest(most, form)]


def _traces_of_the_rest(most: int, form: Mapping[str, object]) -> list[Planned]:
    """Traces of ways that `captured`, `dispatch` and `cnn_updates` time and `traces` has on no other number of devices: other captured
    placements, and one process for all devices on ResNet-50 and with what 000 does not have. Not the losses that ddp has beside the one
    traced: a picture of steps names a Run by its placement, execution and processes.
    """
    graph, one = {**form, "execution": "captured"}, {**form, "processes": "one"}
    runs = []
    for placement in ("independent", *OTHER_GRAPHS):
        runs += [nmt(placement, most, 128, cross_entropy="fused", **graph), resnet50(placement, most, 64, **graph)]
    runs += [resnet50(placement, most, 64, **one) for placement in (*EXPERIMENTS, "make_parallel", "make_parallel_cpu")]
    for placement in OTHER_DISPATCHED:
        runs += [nmt(placement, most, 128, **one), resnet50(placement, most, 64, **one)]
    return [Planned(run, "screening", 5.0 + (most if run.processes == "one" else 0)) for run in runs]


def with_a_process_a_device() -> list[str]:
    """Placements of any model that PyTorch runs eagerly with one process a device."""
    return [
        name
        for name, row in placements().items()
        if row.compute == "replica"
        and any((e.framework, e.processes) == ("torch", "per_device") and "eager" in e.executions for e in row.engines)
    ]
