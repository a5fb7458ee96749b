"""Memory layout and arithmetic of image models: NCHW against NHWC, and each precision against fp32."""

from __future__ import annotations

from typing import Any

import pandas as pd

from multigpu.analysis.metrics import summary
from multigpu.analysis.pairs import Change, paired, ratio_cell
from multigpu.analysis.picture import Shown
from multigpu.analysis.style import look
from multigpu.analysis.tables import table_html
from multigpu.analysis.ways import find_point, ratio_of
from multigpu.analysis.wording import FRAMEWORK_NAMES, MODEL_NAMES, describe, devices_text, joined, missing, ratio_text
from multigpu.published import load_published

LAYOUT = Change("channels first over channels last", {"layout": ("channels_first",)}, {"layout": "channels_last"})
PRECISIONS = ("tf32", "bf16", "fp16")
GRID = "cnn_formats"


def _ordered(table: pd.DataFrame, *rest: str) -> pd.DataFrame:
    order = {name: index for index, name in enumerate(MODEL_NAMES)}
    return table.assign(_model=table["model"].map(order)).sort_values(["_model", *rest]).drop(columns="_model").reset_index(drop=True)


def layouts(frame: pd.DataFrame) -> pd.DataFrame:
    """Every point in NCHW with its twin in NHWC: ratio of rates with its interval (`pairs.paired`)."""
    table = paired(frame, LAYOUT)
    return _ordered(table, "devices", "precision", "execution") if len(table) else table


def published_gain(image: str = "imagenet") -> float:
    """The document's typical gain of NCHW, as a ratio: 1.25 on large images ("imagenet"), 1.50 on small ones ("cifar10")."""
    table = load_published("001_statements").set_index("name")
    return 1 + float(str(table.loc[f"nchw_gain_{image}", "value"])) / 100


def images_of(model: str) -> str:
    """Which of the document's two data sets a model is for."""
    from multigpu.workloads.cnn.description import FOR_CIFAR

    return "cifar10" if model in {one.name for one in FOR_CIFAR} else "imagenet"


def layout_table(frame: pd.DataFrame) -> Shown:
    """`layouts` beside the document's typical gain."""
    table = layouts(frame)
    if table.empty:
        gain = f"{published_gain():.2f} on large images and {published_gain('cifar10'):.2f} on small ones"
        return table_html(
            table, note=f"Not measured yet: only channels last was. The document: typically {gain}. The grid {GRID} measures it."
        )
    rows = [
        {
            "model": describe(row, ["model", "batch_size"]),
            "framework": FRAMEWORK_NAMES.get(row["framework"], row["framework"]),
            "how": describe(row, ["precision", "execution"]),
            "GPUs": str(row["devices"]),
            "NCHW (images/s)": f"{row['rate']:,.0f}",
            "NCHW over NHWC": ratio_cell(row),
            "so NCHW is": row["verdict"],
            "the document": f"{published_gain(images_of(row['model'])):.2f}",
        }
        for _, row in table.iterrows()
    ]
    note = "The document: typical gain of NCHW on Tesla M60, TensorFlow 1.3, fp32. 95% intervals, none where a side was measured once."
    return table_html(pd.DataFrame(rows), note=note, right=["GPUs", "NCHW (images/s)", "NCHW over NHWC", "the document"])


def precisions(frame: pd.DataFrame) -> pd.DataFrame:
    """Every point in TF32, bf16 or fp16 with its twin in fp32: ratio (and bounds), and memory of both."""
    points = summary(frame)
    rows = []
    for _, row in points[points["precision"].isin(PRECISIONS) & (points["n"] > 0)].iterrows():
        base = find_point(points, row, precision="fp32", loss_scale=None)
        if base is None:
            continue
        ratio, (low, high) = ratio_of(frame, row, base)
        rows.append({**row, "ratio": ratio, "ratio_low": low, "ratio_high": high, "base_memory_gib": base["peak_memory_gib"]})
        rows[-1]["_order"] = look(row["placement"]).order
    return (
        _ordered(pd.DataFrame(rows), "batch_size", "_order", "devices", "precision", "layout").drop(columns="_order")
        if rows
        else pd.DataFrame()
    )


