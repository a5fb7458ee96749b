"""Measure a model's stages, search their best placement, and measure what was found, which is also
traced once.

Not measured twice is what was written by hand: those placements are measured first, and tell which
model of the host holds (see `cost`).
"""

import importlib
import json
import math
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.stage_search.pricing import Pricing

from multigpu import paths
from multigpu.build import build_run
from multigpu.cli.command import Parser, answered, count
from multigpu.grids.planned import FEWEST
from multigpu.machine.lock import machine_lock
from multigpu.machine.machine import framework_version, gpu_count, this_machine, versions
from multigpu.machine.process import ask, end_with_parent, tensorflow_environment
from multigpu.placements.stage_split import HAND_WRITTEN, RULES, SPLIT
from multigpu.records.base import made_here
from multigpu.records.record import RecordStore
from multigpu.runner.point import Point
from multigpu.runner.sweep import measure as measure_points
from multigpu.runner.timed import check_devices
from multigpu.spec.parse import parse_fields
from multigpu.spec.run import Run
from multigpu.spec.stage_graph import Places, StageGraph, parse_places
from multigpu.workloads.stages import graph_of
from multigpu_study.stages.costs import Costs
from multigpu_study.stages.record import REFUTED, Predicted, StageRecord, StageStore, stage_key
from multigpu_study.workloads.deepconn.description import epoch_steps

OWN = {
    "placement",
    "devices",
    "processes",
    "scaling",
    "stage_devices",
    "traced_steps",
    "traced_from",
    "host_cores",
}
"""Fields that the command chooses."""
BATCH = 32
"""Document 003's."""
CALLS = 50
"""Behind every cost."""
COPY_SIZES = (4, 1 << 16, 1 << 20, 1 << 24)
"""Bytes of copies that are measured beside those of the graph's own edges."""


def places_text(graph: StageGraph, places: Places) -> str:
    """`places` as `parse_places` reads it."""
    return "".join(str(places[stage.name]) for stage in graph.placed)


def profile_run(fields: dict[str, Any]) -> Run:
    """The Run of the whole model on one device whose stages are measured; a field of `OWN` is a
    ValueError.
    """
    if own := sorted(OWN & set(fields)):
        raise ValueError(f"{own[0]} is chosen by this command: leave it out")
    common: dict[str, Any] = {"workload": "deepconn", "model": "deepconn", "batch_size": BATCH}
    common["device_type"] = "cuda" if gpu_count() else "cpu"
    if fields.get("framework") == "tensorflow":
        common["execution"] = "graph"
    if common["device_type"] == "cuda" and "batch_size" not in fields:
        # the grid's epochs are then the measured steps, and not measured twice
        common["timed_steps"] = epoch_steps(BATCH)
    return build_run(
        **(common | fields), placement="single", devices=1, processes="one", scaling="strong"
    )


def hand_written(run: Run, devices: int) -> dict[str, Run]:
    """Name -> Run of every placement written by hand that so many devices allow."""
    fields = run.model_dump()
    names = [name for name in HAND_WRITTEN if SPLIT[name].at_most <= devices]
    return {
        name: build_run(**fields | {"placement": name, "devices": SPLIT[name].at_most})
        for name in names
    }


def measured_s(runs: Mapping[str, Run], machine: str, records: RecordStore) -> dict[str, float]:
    """Median seconds a step of each of these Runs, by name, as far as this machine has Records of
    it.
    """
    steps: dict[str, list[float]] = {name: [] for name in runs}
    for record in records.of(machine):
        for name, run in runs.items():
            if record.run == run and record.measurement is not None:
                steps[name].append(record.measurement.wall_s / run.timed_steps)
    return {name: median(each) for name, each in steps.items() if each}


def predicted(name: str, pricing: Pricing, places: Places) -> Predicted:
    """Predict one placement of the placed stages from their costs."""
    graph = pricing.graph
    full = graph.check(places, max(places.values()) + 1)
    moved = graph.moved(full, {"rows": pricing.rows}, pricing.item_bytes)
    return Predicted(
        name=name,
        stage_devices=places_text(graph, places),
        devices=len(set(places.values())),
        step_time_s=pricing.step_time_s(full),
        serial_s=pricing.serial_s(full),
        cut_bytes=moved.get("device_to_device", 0),
    )


