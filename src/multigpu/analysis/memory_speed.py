"""What memory's speed is worth: the same captured steps on two kinds of GPU whose arithmetic is alike and whose memories are not.

Document 001 found GPUs at 95% of the memory clock at 85 to 99% of the throughput (claim C19). Clocks are not changed here; another memory
on the same chip stands in for one that runs slower.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median

import pandas as pd

from multigpu.analysis.picture import Shown
from multigpu.analysis.statistics import interval, sample
from multigpu.analysis.steady import of_one_gpu
from multigpu.analysis.tables import table_html
from multigpu.analysis.wording import MODEL_NAMES, joined, missing, percent_text, plural, rate_text, unbroken
from multigpu.measure.ceilings import Ceilings
from multigpu.published import load_published
from multigpu.record import Record
from multigpu.same_gpus import kind_of

ARITHMETIC_ALIKE, MEMORY_APART = 1.10, 1.10
"""Two kinds are compared if their matrix products take equally long within the first in every precision, and their copies do not within
the second. The larger over the smaller."""

CLOCK = 0.95
"""The share of memory's speed at which effects are told: document 001's slower GPUs ran at 95% of the others' memory clock."""

NONE = (
    "No two kinds of GPU with equal arithmetic and unequal memory have Records of one captured step: "
    "`python -m multigpu ceilings` and `measure --grid memory_speed --devices 1` on each make them."
)


@dataclass(frozen=True)
class Kinds:
    """Two kinds of GPU by name, and what the slower one's memory and matrix products reach of the faster one's (shares, medians)."""

    slow: str
    fast: str
    memory: float
    matmul: dict[str, float]


def compared_kinds(ceilings: Sequence[Ceilings]) -> Kinds | None:
    """The two kinds of GPU whose memories are furthest apart of those whose arithmetic is alike; None without two."""
    every = {one.gpu: one for one in ceilings}
    found = []
    for slow in every.values():
        for fast in every.values():
            shares = {bits: median(slow.matmul[bits]) / median(fast.matmul[bits]) for bits in slow.matmul if bits in fast.matmul}
            memory = median(slow.memory) / median(fast.memory)
            if memory * MEMORY_APART < 1 and all(1 / ARITHMETIC_ALIKE <= share <= ARITHMETIC_ALIKE for share in shares.values()):
                found.append(Kinds(slow.gpu, fast.gpu, memory, shares))
    return min(found, key=lambda kinds: kinds.memory, default=None)


POINT_COLUMNS = {
    **dict.fromkeys(("digest", "workload", "model", "unit", "precision"), "string"),
    **dict.fromkeys(("batch_size", "n_slow", "n_fast"), "int64"),
    **dict.fromkeys(("slow_units_per_s", "fast_units_per_s", "kept", "kept_low", "kept_high", "per_memory"), "float64"),
    **dict.fromkeys(("at_clock", "at_clock_low", "at_clock_high"), "float64"),
}


def memory_points(records: Iterable[Record], kinds: Kinds | None) -> pd.DataFrame:
    """A row a Run that both kinds of GPU measured without a profiler, the one that memory costs most first; none without two kinds.

    Returns:
        slow_units_per_s, fast_units_per_s: geometric means of repeats on either kind, of whichever machine; n_slow, n_fast: repeats;
        kept: slow over fast, with its 95% interval (`analysis.statistics`; NaN where either was measured once); per_memory: percent of
        throughput lost for a percent of memory speed, ln kept / ln memory's share: 1 if a step did nothing but wait for memory, 0 if it
        never did; at_clock: kept at CLOCK of the memory's speed, CLOCK^per_memory, with its interval.
    """
    measured: dict[str, dict[str, list[Record]]] = {}
    for record in of_one_gpu(records) if kinds else []:
        kind = kind_of(record.machine)
        if kinds and kind in (kinds.slow, kinds.fast) and not record.run.traced_steps:
            measured.setdefault(record.run.digest, {}).setdefault(kind, []).append(record)
    rows = []
    for digest, by_kind in measured.items():
        if kinds is None or len(by_kind) < 2:
            continue
        slow, fast = (
            sample([one.measurement.units / one.measurement.wall_s for one in own if one.measurement], [one.launch_id for one in own])
            for own in (by_kind[kinds.slow], by_kind[kinds.fast])
        )
        run = by_kind[kinds.slow][0].run
        log, half = slow.mean - fast.mean, interval([slow, fast])
        low, middle, high = (value / math.log(kinds.memory) for value in (log + half, log, log - half))
        rows.append(
            {"digest": digest, "workload": run.workload, "model": run.model, "unit": run.description.unit}
            | {"precision": run.precision, "batch_size": run.batch_size, "n_slow": slow.n, "n_fast": fast.n}
            | {"slow_units_per_s": math.exp(slow.mean), "fast_units_per_s": math.exp(fast.mean)}
            | {"kept": math.exp(log), "kept_low": math.exp(log - half), "kept_high": math.exp(log + half), "per_memory": middle}
            | {"at_clock": CLOCK**middle, "at_clock_low": CLOCK**high, "at_clock_high": CLOCK**low}
        )
    frame = pd.DataFrame(rows, columns=list(POINT_COLUMNS)).astype(POINT_COLUMNS)
    return frame.sort_values(["kept", "digest"], ignore_index=True)


