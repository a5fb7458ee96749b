"""Do Runs that share a machine disturb each other? The same Runs in one lane, first alone and then
beside lanes that do the same. Records say by `lane.neighbours` which is which;
`analysis.interference` compares them on the same GPU and the same cores.
"""

from collections.abc import Sequence

from multigpu import paths
from multigpu.cli.command import answered, parse_counts
from multigpu.grids import device_counts, find_grid
from multigpu.machine.lane import Place
from multigpu.machine.machine import gpu_count, this_machine
from multigpu.records.base import STATUSES
from multigpu.records.record import RecordStore
from multigpu.runner.lanes import places_here, run_lanes
from multigpu.runner.point import Point, known_points
from multigpu.runner.summary import Bar, Summary, followed
from multigpu.runner.timed import check_devices
from multigpu.spec.run import Run
from multigpu.workloads.sources import check_inputs
from multigpu_study.analysis.interference import interference_table, lanes_table
from multigpu_study.commands import INTERFERENCE, parsed

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
        count = lanes or (gpu_count() // run.devices if run.device_type == "cuda" else ON_CPUS)
        if not 2 <= count < SLOTS:
            raise ValueError(
                f"{run.label()} needs at least two lanes, and {gpu_count()} GPUs give {count}:"
                " leave it out or use more GPUs"
            )
        groups.setdefault(run.devices, ([], places_here(run.devices, run.device_type, count)))[
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
    if len(known_points(first, store)) == len(first):
        count = sum(map(len, shares.values()))
        summary.reused += count
        bar.update(count)
        return
    run_lanes(shares, store, bar, summary, retry)


@answered
def main(words: Sequence[str] | None = None) -> int:
    """Entry point: `python -m multigpu interference ...`."""
    arguments = parsed(words, INTERFERENCE, paths.INTERFERENCE)
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
