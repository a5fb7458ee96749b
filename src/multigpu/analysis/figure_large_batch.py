"""Error against the batch for three rules of the rate, and the time of a minibatch and of an epoch."""

from __future__ import annotations

import matplotlib as mpl
import pandas as pd
from matplotlib.lines import Line2D

from multigpu.analysis.figure_synchrony import counts_axis
from multigpu.analysis.large_batch import RULES, keeps_up_to, ranges, resnet_steps
from multigpu.analysis.layout import grid_of_axes, name_panel
from multigpu.analysis.picture import Picture, message
from multigpu.analysis.style import RC
from multigpu.published import published_value

NOTHING = "No Record to draw: python -m multigpu synchrony --grid large_batch makes them."
LOOKS = {"one": ("#d55e00", "^"), "scaled": ("#0072b2", "o"), "warm_up": ("#009e73", "s")}


def figure_error(frame: pd.DataFrame) -> Picture:
    """Test error after equally many epochs against the batch, a panel a problem and a line a rule; `frame`: of `large_batch_frame`."""
    if frame.empty:
        return message(NOTHING)
    table = ranges(frame)
    names = sorted(set(table["problem"]))
    with mpl.rc_context(RC):
        picture, axes = grid_of_axes(len(names), _finding(frame), 3.2, 2.4, 2, legend=True, names=names)
        for ax, name in zip(axes, names, strict=True):
            name_panel(ax, name)
            panel = table[table["problem"] == name]
            for rule, (colour, marker) in LOOKS.items():
                line = panel[panel["rule"] == rule].sort_values("batch")
                ax.fill_between(line["batch"], 100 * line["min"], 100 * line["max"], color=colour, alpha=0.12, linewidth=0)
                ax.plot(line["batch"], 100 * line["median"], color=colour, marker=marker)
            counts_axis(ax, sorted(set(panel["batch"])))
            ax.set_xlabel("batch k n (k = 32 rows a worker)")
            ax.set_ylim(0, min(100, 115 * panel["max"].max()))
        axes[0].set_ylabel("test error (%)")
        handles = [Line2D([], [], color=LOOKS[rule][0], marker=LOOKS[rule][1], label=RULES[rule], markersize=5) for rule in LOOKS]
        picture.legend_line(handles)
    counts = frame.groupby("problem")["seed"].nunique()
    epochs = published_value("002_statements", "warmup_epochs")
    picture.caption = (
        f"Sync SGD for 30 epochs whatever the batch, warm-up over the first {epochs:g}; median and range of "
        f"{' and '.join(str(counts[name]) for name in names)} seeds. Rates are r k n / 32, with r = "
        f"{frame['rate'].min():g} for one worker's batch of 32 (002: 0.1 k n / 256 for ResNet-50)."
    )
    picture.data = table
    picture.alt = f"Test error against the batch for {', '.join(RULES.values())}. {picture.finding}"
    return picture


def _finding(frame: pd.DataFrame) -> str | None:
    """How far scaling carries beyond the rate of one, where it carries further on every problem."""
    one, scaled, warm = (keeps_up_to(frame, rule) for rule in ("one", "scaled", "warm_up"))
    if not one or any(max(scaled.get(name, 0), warm.get(name, 0)) <= limit for name, limit in one.items()):
        return None
    limits = [min(found.values()) for found in (one, scaled, warm)]
    return (
        f"On every problem the error holds up to a batch of {limits[0]} at one rate, {limits[1]} with the rate scaled, "
        f"{limits[2]} after a warm-up"
    )


def figure_times(runs: pd.DataFrame) -> Picture:
    """Our ResNet-50 at 002's 32 images a GPU: the time of a minibatch and of an epoch of ImageNet against the minibatch."""
    table = resnet_steps(runs)
    if table.empty:
        return message("No Record of ResNet-50 at 32 images a GPU: python -m multigpu measure --grid captured makes them.")
    looks = {"eager": ("#d55e00", "^", "kernel by kernel"), "captured": ("#0072b2", "o", "one CUDA graph a step")}
    captured = table[table["execution"] == "captured"].sort_values("devices")
    finding = None
    if len(captured) > 1:
        first, last = captured.iloc[0], captured.iloc[-1]
        finding = (
            f"{last['devices']} GPUs take {last['minibatch_s'] / first['minibatch_s']:.2f} times as long for {last['devices']} times the "
            f"minibatch, and an epoch falls to 1/{first['epoch_s'] / last['epoch_s']:.1f}"
        )
    names = ["A minibatch", "An epoch of 1.28 million images"]
    with mpl.rc_context(RC):
        picture, axes = grid_of_axes(2, finding, 3.2, 2.2, 2, legend=True, names=names)
        for ax, name, column, scale in zip(axes, names, ("minibatch_s", "epoch_s"), (1e3, 1), strict=True):
            name_panel(ax, name)
            for execution, (colour, marker, _) in looks.items():
                line = table[table["execution"] == execution].sort_values("devices")
                ax.plot(line["batch"], scale * line[column], color=colour, marker=marker)
            counts_axis(ax, sorted(set(table["batch"])))
            ax.set_ylim(0, None)
            ax.set_xlabel("minibatch (images, 32 a GPU)")
        axes[0].set_ylabel("ms")
        axes[1].set_ylabel("s")
        picture.legend_line([Line2D([], [], color=c, marker=m, label=label, markersize=5) for c, m, label in looks.values()])
    counts = {name: sorted({int(n) for n in table[table["execution"] == name]["n"]}) for name in looks}
    repeats = ", ".join(f"{looks[name][2]}: {' or '.join(map(str, found))}" for name, found in counts.items() if found)
    picture.caption = (
        f"ResNet-50, PyTorch, ddp, bf16, weak scaling on {', '.join(sorted(set(table['machine'])))}; medians of repeats ({repeats}). "
        "Epochs are computed from the throughput of synthetic images."
    )
    picture.data = table
    picture.alt = f"Time of a minibatch and of an epoch against the minibatch. {finding or ''}"
    return picture
