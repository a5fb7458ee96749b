"""Kinds of parallelism drawn: bytes and step time against batch size by kind of layer, speedup against devices, idle time of a pipeline."""

from __future__ import annotations

import matplotlib as mpl
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, MaxNLocator, NullLocator

from multigpu.analysis.layout import common, grid_of_axes, label_lines, name_panel
from multigpu.analysis.metrics import summary
from multigpu.analysis.parallelism import (
    ABSENT,
    DEVICES_OF_MODEL,
    DOCUMENT_SPEEDUP,
    LSTM,
    MLP,
    bytes_finding,
    pipeline_points,
    points_of,
    winners,
)
from multigpu.analysis.parallelism_words import lost_points
from multigpu.analysis.partition_bytes import LAYER_TYPES, bytes_table
from multigpu.analysis.picture import Picture, message
from multigpu.analysis.style import CEILING, INK, RC, look
from multigpu.analysis.wording import MODEL_NAMES, devices_text, joined, percent_text, plural
from multigpu.workloads import find_model

WIDTH, HEIGHT, LABELS = 2.1, 1.9, 1.35
BATCHES = tuple(2**power for power in range(3, 17))
MODES = {"data_parallel": ("ddp", "data parallel"), "cut": ("tensor_split", "matrices cut")}


def figure_layer_bytes(devices: int = DEVICES_OF_MODEL) -> Picture:
    """Bytes that a device sends for each million operations, against the joined batch, a panel a kind of layer. Needs no Record."""
    table = bytes_table(list(LAYER_TYPES), devices, BATCHES)
    with mpl.rc_context(RC):
        names = [f"{kind} ({find_model('stacks', name).parameters / 1e6:.1f} M parameters)" for name, kind in LAYER_TYPES.items()]
        picture, axes = grid_of_axes(
            len(names), bytes_finding(devices), WIDTH, HEIGHT, columns=2, label_width=LABELS, left=0.95, names=names
        )
        for index, (ax, model, name) in enumerate(zip(axes, LAYER_TYPES, names, strict=True)):
            own = table[table["model"] == model]
            name_panel(ax, name)
            ends = []
            for column, (placement, label) in MODES.items():
                style, y = look(placement), 1e6 * own[f"{column}_per_flop"]
                ax.plot(own["batch_size"], y, color=style.colour)
                ends.append((float(own["batch_size"].iloc[-1]), float(y.iloc[-1]), label, style.colour))
            ax.axvline(own["crossing"].iloc[0], color=INK, linewidth=1, linestyle=":")
            _batch_axis(ax)
            ax.set_yscale("log")
            ax.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,g}"))
            if index % 2 == 0:
                ax.set_ylabel("bytes sent a million operations")
            label_lines(ax, ends, HEIGHT)
    picture.caption = (
        f"What each of {devices} GPUs must send in a step over the operations it computes in it, worked out from the models' "
        "descriptions: data parallelism one all-reduce of float32 gradients; matrices cut over the GPUs, what one step joins, bf16. "
        "Dotted: the batch at which both send as much. Models of 67 to 76 million operations a row. Strong scaling. No Record is needed."
    )
    picture.data = table
    picture.alt = f"Lines of bytes against joined batch for dense, convolutional and recurrent layers. {picture.finding}"
    return picture


def _batch_axis(ax: Axes) -> None:
    ax.set_xscale("log", base=2)
    ax.xaxis.set_major_formatter(lambda x, _: f"{x:,.0f}")
    ax.set_xlabel("rows of the joined batch")


def figure_layer_steps(frame: pd.DataFrame) -> Picture:
    """Step time against the joined batch on the most devices, a panel a kind of layer; both forms of a recurrence under all-reduce."""
    rows = frame[frame["model"].isin(LAYER_TYPES) & frame["model_parallel"].isna() & frame["placement"].isin(("ddp", "tensor_split"))]
    table = summary(rows)
    table = table[table["n"] > 0] if len(table) else table
    if table.empty:
        return message(f"No step times by kind of layer. {ABSENT}")
    table = table[table["devices"] == table["devices"].max()]
    kinds, lacking = _compared(table)
    if not kinds:
        return message(f"Step times to compare are missing: {lacking}.")
    with mpl.rc_context(RC):
        names = [LAYER_TYPES[model] for model in kinds]
        picture, axes = grid_of_axes(len(kinds), _steps_finding(frame), WIDTH, HEIGHT, 2, LABELS, left=0.72, names=names)
        for index, (ax, model, name) in enumerate(zip(axes, kinds, names, strict=True)):
            name_panel(ax, name)
            ends = []
            for (placement, recurrence), own in table[table["model"] == model].groupby(
                ["placement", "recurrence"], dropna=False, sort=True
            ):
                style, own = look(str(placement)), own.sort_values("batch_size")
                stepwise = not pd.isna(recurrence)
                x, y = own["batch_size"].to_numpy(), 1e3 * own["step_time_s"].to_numpy()
                ax.plot(x, y, color=style.colour, marker=style.marker, linestyle=":" if stepwise else "-")
                label = "matrices cut" if placement == "tensor_split" else "data parallel" + (", loop" if stepwise else "")
                ends.append((float(x[-1]), float(y[-1]), label, style.colour))
            _batch_axis(ax)
            times_axis(ax)
            if index % 2 == 0:
                ax.set_ylabel("step time (ms, log scale)")
            label_lines(ax, ends, HEIGHT)
    on = devices_text(int(table["devices"].iloc[0]), table["device_type"].iloc[0])
    picture.caption = f"One joined batch shared out over {on} or computed by all of them. Loop: position by position. {common(table)}"
    picture.caption += f" Not drawn, as too little was measured: {lacking}." if lacking else ""
    picture.caption += lost_points(frame)
    picture.data = table
    picture.alt = f"Lines of step time against joined batch on {on}, a panel for {', '.join(names)} layers."
    return picture


