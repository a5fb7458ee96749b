"""Memory layout and arithmetic of image models: NCHW against NHWC, and each precision against fp32."""

from __future__ import annotations

import math
from typing import Any

import pandas as pd

from multigpu.analysis.cnn_page import repeats_cell
from multigpu.analysis.metrics import summary
from multigpu.analysis.pairs import EQUAL, Change, best_first, paired, ratio_cell
from multigpu.analysis.picture import Shown
from multigpu.analysis.style import look
from multigpu.analysis.tables import table_html, tables_by
from multigpu.analysis.ways import find_point, ratio_of
from multigpu.analysis.wording import (
    FRAMEWORK_NAMES,
    MODEL_NAMES,
    describe,
    devices_text,
    joined,
    missing,
    percent_text,
    plural,
    ratio_text,
)
from multigpu.published import load_published

LAYOUT = Change("channels first over channels last", {"layout": ("channels_first",)}, {"layout": "channels_last"})
PRECISIONS = ("tf32", "bf16", "fp16")
FORMS = ("fp32", *PRECISIONS)
GRID = "cnn_formats"
WAITS = 0.8
"""Of the rate of the same step captured: an eager step that reaches less spends the rest on being launched, whatever it computes in."""


def _ordered(table: pd.DataFrame, *rest: str) -> pd.DataFrame:
    order = {name: index for index, name in enumerate(MODEL_NAMES)}
    ordered = table.assign(_model=table["model"].map(order)).sort_values(["_model", *rest]).drop(columns="_model")
    return best_first(ordered)


def layouts(frame: pd.DataFrame) -> pd.DataFrame:
    """Every point in NCHW with its twin in NHWC: ratio of rates with its interval (`pairs.paired`), those with an interval first."""
    table = paired(frame, LAYOUT)
    return _ordered(table, "devices", "precision", "execution", "machine") if len(table) else table


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
            table, note=f"Not measured yet: only channels last (NHWC) was. The document: typically {gain}. The grid {GRID} measures it."
        )
    rows = [
        {
            "machine": row["machine"],
            "model": describe(row, ["model", "batch_size"]),
            "how": describe(row, ["precision", "execution", *(["framework"] if row["framework"] != "torch" else [])]),
            "GPUs": str(row["devices"]),
            "NCHW (images/s)": f"{row['rate']:,.0f}",
            "NCHW over NHWC": ratio_cell(row),
            "repeats (NHWC's)": _repeats(row),
            "so NCHW is": row["verdict"],
            "the document": f"{published_gain(images_of(row['model'])):.2f}",
        }
        for _, row in table.iterrows()
    ]
    note = (
        "PyTorch unless it says TensorFlow. The document: typical gain of NCHW on Tesla M60, TensorFlow 1.3, fp32. 95% intervals, none "
        "where a side was measured once; not told apart: the interval holds 1. Repeats/launches of NCHW, in brackets of NHWC, both on the "
        "table's machine."
    )
    return tables_by(pd.DataFrame(rows), "machine", note, ["GPUs", "NCHW (images/s)", "NCHW over NHWC", "the document"])


def _repeats(row: Any) -> str:
    """Repeats over launches of a point and, in brackets, of its twin."""
    return f"{repeats_cell(row['n'], row['launches'])} ({repeats_cell(row['base_n'], row['base_launches'])})"