def planned(
    record: StageRecord, by_hand_s: dict[str, float], found_s: dict[str, float] | None = None
) -> StageRecord:
    """The Record with the placement that its costs and these measured steps lead to, by the model
    of the host that misses them least. What is priced lowest is found, until such a one was
    measured (`found_s`): then the fastest that was.
    """
    run, graph, found_s = record.run, graph_of(record.run), found_s or {}
    pricing = Pricing(graph, record.costs, run.batch_size, 8 if run.precision == "fp64" else 4)
    by_hand = {name: RULES[SPLIT[name].split](graph) for name in hand_written(run, record.devices)}
    searched = {digits: parse_places(graph, digits) for digits in found_s}
    timed = [(by_hand[name], seconds) for name, seconds in by_hand_s.items()] + [
        (searched[each], found_s[each]) for each in found_s
    ]
    errors = pricing.host_model_errors(
        [(graph.check(places, record.devices), seconds) for places, seconds in timed]
    )
    costs = record.costs.model_copy(
        update={"threads": min(errors, key=lambda model: errors[model])} if errors else {}
    )
    pricing = replace(pricing, costs=costs)
    cheapest, _, tried = pricing.search(record.devices)
    best = min(timed, key=lambda one: one[1])[0] if found_s else cheapest
    slower = [
        digits
        for digits, seconds in found_s.items()
        if seconds > min(by_hand_s.values(), default=math.inf)
    ]
    placed = [
        *by_hand.items(),
        *((REFUTED, searched[digits]) for digits in slower),
        ("searched", best),
    ]
    more: dict[str, Any] = {
        "costs": costs,
        "measured_s": by_hand_s,
        "found_s": found_s,
        "host_model_errors": errors,
    }
    more |= {"predictions": [predicted(name, pricing, each) for name, each in placed]}
    return record.model_copy(update=more | {"tried": tried, "complete": True})


def measure_stages(run: Run, devices: int, store: StageStore, again: bool = False) -> StageRecord:
    """This machine's latest StageRecord of the Run's model, or one written now, measured in another
    process (RuntimeError: it died).
    """
    if devices < 2:
        raise ValueError(f"stages are spread over at least 2 devices, not {devices}")
    if run.device_type == "cuda" and gpu_count() < devices:
        raise ValueError(
            f"{devices} GPUs were asked for and this machine has {gpu_count()}: choose fewer or"
            " device_type=cpu"
        )
    check_devices(run)
    key = stage_key(run, devices, this_machine().name, framework_version(run.framework))
    attempts = store.attempts(this_machine().name, key)
    if attempts and not again:
        return store.read(attempts[-1])
    store.check_writable()
    graph, extents = graph_of(run), {"rows": run.batch_size}
    sizes = sorted(
        {
            *COPY_SIZES,
            *(graph.bytes_of(stage.name, extents) for stage in graph.placed),
        }
    )
    words = json.dumps({"run": run.model_dump(mode="json"), "sizes": sizes, "calls": CALLS})
    environment = os.environ | (
        tensorflow_environment(sys.path, os.environ) if run.framework == "tensorflow" else {}
    )
    with machine_lock():
        found = ask("measuring the stages", "benchmarks.stage_search.measure", words, environment)
    record = StageRecord(
        key=key,
        attempt=len(attempts),
        run=run,
        devices=devices,
        repeats=CALLS,
        costs=Costs.model_validate_json(found.strip().splitlines()[-1]),
        predictions=[],
        tried=0,
        complete=False,
        **made_here(versions()),
    )
    record = planned(record, {})
    store.write(record)
    return record


def print_costs() -> None:
    """Measure the stages in this process and print their costs: {"run": ..., "sizes": [...],
    "calls": n} on its input, the costs as one line.
    """
    end_with_parent()
    asked = json.loads(sys.stdin.read())
    run = Run.model_validate_json(json.dumps(asked["run"]))
    engine = importlib.import_module(f"benchmarks.stage_search.{run.framework}_costs")
    print(engine.measure_costs(run, asked["sizes"], asked["calls"]).model_dump_json())


