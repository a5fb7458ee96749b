"""Kinds of parallelism compared: points of the Records, what they say in tables and sentences, and what descriptions say without any."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pandas as pd

from multigpu import study
from multigpu.analysis.front import front_machine
from multigpu.analysis.metrics import summary
from multigpu.analysis.partition_bytes import LAYER_TYPES, bytes_table, crossing_batch, expected_idle
from multigpu.analysis.picture import Shown, paragraphs
from multigpu.analysis.style import look
from multigpu.analysis.tables import table_html, tables_by
from multigpu.analysis.ways import find_point, ratio_of
from multigpu.analysis.wording import bytes_text, devices_text, joined, missing, percent_text, status_text
from multigpu.grid.parallelism import LAYER_BATCHES
from multigpu.parameters import Measure
from multigpu.workloads import find_model

KINDS = ("ddp", "tensor_split", "layer_split")
MLP, LSTM = ("mlp42m", "mlp_small"), ("nmt000", "nmt_small")
"""Models of the two claims: the document's, and a small one for CPUs."""
DOCUMENT_SPEEDUP = {8: 2.2}
"""Document 002's figure for 42 million parameters."""
DEVICES_OF_MODEL = 4
"""Devices for which the bytes model is shown."""
ABSENT = "No Record of GPUs yet: `python -m multigpu measure --grid parallelism` on a machine with GPUs measures these points."
NONE_HERE = "This computer has no Records of its own beside those above."


def observe(measure: Measure, grid: str) -> pd.DataFrame:
    """Every Record of one joined batch on 1 to N devices, measured as asked for.

    Raises:
        ValueError: no such grid, or Records cannot be read or written.
    """
    frame = study.observe(measure, study.own_grid(grid, "parallelism"))
    wanted = frame["placement"].isin(KINDS) & frame["scaling"].eq("strong") & frame["framework"].eq("torch")
    own = frame[wanted & ~(frame["execution"].ne("eager"))]
    return own[~own["model"].isin(("resnet50_v1.5",))]


def of_gpus(frame: pd.DataFrame) -> pd.DataFrame:
    """The published machine's points; where GPUs were not measured, this computer's own."""
    return front_machine(frame)


