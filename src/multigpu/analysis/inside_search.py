"""What a search over placements of a model's stages predicted, beside what was measured."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

import pandas as pd

from multigpu import paths
from multigpu.analysis.inside_model import NAMES, points
from multigpu.analysis.picture import Shown
from multigpu.analysis.tables import table_html
from multigpu.analysis.wording import FRAMEWORK_NAMES, MODEL_NAMES
from multigpu.stages.record import Predicted, StageRecord, StageStore

NO_SEARCH = "No stages have been measured on a machine with GPUs yet: `python -m multigpu stages` does it."


def stage_records(root: Path | None = None, gpu: bool = True) -> list[StageRecord]:
    """The latest StageRecords, of machines with GPUs (or of those without)."""
    return [record for record in StageStore(root or paths.STAGES) if (record.run.device_type == "cuda") == gpu]


def measured_s(record: StageRecord, predicted: Predicted, frame: pd.DataFrame) -> list[float]:
    """Seconds a step of every Record of this placement on the same machine."""
    own = frame[frame["machine"] == record.machine.name]
    digits = [predicted.stage_devices, None] if predicted.name == "searched" else [None]
    return [
        step
        for point in points(own, record.run.model, record.run.batch_size)
        if point.row["placement"] == predicted.name
        and point.row["stage_devices"] in digits
        and all(point.row[name] == getattr(record.run, name) for name in ("framework", "execution", "feed", "embedding_gradients"))
        for step in point.step_s
    ]


def search_table(records: Iterable[StageRecord], frame: pd.DataFrame) -> Shown:
    """Every placement's predicted step, with devices side by side and one after another, and what was measured."""
    rows = []
    for record in records:
        for one in record.predictions:
            found = measured_s(record, one, frame)
            rows.append(
                {
                    "model": MODEL_NAMES.get(record.run.model, record.run.model),
                    "framework": FRAMEWORK_NAMES[record.run.framework],
                    "batch": str(record.run.batch_size),
                    "placement": NAMES[one.name],
                    "stages": one.stage_devices,
                    "predicted (ms)": f"{1e3 * one.step_time_s:.3f}",
                    "side by side left out (ms)": f"{1e3 * one.serial_s:.3f}",
                    "crosses (MiB)": f"{one.cut_bytes / 2**20:.2f}",
                    "measured (ms)": f"{1e3 * sum(found) / len(found):.3f}" if found else "not measured",
                    "n": str(len(found)) if found else "",
                }
            )
    right = ["batch", "predicted (ms)", "side by side left out (ms)", "crosses (MiB)", "measured (ms)", "n"]
    note = "Stages: the device of each, in the order of the drawing." if rows else NO_SEARCH
    return table_html(pd.DataFrame(rows, columns=list(rows[0]) if rows else ["model"]), note=note, right=right)


def search_sentences(records: Sequence[StageRecord]) -> list[str]:
    """What each search found, a sentence each."""
    said = []
    for record in records:
        found, by_hand = record.found, min(record.predictions[:-1], key=lambda one: one.step_time_s)
        of = "all" if record.complete else "not all"
        where = "one GPU" if found.devices == 1 else f"{found.devices} GPUs"
        which = f"{FRAMEWORK_NAMES[record.run.framework]}, batch {record.run.batch_size}"
        share = found.step_time_s / by_hand.step_time_s
        said.append(
            f"{which}: of {record.tried} placements priced ({of} there are) the cheapest uses {where} and is predicted to take {share:.3f} "
            f"of the fastest hand-written one's time.{host_sentence(record)}"
        )
    return said


HOST_WORDS = {
    "one": "one thread starts everything",
    "forward": "backward passes are started by a thread for each GPU",
    "per_device": "every GPU's work is started by a thread of its own",
}


def host_sentence(record: StageRecord) -> str:
    """Which model of the host the measured steps bear out, and by how much they tell it from the others; "" without measured steps."""
    if not record.host_model_errors:
        return ""
    kept = record.costs.threads
    others = [f"{miss:.0%} if {HOST_WORDS[name]}" for name, miss in record.host_model_errors.items() if name != kept]
    return (
        f" It reckons as if {HOST_WORDS[kept]}: so the {len(record.measured_s)} hand-written placements' measured steps are missed by "
        f"{record.host_model_errors[kept]:.0%} (root mean square of the logarithm), against {' and '.join(others)}."
    )