def found_run(record: StageRecord, **more: Any) -> Run:
    """The Run of the placement that was found."""
    found = record.found
    placed = {
        "placement": "searched",
        "devices": found.devices,
        "stage_devices": found.stage_devices,
    }
    return build_run(**record.run.model_dump() | placed | more)


def found_runs(record: StageRecord) -> tuple[list[Run], list[Run]]:
    """Runs of the placement found: to be repeated, and to be traced once; none where it is one
    written by hand.
    """
    # traced as in the grid `inside_model_traces`
    return (
        ([], [])
        if record.by_hand
        else ([found_run(record)], [found_run(record, traced_steps=20, timed_steps=100)])
    )


def describe(record: StageRecord) -> str:
    """Describe the findings, a line a placement."""
    lines = [f"{record.run.label()}: {record.tried} placements priced, all there are"]
    if record.host_model_errors:
        missed = ", ".join(
            f"{name} {100 * miss:.0f}%" for name, miss in record.host_model_errors.items()
        )
        lines.append(
            f"threads that start work: {record.costs.threads}; measured steps are missed by"
            f" {missed}"
        )
    for one in record.predictions:
        lines.append(
            f"{one.name:>14}  {one.stage_devices}  {1e3 * one.step_time_s:.3f} ms predicted,"
            f" {1e3 * one.serial_s:.3f} ms one by one, {one.cut_bytes / 2**20:.2f} MiB sent a step"
        )
    if record.by_hand:
        lines.append(f"what was found is {record.by_hand}, which has Records and traces of its own")
    return "\n".join(lines)


@answered
def main(words: Sequence[str] | None = None) -> int:
    """Run the command; returns the exit code."""
    parser = Parser(
        prog="python -m benchmarks.stage_search",
        description="Find the best placement of a model's stages.",
    )
    parser.add_argument(
        "fields",
        nargs="*",
        metavar="field=value",
        help="fields of a Run (default: workload=deepconn model=deepconn batch_size=32)",
    )
    parser.add_argument(
        "--devices", type=count(1), default=2, help="devices to spread the stages over (default: 2)"
    )
    parser.add_argument(
        "--repeats",
        type=count(0),
        default=len(FEWEST),
        help=(
            "measurements of each placement written by hand and of the one found, which is also"
            " traced (default: 5); 0: only search"
        ),
    )
    parser.add_argument(
        "--again",
        action="store_true",
        help="measure the stages anew although there is a Record of them",
    )
    parser.add_argument(
        "--records",
        type=lambda text: paths.kind_in(Path(text)),
        default=paths.RUNS,
        help="folder of the Runs' Records",
    )
    parser.add_argument(
        "--out", default=str(paths.STAGES), help="folder of the StageRecords (default: data/stages)"
    )
    parser.add_argument("--quiet", action="store_true", help="no progress bar")
    arguments = parser.parse_args(words)
    run = profile_run(parse_fields(arguments.fields))
    store, records = StageStore(Path(arguments.out)), RecordStore(arguments.records)
    record = measure_stages(run, arguments.devices, store, arguments.again)
    launches = [FEWEST[repeat % len(FEWEST)] for repeat in range(arguments.repeats)]

    def measure_runs(runs: Iterable[Run], launches: Sequence[int]) -> None:
        points = [
            Point(run, repeat, launch) for run in runs for repeat, launch in enumerate(launches)
        ]
        if points:
            print(measure_points(points, records, progress=not arguments.quiet), flush=True)

    measure_runs(hand_written(run, arguments.devices).values(), launches)
    by_hand_s = measured_s(hand_written(run, arguments.devices), record.machine.name, records)
    proposed = planned(record, by_hand_s)
    if arguments.repeats:  # what is priced lowest is measured before it is called best
        measure_runs(found_runs(proposed)[0], launches)
    new = {each.stage_devices or "": each for each in found_runs(proposed)[0]}
    again = planned(
        record, by_hand_s, record.found_s | measured_s(new, record.machine.name, records)
    )
    if again != record:
        record = again.model_copy(
            update={"attempt": len(store.attempts(record.machine.name, record.key))}
        )
        store.write(record)
    print(describe(record), flush=True)
    measure_runs(found_runs(record)[1], launches[:1])
    return 0


if __name__ == "__main__":
    print_costs()
