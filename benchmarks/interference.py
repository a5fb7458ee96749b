"""Do Runs that share a machine disturb each other? The same Runs in one lane, first alone and then
beside lanes that do the same.

    python benchmarks/interference.py --rounds 2

Records in data/interference say by `lane.neighbours` which is which; the tables that are printed
compare them on the same GPU and the same cores.
"""

import sys
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pandas as pd

from multigpu import paths
from multigpu.analysis.compare import equal_rows, ratio_columns
from multigpu.analysis.frame import frame_of
from multigpu.analysis.points import points
from multigpu.cli.command import Parser, add_records, answered, count, parse_counts
from multigpu.grids import device_counts, find_grid
from multigpu.machine.lane import Place
from multigpu.machine.machine import gpu_count, this_machine
from multigpu.records.base import STATUSES
from multigpu.records.record import Record, RecordStore
from multigpu.runner.lanes import places_here, run_lanes
from multigpu.runner.point import Point, known_here
from multigpu.runner.summary import Bar, Summary, followed
from multigpu.runner.timed import check_devices
from multigpu.spec.run import Run
from multigpu.workloads.sources import check_inputs

SLOTS, MOST_REPEATS = 64, 100
"""Of each round: slot 0 is lane 0 alone, slot 1 + n lane n beside others; repeats of each."""

ON_CPUS = 2  # lanes of a machine without GPUs


def repeat_of(number: int, slot: int, repeat: int) -> int:
    """Number a repeat in its Record: different for every round, slot and repeat."""
    return (number * SLOTS + slot) * MOST_REPEATS + repeat