def documents_gpus() -> pd.DataFrame:
    """Document 001's GPUs at the lower memory clock.

    Returns:
        gpu; kept: share of GPU 0's throughput; clock: of its memory clock; at_clock: kept, which is at CLOCK as printed; per_memory.
    """
    table = load_published("001_memory_clock")
    slow = table[table["memory_clock_percent"] < 100]
    kept, clock = slow["images_percent"] / 100, slow["memory_clock_percent"] / 100
    lost = [math.log(a) / math.log(b) for a, b in zip(kept, clock, strict=True)]
    return pd.DataFrame({"gpu": slow["gpu"], "kept": kept, "clock": clock, "at_clock": kept, "per_memory": lost}).reset_index(drop=True)


def point_name(row: pd.Series) -> str:
    """Model, batch and precision of a point."""
    return f"{MODEL_NAMES.get(row['model'], row['model'])}, batch {row['batch_size']}, {row['precision']}"


def memory_finding(points: pd.DataFrame, kinds: Kinds | None) -> str:
    """How much of its rate each job keeps; `document_finding` sets the document's 15% beside it."""
    if kinds is None or points.empty:
        return NONE
    worst, best = points.iloc[0], points.iloc[-1]
    return (
        f"With {percent_text(kinds.memory)} of the memory speed of {short(kinds.fast)} and the same arithmetic, {short(kinds.slow)} keeps "
        f"{_interval(worst, 'kept')}% ({point_name(worst)}) to {_interval(best, 'kept')}% ({point_name(best)}) of its rate, whole steps as "
        f"one graph. That is at most {worst['per_memory']:.2f}% of throughput for 1% of memory speed."
    )


def document_finding(points: pd.DataFrame, kinds: Kinds | None) -> list[str]:
    """What memory's speed explains of the document's GPUs at a lower memory clock; nothing without two kinds of GPU."""
    if kinds is None or points.empty:
        return []
    document = documents_gpus().sort_values("at_clock")
    below = document[document["at_clock"] < CLOCK]
    kept = joined([f"{100 * share:.1f}" for share in document["at_clock"]])
    said = (
        f"At {CLOCK:.0%} of the memory clock such losses would leave {100 * points.iloc[0]['at_clock']:.1f}% of the rate or more; document "
        f"001's GPUs kept {kept}% there"
    )
    lost = f"; {len(below)} of them lost more than a step that did nothing but wait for memory would, so something else slowed them too."
    return [said + (lost if len(below) else ".")]


def short(gpu: str) -> str:
    """The GPU's name without its maker's."""
    return gpu.removeprefix("NVIDIA ")


def memory_table(points: pd.DataFrame, kinds: Kinds | None) -> Shown:
    """Every job on both kinds, the one that memory costs most first; the document's GPUs below."""
    if kinds is None or points.empty:
        return table_html(pd.DataFrame(), note=NONE)
    slow, fast, kept = short(kinds.slow), short(kinds.fast), "kept (%)"
    rows = [
        {
            "job": unbroken(*point_name(row).split(", ", 1)),
            slow: rate_text(row["slow_units_per_s"], unit=row["unit"]),
            fast: rate_text(row["fast_units_per_s"], unit=row["unit"]),
            kept: _interval(row, "kept"),
            "lost for 1% of memory speed (%)": f"{row['per_memory']:.2f}",
            f"left at {CLOCK:.0%} (%)": _interval(row, "at_clock"),
            "n": f"{row['n_slow']}, {row['n_fast']}",
        }
        for _, row in points.iterrows()
    ]
    rows += [
        {
            "job": f"001: GPU {int(row['gpu'])}",
            slow: "–",
            fast: "–",
            kept: f"{100 * row['kept']:.1f}",
            "lost for 1% of memory speed (%)": f"{row['per_memory']:.2f}",
            f"left at {CLOCK:.0%} (%)": f"{100 * row['at_clock']:.1f}",
            "n": "–",
        }
        for _, row in documents_gpus().iterrows()
    ]
    products = joined([f"{bits} {100 * share:.1f}%" for bits, share in kinds.matmul.items()])
    note = (
        f"One GPU, whole steps as one CUDA graph; rates are geometric means. Of {fast}'s measured speed {slow} reaches: memory "
        f"{100 * kinds.memory:.1f}%, matrix products in {products}. Left at {CLOCK:.0%}: what a memory that slow would leave if losses "
        "went on as measured, as a power of memory's speed. Intervals 95%, none where either side was measured once; n: repeats of "
        "each. The document's GPUs ran at 95% of the others' clock (AlexNet, GTX 1070)."
    )
    return table_html(pd.DataFrame(rows), note=note, right=[name for name in rows[0] if name != "job"])


def _interval(row: pd.Series, name: str) -> str:
    low, high = row[f"{name}_low"], row[f"{name}_high"]
    return f"{100 * row[name]:.1f}" + ("" if missing(low) else f" ({100 * low:.1f} to {100 * high:.1f})")


def unclean(records: Iterable[Record], kinds: Kinds | None) -> str:
    """How many of the compared Records name a tree with changes, and which commit they name; "" if none does."""
    compared = of_one_gpu(records) if kinds else []
    found = [one for one in compared if not one.clean_tree and kinds and kind_of(one.machine) in (kinds.slow, kinds.fast)]
    commits = joined(sorted({one.commit[:7] for one in found}))
    machines = joined(sorted({one.machine.name for one in found}))
    names = "names" if len(found) == 1 else "name"
    return f"{plural(len(found), 'Record')} of {machines} {names} a tree with changes over commit {commits}." if found else ""
