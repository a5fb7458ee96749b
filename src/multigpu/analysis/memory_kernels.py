"""Which kernels of a step wait for memory: the same traced step on two kinds of GPU that differ in memory alone, kernel by kernel."""

from __future__ import annotations

import math
from collections.abc import Iterable
from statistics import fmean

import pandas as pd

from multigpu.analysis.memory_speed import Kinds, short
from multigpu.analysis.picture import Shown
from multigpu.analysis.steady import of_one_gpu
from multigpu.analysis.tables import table_html
from multigpu.analysis.wording import MODEL_NAMES, joined
from multigpu.measure.trace import TraceSummary
from multigpu.record import Record
from multigpu.same_gpus import kind_of

NO_TRACES = "No step was traced on both kinds of GPU: `python -m multigpu measure --grid memory_speed --devices 1` on each does."
REST = "all other kernels"

KERNEL_COLUMNS = {
    **dict.fromkeys(("model", "kernel"), "string"),
    **dict.fromkeys(("batch_size",), "int64"),
    **dict.fromkeys(("calls", "slow_ms", "fast_ms", "ratio", "slow_busy_ms", "fast_busy_ms"), "float64"),
    **dict.fromkeys(("slow_own", "fast_own"), "string"),
}


def kernel_points(records: Iterable[Record], kinds: Kinds | None) -> pd.DataFrame:
    """A row a traced job and kernel that both kinds call equally often in a step, and one of all others (REST).

    A Record keeps its dearest kernels alone, so a kernel may be missing because the other kind's library takes another, or because it is
    cheap there. Of several Records of a kind the one of median device time counts.

    Returns:
        calls: a step, NaN of REST; slow_ms, fast_ms: milliseconds of a step on either kind; REST's: of everything else on the device;
        ratio: slow over fast. Kernels may run side by side: their times are summed, and so is REST. slow_busy_ms, fast_busy_ms: of a
        step, in which the device did anything; slow_own, fast_own: the dearest kernel that only that kind calls so often, "" without one.
    """
    traced: dict[str, dict[str, list[Record]]] = {}
    for record in of_one_gpu(records):
        kind = kind_of(record.machine)
        if kinds and kind in (kinds.slow, kinds.fast) and record.measurement and record.measurement.trace:
            traced.setdefault(record.run.digest, {}).setdefault(kind, []).append(record)
    rows: list[dict[str, object]] = []
    for by_kind in traced.values():
        if kinds is None or len(by_kind) < 2:
            continue
        one, (slow, fast) = by_kind[kinds.slow][0], (_median(by_kind[kind]) for kind in (kinds.slow, kinds.fast))
        ours, theirs = _kernels(slow), _kernels(fast)
        same = [name for name, (calls, _) in ours.items() if theirs.get(name, (0, 0))[0] == calls]
        job: dict[str, object] = {"model": one.run.model, "batch_size": one.run.batch_size}
        job |= {"slow_busy_ms": _busy_ms(slow), "fast_busy_ms": _busy_ms(fast)}
        job |= {"slow_own": _dearest(ours, same), "fast_own": _dearest(theirs, same)}
        pairs = [(name, ours[name][0], ours[name][1], theirs[name][1]) for name in same]
        rest = [_device_ms(trace) - sum(known[name][1] for name in same) for trace, known in ((slow, ours), (fast, theirs))]
        pairs.append((REST, math.nan, rest[0], rest[1]))
        rows += [
            job | {"kernel": name, "calls": calls, "slow_ms": slow_ms, "fast_ms": fast_ms, "ratio": slow_ms / fast_ms}
            for name, calls, slow_ms, fast_ms in pairs
        ]
    return pd.DataFrame(rows, columns=list(KERNEL_COLUMNS)).astype(KERNEL_COLUMNS)