def check_interference(
    runs: Sequence[Run],
    store: RecordStore,
    rounds: int = 2,
    repeats: int = 3,
    lanes: int | None = None,
    progress: bool = True,
) -> Summary:
    """Measure every Run alone in lane 0 and in all lanes at once, in so many rounds; what has
    Records already is passed over. A round's lanes are together or not at all: where lane 0 is not
    complete, all of them measure the round again, as new attempts.
    lanes: how many (None: as many as the GPUs allow, `ON_CPUS` on CPUs). A RuntimeError: a lane
        died; what was measured is kept.
    """
    if rounds < 1 or not 1 <= repeats <= MOST_REPEATS:
        raise ValueError(
            f"{rounds} rounds of {repeats} repeats cannot be: choose at least 1 round and 1 to"
            f" {MOST_REPEATS} repeats"
        )
    for run in runs:
        check_devices(run)
    check_inputs(runs)
    store.check_writable(this_machine().name)
    groups: dict[int, tuple[list[Run], list[Place]]] = {}
    for run in runs:
        beside = lanes or (gpu_count() // run.devices if run.device_type == "cuda" else ON_CPUS)
        if not 2 <= beside < SLOTS:
            raise ValueError(
                f"{run.label()} needs at least two lanes, and {gpu_count()} GPUs give {beside}:"
                " leave it out or use more GPUs"
            )
        groups.setdefault(run.devices, ([], places_here(run.devices, run.device_type, beside)))[
            0
        ].append(run)
    total = rounds * repeats * sum(len(own) * (1 + len(where)) for own, where in groups.values())
    with followed(total, progress) as (summary, bar):
        for number in range(rounds):
            for own, where in groups.values():
                _phase({where[0]: _points(own, number, 0, repeats)}, store, (), bar, summary)
                together = {
                    place: _points(own, number, 1 + lane, repeats)
                    for lane, place in enumerate(where)
                }
                _phase(together, store, STATUSES, bar, summary)
    return summary


def _points(runs: Sequence[Run], number: int, slot: int, repeats: int) -> list[Point]:
    return [
        Point(run, repeat_of(number, slot, repeat)) for run in runs for repeat in range(repeats)
    ]


def _phase(
    shares: dict[Place, list[Point]],
    store: RecordStore,
    retry: Sequence[str],
    bar: Bar,
    summary: Summary,
) -> None:
    """Measure these lanes at once, unless the first, which is compared, is complete."""
    first = next(iter(shares.values()))
    if len(known_here(first, store)) == len(first):
        there = sum(map(len, shares.values()))
        summary.reused += there
        bar.update(there)
        return
    run_lanes(shares, store, bar, summary, retry)


ALLOWED = 1.005
"""The study's rule: Runs may share a machine only where none slows by more than 0.5%."""

RUN = [
    "machine",
    "framework",
    "execution",
    "devices",
    "run",
    "framework_version",
    "timing_version",
    "digest",
    "cores",
]
"""What makes two Records of lanes the same Run in a lane of as many cores."""

COLUMNS = [
    "machine",
    "run",
    "framework",
    "execution",
    "devices",
    "lanes",
    "n_alone",
    "n_shared",
    "ratio",
    "low",
    "high",
    "verdict",
]
LANES = ["machine", "run", "framework", "execution", "devices", "ratio", "low", "high", "gpus", "n"]


def verdict_of(low: Any, high: Any) -> np.ndarray:
    """Decide by intervals: "may share", "disturbed" or "not shown"; NaN shows nothing."""
    return np.select([high <= ALLOWED, low > ALLOWED], ["may share", "disturbed"], "not shown")


def lane_points(records: Iterable[Record], *more: str) -> pd.DataFrame:
    """The measured Runs of lanes, repeats pooled, by `RUN`, GPUs and `more`, in order of these."""
    known = [
        (record, record.lane)
        for record in records
        if record.lane and record.measurement and not record.run.traced_steps
    ]
    told = [
        (record.run.label(), record.run.digest, lane.cores, tuple(lane.gpus))
        for record, lane in known
    ]
    frame = frame_of(record for record, _ in known)
    by = [*RUN, "gpus", *more]
    return points(
        frame.join(
            pd.DataFrame(told, columns=["run", "digest", "cores", "gpus"], index=frame.index)
        ),
        by,
    ).sort_values(by)


def _beside(own: pd.DataFrame, base: pd.DataFrame, on: Sequence[str]) -> pd.DataFrame:
    """Each of `own` beside the one of `base` that equals it in `on`: n_base; ratio, low, high:
    seconds a step over the base's.
    """
    at = equal_rows(own.reset_index(drop=True), base.reset_index(drop=True), on)
    own, base = (
        side.iloc[at[number]].reset_index(drop=True) for number, side in enumerate((own, base))
    )
    found = ratio_columns(base, own, "ratio").rename(
        columns={"ratio_low": "low", "ratio_high": "high"}
    )
    return own.assign(n_base=base["n"]).join(found)


def interference_table(records: Iterable[Record]) -> pd.DataFrame:
    """A row a Run measured alone and beside neighbours: step time over that alone, with bounds."""
    found = lane_points(records, "neighbours")
    table = _beside(
        found[found["neighbours"].gt(0)], found[found["neighbours"].eq(0)], [*RUN, "gpus"]
    )
    table = table.assign(
        lanes=table["neighbours"] + 1, verdict=verdict_of(table["low"], table["high"])
    )
    named = table.rename(columns={"n": "n_shared", "n_base": "n_alone"})[COLUMNS]
    return named.sort_values(["machine", "framework", "devices", "run", "lanes"], ignore_index=True)


def lanes_table(records: Iterable[Record]) -> pd.DataFrame:
    """Each lane's mean step time over the first lane's, all measuring side by side."""
    found = lane_points(record for record in records if record.lane and record.lane.neighbours)
    first = found["gpus"].eq(found.groupby(RUN)["gpus"].transform("first"))
    table = _beside(found[~first], found[first], RUN)
    table["gpus"] = [", ".join(map(str, gpus)) for gpus in table["gpus"]]
    return table[LANES].sort_values(
        ["machine", "framework", "devices", "run", "gpus"], ignore_index=True
    )


@answered
def main(words: Sequence[str] | None = None) -> int:
    """Run the check; returns the exit code, 2 for bad input."""
    parser = Parser(prog="interference", description=__doc__.partition("\n\n")[0])
    for option, default, text in (
        ("--rounds", 2, "each alone first and then side by side"),
        ("--repeats", 3, "of every Run, in each half of a round"),
    ):
        words_of = f"{text} (default: {default})"
        parser.add_argument(option, type=count(), default=default, help=words_of)
    parser.add_argument("--framework", choices=("torch", "tensorflow"), default="torch")
    parser.add_argument("--devices", help="GPUs a Run (default: what leaves room for two lanes)")
    parser.add_argument("--dry-run", action="store_true", help="list what would be measured")
    parser.add_argument("--quiet", action="store_true", help="no progress bar")
    add_records(parser, paths.INTERFERENCE)
    arguments = parser.parse_args(words)
    here = gpu_count()
    counts = (
        parse_counts(arguments.devices) if arguments.devices else device_counts(here // 2) or [1]
    )
    planned = find_grid("interference" if here else "interference_small", counts)
    runs = [entry.run for entry in planned if entry.run.framework == arguments.framework]
    if not runs:
        there = ", ".join(map(str, counts))
        raise ValueError(
            f"nothing of {arguments.framework!r} is checked on {there} devices: choose --devices 1"
            " or 1,2"
        )
    if arguments.dry_run:
        print(*(run.label() for run in runs), sep="\n")
        return 0
    # every half of a round takes as long as one lane
    minutes = (
        2
        * arguments.rounds
        * arguments.repeats
        * sum(entry.cost_s for entry in planned if entry.run in runs)
        / 60
    )
    planned_words = (
        f"{arguments.rounds} rounds of {arguments.repeats} repeats: about {minutes:.0f} minutes"
    )
    print(f"{len(runs)} Runs on {this_machine().name}, {planned_words}", flush=True)
    store = RecordStore(arguments.records)
    print(
        check_interference(
            runs, store, arguments.rounds, arguments.repeats, None, not arguments.quiet
        ),
        flush=True,
    )
    own = [record for record in store if record.machine.name == this_machine().name]
    for table in (interference_table(own), lanes_table(own)):
        if len(table):
            print(table.drop(columns="machine").to_string(index=False))
    return 0


if __name__ == "__main__":
    sys.exit(main())
