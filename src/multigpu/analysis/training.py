"""TrainingRecords as tidy frames: a row a run, a row a point of a curve, a row an evaluation; and how far apart curves lie."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from multigpu.analysis.words import MODELS, plural
from multigpu.training.record import TrainingRecord, TrainingStore

TEXTS: tuple[str, ...] = ("key", "machine", "gpu", "status", "reason", "workload", "model", "unit", "placement", "semantics", "device_type")
TEXTS += ("processes", "scaling")
TEXTS += ("inputs", "input_label", "layout", "precision", "execution", "optimizer", "rate_scaling", "schedule", "why", "framework")
TEXTS += ("framework_version", "launch_id", "measured_at", "commit", "flags")
WHOLE = ("attempt", "repeat", "devices", "batch_size", "joined_batch", "multiple", "seed", "training_version")
NUMBERS: tuple[str, ...] = (
    "steps",
    "steps_per_epoch",
    "epochs",
    "base_rate",
    "peak_rate",
    "samples",
    "first_loss",
    "last_loss",
    "test_loss",
    "accuracy",
)
NUMBERS += ("best_accuracy", "bleu", "train_s", "step_time_s", "units_per_s", "energy_j", "energy_s", "resumed")
COLUMNS: dict[str, str] = {
    **dict.fromkeys(TEXTS, "string"),
    **dict.fromkeys(WHOLE, "int64"),
    **dict.fromkeys(NUMBERS, "float64"),
    **dict.fromkeys(("adjusted", "diverged", "clean_tree"), "bool"),
}
"""A row a Record. multiple: the joined batch over the reference batch, at least 1. last_loss: mean over the last tenth of the points.
accuracy, bleu, test_loss: of the last evaluation; best_accuracy: of all. energy_j: of all GPUs together; energy_s: the seconds in which
they took it, evaluations and checkpoints included (NaN for what was resumed: its energy is of the last process alone)."""


INPUT_NAMES = {
    "digits_split": "handwritten digits",
    "teacher": "50,000 images that a network labelled",
    "teacher_small": "4,000 images that a network labelled",
    "pieces": "the whole corpus",
    "pieces_package": "one package of the corpus",
    "pieces_short": "one package of the corpus",
}


def job_name(model: str, inputs: str) -> str:
    """What is trained on what, in words: "small ResNet on handwritten digits"."""
    return f"{MODELS.get(model, model)} on {INPUT_NAMES.get(inputs, inputs.replace('_', ' '))}"


def training_records(folder: Path | str | TrainingStore) -> list[TrainingRecord]:
    """Every Record in a folder.

    Raises:
        ValueError: a file is no TrainingRecord; the sentence names it.
    """
    return list(folder if isinstance(folder, TrainingStore) else TrainingStore(Path(folder)))


def training_frame(records: Iterable[TrainingRecord]) -> pd.DataFrame:
    """The frame of these Records."""
    rows = [_row(record) for record in records]
    return pd.DataFrame({name: pd.Series([row.get(name) for row in rows], dtype=dtype) for name, dtype in COLUMNS.items()})


def _row(record: TrainingRecord) -> dict[str, Any]:
    training, run, m = record.training, record.training.run, record.measurement
    row: dict[str, Any] = {name: getattr(record, name) for name in ("key", "attempt", "repeat", "status", "reason", "input_label")}
    row |= {name: getattr(record, name) for name in ("measured_at", "commit", "clean_tree", "training_version")}
    names = ("workload", "model", "placement", "device_type", "scaling", "inputs", "layout", "precision", "execution", "optimizer")
    row |= {name: getattr(run, name) for name in (*names, "framework", "processes", "devices", "batch_size", "seed")}
    row |= {"rate_scaling": training.rate_scaling, "schedule": training.schedule, "adjusted": training.adjust_to_devices}
    schedule = training.schedule_of(m.steps_per_epoch or 1 if m else 1)
    row |= {
        "machine": record.machine.name,
        "gpu": record.machine.gpus[0] if record.machine.gpus else "",
        "unit": run.description.unit,
        "semantics": run.semantics.kind,
        "framework_version": record.versions.get("torch", "none"),
        # every seed starts anew: a launch of its own as far as accuracy goes
        "launch_id": f"{record.launch_id}, seed {run.seed}",
        "joined_batch": training.joined_batch,
        "multiple": max(1, training.joined_batch // training.reference_batch),
        "base_rate": training.base,
        "peak_rate": schedule.peak,
        "epochs": training.epochs,
        "diverged": bool(m and any("diverged" in flag for flag in m.flags)),
        "flags": ", ".join(m.flags) if m else "",
    }
    if m:
        tail = m.loss[-max(1, len(m.loss) // 10) :]
        row |= {
            "steps": m.steps,
            "steps_per_epoch": m.steps_per_epoch,
            "epochs": training.epochs or (m.steps / m.steps_per_epoch if m.steps_per_epoch else None),
            "samples": m.samples,
            "first_loss": m.loss[0],
            "last_loss": sum(tail) / len(tail),
            "test_loss": m.final("loss"),
            "accuracy": m.final("accuracy"),
            "best_accuracy": m.best("accuracy"),
            "bleu": m.final("bleu"),
            "train_s": m.train_s,
            "step_time_s": m.train_s / m.steps,
            "units_per_s": m.units / m.train_s,
            "energy_j": sum(m.energy_j) if m.energy_j else None,
            "energy_s": None if m.resumed_at else m.train_s + m.evaluation_s + m.checkpoint_s,
            "resumed": len(m.resumed_at),
        }
    return row


def curves_frame(records: Iterable[TrainingRecord]) -> pd.DataFrame:
    """Loss at every point of every run: key, step (the last of the point), epoch, seconds, loss, rate."""
    rows = []
    for record in records:
        if (m := record.measurement) is None:
            continue
        every = record.training.log_every
        for index, (loss, seconds, rate) in enumerate(zip(m.loss, m.seconds, m.rate, strict=True)):
            step = min((index + 1) * every, m.steps)
            epoch = step / m.steps_per_epoch if m.steps_per_epoch else math.nan
            rows.append({"key": record.key, "step": step, "epoch": epoch, "seconds": seconds, "loss": loss, "rate": rate})
    return pd.DataFrame(rows, columns=["key", "step", "epoch", "seconds", "loss", "rate"])


def scores_frame(records: Iterable[TrainingRecord]) -> pd.DataFrame:
    """Every evaluation: key, step, epoch, samples, seconds, score (its name), value."""
    rows = []
    for record in records:
        m = record.measurement
        for e in m.evaluations if m else ():
            epoch = e.step / m.steps_per_epoch if m and m.steps_per_epoch else math.nan
            at = {"key": record.key, "step": e.step, "epoch": epoch, "samples": e.samples, "seconds": e.seconds}
            rows += [{**at, "score": name, "value": value} for name, value in e.scores.items()]
    return pd.DataFrame(rows, columns=["key", "step", "epoch", "samples", "seconds", "score", "value"])


def reach_frame(records: Iterable[TrainingRecord], levels: Sequence[float], score: str = "accuracy") -> pd.DataFrame:
    """What each run took to a score: key, level, and steps, epochs, samples, seconds at the first evaluation there (nan: none)."""
    rows = []
    for record in records:
        if (m := record.measurement) is None or m.final(score) is None:
            continue
        for level in levels:
            found = m.reached(score, level)
            at = {"steps": math.nan, "epochs": math.nan, "samples": math.nan, "seconds": math.nan}
            if found:
                epochs = found.step / m.steps_per_epoch if m.steps_per_epoch else math.nan
                at = {"steps": found.step, "epochs": epochs, "samples": found.samples, "seconds": found.seconds}
            rows.append({"key": record.key, "level": level, **at})
    return pd.DataFrame(rows, columns=["key", "level", "steps", "epochs", "samples", "seconds"])


# --- whether curves are the same ------------------------------------------------------------------------------------------------

WINDOW = 10
"""Points that are averaged before curves are compared: what one batch does is noise that all runs share."""

ALLOWED = 3.0
"""A placement may lie so many times as far from the fp64 curve as fp32's own rounding led the reference placement."""


