"""Step time against step, warm-up shaded, and where the steps settle: why warm-up is dropped."""

from __future__ import annotations

from statistics import median

import matplotlib as mpl
import pandas as pd
from matplotlib.axes import Axes

from multigpu.analysis.findings import line_name, panels, settled_step, warmup_finding
from multigpu.analysis.layout import common, grid_of_axes, label_lines, name_panel
from multigpu.analysis.metrics import summary
from multigpu.analysis.picture import Picture, message
from multigpu.analysis.style import INK, MAX_LINES, RC, look
from multigpu.analysis.wording import devices_text

WIDTH, HEIGHT, LABELS = 2.55, 1.9, 0.95
LOG_FROM = 5


def figure_steps(frame: pd.DataFrame, steps: pd.DataFrame, devices: int | None = None, columns: int = 2) -> Picture:
    """Every step of the first repeat of each point, the slowest rank's time at each step.

    Args:
        frame: of `load_frame`.
        steps: of `frame.step_times`, for some or all keys of `frame`.
        devices: how many; the most that the steps have unless given.
    """
    ok = frame[(frame["status"] == "ok") & frame["key"].isin(steps["key"])]
    if devices is None and len(ok):
        devices = int(ok["devices"].max())
    ok = ok[ok["devices"] == devices].sort_values(["repeat", "launch_id"], kind="stable")
    table = summary(ok)
    if table.empty:
        return message("No steps to draw: no Record with status ok holds step times for these keys.")
    table = table.assign(key=[keys.split(", ")[0] for keys in table["keys"]])
    slowest = steps.groupby(["key", "step", "timed"], sort=True)["step_time_s"].max().reset_index()
    shown = list(panels(table))
    data, ratios, settled = [], [], []
    with mpl.rc_context(RC):
        drawn: list[tuple[str, pd.DataFrame, list[tuple[pd.Series, pd.DataFrame]]]] = []
        for name, panel in shown:
            rows = sorted((row for _, row in panel.iterrows()), key=lambda row: (look(row["placement"]).order, row["framework"]))
            lines = [(row, slowest[slowest["key"] == row["key"]]) for row in rows[:MAX_LINES]]
            drawn.append((name, panel, lines))
            latest = 0
            for row, line in lines:
                warmup, timed = (line.loc[line["timed"] == kind, "step_time_s"].tolist() for kind in (False, True))
                ratios.append(warmup[0] / median(timed))
                latest = max(latest, settled_step(warmup, timed))
                data.append(line.assign(panel=name, placement=row["placement"], framework=row["framework"], devices=devices))
            settled.append(latest)
        names = [name for name, _ in shown]
        finding = warmup_finding(ratios, settled, int(table["warmup_steps"].max()))
        picture, axes = grid_of_axes(len(shown), finding, WIDTH, HEIGHT, columns, LABELS, left=0.78, names=names)
        for index, (ax, (name, panel, lines)) in enumerate(zip(axes, drawn, strict=True)):
            _panel(ax, name, panel, lines, settled[index])
            if index % columns == 0:
                ax.set_ylabel("step time (ms, log scale)" if ax.get_yscale() == "log" else "step time (ms)")
    on = devices_text(devices or 1, table["device_type"].iloc[0])
    picture.caption = (
        f"The slowest rank's time of each step on {on}, device clock, first repeat of each point. Shaded: warm-up, measured but in no "
        f"throughput. Dotted: from here on warm-up steps are as fast as timed ones. {common(table, repeats=False)}"
    )
    picture.data = pd.concat(data, ignore_index=True)
    picture.alt = f"Lines of step time against step on {on}, one a placement. {picture.finding}."
    return picture


def _panel(ax: Axes, name: str, panel: pd.DataFrame, lines: list[tuple[pd.Series, pd.DataFrame]], settled: int) -> None:
    name_panel(ax, name)
    ends = []
    for row, line in lines:
        style = look(row["placement"])
        x, y = line["step"].to_numpy() + 1, 1e3 * line["step_time_s"].to_numpy()
        ax.plot(x, y, color=style.colour, marker=style.marker, markersize=3, markevery=5, linewidth=1.2)
        ends.append((float(x[-1]), float(y[-1]), line_name(row, panel), style.colour))
    values = pd.concat([line["step_time_s"] for _, line in lines])
    warmup = int(panel["warmup_steps"].iloc[0])
    last = max(x for x, _, _, _ in ends)
    ax.axvspan(0.5, warmup + 0.5, color=INK, alpha=0.08, linewidth=0)
    ax.axvline(settled + 0.5, color=INK, linewidth=1, linestyle=":")
    ax.text(warmup + 0.2, 0.97, "warm-up", transform=ax.get_xaxis_transform(), ha="right", va="top", fontsize=8)
    ax.set_xlim(0.5, last + 0.5)
    if values.max() > LOG_FROM * values.median():
        ax.set_yscale("log")
        ax.yaxis.set_major_formatter(lambda y, _: f"{y:,g}")
    else:
        ax.set_ylim(0, 1.08e3 * values.max())
    ax.set_xlabel(f"step, {panel['scaling'].iloc[0]} scaling")
    label_lines(ax, ends, HEIGHT)
