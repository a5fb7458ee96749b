"""ResNet-50 in both frameworks in one precision, bf16: every placement that TensorFlow trained, beside PyTorch's."""

from __future__ import annotations

import math
from typing import Any

import pandas as pd

from multigpu.analysis.frameworks import Way, of_way
from multigpu.analysis.metrics import scaling_table
from multigpu.analysis.picture import Shown
from multigpu.analysis.style import look
from multigpu.analysis.tables import table_html
from multigpu.analysis.wording import joined, missing, percent_text, plural
from multigpu.placements import find_placement
from multigpu.record import Record

BATCH = 64
WAYS = {
    "tensorflow": Way("tensorflow", "one", "graph", "bf16"),
    "persistent": Way("tensorflow", "one", "graph", "bf16", "persistent"),
    "xla": Way("tensorflow", "one", "xla", "bf16"),
    "torch": Way("torch", "per_device", "eager", "bf16"),
    "torch_one": Way("torch", "one", "eager", "bf16"),
}
APART = Way("tensorflow", "per_device", "graph", "bf16")
"""TensorFlow's strategies that take a process a GPU, and whatever no process can do alone: they stand in TensorFlow's column."""

TITLES = {
    "tensorflow": "TensorFlow",
    "persistent": "TensorFlow, persistent batch norm",
    "xla": "TensorFlow, XLA",
    "torch": "PyTorch, a process a GPU",
    "torch_one": "PyTorch, one process",
}


def on_several(record: Record) -> bool:
    """Whether a Record is TensorFlow's, on several devices."""
    return record.run.framework == "tensorflow" and record.run.devices > 1


def images(frame: pd.DataFrame, devices: int, batch: int = BATCH) -> pd.DataFrame:
    """ResNet-50 v1.5 in bf16 on `devices` GPUs, a row for every placement that TensorFlow trained, in the placements' order.

    Returns:
        placement, and of each of tensorflow, persistent (its graph with cuDNN's persistent batch norm), xla, torch and torch_one (one
        process) the rate in images/s and n; NaN and 0 where there is none.
    """
    table = scaling_table(frame[(frame["model"] == "resnet50_v1.5") & (frame["batch_size"] == batch) & (frame["precision"] == "bf16")])
    table = table[(table["devices"] == devices) & (table["n"] > 0) & (table["scaling"] == "weak") & (table["inputs"] == "synthetic")]
    table = table[table["layout"].fillna("channels_last").eq("channels_last")]
    plain = [name for name in ("bucket_mib", "all_reduce_spec", "wire_dtype", "loss_scale", "host_cores", "feed") if name in table]
    table = table[table[plain].isna().all(axis=1) & table["optimizer"].eq("default")]
    trained = table[table["framework"].eq("tensorflow")]["placement"].unique()
    rows: list[dict[str, Any]] = []
    for placement in sorted(trained, key=lambda name: look(str(name)).order):
        row: dict[str, Any] = {"placement": placement}
        for name, way in WAYS.items():
            own = table[table["placement"] == placement]
            found = of_way(own, way)
            if name == "tensorflow" and found.empty:
                found = of_way(own, APART)
            row[name] = float(found["rate"].iloc[0]) if len(found) else math.nan
            row[f"{name}_n"] = int(found["n"].iloc[0]) if len(found) else 0
        rows.append(row)
    columns = ["placement", *(column for name in WAYS for column in (name, f"{name}_n"))]
    return pd.DataFrame(rows, columns=columns)


def _row(frame: pd.DataFrame, devices: int, placement: str) -> dict[Any, Any]:
    table = images(frame, devices)
    own = table[table["placement"] == placement]
    return {} if own.empty else dict(own.iloc[0])


def images_sentence(frame: pd.DataFrame, devices: int = 4, placement: str = "exp4") -> str:
    """The two frameworks in one precision: ResNet-50 in bf16 on one and on `devices` GPUs, and what XLA brings."""
    parts = []
    for count in (1, devices):
        row = _row(frame, count, placement)
        on = plural(count, "GPU")
        if not row or missing(row["tensorflow"]):
            continue
        if not missing(row["torch"]):
            share = percent_text(row["tensorflow"] / row["torch"])
            repeats = f"n = {row['tensorflow_n']} and {row['torch_n']}"
            text = f"on {on} TensorFlow reaches {share} of PyTorch's rate with a process a GPU ({repeats})"
            if not missing(row["torch_one"]):
                share = percent_text(row["tensorflow"] / row["torch_one"])
                text += f" and {share} of that with one process (n = {row['torch_one_n']})"
            parts.append(text)
        if not missing(row["persistent"]):
            times = row["persistent"] / row["tensorflow"]
            parts.append(f"on {on} cuDNN's persistent batch norm makes its graph {times:.2f} times as fast (n = {row['persistent_n']})")
        if not missing(row["xla"]):
            times = row["xla"] / row["tensorflow"]
            parts.append(f"on {on} its towers compiled by XLA train {times:.2f} times as fast as its graph (n = {row['xla_n']})")
    if not parts:
        return "ResNet-50 was not measured in both frameworks yet."
    text = f"ResNet-50 in bf16 under {look(placement).label}: {'; '.join(parts)}. What was measured once has no interval."
    return text


def images_gt(frame: pd.DataFrame, devices: int) -> Shown:
    """ResNet-50 on `devices` GPUs in one precision, bf16: here rates of the frameworks can be divided."""
    rows, points = [], images(frame, devices)
    titles = {name: title for name, title in TITLES.items() if points[name].notna().any()}
    for _, point in points.iterrows():
        rows.append(
            {
                "placement": look(str(point["placement"])).label,
                **{title: _cell(point, name) for name, title in titles.items()},
                "TensorFlow over PyTorch": _ratio(point["tensorflow"], point["torch"]),
                "over one process": _ratio(point["tensorflow"], point["torch_one"]),
            }
        )
    note = (
        f"Images/s on {plural(devices, 'GPU')} (n: repeats), ResNet-50 v1.5, {BATCH} images a GPU, bf16, channels last (NHWC), "
        "weak scaling; "
        f"TensorFlow has one process for all GPUs{_apart(points)}. The last two columns are ratios. –: not measured, or not a placement of "
        "PyTorch."
    )
    right = [name for name in (rows[0] if rows else {}) if name != "placement"]
    return table_html(pd.DataFrame(rows), "", note if rows else "ResNet-50 was not measured in TensorFlow yet.", right)


def _apart(points: pd.DataFrame) -> str:
    """Which of these placements take a process a GPU in TensorFlow too."""
    rows = {name: find_placement(str(name)) for name in points["placement"]}
    of_tensorflow = {name: {engine.processes for engine in row.engines if engine.framework == "tensorflow"} for name, row in rows.items()}
    labels = [look(str(name)).label for name, processes in of_tensorflow.items() if processes == {"per_device"}]
    return f", but a process a GPU for {joined(labels)}" if labels else ""


def _cell(point: Any, name: str) -> str:
    return "–" if missing(point[name]) else f"{point[name]:,.0f} ({int(point[f'{name}_n'])})"


def _ratio(ours: float, theirs: float) -> str:
    return "–" if missing(ours) or missing(theirs) else f"{ours / theirs:.2f}"