def windowed(loss: Sequence[float] | np.ndarray, window: int = WINDOW) -> np.ndarray:
    """Means over successive windows; the last may be shorter."""
    values = np.asarray(loss, dtype=float)
    return np.array([values[start : start + window].mean() for start in range(0, len(values), window)])


def curve_distance(loss: Sequence[float] | np.ndarray, reference: Sequence[float] | np.ndarray, window: int = WINDOW) -> float:
    """The largest relative difference of the windows' means; inf where the lengths differ."""
    return float(np.max(window_distances(loss, reference, window)))


def window_distances(loss: Sequence[float] | np.ndarray, reference: Sequence[float] | np.ndarray, window: int = WINDOW) -> np.ndarray:
    """The relative difference of every window's mean; inf where the lengths differ."""
    if len(loss) != len(reference):
        return np.array([math.inf])
    ours, theirs = windowed(loss, window), windowed(reference, window)
    return np.abs(ours - theirs) / np.abs(theirs)


LEAVES = 1e-4
"""From this relative distance on a curve has left its reference for the eye of a reader of logs: 4 digits differ."""

ROUNDING = {"fp64": 2.0**-29, "fp32": 1.0}
"""How large an error of rounding is in a precision, over fp32's (53 bits of fraction against 24)."""


def same_curve_table(frame: pd.DataFrame, curves: pd.DataFrame) -> pd.DataFrame:
    """Joined placements beside the reference, where fp64 says what no rounding would give.

    A panel is what runs share apart from placement, precision and execution, without staged ones. Its truth is ddp in fp64, or where there
    is none (GPUs) in fp32. Its drift is how far ddp in fp32 lies from the truth, or where fp32 is the truth, the median distance of all.
    tolerance = ALLOWED x drift x ROUNDING: fp64 is held to what rounding can do there, 2^-29 of what it did in fp32.

    Returns columns: panel, key, machine, placement, processes, devices, precision, execution, semantics, seed, base_rate, role, distance,
    drift, tolerance, replicas, same, differs_at, leaves_at, steps, last_loss, accuracy. A panel is named by its rate where another differs
    from it in the rate alone.

    role: "reference" (the truth beside itself), "yardstick" (the run whose distance is the drift: it cannot miss three times that),
        "compared", or "free" (need not follow). replicas: the distance of independent replicas (NaN: none were trained).
    same: of what is compared. None: nothing is told, as it lies within a tolerance that independent replicas would keep too, or of which
        no replicas show what it can tell; and of all else.
    differs_at: the last step of the first point that differs from the truth's in a digit that Records keep. leaves_at: the last step of
        the first window that lies LEAVES from the truth's. NaN: none.
    """
    shared = ["machine", "workload", "model", "inputs", "input_label", "devices", "batch_size", "scaling", "seed"]
    shared += ["base_rate", "rate_scaling", "schedule", "epochs"]
    usual = {"status": "ok", "schedule": "constant", "rate_scaling": "none"}
    ok = frame[pd.concat([frame[name] == value for name, value in usual.items()], axis=1).all(axis=1) & frame["semantics"].ne("stale")]
    losses: dict[Any, np.ndarray] = {key: group["loss"].to_numpy() for key, group in curves.groupby("key")}
    ends: dict[Any, np.ndarray] = {key: group["step"].to_numpy() for key, group in curves.groupby("key")}
    rows: list[dict[str, Any]] = []
    keyed: Any = ok.groupby(shared, sort=False, dropna=False)
    for values, panel in keyed:
        plain = panel[(panel["placement"] == "ddp") & (panel["execution"] == "eager")].set_index("precision")
        if panel["placement"].nunique() < 2 or plain.empty:
            continue
        truth = "fp64" if "fp64" in plain.index else plain.index[0]
        roles = {plain.loc["fp32", "key"]: "yardstick"} if truth == "fp64" and "fp32" in plain.index else {}
        roles[plain.loc[truth, "key"]] = "reference"
        reference = losses[plain.loc[truth, "key"]]
        distances = {row["key"]: curve_distance(losses[row["key"]], reference) for _, row in panel.iterrows()}
        drift = _drift(panel, plain, distances, str(truth))
        replicas = min((distances[key] for key in panel.loc[panel["semantics"] == "independent", "key"]), default=math.nan)
        left = {key: _left_at(window_distances(losses[key], reference), ends[key]) for key in panel["key"]}
        named = dict(zip(shared, values, strict=True))
        for _, row in panel.iterrows():
            held = row["semantics"] == "joined" and row["precision"] in ROUNDING
            role = roles.get(row["key"], "compared" if held else "free")
            tolerance = ALLOWED * drift * ROUNDING.get(row["precision"], 1.0)
            rows.append(
                {
                    "panel": f"{job_name(str(named['model']), str(named['inputs']))}, {plural(int(named['devices']), 'device')}",
                    **{name: row[name] for name in ("key", "machine", "placement", "devices", "precision", "execution", "semantics")},
                    **{name: row[name] for name in ("processes", "seed", "base_rate")},
                    "role": role,
                    "distance": distances[row["key"]],
                    "drift": drift,
                    "tolerance": tolerance,
                    "replicas": replicas,
                    "same": _same(distances[row["key"]], tolerance, replicas) if role == "compared" else None,
                    "differs_at": _differs_at(losses[row["key"]], reference, ends[row["key"]]),
                    "leaves_at": left[row["key"]],
                    "steps": row["steps"],
                    "last_loss": row["last_loss"],
                    "accuracy": row["accuracy"],
                }
            )
    columns = ["panel", "key", "machine", "placement", "processes", "devices", "precision", "execution", "semantics", "seed", "base_rate"]
    columns += ["role", "distance", "drift", "tolerance", "replicas", "same", "differs_at", "leaves_at", "steps", "last_loss", "accuracy"]
    table = pd.DataFrame(rows, columns=columns)
    places = {name: place for place, name in enumerate(dict.fromkeys(table["panel"]))}
    table = table.assign(_place=table["panel"].map(places)).sort_values(["_place", "base_rate"], kind="stable").drop(columns="_place")
    several = table.groupby("panel")["base_rate"].transform("nunique") > 1
    table.loc[several, "panel"] = [f"{name}, rate {rate:g}" for name, rate in table.loc[several, ["panel", "base_rate"]].to_numpy()]
    return table.reset_index(drop=True)


