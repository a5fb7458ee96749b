"""Which Records the page on the cost of placements speaks of: its two jobs, and of every point one traced Run."""

from __future__ import annotations

from collections.abc import Iterable

import pandas as pd
from scipy.stats import spearmanr

from multigpu.analysis.ordinary import ordinary, usual_buckets
from multigpu.analysis.picture import Shown, paragraphs
from multigpu.analysis.style import look
from multigpu.analysis.traces import own_step_s, traced
from multigpu.analysis.ways import CHANGED, of_one_job, way_text
from multigpu.analysis.wording import describe, devices_text, joined, plural
from multigpu.record import Record

JOBS = (("nmt000", 128), ("resnet50_v1.5", 64))
"""(model, batch a GPU), in bf16 under PyTorch: those that documents 000 and 001 place in every way."""

PRECISION = "bf16"

AGAIN = 3
"""Launches from which on the spread of a point's traced steps is told."""


def smaller_machine(costs: pd.DataFrame) -> Shown | None:
    """The heading and the words above the rows of another machine (`ways.placement_costs`); None without any."""
    if costs.empty:
        return None
    names = joined(list(dict.fromkeys(costs["machine"])))
    on = joined(list(dict.fromkeys(devices_text(row["devices"], row["device_type"]) for _, row in costs.iterrows())))
    text = (
        f"Another machine with the same GPUs, {names}: the same placements and ways on {on} (grid `placement_table`). Its eager rows are "
        "those of its own host, and their intervals say how little a host is the same from launch to launch. Rates of two machines are not "
        "divided by each other."
    )
    return Shown(f"<h2>Every row again, on another machine</h2>\n{paragraphs(text, kind='said').html}")


def jobs_of(published: pd.DataFrame) -> pd.DataFrame:
    """The rows of the page's jobs: rows of one job then differ in their placement and way alone (`ways.of_one_job`)."""
    of_jobs = pd.Series([pair in JOBS for pair in zip(published["model"], published["batch_size"], strict=True)], published.index, bool)
    return of_one_job(published[of_jobs & published["framework"].eq("torch") & published["precision"].eq(PRECISION)])


def beside_bounds(jobs: pd.DataFrame) -> pd.DataFrame:
    """The rows that the page sets beside their bounds: eager and captured, with buckets of the usual size, updated behind backward."""
    rows = ordinary(jobs)
    return usual_buckets(rows[rows["execution"].isin(["eager", "captured"])])


def on_several(record: Record) -> bool:
    """Whether a Record is of the page's jobs on several devices."""
    return record.run.devices > 1 and _is_job(record)


ENOUGH = 5
"""Repeats of a headline point, over two launches at least."""


def completeness(costs: pd.DataFrame) -> str:
    """How many rows of `ways.placement_costs` are repeated, and how many traced."""
    if costs.empty:
        return "No Record to show."
    repeated = int(((costs["n"] >= ENOUGH) & (costs["launches"] > 1)).sum())
    on = joined(list(dict.fromkeys(devices_text(row["devices"], row["device_type"]) for _, row in costs.iterrows())))
    traces = int(costs["step_ms"].notna().sum())
    told = (
        f"On {on}, {repeated} of {plural(len(costs), 'row')} have {ENOUGH} repeats or more over several launches, and {traces} have a trace"
    )
    return f"{told}." if repeated == traces == len(costs) else f"{told}; the others have no interval, or say that they were not traced."


