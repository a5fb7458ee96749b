"""What a search over placements of a model's stages predicted, beside what was measured."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

import pandas as pd

from multigpu import paths
from multigpu.analysis.inside_document import NAMES
from multigpu.analysis.inside_model import Point, points
from multigpu.analysis.picture import Shown
from multigpu.analysis.tables import tables_by
from multigpu.analysis.wording import FRAMEWORK_NAMES, MODEL_NAMES, bytes_text, joined
from multigpu.stages.check import graph_of
from multigpu.stages.graph import StageGraph, parse_places, places_text
from multigpu.stages.placements import HAND_WRITTEN, RULES, SPLIT
from multigpu.stages.record import REFUTED, Predicted, StageRecord, StageStore
from multigpu.stages.search import fewest_bytes, predicted

MINIMUM_CUT = "fewest bytes over two GPUs (002)"
WORDS = {**NAMES, REFUTED: "priced lower, measured slower"}
NO_SEARCH = "No stages have been measured on a machine with GPUs yet: `python -m multigpu stages` does it."


def stage_records(root: Path | None = None, gpu: bool = True) -> list[StageRecord]:
    """The latest StageRecords, of machines with GPUs (or of those without)."""
    return [record for record in StageStore(root or paths.STAGES) if (record.run.device_type == "cuda") == gpu]


def first_met(digits: str) -> str:
    """A placement's digits with devices numbered as they come: equal devices make "110" the same placement as "001"."""
    return "".join(str(list(dict.fromkeys(digits)).index(digit)) for digit in digits)


def places_of_point(point: Point, graph: StageGraph) -> str | None:
    """Where a measured point's stages ran, a digit a stage; None of replicas."""
    name, digits = point.row["placement"], point.row["stage_devices"]
    if name in HAND_WRITTEN:
        return first_met(places_text(graph, RULES[SPLIT[name].split](graph)))
    return first_met(digits) if isinstance(digits, str) else None


def measured_s(record: StageRecord, stage_devices: str, frame: pd.DataFrame) -> list[float]:
    """Seconds a step of every Record with its stages there, whatever the placement's name, on the same machine; of the most steps timed."""
    own, graph = frame[frame["machine"] == record.machine.name], graph_of(record.run)
    wanted = ("framework", "execution", "feed", "embedding_gradients")
    known: dict[int, list[float]] = {}
    for point in points(own, record.run.model, record.run.batch_size):
        same = all(point.row[name] == getattr(record.run, name) for name in wanted)
        if same and places_of_point(point, graph) == first_met(stage_devices):
            known.setdefault(int(point.row["timed_steps"]), []).extend(point.step_s)
    return known[max(known)] if known else []


def minimum_cut(record: StageRecord) -> Predicted:
    """The placement on two devices with the fewest bytes between them, priced by the record's costs."""
    run, graph = record.run, graph_of(record.run)
    item_bytes = 8 if run.precision == "fp64" else 4
    places = fewest_bytes(graph, run.batch_size, item_bytes)
    return predicted("minimum_cut", graph, record.costs, places, run.batch_size, item_bytes)


def search_table(records: Iterable[StageRecord], frame: pd.DataFrame) -> Shown:
    """Every placement's predicted step, with devices side by side and one after another, and what was measured; last the minimum cut."""
    rows = []
    for record in records:
        for one in (*record.predictions, minimum_cut(record)):
            found = measured_s(record, one.stage_devices, frame)
            rows.append(
                {
                    "job": job_text(record),
                    "placement": WORDS.get(one.name, MINIMUM_CUT),
                    "stages": one.stage_devices,
                    "predicted (ms)": f"{1e3 * one.step_time_s:.3f}",
                    "side by side left out (ms)": f"{1e3 * one.serial_s:.3f}",
                    "crosses (KiB)": f"{one.cut_bytes / 2**10:,.2f}",
                    "measured (ms)": f"{1e3 * sum(found) / len(found):.3f}" if found else "not measured",
                    "n": str(len(found)) if found else "",
                }
            )
    right = ["predicted (ms)", "side by side left out (ms)", "crosses (KiB)", "measured (ms)", "n"]
    note = (
        "Stages: the device of each, in the order of the drawing. Measured: of any placement with the same stages there."
        if rows
        else NO_SEARCH
    )
    return tables_by(pd.DataFrame(rows, columns=list(rows[0]) if rows else ["job"]), "job", note, right)