def precisions(frame: pd.DataFrame) -> pd.DataFrame:
    """Every point in TF32, bf16 or fp16 with its twin in fp32, those with an interval first.

    Returns:
        the fields of `summary`; ratio (and bounds), base_memory_gib, base_n, base_launches: the twin's; of_captured: the rate of an eager
        step over that of the same step captured (NaN: not eager, or none was captured).
    """
    points = summary(frame)
    rows = []
    for _, row in points[points["precision"].isin(PRECISIONS) & (points["n"] > 0)].iterrows():
        base = find_point(points, row, precision="fp32", loss_scale=None)
        if base is None:
            continue
        ratio, (low, high) = ratio_of(frame, row, base)
        captured = find_point(points, row, execution="captured") if row["execution"] == "eager" else None
        rows.append(
            {**row, "ratio": ratio, "ratio_low": low, "ratio_high": high, "base_memory_gib": base["peak_memory_gib"]}
            | {"base_n": base["n"], "base_launches": base["launches"], "_order": look(row["placement"]).order}
            | {"of_captured": math.nan if captured is None else row["rate"] / captured["rate"]}
        )
    return (
        _ordered(pd.DataFrame(rows), "batch_size", "_order", "devices", "precision", "layout", "machine").drop(columns="_order")
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
            "job": f"{describe(row, ['model', 'batch_size'])}, on {row['machine']}",
            "placement": look(row["placement"]).label,
            "GPUs": str(row["devices"]),
            "precision": describe(row, ["precision", "loss_scale"]) + (" (scale found)" if _found(row) else ""),
            "layout": describe(row, ["layout"]),
            "images/s": f"{row['rate']:,.0f}",
            "over fp32": ratio_cell(row),
            "repeats (fp32's)": _repeats(row),
            "of captured": "–" if missing(row["of_captured"]) else percent_text(row["of_captured"]),
            "memory (GiB)": _gib(row["peak_memory_gib"]),
            "in fp32 (GiB)": _gib(row["base_memory_gib"]),
            "left out": "; ".join(part.split(" left out")[0] for part in str(row["flags"]).split(", ") if "left out" in part),
        }
        for _, row in table.iterrows()
    ]
    note = (
        "95% intervals, none where a side was measured once. Repeats/launches, in brackets those in fp32, both on the table's machine. Of "
        "captured: the rate of the eager step over that of the same step captured. Memory: the most that was allocated since the Run "
        "began, with what cuDNN tries in its first steps before it chooses; a dash where the process still held an earlier Run's model. "
        "Left out: a gradient overflowed."
    )
    figures = ["GPUs", "images/s", "over fp32", "of captured", "memory (GiB)", "in fp32 (GiB)"]
    return tables_by(pd.DataFrame(rows), "job", note, figures)


def _gib(value: float) -> str:
    return "–" if missing(value) else f"{value:.1f}"


def _found(row: Any) -> bool:
    return row["precision"] == "fp16" and missing(row["loss_scale"])


def layout_sentence(frame: pd.DataFrame) -> str:
    """What NCHW gains in fp32, as in the document: every repeated point, and how far those measured once reach; then other precisions. A
    sentence a framework, since each chooses kernels of its own, and of captured steps one before those that a host launches.
    """
    table = layouts(frame)
    if table.empty:
        return "NCHW against NHWC has not been measured yet: all points are channels last (NHWC)."
    return " ".join(_layout_of(own, words) for words, own in _by_form(table))


def _by_form(table: pd.DataFrame) -> list[tuple[str, pd.DataFrame]]:
    """A framework's rows under its name; where some of its steps are captured, these and the others apart."""
    found = []
    for name, words in FRAMEWORK_NAMES.items():
        own = table[table["framework"] == name]
        captured = own["execution"] == "captured"
        parts = [(f"{words}, captured", own[captured]), (f"{words}, eager" if captured.any() else words, own[~captured])]
        found += [(named, rows) for named, rows in parts if len(rows)]
    return found


def _layout_of(table: pd.DataFrame, framework: str) -> str:
    """The sentence on one framework."""
    fp32, others = table[table["precision"] == "fp32"], _in_others(table)
    if fp32.empty:
        return f"{framework}: NCHW against NHWC was not measured in fp32; {others} times the rate with NHWC."
    exact, once = fp32[fp32["ratio_low"].notna()], fp32[fp32["ratio_low"].isna()]
    apart, level = exact[exact["verdict"] != EQUAL], exact[exact["verdict"] == EQUAL]
    parts = [f"{ratio_cell(row)} for {_where(row)} ({row['verdict']})" for _, row in apart.iterrows()]
    said = [joined(parts)] if parts else []
    said += [f"not told apart from 1 for {joined([_where(row) for _, row in level.iterrows()])}"] if len(level) else []
    if len(once):
        where = f" for {_where(once.iloc[0])}" if len(once) == 1 else f" in {len(once)}{' further' if said else ''} points"
        said.append(f"measured once, {_extent(once['ratio'])}{where}")
    return f"{framework}: in fp32 the rate with NCHW over that with NHWC is {'; '.join(filter(None, [*said, others]))}."


