"""What a search over placements of a model's stages predicted, beside what was measured."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from statistics import fmean

import pandas as pd

from multigpu import paths
from multigpu.analysis.inside_document import NAMES
from multigpu.analysis.inside_model import Point, points
from multigpu.analysis.picture import Shown
from multigpu.analysis.stage_words import other_gpus_text
from multigpu.analysis.tables import table_html, tables_by
from multigpu.analysis.wording import FRAMEWORK_NAMES, MODEL_NAMES, joined
from multigpu.stages.check import graph_of
from multigpu.stages.cost import HostModel
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
                    "stages": other_gpus_text(graph_of(record.run), one.stage_devices),
                    "predicted (ms)": f"{1e3 * one.step_time_s:.2f}",
                    "in turn (ms)": f"{1e3 * one.serial_s:.2f}",
                    "crosses (MiB)": f"{one.cut_bytes / 2**20:,.2f}",
                    "measured (ms)": _mean_text(found),
                    "n": str(len(found)) if found else "",
                }
            )
    right = ["predicted (ms)", "in turn (ms)", "crosses (MiB)", "measured (ms)", "n"]
    note = (
        "In turn: side by side left out, the sum of all parts. Measured: means a step of any placement with the same stages there."
        if rows
        else NO_SEARCH
    )
    return tables_by(pd.DataFrame(rows, columns=list(rows[0]) if rows else ["job"]), "job", note, right)


def job_text(record: StageRecord) -> str:
    """The framework, the model and the joined batch."""
    return f"{FRAMEWORK_NAMES[record.run.framework]}, {MODEL_NAMES.get(record.run.model, record.run.model)}, batch {record.run.batch_size}"


def found_table(records: Sequence[StageRecord], frame: pd.DataFrame) -> Shown:
    """What each search found, a row each: predicted and measured, and the fastest measured of those written by hand."""
    rows = []
    for record in records:
        found, (name, theirs) = record.found, fastest_by_hand(record, frame)
        same = record.by_hand is not None
        rows.append(
            {
                "job": job_text(record),
                "found": NAMES[str(record.by_hand)] if same else other_gpus_text(graph_of(record.run), found.stage_devices),
                "predicted (ms)": f"{1e3 * found.step_time_s:.2f}",
                "measured (ms)": _mean_text(measured_s(record, found.stage_devices, frame)),
                "fastest by hand (ms)": f"{_mean_text(theirs)}, {NAMES[name]}" if name else "not measured",
                "n": str(len(measured_s(record, found.stage_devices, frame)) or ""),
            }
        )
    tried = sorted({f"{record.tried} placements priced ({'all' if record.complete else 'not all'} there are)" for record in records})
    note = (
        f"Of {joined(tried)}, the cheapest; where measuring refuted the prices, the fastest measured. Fastest by hand: "
        "measured, of the placements written by hand. Means a step of the Records below."
    )
    return table_html(pd.DataFrame(rows), note=note if rows else NO_SEARCH, right=["predicted (ms)", "measured (ms)"])


def fastest_by_hand(record: StageRecord, frame: pd.DataFrame) -> tuple[str, list[float]]:
    """The placement written by hand that took least, with its steps in seconds; ("", []) where none was measured."""
    known = {one.name: steps for one in record.written if (steps := measured_s(record, one.stage_devices, frame))}
    name = min(known, key=lambda name: fmean(known[name]), default="")
    return name, known.get(name, [])


def _mean_text(steps: Sequence[float]) -> str:
    return f"{1e3 * fmean(steps):.2f}" if steps else "not measured"


def misses_table(records: Sequence[StageRecord]) -> Shown:
    """How far prices miss the measured steps, a row a search and a column for each way in which the host may start the work."""
    rows: list[dict[str, str]] = []
    bold = []
    for record in records:
        if record.host_model_errors:
            bold.append((len(rows), HOST_WORDS[record.costs.threads]))
            misses = {words: f"{record.host_model_errors[name]:.0%}" for name, words in HOST_WORDS.items()}
            rows.append({"job": job_text(record), **misses, "placements measured": str(len(record.measured_s) + len(record.found_s))})
    note = (
        "By how much priced steps miss the measured ones: root mean square of the logarithm of their ratio, over the placements measured "
        "when the search was made. Bold: what the prices above reckon with."
    )
    if not rows:
        note = "No step was measured beside a search yet." if records else NO_SEARCH
    return table_html(pd.DataFrame(rows), note=note, right=[*HOST_WORDS.values(), "placements measured"], bold=bold)


HOST_WORDS: dict[HostModel, str] = {
    "one": "one thread starts all",
    "forward": "backward: a thread a GPU",
    "per_device": "all: a thread a GPU",
}


def search_sentences(records: Sequence[StageRecord], frame: pd.DataFrame) -> list[str]:
    """What measuring refuted and document 002's criterion, a sentence each; of a framework without a search, what makes one."""
    measured = {record.run.framework for record in records}
    said = [text for record in records if (text := refuted_sentence(record, frame))]
    said += [cut_sentence(records)] if records else []
    return said + [
        f"{name}: its stages have not been measured on GPUs yet: `python -m multigpu stages framework={framework} --devices 2` does it."
        for framework, name in FRAMEWORK_NAMES.items()
        if framework not in measured
    ]


def refuted_sentence(record: StageRecord, frame: pd.DataFrame) -> str:
    """What was priced lower and took longer than a placement written by hand; "" where nothing was."""
    name, theirs = fastest_by_hand(record, frame)
    told = [
        f"with {other_gpus_text(graph_of(record.run), one.stage_devices)} a step was priced at {1e3 * one.step_time_s:.2f} ms and took "
        f"{1e3 * fmean(measured_s(record, one.stage_devices, frame) or [record.found_s[one.stage_devices]]):.2f} ms"
        for one in record.refuted
    ]
    beside = f", against {_mean_text(theirs)} ms of {NAMES[name]}" if name else ""
    return f"{job_text(record)}: measuring refuted the prices: {joined(told)}{beside}." if told else ""


def cut_sentence(records: Sequence[StageRecord]) -> str:
    """Document 002's criterion beside what was found: the minimum cuts and their prices."""
    ratios = [minimum_cut(record).step_time_s / record.found.step_time_s for record in records]
    apart = joined(list(dict.fromkeys(_parted(record) for record in records)))
    reach = " to ".join(dict.fromkeys(f"{ratio:.2f}" for ratio in (min(ratios), max(ratios))))
    return (
        f"Document 002 cuts where the least crosses: on two GPUs that parts {apart} from the rest, and is predicted to take {reach} times "
        "as long as the placement found."
    )


def _parted(record: StageRecord) -> str:
    """The stages on the minimum cut's smaller side."""
    places = parse_places(graph_of(record.run), minimum_cut(record).stage_devices)
    fewer = min((0, 1), key=lambda device: sum(place == device for place in places.values()))
    return joined([name for name, place in places.items() if place == fewer])