def job_text(record: StageRecord) -> str:
    """The framework, the model and the joined batch."""
    return f"{FRAMEWORK_NAMES[record.run.framework]}, {MODEL_NAMES.get(record.run.model, record.run.model)}, batch {record.run.batch_size}"


def search_sentences(records: Sequence[StageRecord]) -> list[str]:
    """What each search found, a sentence each; of a framework without one, what makes it."""
    said = []
    for record in records:
        found, by_hand = record.found, min(record.written, key=lambda one: one.step_time_s)
        of = "all" if record.complete else "not all"
        where = "one GPU" if found.devices == 1 else f"{found.devices} GPUs"
        share = found.step_time_s / by_hand.step_time_s
        best = "the fastest measured" if record.refuted else "the cheapest"
        same = f": it is the placement '{NAMES[record.by_hand]}', whose Records and traces are its own" if record.by_hand else ""
        said.append(
            f"{job_text(record)}: of {record.tried} placements priced ({of} there are) {best} uses {where} and is predicted to take "
            f"{share:.3f} of the fastest hand-written one's time{same}{measured_text(record)}."
            f"{refuted_sentence(record)}{cut_sentence(record)}{host_sentence(record)}"
        )
    measured = {record.run.framework for record in records}
    return said + [
        f"{name}: its stages have not been measured on GPUs yet: `python -m multigpu stages framework={framework} --devices 2` does it."
        for framework, name in FRAMEWORK_NAMES.items()
        if framework not in measured
    ]


def measured_text(record: StageRecord) -> str:
    """What a placement found took that is none written by hand, beside the fastest of those; "" where it was not measured."""
    took = record.found_s.get(record.found.stage_devices)
    if record.by_hand or took is None or not record.measured_s:
        return ""
    fastest = min(record.measured_s, key=lambda name: record.measured_s[name])
    theirs = record.measured_s[fastest]
    beside = f"{1e3 * theirs:.2f} of '{NAMES[fastest]}', {took / theirs:.3f} times as long"
    return f"; measured, it takes {1e3 * took:.2f} ms against {beside}"


def refuted_sentence(record: StageRecord) -> str:
    """What was priced lower and took longer than a placement written by hand; "" where nothing was."""
    told = [
        f"{one.stage_devices} (stages in the drawing's order) was priced at {1e3 * one.step_time_s:.2f} ms and took "
        f"{1e3 * record.found_s[one.stage_devices]:.2f} ms"
        for one in record.refuted
    ]
    fastest = min(record.measured_s, key=lambda name: record.measured_s[name]) if record.measured_s else ""
    if not told:
        return ""
    return f" Prices were refuted by measuring: {joined(told)}, against {1e3 * record.measured_s[fastest]:.2f} ms of '{NAMES[fastest]}'."


def cut_sentence(record: StageRecord) -> str:
    """Document 002's criterion beside what was found: the minimum cut, its bytes and its price."""
    cut, found, graph = minimum_cut(record), record.found, graph_of(record.run)
    places = parse_places(graph, cut.stage_devices)
    fewer = min((0, 1), key=lambda device: sum(place == device for place in places.values()))
    apart = joined([name for name, place in places.items() if place == fewer])
    return (
        f" Document 002 cuts where the least crosses: on two GPUs that parts {apart} from the rest, {bytes_text(cut.cut_bytes)} a step, "
        f"predicted to take {cut.step_time_s / found.step_time_s:.3f} of the found placement's time."
    )


HOST_WORDS = {
    "one": "one thread starts everything",
    "forward": "backward passes are started by a thread for each GPU",
    "per_device": "every GPU's work is started by a thread of its own",
}


def host_sentence(record: StageRecord) -> str:
    """Which model of the host the measured steps bear out, and by how much they tell it from the others; "" without measured steps."""
    if not record.host_model_errors:
        return ""
    kept, known = record.costs.threads, len(record.measured_s) + len(record.found_s)
    others = [f"{miss:.0%} if {HOST_WORDS[name]}" for name, miss in record.host_model_errors.items() if name != kept]
    return (
        f" It reckons as if {HOST_WORDS[kept]}: so the measured steps of {known} placements are missed by "
        f"{record.host_model_errors[kept]:.0%} (root mean square of the logarithm), against {' and '.join(others)}."
    )
