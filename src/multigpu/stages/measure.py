"""Measure a model's stages, search their best placement, and measure what was found, in one command.

    python -m multigpu stages workload=deepconn model=deepconn batch_size=32 --devices 2 --repeats 5

Words `field=value` are fields of a Run, as of `measure`; the placement is the command's own. Bad input ends with exit code 2 and
one sentence. A model's stages are measured once on a machine; `--again` measures them anew.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from multigpu import paths
from multigpu.grid.entries import FEWEST
from multigpu.grid.inside_model import BATCH
from multigpu.measure.launch import Point, check_devices
from multigpu.measure.launch import measure as measure_points
from multigpu.measure.machine import framework_version, gpu_count, source_state, this_machine, versions
from multigpu.record import RecordStore
from multigpu.run import Run, build_run
from multigpu.stages.check import graph_of
from multigpu.stages.cost import Costs, serial_parts, step_time_s
from multigpu.stages.graph import places_text
from multigpu.stages.placements import HAND_WRITTEN, RULES, SPLIT
from multigpu.stages.record import Predicted, StageRecord, StageStore, stage_key
from multigpu.stages.search import Search, cut_bytes

CALLS = 50
"""Behind every cost."""
COPY_SIZES = (4, 1 << 16, 1 << 20, 1 << 24)
"""Bytes of copies that are measured beside those of the graph's own edges."""


def profile_run(fields: dict[str, Any]) -> Run:
    """The Run of the whole model on one device whose stages are measured.

    Raises:
        ValueError: a field is the command's own, or cannot work.
    """
    own = sorted({"placement", "devices", "processes", "scaling", "stage_devices", "traced_steps", "traced_from"} & set(fields))
    if own:
        raise ValueError(f"{own[0]} is chosen by this command: leave it out")
    common = {"workload": "deepconn", "model": "deepconn", "batch_size": BATCH, "device_type": "cuda" if gpu_count() else "cpu"}
    if fields.get("framework") == "tensorflow":
        common["execution"] = "graph"
    return build_run(**(common | fields), placement="single", devices=1, processes="one", scaling="strong")


def find_placement_of(run: Run, devices: int, costs: Costs) -> tuple[list[Predicted], int, bool]:
    """Predictions for the placements written by hand and for the best one; how many were priced, and whether these were all."""
    graph, rows, item = graph_of(run), run.batch_size, 8 if run.precision == "fp64" else 4
    by_hand = {name: RULES[SPLIT[name].split](graph) for name in HAND_WRITTEN if SPLIT[name].at_most <= devices}
    found = Search(graph, costs, rows, devices, item, by_hand.values()).run()
    predictions = []
    for name, places in [*by_hand.items(), ("searched", found.places)]:
        full = graph.check(places, devices)
        predictions.append(
            Predicted(
                name=name,
                stage_devices=places_text(graph, places),
                devices=len(set(places.values())),
                step_time_s=step_time_s(graph, costs, full, rows, item),
                serial_s=sum(serial_parts(graph, costs, full, rows, item)),
                cut_bytes=cut_bytes(graph, places, rows, item),
            )
        )
    return predictions, found.tried, found.complete