def precision_table(frame: pd.DataFrame) -> Shown:
    """`precisions` in words; what fp16's loss scale left out stands in the last column."""
    table = precisions(frame)
    if frame.empty:
        return table_html(frame)
    if table.empty:
        return table_html(table, note=f"Not measured yet: no point has its twin in fp32. The grid {GRID} measures it.")
    rows = [
        {
            "model": describe(row, ["model", "batch_size"]),
            "placement": look(row["placement"]).label,
            "GPUs": str(row["devices"]),
            "precision": describe(row, ["precision", "loss_scale"]) + (" (scale found)" if _found(row) else ""),
            "layout": describe(row, ["layout"]),
            "images/s": f"{row['rate']:,.0f}",
            "over fp32": ratio_cell(row),
            "memory (GiB)": _gib(row["peak_memory_gib"]),
            "in fp32 (GiB)": _gib(row["base_memory_gib"]),
            "left out": "; ".join(part for part in str(row["flags"]).split(", ") if "left out" in part),
        }
        for _, row in table.iterrows()
    ]
    note = "Memory: the most that was allocated since the Run began, with what cuDNN tries in its first steps before it chooses."
    return table_html(pd.DataFrame(rows), right=["GPUs", "images/s", "over fp32", "memory (GiB)", "in fp32 (GiB)"], note=note)


def _gib(value: float) -> str:
    return "–" if missing(value) else f"{value:.1f}"


def _found(row: Any) -> bool:
    return row["precision"] == "fp16" and missing(row["loss_scale"])


def layout_sentence(frame: pd.DataFrame) -> str:
    """Whether NCHW is faster in fp32, as in the document: how often, and the largest effect either way; then other precisions. A sentence a
    framework, since each chooses kernels of its own.
    """
    table = layouts(frame)
    if table.empty:
        return "NCHW against NHWC has not been measured yet: all points are channels last."
    return " ".join(
        _layout_of(table[table["framework"] == name], words) for name, words in FRAMEWORK_NAMES.items() if name in set(table["framework"])
    )


def _layout_of(table: pd.DataFrame, framework: str) -> str:
    """The sentence on one framework."""
    fp32, others = table[table["precision"] == "fp32"], _in_others(table)
    if fp32.empty:
        return f"{framework}: NCHW against NHWC was not measured in fp32; {others} times the rate with NHWC."
    more = f"; {others} times" if others else ""
    faster = int((fp32["ratio"] > 1).sum())
    most, least = (fp32.iloc[int((sign * fp32["ratio"]).to_numpy().argmax())] for sign in (1, -1))
    parts = [f"{ratio_text(row['ratio'], row['ratio_low'], row['ratio_high'])} {describe(row, ['model'])}" for row in (most, least)]
    if len(fp32) == 1:
        return f"{framework}: in fp32 NCHW was measured at one point: {parts[0]}'s rate with NHWC{more}."
    said = f"{framework}: in fp32 NCHW is faster than NHWC in {faster} of {len(fp32)} points"
    return f"{said}: from {parts[1]}'s rate with NHWC to {parts[0]}'s{more}."


def _in_others(table: pd.DataFrame) -> str:
    """What NCHW costs or gains in the precisions that the document could not know, where tensor cores work; "" without any."""
    parts = []
    for name in PRECISIONS:
        own = table.loc[table["precision"] == name, "ratio"]
        most, least = (f"{value:.2f}" for value in (own.max(), own.min()))
        parts += [f"in {name} {most if most == least else f'{least} to {most}'}"] if len(own) else []
    return joined(parts)


def precision_sentence(frame: pd.DataFrame) -> str:
    """What fewer bits give over fp32: of each precision the least and the largest ratio, with their models."""
    table = precisions(frame)
    if table.empty:
        return "No precision has been measured beside fp32 yet."
    forms = [describe(row, ["precision", "loss_scale"]) + (" (scale found)" if _found(row) else "") for _, row in table.iterrows()]
    parts = []
    for name in dict.fromkeys(forms):
        own = table[[form == name for form in forms]].sort_values("ratio")
        ends = [own.iloc[0]] if len(own) == 1 else [own.iloc[0], own.iloc[-1]]
        said = " to ".join(f"{ratio_text(row['ratio'], row['ratio_low'], row['ratio_high'])} for {_where(row)}" for row in ends)
        parts.append(f"{name} {said}" + (f" over {len(own)} points" if len(own) > 2 else ""))
    lacking = [name for name in PRECISIONS if name not in set(table["precision"])]
    return f"Against fp32: {'; '.join(parts)}." + (f" Not measured: {joined(lacking)}." if lacking else "")


def _where(row: Any) -> str:
    return f"{MODEL_NAMES.get(row['model'], row['model'])} on {devices_text(row['devices'], row['device_type'])}"


def published_row(row: Any) -> float:
    """`published_gain` for the kind of images that a row's model takes."""
    return published_gain(images_of(str(row["model"])))
