"""fp16 beside bf16 in steps that no host sets the pace of: as many bits, and not the same kernels.

PyTorch has kernels of batch norm of its own, which a trace shows in bf16. Up to 2024 its source gave batch norm of fp16 and fp32 to cuDNN
and that of bf16 to these (aten/src/ATen/native/Normalization.cpp); what the version measured here does in fp16, a trace has to say.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

import pandas as pd

from multigpu.analysis.picture import Shown
from multigpu.analysis.statistics import interval, sample
from multigpu.analysis.steady import of_one_gpu
from multigpu.analysis.tables import table_html
from multigpu.analysis.wording import MODEL_NAMES, joined, missing, percent_text, rate_text
from multigpu.record import Record
from multigpu.same_gpus import kind_of

NONE = (
    "fp16 has not been measured beside bf16 in captured steps: `python -m multigpu measure --grid cnn_formats_captured --devices 1` does."
)
OWN_NORM = "batch_norm"
"""What PyTorch's own kernels of batch norm are called; cuDNN's have other names."""

COLUMNS = {
    **dict.fromkeys(("kind", "model"), "string"),
    **dict.fromkeys(("batch_size", "pixels", "n_fp16", "n_bf16"), "int64"),
    "norm": "bool",
    **dict.fromkeys(("fp16_units_per_s", "bf16_units_per_s", "ratio", "ratio_low", "ratio_high"), "float64"),
}


def sixteen_bit_points(records: Iterable[Record]) -> pd.DataFrame:
    """A row a kind of GPU and PyTorch Run that was captured in fp16 (its loss scale fixed or found, pooled) and in bf16, the largest ratio
    first.

    Returns:
        norm: whether the model has batch norm; pixels: the side of an image; fp16_units_per_s, bf16_units_per_s: geometric means;
        ratio: fp16 over bf16, with its 95% interval (NaN where either was measured once); n_fp16, n_bf16: repeats.
    """
    measured: dict[tuple[str, str], dict[str, list[Record]]] = {}
    for record in of_one_gpu(records):
        run = record.run
        if run.workload == "cnn" and run.framework == "torch" and run.precision in ("fp16", "bf16") and not run.traced_steps:
            plain = run.model_copy(update={"precision": "bf16", "loss_scale": None}).digest
            measured.setdefault((kind_of(record.machine), plain), {}).setdefault(run.precision, []).append(record)
    rows = []
    for (kind, _), found in measured.items():
        if len(found) < 2:
            continue
        half, brain = (
            sample([one.measurement.units / one.measurement.wall_s for one in own if one.measurement], [one.launch_id for one in own])
            for own in (found["fp16"], found["bf16"])
        )
        run, log, width = found["bf16"][0].run, half.mean - brain.mean, interval([half, brain])
        rows.append(
            {"kind": kind, "model": run.model, "batch_size": run.batch_size, "pixels": run.description.config.image_size}
            | {"norm": any(variable.kind == "norm" for variable in run.description.variables), "n_fp16": half.n, "n_bf16": brain.n}
            | {"fp16_units_per_s": math.exp(half.mean), "bf16_units_per_s": math.exp(brain.mean), "ratio": math.exp(log)}
            | {"ratio_low": math.exp(log - width), "ratio_high": math.exp(log + width)}
        )
    frame = pd.DataFrame(rows, columns=list(COLUMNS)).astype(COLUMNS)
    return frame.sort_values(["ratio", "model"], ascending=[False, True], ignore_index=True)


def own_norm_share(records: Iterable[Record], precision: str = "bf16") -> tuple[str, float] | None:
    """(model, share): of all that the GPU did in a traced captured step, PyTorch's own batch norm, where that is most; None if no step in
    this precision was traced.
    """
    shares = []
    for record in of_one_gpu(records):
        trace = record.measurement.trace if record.measurement else None
        total = trace.replicas[0].device_time_s if trace else None
        if trace and total and record.run.precision == precision and record.run.workload == "cnn":
            own = sum(kernel.total_s for kernel in trace.kernels if OWN_NORM in kernel.name)
            shares.append((own / total, record.run.model))
    share, model = max(shares, default=(0.0, ""))
    return (model, share) if shares else None


def sixteen_bit_finding(points: pd.DataFrame, traced: tuple[str, float] | None, fp16: tuple[str, float] | None = None) -> str:
    """What fp16 gives over bf16 with batch norm and without, and which kernels are behind it as far as a trace tells.

    Args:
        traced, fp16: `own_norm_share` in bf16 and in fp16.
    """
    if points.empty:
        return NONE
    said = []
    for norm, words in ((True, "with batch norm"), (False, "without")):
        own = points[points["norm"] == norm]
        if len(own):
            least, most = own.iloc[-1], own.iloc[0]
            named = f"{_named(least)} to {_named(most)}" if len(own) > 1 else _named(most)
            said.append(f"{named} in models {words}")
    text = f"As one graph fp16 trains {joined(said)} times as fast as bf16." if len(said) == 1 else ""
    text = text or f"As one graph fp16 trains, in times of bf16's rate, {said[0]}, and {said[1]}."
    if traced is None:
        return f"{text} No step in bf16 was traced to show its kernels."
    text += f" In bf16 PyTorch's own kernels of batch norm are {percent_text(traced[1])} of what the GPU does in a captured step of "
    text += f"{_model(traced[0])}"
    if fp16 is None:
        return f"{text}; no step in fp16 was traced beside it, and whether cuDNN's take their place there is not known."
    return f"{text}, in fp16 {percent_text(fp16[1])} ({_model(fp16[0])})."


def _model(name: str) -> str:
    return MODEL_NAMES.get(name, name)


def _named(row: pd.Series) -> str:
    return f"{row['ratio']:.2f} ({_model(row['model'])})"


def sixteen_bit_table(points: pd.DataFrame) -> Shown:
    """Every model's rate in both, the largest ratio first."""
    if points.empty:
        return table_html(pd.DataFrame(), note=NONE)
    rows = [
        {
            "model": _model(row["model"]),
            "batch": str(row["batch_size"]),
            "image (px)": str(row["pixels"]),
            "batch norm": "yes" if row["norm"] else "no",
            "fp16": rate_text(row["fp16_units_per_s"], unit="images"),
            "bf16": rate_text(row["bf16_units_per_s"], unit="images"),
            "fp16 over bf16": f"{row['ratio']:.3f}"
            + ("" if missing(row["ratio_low"]) else f" ({row['ratio_low']:.3f} to {row['ratio_high']:.3f})"),
            "n": f"{row['n_fp16']}, {row['n_bf16']}",
            "GPU": row["kind"].removeprefix("NVIDIA "),
        }
        for _, row in points.iterrows()
    ]
    note = (
        "One GPU, ddp, channels last (NHWC), whole steps as one CUDA graph; geometric means. fp16: its loss scale found while training and "
        "fixed at 128, pooled. Intervals 95%; n: repeats of each."
    )
    return table_html(pd.DataFrame(rows), note=note, right=["batch", "image (px)", "fp16", "bf16", "fp16 over bf16", "n"])