def times_axis(ax: Axes) -> None:
    """A logarithmic axis with plain numbers: 1, 2 and 5 of each decade, and closer ones where less than one decade is shown."""
    ax.set_yscale("log")
    low, high = ax.get_ylim()
    ticks = MaxNLocator(4, steps=[1, 2, 5, 10]).tick_values(low, high) if high < 10 * low else None
    ax.yaxis.set_major_locator(
        LogLocator(subs=(1, 2, 5)) if ticks is None else FixedLocator([tick for tick in ticks if low <= tick <= high])
    )
    ax.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    ax.yaxis.set_minor_locator(NullLocator())


def _compared(table: pd.DataFrame) -> tuple[list[str], str]:
    """The kinds of layer with several points, or two ways at one batch; and what is missing of the others, in words."""
    kinds, lacking = [], []
    for model, kind in LAYER_TYPES.items():
        own = table[table["model"] == model]
        points, batches = len(own), own["batch_size"].nunique()
        if batches > 1 or own["placement"].nunique() > 1:
            kinds.append(model)
        else:
            lacking.append(f"{kind} ({plural(points, 'point') if points else 'none'})")
    return kinds, joined(lacking)


def _steps_finding(frame: pd.DataFrame) -> str | None:
    """Which of the two ways is faster, at the batches at which both were measured."""
    table = winners(frame)
    if table.empty:
        return None
    cut = table[table["faster"] == "tensor_split"]
    on = devices_text(int(table["devices"].iloc[0]), frame["device_type"].iloc[0])
    if len(table) == 1:
        row = table.iloc[0]
        way = "cutting matrices" if len(cut) else "data parallelism"
        return (
            f"On {on} {way} is {row['times']:.1f} times as fast for {LAYER_TYPES[row['model']]} layers at a batch of {row['batch_size']:,}"
        )
    return f"On {on} cutting matrices is faster in {len(cut)} of {len(table)} cases in which both ways were measured (screening)"


def _speedup_finding(table: pd.DataFrame) -> str:
    """The best speedup on the most devices."""
    best = table[table["devices"] == table["devices"].max()].sort_values("speedup").iloc[-1]
    way = "cut matrices" if best["placement"] == "tensor_split" else "data parallelism"
    on = devices_text(int(best["devices"]), best["device_type"])
    once = " (measured once)" if best["n"] == 1 else ""
    return (
        f"{on} make the fully connected model at most {best['speedup']:.2f} times as fast as one{once}: {way}, batch {best['batch_size']:,}"
    )


def _idle_finding(table: pd.DataFrame) -> str | None:
    """Whether micro-batches fill the devices: idle share with one and with the most of them, on the most devices at the largest batch."""
    most = table[table["devices"] == table["devices"].max()]
    own = most[most["batch_size"] == most["batch_size"].max()].sort_values("parts")
    if len(own) < 2:
        return None
    one, last = own.iloc[0], own.iloc[-1]
    on = devices_text(int(last["devices"]), last["device_type"])
    whole = "the batch in one piece" if one["parts"] == 1 else f"{int(one['parts'])} micro-batches"
    return (
        f"{on} idle for {percent_text(one['idle'])} of a step with {whole} and for "
        f"{percent_text(last['idle'])} with {last['parts']}, where equal stages would idle for {percent_text(last['idle_equal'])}"
    )