def _same(distance: float, tolerance: float, replicas: float) -> bool | None:
    """None: within a tolerance of which nothing shows that it can be missed."""
    if distance > tolerance:
        return False
    return True if replicas > tolerance else None


def _differs_at(loss: np.ndarray, reference: np.ndarray, steps: np.ndarray) -> float:
    """The last step of the first point that differs; NaN: none."""
    common = min(len(loss), len(reference))
    (found,) = np.nonzero(loss[:common] != reference[:common])
    return float(steps[found[0]]) if len(found) else math.nan


def _left_at(apart: np.ndarray, steps: np.ndarray) -> float:
    """The last step of the first window that lies at least LEAVES apart; NaN: none."""
    (found,) = np.nonzero(apart >= LEAVES)
    return float(steps[min((found[0] + 1) * WINDOW, len(steps)) - 1]) if len(found) else math.nan


def _drift(panel: pd.DataFrame, plain: pd.DataFrame, distances: dict[Any, float], truth: str) -> float:
    """How far rounding in fp32 leads."""
    if truth == "fp64" and "fp32" in plain.index:
        return distances[plain.loc["fp32", "key"]]
    joined = panel[(panel["semantics"] == "joined") & (panel["precision"] == "fp32")]
    others = [distances[key] for key in joined["key"] if distances[key] > 0]
    return float(np.median(others)) if others else 0.0