def likeness(most: pd.DataFrame, fewer: pd.DataFrame) -> str:
    """Whether placements keep the same order on another number of devices: two tables of `ways.placement_costs`; "" without common rows."""
    keys = ["model", "batch_size", "scaling", "device_type", "placement", "processes", "execution", "cross_entropy"]
    if most.empty or fewer.empty:
        return ""
    both = most.merge(fewer, on=keys, suffixes=("_most", "_fewer")).dropna(subset=["of_independent_most", "of_independent_fewer"])
    both = both[both["placement"].ne("independent")]
    parts = []
    for _, group in both.groupby(["model", "batch_size"], sort=False):
        if len(group) < RANKED:
            continue
        more = int((group["of_independent_low_fewer"] > group["of_independent_high_most"]).sum())
        less = int((group["of_independent_high_fewer"] < group["of_independent_low_most"]).sum())
        order = float(spearmanr(group["of_independent_most"], group["of_independent_fewer"]).statistic)
        first = group.iloc[0]
        parts.append(
            f"{describe(first, ['model', 'batch_size'])}: of {len(group)} ways, {more} keep more of their ceiling on "
            f"{devices_text(first['devices_fewer'], first['device_type'])} than on {first['devices_most']} and {less} less, beyond both "
            f"intervals; the others are not told apart, or have none. Rank correlation of the two orders: {order:.2f}"
        )
    return f"{'. '.join(parts)}." if parts else ""


RANKED = 5
"""Ways from which on the order of two tables is compared."""


def records_of(records: Iterable[Record], machines: Iterable[str]) -> list[Record]:
    """PyTorch's Records of the page's jobs on these machines, in every precision; a loop of cells has a page of its own."""
    machines = set(machines)
    return [record for record in records if record.machine.name in machines and _is_job(record)]


def _is_job(record: Record) -> bool:
    run = record.run
    plain = run.framework == "torch" and run.scaling == "weak" and run.inputs == "synthetic" and run.layout in (None, "channels_last")
    return plain and (run.model, run.batch_size) in JOBS and all(getattr(run, name) is None for name in (*CHANGED, "recurrence"))


def by_point(records: Iterable[Record]) -> dict[tuple[str, str], list[Record]]:
    """The traced Records in the page's precision, of each machine and Run, shortest step of its own first."""
    found: dict[tuple[str, str], list[Record]] = {}
    for record, _ in traced(records):
        if record.run.precision == PRECISION:
            found.setdefault((record.machine.name, record.run.digest), []).append(record)
    return {key: sorted(own, key=lambda record: (own_step_s(record), record.key)) for key, own in found.items()}


def typical(records: Iterable[Record], most: bool = False) -> list[Record]:
    """Of each traced point the Record of median timed step: a point traced in several launches would stand in a picture several times.

    Args:
        most: only the points on the most devices of their job.
    """
    chosen = [own[(len(own) - 1) // 2] for own in by_point(records).values()]
    if most:
        top = {record.run.model: max(r.run.devices for r in chosen if r.run.model == record.run.model) for record in chosen}
        chosen = [record for record in chosen if record.run.devices == top[record.run.model]]
    return sorted(chosen, key=lambda record: (record.run.model, record.run.devices, record.run.placement, record.run.processes, record.key))


def spread_sentence(records: Iterable[Record]) -> str:
    """How far apart the launches of points lie that were traced in several, on the most devices; "" without any."""
    several = [own for own in by_point(records).values() if len(own) >= AGAIN]
    several = [own for own in several if own[0].run.devices == max(other[0].run.devices for other in several)]
    parts = []
    for own in sorted(several, key=lambda own: (own[0].run.model, own[0].run.placement, own[0].run.processes)):
        run = own[0].run
        row, on = run.model_dump(), devices_text(run.devices, run.device_type)
        which = f"{describe(row, ['model'])} with {look(run.placement).label} ({way_text(row)}) on {on}"
        shortest, longest = (f"{1e3 * own_step_s(end):.0f}" for end in (own[0], own[-1]))
        parts.append(f"{which} {shortest} to {longest} ms in {plural(len(own), 'launch', 'launches')}")
    if not parts:
        return ""
    return (
        f"What a traced Run's own steps take before its profiler begins is not the same in every launch: {joined(parts)}. The launch of "
        "median such step is shown; how long its step is, untraced Records say where there are any."
    )