def measure_stages(run: Run, devices: int, store: StageStore, again: bool = False, calls: int = CALLS) -> StageRecord:
    """This machine's StageRecord of the Run's model, measured in a process of its own unless there is one.

    Raises:
        ValueError: there are too few devices. RuntimeError: the process died; the sentence says of what.
    """
    if devices < 2:
        raise ValueError(f"stages are spread over at least 2 devices, not {devices}")
    if run.device_type == "cuda" and gpu_count() < devices:
        raise ValueError(f"{devices} GPUs were asked for and this machine has {gpu_count()}: choose fewer or device_type=cpu")
    check_devices(run)
    key = stage_key(run, devices, this_machine().name, framework_version(run.framework))
    attempts = store.attempts(this_machine().name, key)
    if attempts and not again:
        return store.read(attempts[-1])
    store.check_writable()
    graph = graph_of(run)
    sizes = sorted({*COPY_SIZES, *(graph.bytes_of(stage.name, run.batch_size) for stage in graph.placed)})
    words = json.dumps({"run": run.model_dump(mode="json"), "sizes": sizes, "calls": calls})
    result = subprocess.run([sys.executable, "-m", "multigpu.stages.profile"], input=words, capture_output=True, text=True)
    if result.returncode:
        raise RuntimeError(f"measuring the stages failed: {(result.stderr.strip().splitlines() or ['no message'])[-1]}")
    costs = Costs.model_validate_json(result.stdout.strip().splitlines()[-1])
    predictions, tried, complete = find_placement_of(run, devices, costs)
    commit, clean = source_state()
    record = StageRecord(
        key=key,
        attempt=len(attempts),
        run=run,
        devices=devices,
        repeats=calls,
        costs=costs,
        predictions=predictions,
        tried=tried,
        complete=complete,
        machine=this_machine(),
        versions=versions(),
        measured_at=datetime.now(UTC).isoformat(timespec="seconds"),
        commit=commit,
        clean_tree=clean,
    )
    store.write(record)
    return record


def found_run(record: StageRecord, **more: Any) -> Run:
    """The Run of the placement that was found."""
    found = record.found
    fields = record.run.model_dump() | {"placement": "searched", "devices": found.devices, "stage_devices": found.stage_devices} | more
    return build_run(**fields)


def describe(record: StageRecord) -> str:
    """What was found, a line a placement."""
    all_of = "all" if record.complete else "not all"
    lines = [f"{record.run.label()}: {record.tried} placements priced, {all_of} there are"]
    for one in record.predictions:
        lines.append(
            f"{one.name:>14}  {one.stage_devices}  {1e3 * one.step_time_s:.3f} ms predicted, {1e3 * one.serial_s:.3f} ms with nothing side"
            f" by side, {one.cut_bytes / 2**20:.2f} MiB a step between devices"
        )
    return "\n".join(lines)


def main(words: Sequence[str] | None = None) -> int:
    """Run the command; returns the exit code."""
    from multigpu.cli import parse_fields

    parser = argparse.ArgumentParser(prog="multigpu stages", description="Find the best placement of a model's stages and measure it.")
    parser.add_argument(
        "fields", nargs="*", metavar="field=value", help="fields of a Run (default: workload=deepconn model=deepconn batch_size=32)"
    )
    parser.add_argument("--devices", type=int, default=2, help="devices to spread the stages over (default: 2)")
    parser.add_argument("--repeats", type=int, default=len(FEWEST), help="measurements of the placement found (default: 5); 0: only search")
    parser.add_argument("--again", action="store_true", help="measure the stages anew although there is a Record of them")
    parser.add_argument("--records", default=str(paths.RUNS), help="folder of the Runs' Records")
    parser.add_argument("--out", default=str(paths.STAGES), help="folder of the StageRecords (default: data/stages)")
    parser.add_argument("--quiet", action="store_true", help="no progress bar")
    arguments = parser.parse_args(words)
    try:
        run = profile_run(parse_fields(arguments.fields))
        record = measure_stages(run, arguments.devices, StageStore(Path(arguments.out)), arguments.again)
        print(describe(record), flush=True)
        launches = [FEWEST[repeat % len(FEWEST)] for repeat in range(arguments.repeats)]
        points = [Point(found_run(record), repeat, launch) for repeat, launch in enumerate(launches)]
        if points:
            print(measure_points(points, RecordStore(Path(arguments.records)), progress=not arguments.quiet))
        return 0
    except ValueError as error:
        print(f"multigpu: {error}", file=sys.stderr)
        return 2
    except RuntimeError as error:
        print(f"multigpu: {error}", file=sys.stderr)
        return 1