def _extent(ratios: pd.Series) -> str:
    """The least and the largest: "0.56 to 1.05"."""
    return " to ".join(dict.fromkeys(f"{value:.2f}" for value in (ratios.min(), ratios.max())))


def _in_others(table: pd.DataFrame) -> str:
    """What NCHW costs or gains in the precisions that the document could not know, where tensor cores work; "" without any."""
    found = {name: own["ratio"] for name, own in table.groupby("precision") if name in PRECISIONS}
    return joined([f"in {name} {_extent(found[name])}" for name in PRECISIONS if name in found])


def precision_sentence(frame: pd.DataFrame) -> str:
    """What fewer bits give over fp32: of each form of execution, captured steps first, and precision the least and the largest ratio with
    their models.
    """
    table = precisions(frame)
    if table.empty:
        return "No precision has been measured beside fp32 yet."
    said = []
    for execution in sorted(table["execution"].unique(), key=lambda name: (name != "captured", name)):
        rows = table[table["execution"] == execution]
        forms = [describe(row, ["precision", "loss_scale"]) + (" (scale found)" if _found(row) else "") for _, row in rows.iterrows()]
        parts = []
        for name in dict.fromkeys(forms):
            own = rows[[form == name for form in forms]].sort_values("ratio")
            ends = [own.iloc[0]] if len(own) == 1 else [own.iloc[0], own.iloc[-1]]
            extent = " to ".join(f"{ratio_text(row['ratio'], row['ratio_low'], row['ratio_high'])} for {_in_layout(row)}" for row in ends)
            parts.append(f"{name} {extent}" + (f" over {len(own)} points" if len(own) > 2 else ""))
        how = "TensorFlow's graph" if execution == "graph" else describe(rows.iloc[0], ["execution"]).capitalize()
        said.append(f"{how}, against fp32: {'; '.join(parts)}.")
    lacking = [name for name in PRECISIONS if name not in set(table["precision"])]
    return " ".join(said) + (f" Not measured: {joined(lacking)}." if lacking else "")


def answer(frame: pd.DataFrame) -> list[str]:
    """How far layouts part, and what each precision gives, by captured steps where there are some; nothing of what was not measured."""
    said = [*_layout_answer(layouts(frame)), *_precision_answer(precisions(frame))]
    return said or ["Neither another layout nor another precision has been measured yet."]


def _layout_answer(table: pd.DataFrame) -> list[str]:
    """Each precision by itself, the document's first: of each framework how far ratios reach, of captured steps where it has some, and of
    how many points that were repeated.
    """
    parts = []
    for form in FORMS if len(table) else ():
        each = _by_form(table[table["precision"] == form])
        hosts = {words.replace(", captured", ", eager") for words, _ in each if words.endswith(", captured")}
        told = [f"{_told_extent(own)} in {words} ({_repeated(own)})" for words, own in each if words not in hosts]
        parts += [f"in {form}{', the precision of the document,' if form == 'fp32' else ''} {joined(told)}"] if told else []
    return [f"The rate with NCHW over that with NHWC is {'; '.join(parts)}."] if parts else []


def _told_extent(own: pd.DataFrame) -> str:
    """How far ratios reach, without those whose interval holds 1: they may be a gain or a loss."""
    told = own.loc[own["verdict"] != EQUAL, "ratio"]
    return _extent(told) if len(told) else "not told apart from 1"


def _repeated(own: pd.DataFrame) -> str:
    level = int((own["verdict"] == EQUAL).sum())
    apart = f", {level} of them not told apart from 1" if 0 < level < len(own) else ""
    return f"{int(own['ratio_low'].notna().sum())} of {plural(len(own), 'point')} repeated{apart}"