def figure_speedup(frame: pd.DataFrame) -> Picture:
    """Speedup of the fully connected model against devices: cut, and data parallel, a panel a joined batch; the document's point too."""
    table = points_of(frame[frame["model_parallel"].isna()], MLP)
    table = table[(table["n"] > 0) & table["speedup"].notna()] if len(table) else table
    if table.empty or table["devices"].max() < 2:
        return message(f"No speedup of the fully connected model. {ABSENT}")
    panels = list(table.groupby(["model", "batch_size"], sort=True))
    with mpl.rc_context(RC):
        names = [f"{MODEL_NAMES.get(str(model), str(model))}, batch {int(str(batch)):,} in all" for (model, batch), _ in panels]
        picture, axes = grid_of_axes(len(panels), _speedup_finding(table), WIDTH, HEIGHT, 2, LABELS, names=names)
        for ax, name, ((model, _), group) in zip(axes, names, panels, strict=True):
            name_panel(ax, name)
            most = int(group["devices"].max())
            ax.plot([1, most], [1, most], color=CEILING, linestyle=(0, (4, 2)), linewidth=1)
            ends = [(most, float(most), "linear", CEILING)]
            for placement, own in group.groupby("placement", sort=True):
                style, own = look(str(placement)), own.sort_values("devices")
                ax.plot(own["devices"], own["speedup"], color=style.colour, marker=style.marker)
                known = own[own["low"].notna()]
                ax.vlines(known["devices"], known["low"], known["high"], color=style.colour, linewidth=1.2)
                ends.append(
                    (most, float(own["speedup"].iloc[-1]), "matrices cut" if placement == "tensor_split" else "data parallel", style.colour)
                )
            for devices, value in DOCUMENT_SPEEDUP.items():
                if model == MLP[0] and devices <= most:
                    ax.plot([devices], [value], "x", color=INK)
                    ends.append((devices, value, "document 002", INK))
            ax.set_xlabel(f"{'GPUs' if group['device_type'].iloc[0] == 'cuda' else 'CPU processes'}, strong scaling")
            ax.set_ylim(0, 1.1 * max(most, float(group["speedup"].max())))
            ax.set_xticks(sorted(set(group["devices"])))
            label_lines(ax, ends, HEIGHT)
        axes[0].set_ylabel("speedup over one")
    picture.caption = f"Rate on N over rate on one, the same joined batch. Bars: 95% intervals. {common(table)}"
    picture.data = table
    picture.alt = "Lines of speedup against devices for cut matrices and data parallelism."
    return picture


def figure_pipeline(frame: pd.DataFrame) -> Picture:
    """Idle share of the devices against micro-batches, measured and by both theories, a panel a number of devices and a batch."""
    table = pipeline_points(frame)
    table = table[(table["n"] > 0) & (table["devices"] > 1) & table["idle"].notna()] if len(table) else table
    if table.empty:
        return message(f"No pipeline to draw. {ABSENT}")
    panels = list(table.groupby(["devices", "batch_size"], sort=True))
    with mpl.rc_context(RC):
        names = [f"{devices_text(int(str(d)), table['device_type'].iloc[0])}, batch {b} in all" for (d, b), _ in panels]
        picture, axes = grid_of_axes(len(panels), _idle_finding(table), WIDTH, HEIGHT, 2, LABELS, left=0.72, names=names)
        style = look("layer_split")
        for index, (ax, name, (_, group)) in enumerate(zip(axes, names, panels, strict=True)):
            name_panel(ax, name)
            own = group.sort_values("parts")
            ends = []
            lines = (
                ("idle", "measured", style.colour, "-", style.marker),
                ("idle_equal", "equal stages", INK, ":", ""),
                ("idle_by_work", "by operations", CEILING, "--", ""),
            )
            for column, label, colour, dashes, marker in lines:
                ax.plot(own["parts"], 100 * own[column], color=colour, linestyle=dashes, marker=marker)
                ends.append((float(own["parts"].iloc[-1]), 100 * float(own[column].iloc[-1]), label, colour))
            ax.set_xscale("log", base=2)
            ax.set_xticks(sorted(set(own["parts"])), [str(count) for count in sorted(set(own["parts"]))])
            ax.minorticks_off()
            ax.set_ylim(min(0.0, 110 * float(own["idle"].min())), 100)
            ax.set_xlabel("micro-batches")
            if index % 2 == 0:
                ax.set_ylabel("idle share (%)")
            label_lines(ax, ends, HEIGHT)
    models = [MODEL_NAMES.get(model, model) for model in LSTM if (table["model"] == model).any()]
    picture.caption = (
        "Measured: 1 - T1 / (G TG), T1 a step on one device, so that work which micro-batches add counts as idle. "
        "Equal stages: (G - 1) / (m + G - 1). By operations: the same schedule with "
        f"each stage's share of multiply-adds. {', '.join(models)}. {common(table)}"
    )
    picture.data = table
    picture.alt = "Lines of the devices' idle share against the number of micro-batches, measured and expected."
    return picture