def _median(records: list[Record]) -> TraceSummary:
    traces = sorted((one.measurement.trace for one in records if one.measurement and one.measurement.trace), key=_device_ms)
    return traces[len(traces) // 2]


def _device_ms(trace: TraceSummary) -> float:
    """Milliseconds of a step's kernels and copies, summed."""
    replica = trace.replicas[0]
    return 1000 * (replica.device_time_s or math.nan) / len(replica.steps)


def _busy_ms(trace: TraceSummary) -> float:
    """Milliseconds of a step in which the device did anything."""
    return 1000 * fmean(step.busy_s for step in trace.replicas[0].steps)


def _dearest(kernels: dict[str, tuple[float, float]], same: list[str]) -> str:
    """The dearest kernel that is not among those of both, with its calls."""
    own = {name: figures for name, figures in kernels.items() if name not in same}
    name = max(own, key=lambda name: own[name][1], default="")
    return f"`{name}`, {own[name][0]:.0f} calls" if name else ""


def _kernels(trace: TraceSummary) -> dict[str, tuple[float, float]]:
    """Kernel -> (calls, milliseconds) a step."""
    steps = len(trace.replicas[0].steps)
    return {one.name: (one.calls / steps, 1000 * one.total_s / steps) for one in trace.kernels}


def kernel_finding(points: pd.DataFrame, kinds: Kinds | None) -> str:
    """Which kernel memory sets the pace of, which it does not, and where the step parts otherwise."""
    if kinds is None or points.empty:
        return NO_TRACES
    known = points[points["kernel"] != REST].sort_values("ratio")
    free, bound = known.iloc[0], known.iloc[-1]
    said = [
        f"A kernel that only moves memory would take {1 / kinds.memory:.2f} times as long on {short(kinds.slow)}. Of those that both call "
        f"equally often the nearest to it takes {bound['ratio']:.2f} times as long (`{bound['kernel']}`, {_model(bound)}), the farthest "
        f"{free['ratio']:.2f} (`{free['kernel']}`, {_model(free)})."
    ]
    for _, job in points.groupby(["model", "batch_size"], sort=False):
        first, total = job.iloc[0], job[["slow_ms", "fast_ms"]].sum()
        if first["slow_busy_ms"] < first["fast_busy_ms"]:
            said.append(
                f"{_model(first)} at batch {first['batch_size']} takes less time on the GPU with the slower memory: "
                f"{first['slow_busy_ms']:.1f} ms a step against {first['fast_busy_ms']:.1f}, though its kernels sum to "
                f"{total['slow_ms']:.1f} against {total['fast_ms']:.1f} ms: more of them run side by side. The same library chooses other "
                f"kernels there ({first['slow_own']}, in place of {first['fast_own']}): the two steps differ in more than memory."
            )
    return " ".join(said)


def _model(row: pd.Series) -> str:
    return MODEL_NAMES.get(row["model"], str(row["model"]))


def kernel_table(points: pd.DataFrame, kinds: Kinds | None) -> Shown:
    """Kernels of both, the one that loses most first, job by job."""
    if kinds is None or points.empty:
        return table_html(pd.DataFrame(), note=NO_TRACES)
    slow, fast = (f"{short(name)} (ms)" for name in (kinds.slow, kinds.fast))
    rows = []
    for (model, batch), job in points.groupby(["model", "batch_size"], sort=False):
        for _, row in job.assign(lost=job["slow_ms"] - job["fast_ms"]).sort_values("lost", ascending=False).iterrows():
            rows.append(
                {
                    "job": f"{MODEL_NAMES.get(str(model), str(model))}, batch {batch}",
                    "kernel": row["kernel"],
                    "calls": "–" if row["kernel"] == REST else f"{row['calls']:.0f}",
                    slow: f"{row['slow_ms']:.2f}",
                    fast: f"{row['fast_ms']:.2f}",
                    "times as long": f"{row['ratio']:.2f}",
                }
            )
    jobs = joined(list(dict.fromkeys(row["job"] for row in rows)))
    note = (
        f"A step of {jobs}, bf16, as one CUDA graph under the profiler: kernels by their shortened names, calls and milliseconds a step. "
        f"Named are those of the dearest that both call equally often. {REST.capitalize()}: other choices of the library and the "
        f"cheap ones; times are summed, also of what ran side by side. Memory alone would make {1 / kinds.memory:.2f} of every ratio."
    )
    return table_html(pd.DataFrame(rows), note=note, right=["calls", slow, fast, "times as long"])