def _precision_answer(table: pd.DataFrame) -> list[str]:
    """What fewer bits give, by steps that are one CUDA graph, in NHWC; without any the most that any step gained."""
    if table.empty:
        return []
    graph = table[table["execution"].eq("captured") & table["layout"].ne("channels_first")]
    if len(graph):
        each = [
            f"{name} {_extent(graph.loc[graph['precision'] == name, 'ratio'])}" for name in PRECISIONS if name in set(graph["precision"])
        ]
        eager = table[table["execution"] == "eager"]
        names = list(dict.fromkeys(MODEL_NAMES.get(name, name) for name in graph["model"]))
        models = joined(names) if len(names) <= MOST_NAMED else f"{len(names)} models, the most with {_most(graph)}"
        repeated = int(graph["ratio_low"].notna().sum())
        said = (
            f"One CUDA graph a step, channels last (NHWC), fewer bits give over fp32: {joined(each)} times ({models}; {repeated} of "
            f"{plural(len(graph), 'point')} repeated)."
        )
        if len(eager):
            few = [name for name in PRECISIONS if name in set(eager["precision"]) - set(graph["precision"])]
            said += f" Eager steps, which their host launches, give {_extent(eager['ratio'])} times in {plural(len(eager), 'point')}"
            said += f"; {joined(few)} was measured in those alone." if few else "."
        return [said]
    most = [own.sort_values("ratio").iloc[-1] for _, own in table.groupby("precision")]
    once = [", once" if missing(row["ratio_low"]) else "" for row in most]
    gains = [ratio_text(row["ratio"], row["ratio_low"], row["ratio_high"]) for row in most]
    told = [f"{row['precision']} {gain}{few} ({_where(row)})" for row, gain, few in zip(most, gains, once, strict=True)]
    points = f"{'eager ' if table['execution'].eq('eager').all() else ''}{'point' if len(table) == 1 else 'points'}"
    slower = int((table["ratio"] < 1).sum())
    return [f"The most that fewer bits give over fp32: {'; '.join(told)}. {slower} of {len(table)} {points} are slower than fp32."]


MOST_NAMED = 3


def _most(table: pd.DataFrame) -> str:
    """The model whose ratio is largest."""
    name = str(table.sort_values("ratio").iloc[-1]["model"])
    return MODEL_NAMES.get(name, name)


def _where(row: Any) -> str:
    return f"{MODEL_NAMES.get(row['model'], row['model'])} on {devices_text(row['devices'], row['device_type'])}"


def _in_layout(row: Any) -> str:
    """As `_where`; NHWC is not said, since it is what every other page has."""
    return _where(row) + (" (NCHW)" if row["layout"] == "channels_first" else "")


def host_bound_sentence(frame: pd.DataFrame) -> str | None:
    """Of which models an eager step is far below the same step captured, so that its launches and not its arithmetic set the ratio; None
    without an eager point.
    """
    table = precisions(frame)
    eager = table[table["execution"] == "eager"] if len(table) else table
    if eager.empty:
        return None
    of = "All" if len(eager) == len(table) else f"{len(eager)} of"
    verb = "is" if len(eager) == 1 else "are"
    said = f"{of} {plural(len(table), 'point')} {verb} of eager steps, whose kernels the host launches one by one"
    known = eager[eager["of_captured"].notna()]
    if known.empty:
        return f"{said}; none of them was captured too, so whether the host or the arithmetic sets their rates is not known."
    shares = {name: (own.min(), own.max()) for name, own in known.groupby("model", sort=False)["of_captured"]}
    waiting, others = ([(name, ends) for name, ends in shares.items() if (ends[0] < WAITS) == slow] for slow in (True, False))
    parts = [
        f"{_shares(slow)}{words}"
        for slow, words in ((waiting, ": the host sets their pace, and a ratio over fp32 says little"), (others, ""))
        if slow
    ]
    captured = joined(sorted(set(known["precision"])))
    return f"{said}. Of the rate of the same step captured ({captured} alone) they reach {'; '.join(parts)}."


def _shares(models: list[tuple[Any, tuple[float, float]]]) -> str:
    """What models reach, least first: "27% with AlexNet (CIFAR) and 89% to 94% with ResNet-50 v1.5"."""
    return joined(
        [
            f"{' to '.join(dict.fromkeys(percent_text(share) for share in ends))} with {MODEL_NAMES.get(name, name)}"
            for name, ends in sorted(models, key=lambda one: one[1])
        ]
    )


def published_row(row: Any) -> float:
    """`published_gain` for the kind of images that a row's model takes."""
    return published_gain(images_of(str(row["model"])))