def further_layers(everything: pd.DataFrame, shown: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """By machine, the GPU rows of the layer types that other machines than those of `shown` measured."""
    layers = everything[everything["model"].isin(LAYER_TYPES) & everything["device_type"].eq("cuda")]
    layers = layers[~layers["machine"].isin(set(shown.loc[shown["model"].isin(LAYER_TYPES), "machine"]))]
    return {str(machine): rows for machine, rows in layers.groupby("machine")}


def further_layers_table(everything: pd.DataFrame, shown: pd.DataFrame) -> Shown:
    """`speedup_table` of the layer types on the other machines (`further_layers`), each under its name and over its own one device."""
    told = [
        speedup_table(rows, tuple(LAYER_TYPES), most_only=True, on=f", {_most_on(machine, rows)}").html
        for machine, rows in further_layers(everything, shown).items()
    ]
    return Shown("".join(told)) if told else table_html(pd.DataFrame(), note="No other machine has Records of these layers.")


def _most_on(machine: str, rows: pd.DataFrame) -> str:
    return f"{devices_text(int(rows['devices'].max()), str(rows['device_type'].iloc[0]))} of {machine}"


def _is_none(value: Any) -> bool:
    return bool(missing(value))


def points_of(frame: pd.DataFrame, models: Sequence[str]) -> pd.DataFrame:
    """One row a point (`summary`) of these models, fewest devices first, with speedup, low and high: against one device with the same
    joined batch and precision, done the same way and in one piece.
    """
    table = summary(frame[frame["model"].isin(models)])
    rows = []
    for _, row in table.iterrows():
        base = find_point(table, row, devices=1, model_parallel=None, micro_batches=None)
        ratio, (low, high) = ratio_of(frame, row, base)
        rows.append({**row, "speedup": ratio, "low": low, "high": high})
    order = ["model", "batch_size", "placement", "recurrence", "devices", "model_parallel", "micro_batches"]
    return pd.DataFrame(rows).sort_values(order, na_position="first").reset_index(drop=True) if rows else table


def shape_text(row: Any) -> str:
    """How the devices are used: "4 x 2 GPUs a copy", or all of them by one copy, or one each."""
    devices = int(row["devices"])
    if row["placement"] == "ddp":
        return f"{devices} copies" if devices > 1 else "1 copy"
    shared = devices if _is_none(row["model_parallel"]) else int(row["model_parallel"])
    copies = devices // shared
    return f"{copies} x {shared}" if copies > 1 else f"1 over {shared}"


def ratio_cell(row: Any) -> str:
    """A point's speedup with its interval, or why it has none."""
    if not row["n"] or missing(row["speedup"]):
        return status_text(row) if not row["n"] else "–"
    bounds = "" if missing(row["low"]) or row["low"] == row["high"] else f" ({row['low']:.2f} to {row['high']:.2f})"
    return f"{row['speedup']:.2f}{bounds}"


def speedup_table(frame: pd.DataFrame, models: Sequence[str] = MLP, most_only: bool = False, nothing: str = ABSENT, on: str = "") -> Shown:
    """Step time, speedup over one device and bytes of every point of these models (with `most_only`: on the most devices), a table a
    kind of layer; of a model, a table a joined batch. on: ends each title, for where it was measured.
    """
    table = points_of(frame, models)
    if most_only and len(table):
        table = table[table["devices"] == table["devices"].max()]
    rows = [
        {
            "layers": LAYER_TYPES.get(str(row["model"]), ""),
            "batch": f"{int(row['batch_size']):,}",
            "devices": str(row["devices"]),
            "kind": look(row["placement"]).label + ("" if _is_none(row["recurrence"]) else ", loop"),
            "copies x devices a copy": shape_text(row),
            "step (ms)": f"{1e3 * row['step_time_s']:.2f}" if row["n"] else status_text(row),
            "speedup over one": ratio_cell(row) if row["n"] else "–",
            "document 002": f"{DOCUMENT_SPEEDUP.get(int(row['devices']), ''):}"
            if row["placement"] == "tensor_split" and row["model"] == "mlp42m"
            else "",
            "moved a step": bytes_text(row["moved_bytes"]) if row["n"] and not missing(row["moved_bytes"]) else "–",
            "n": str(row["n"]),
        }
        for _, row in table.iterrows()
    ]
    if not rows:
        return table_html(pd.DataFrame(), note=nothing)
    note = f"Moved: bytes that all devices together copy or hand to all-reduces and gathers. {_screened(table)}"
    if table["speedup"].isna().all():
        note += " No speedup: one device was not measured there."
    right = ["batch", "devices", "step (ms)", "speedup over one", "moved a step", "n"]
    data = pd.DataFrame(rows)
    if data["layers"].ne("").all():
        kinds = {kind: place for place, kind in enumerate(LAYER_TYPES.values())}
        data = data.sort_values("layers", key=lambda names: names.map(kinds), kind="stable")
        return tables_by(data.assign(layers=data["layers"].str.capitalize()), "layers", note, right, title=f"{{}} layers{on}")
    return tables_by(data.drop(columns="layers"), "batch", note, right, title=f"Joined batch {{}}{on}")


def pipeline_points(frame: pd.DataFrame, models: Sequence[str] = LSTM, hybrids: bool = False) -> pd.DataFrame:
    """Points of layers over devices, with `idle`: the share of all devices' time in which they did not do what one device does for the
    same batch, 1 - T1 / (G TG); and what theory leaves idle, of equal stages and of stages by their operations.

    hybrids: also several copies of the model beside each other, each over its own devices; theory is then that of one copy.

    Returns:
        `points_of` with copies, stages (devices of a copy), parts (micro-batches), idle, idle_equal, idle_by_work.
    """
    own = frame[frame["placement"] == "layer_split"]
    table = points_of(own if hybrids else own[own["model_parallel"].isna()], models)
    rows = []
    for _, row in table.iterrows():
        parts = 1 if _is_none(row["micro_batches"]) else int(row["micro_batches"])
        stages = int(row["devices"]) if _is_none(row["model_parallel"]) else int(row["model_parallel"])
        equal, by_work = expected_idle(find_model("nmt", row["model"]), stages, parts)
        rows.append(
            {**row, "copies": int(row["devices"]) // stages, "stages": stages, "parts": parts}
            | {"idle": 1 - row["speedup"] / row["devices"], "idle_equal": equal, "idle_by_work": by_work}
        )
    return pd.DataFrame(rows)


def pipeline_table(frame: pd.DataFrame, nothing: str = ABSENT) -> Shown:
    """Layers over devices, hybrids, and data parallelism with the same joined batch: speedup, and idle time beside the theory's."""
    table = pipeline_points(frame, hybrids=True)
    copied = points_of(frame[frame["placement"] == "ddp"], LSTM)
    copied = copied[copied["devices"] > 1] if len(copied) else copied
    rows = [_pipeline_row(row, f"{row['copies']} x {row['stages']}", str(row["parts"])) for _, row in table.iterrows()]
    rows += [_pipeline_row(row, f"{row['devices']} x 1 ({look('ddp').label})", "–") for _, row in copied.iterrows()]
    data = pd.DataFrame(rows)
    if data.empty:
        return table_html(pd.DataFrame(), note=nothing)
    data = data.sort_values(["order", "count"], kind="stable").drop(columns=["order", "count"])
    right = [str(name) for name in data if name not in ("batch", "copies x stages")]
    note = (
        "Copies x stages: 2 x 2 is two copies of the model, each with its layers over two devices and half of the batch. Speedup over one: "
        "over one device with the same joined batch, done the same way. Idle: see the figure. "
    )
    every = pd.concat([part for part in (table, copied) if len(part)])
    return tables_by(data, "batch", note + _screened(every), right, title="Joined batch {}")


def _pipeline_row(row: Any, shape: str, parts: str) -> dict[str, Any]:
    return {
        "order": row["batch_size"],
        "count": row["devices"],
        "batch": f"{int(row['batch_size']):,}",
        "devices": str(row["devices"]),
        "copies x stages": shape,
        "micro-batches": parts,
        "step (ms)": f"{1e3 * row['step_time_s']:.1f}" if row["n"] else status_text(row),
        "speedup over one": ratio_cell(row),
        "idle, measured": _share_cell(row, "idle"),
        "idle, equal stages": _share_cell(row, "idle_equal"),
        "idle, by operations": _share_cell(row, "idle_by_work"),
        "n": str(row["n"]),
    }


def _share_cell(row: Any, name: str) -> str:
    return "–" if name not in row or missing(row[name]) else percent_text(row[name])


def bytes_html(devices: int = DEVICES_OF_MODEL, batches: Sequence[int] = LAYER_BATCHES) -> Shown:
    """The bytes model as a table: what a device sends in a step, by kind of layer and batch."""
    table = bytes_table(list(LAYER_TYPES), devices, batches)
    rows = [
        {
            "layers": LAYER_TYPES[row["model"]],
            "joined batch": f"{int(row['batch_size']):,}",
            "data parallel": bytes_text(row["data_parallel"]),
            "matrices over devices": bytes_text(row["cut"]),
            "equal at a batch of": f"{row['crossing']:,.0f}",
        }
        for _, row in table.iterrows()
    ]
    return table_html(
        pd.DataFrame(rows),
        right=[name for name in rows[0] if name != "layers"],
        note=f"Bytes that each of {devices} GPUs sends at least, bf16 activations and fp32 gradients.",
    )


def _screened(table: pd.DataFrame) -> str:
    once = int((table["n"] == 1).sum()) if len(table) else 0
    return f"{once} of {len(table)} points were measured once (screening) and have no interval." if once else ""


# --- sentences ----------------------------------------------------------------------------------------------------------------


def bytes_finding(devices: int = DEVICES_OF_MODEL) -> str:
    """Below which batch cutting sends less than data parallelism, kind by kind: arithmetic on descriptions."""
    parts = [f"{crossing_batch(find_model('stacks', name), devices):,.0f} rows ({kind})" for name, kind in LAYER_TYPES.items()]
    return (
        f"By bytes alone, on {devices} GPUs: a layer's matrix is worth cutting below a joined batch of {joined(parts)}; above, "
        "gradients are less to send than activations."
    )


def winners(frame: pd.DataFrame) -> pd.DataFrame:
    """Of each kind of layer and batch on the most devices: the faster of data parallelism and cut matrices, by how much, and whether
    bytes had said so. Data parallelism is taken in its faster form.
    """
    table = summary(
        frame[frame["model"].isin(LAYER_TYPES) & frame["placement"].isin(("ddp", "tensor_split")) & frame["model_parallel"].isna()]
    )
    table = table[table["n"] > 0]
    rows: list[dict[str, Any]] = []
    if table.empty:
        return pd.DataFrame(rows)
    devices = int(table["devices"].max())
    for (name, batch), group in table[table["devices"] == devices].groupby(["model", "batch_size"], sort=True):
        best = {kind: own["step_time_s"].min() for kind, own in group.groupby("placement")}
        if devices < 2 or len(best) < 2:
            continue
        even = crossing_batch(find_model("stacks", str(name)), devices, group["precision"].iloc[0])
        fewer_bytes = "tensor_split" if int(str(batch)) < even else "ddp"
        first = min(best, key=lambda kind: best[kind])
        times = max(best.values()) / min(best.values())
        rows.append({"model": name, "batch_size": batch, "devices": devices, "faster": first, "times": times, "fewer_bytes": fewer_bytes})
    return pd.DataFrame(rows)


def layer_finding(frame: pd.DataFrame, measured_on: str = "") -> str | None:
    """Where cutting was faster than data parallelism, kind by kind (measured once a point, so a difference below 5% is none).

    measured_on: the devices and their machine, if they must be told.
    """
    table = winners(frame)
    if table.empty:
        return None
    device_type = str(frame["device_type"].iloc[0])
    parts = []
    for name, kind in LAYER_TYPES.items():
        own = table[table["model"] == name]
        won = own[(own["faster"] == "tensor_split") & (own["times"] > 1.05)]
        where = joined([f"{int(batch):,}" for batch in won["batch_size"]])
        if len(won):
            parts.append(f"{kind} at a batch of {where}")
    agree = int((table["faster"] == table["fewer_bytes"]).sum())
    on = measured_on or devices_text(int(table["devices"].iloc[0]), device_type)
    low, high = int(table["batch_size"].min()), int(table["batch_size"].max())
    ahead = f"for {joined(parts)}" if parts else f"for no kind of layer at any joined batch from {low:,} to {high:,} rows"
    return (
        f"Measured on {on} (screening), cutting matrices beats data parallelism by more than 5% {ahead}; bytes alone"
        f" name the faster kind in {agree} of {len(table)} cases."
    )


def speedup_finding(frame: pd.DataFrame) -> str | None:
    """How much the fully connected model gains from being cut on the most devices, beside data parallelism."""
    table = points_of(frame[frame["model_parallel"].isna()], MLP)
    table = table[(table["n"] > 0) & (table["devices"] > 1)] if len(table) else table
    table = table[table["speedup"].notna()] if len(table) else table
    if table.empty:
        return None
    most = table[table["devices"] == table["devices"].max()]
    parts = [f"{look(row['placement']).label} {ratio_cell(row)} at a batch of {int(row['batch_size']):,}" for _, row in most.iterrows()]
    on = devices_text(int(most["devices"].iloc[0]), most["device_type"].iloc[0])
    return f"Speedup of the fully connected model on {on}: {joined(parts)}."


def pipeline_finding(frame: pd.DataFrame) -> str | None:
    """What spreading the translation model's layers gains, without and with micro-batches, on the most devices."""
    table = pipeline_points(frame)
    table = table[(table["n"] > 0) & (table["devices"] > 1) & table["speedup"].notna()] if len(table) else table
    if table.empty:
        return None
    most = table[table["devices"] == table["devices"].max()]
    whole, best = most[most["parts"] == 1], most.loc[most["speedup"].idxmax()]
    first = joined([f"{ratio_cell(row)} (batch {int(row['batch_size'])})" for _, row in whole.iterrows()])
    text = f"Layers over {devices_text(int(best['devices']), best['device_type'])}: speedup {first} without micro-batches"
    return text + (f"; at best {ratio_cell(best)}, with {best['parts']} micro-batches" if best["parts"] > 1 else "") + "."


def _layers_told(shown: pd.DataFrame, others: dict[str, pd.DataFrame]) -> str:
    """`layer_finding` of what the page shows, then of each other machine; where the two say the same, that they do."""
    first = layer_finding(shown) or ""
    said = [first]
    for machine, rows in others.items():
        on = _most_on(machine, rows)
        text = layer_finding(rows, on) or ""
        said.append(f"The same on {on}." if first and text.partition(", ")[2] == first.partition(", ")[2] else text)
    return " ".join(filter(None, said))


def answer(frame: pd.DataFrame, everything: pd.DataFrame | None = None) -> Shown:
    """The page's answer: from Records of GPUs where there are any; else what bytes say, and that nothing was timed on GPUs yet.

    Args:
        frame: what the page shows, of one machine a model (`of_gpus`).
        everything: of all machines; what others measured of the layers is told apart.
    """
    gpus = frame[frame["device_type"] == "cuda"]
    others = further_layers(everything, gpus) if everything is not None else {}
    told = [_layers_told(gpus, others), speedup_finding(gpus), pipeline_finding(gpus)] if len(gpus) else []
    return paragraphs(*([text for text in told if text] or [ABSENT]), bytes_finding())
