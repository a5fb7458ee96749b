"""What asynchrony costs: staleness as histograms, error against virtual time, and rates that follow the staleness."""

from __future__ import annotations

import matplotlib as mpl
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter

from multigpu.analysis.figure_synchrony import NOTHING, legend, protocol_look
from multigpu.analysis.layout import grid_of_axes, label_lines, name_panel
from multigpu.analysis.picture import Picture, message
from multigpu.analysis.style import CEILING, INK, RC
from multigpu.analysis.wording import joined
from multigpu.synchrony.protocol import PROTOCOLS
from multigpu.synchrony.theory import mean_staleness

RULES: dict[str, tuple[str, str, str]] = {
    "constant": ("#d55e00", "^", "constant"),
    "staleness": ("#009e73", "s", "divided by staleness"),
    "bounded": ("#aa3377", "v", "bounded"),
}
QUANTITIES = {"excess": "loss above the least", "error": "test error", "loss": "training loss"}


def figure_staleness(shares: pd.DataFrame, workers: int = 30, law: str = "exponential") -> Picture:
    """Shares of gradients by staleness with its exact mean and N/K marked, a panel a protocol and K.

    shares: of `staleness_frame`.
    """
    if shares.empty:
        return message(NOTHING)
    table = shares[(shares["workers"] == workers) & (shares["law"] == law) & (shares["clock"] == "virtual") & ~shares["trained"]]
    keys = ["protocol", "gradients_per_update", "staleness", "width"]
    seeds = table.groupby(["protocol", "gradients_per_update"])["repeat"].nunique()
    table = table.groupby(keys, as_index=False).agg(share=("share", "sum"), mean=("mean", "mean"))
    if table.empty:
        return message(NOTHING)
    table["share"] /= [seeds[protocol, k] for protocol, k in zip(table["protocol"], table["gradients_per_update"], strict=True)]
    means = shares.drop_duplicates("key")
    cases = [case for case in seeds.index if case[0] == "k_batch_async"] + [case for case in seeds.index if case[0] == "k_async"]
    names = [f"{protocol_look(protocol).label}, K = {k}" for protocol, k in cases]
    finding = _staleness_finding(means, workers, law)
    with mpl.rc_context(RC):
        picture, axes = grid_of_axes(len(cases), finding, 2.0, 1.5, 3, names=names)
        for ax, name, (protocol, k) in zip(axes, names, cases, strict=True):
            panel = table[(table["protocol"] == protocol) & (table["gradients_per_update"] == k)]
            name_panel(ax, name)
            width = panel["width"].iloc[0]
            ax.bar(panel["staleness"] + (width - 1) / 2, 100 * panel["share"], width=0.9 * width, color=protocol_look(protocol).colour)
            exact, notes = mean_staleness(protocol, workers, int(k)), workers / k
            ax.axvline(exact, color=INK, linewidth=1.6)
            ax.axvline(notes, color=CEILING, linewidth=1.6, linestyle="--")
            ax.set_xlim(-0.7, max(4.0, 3.2 * notes))
            ax.text(0.97, 0.95, f"N/K = {notes:.3g}\nexact {exact:.3g}", transform=ax.transAxes, ha="right", va="top")
            ax.set_xlabel("staleness (updates)")
        axes[0].set_ylabel("% of gradients")
    picture.caption = (
        f"{workers} workers, {law} times, own update not counted; solid line: the exact mean, (P-1)/K for K-batch-async and P/K - 1 for "
        "K-async; dashed: N/K as in 002. K-batch-async is n-softsync with n = N/K. "
        f"Up to {int(seeds.max())} seeds a panel."
    )
    picture.data = table
    picture.alt = f"Histograms of staleness for {', '.join(names)}. {finding or ''}"
    return picture


def _staleness_finding(means: pd.DataFrame, workers: int, law: str) -> str | None:
    chosen = means[(means["workers"] == workers) & (means["law"] == law) & (means["protocol"] == "k_batch_async") & ~means["trained"]]
    if chosen.empty:
        return None
    over = chosen["mean"] * chosen["gradients_per_update"] / workers
    return f"With {workers} learners the mean staleness of n-softsync is {over.min():.3f} to {over.max():.3f} of N/K"


def figure_error(curves: pd.DataFrame, least: dict[str, float]) -> Picture:
    """Error against virtual time, a panel a problem and a line a protocol: the median of the seeds, the band from the least to the most.

    curves: of `curves_frame`. least: the least loss by problem, where it is known; there the loss above it is drawn.
    """
    if curves.empty:
        return message(NOTHING)
    table = curves[curves["budget_s"].notna() & (curves["rate_rule"] == "constant") & (curves["clock"] == "virtual")]
    # sync, async and the largest K that every other protocol has
    several = table[~table["protocol"].isin(["sync", "async"])]
    if several.empty:
        return message(NOTHING)
    k = int(several["gradients_per_update"].max())
    table = table[table["protocol"].isin(["sync", "async"]) | (table["gradients_per_update"] == k)]
    kinds = ("linear", "digits", "planted", "translation")
    problems = sorted(set(table["problem"]), key=lambda name: (kinds.index(name.split()[0].rstrip(",")), name))
    workers = int(table["workers"].iloc[0])
    lines = pd.concat([_lines(table[table["problem"] == name], least.get(name)) for name in problems])
    with mpl.rc_context(RC):
        columns, width = (2, 3.2) if len(problems) == 4 else (3, 2.0)
        picture, axes = grid_of_axes(len(problems), _error_finding(lines), width, 2.2, columns, left=0.72, legend=True, names=problems)
        for ax, name in zip(axes, problems, strict=True):
            panel = lines[lines["problem"] == name]
            quantity = panel["quantity"].iloc[0]
            name_panel(ax, name)
            _draw(ax, panel)
            if panel["value"].max() > 3 * panel["value"].min():
                ax.set_yscale("log")
                ax.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
                ax.yaxis.set_minor_formatter(FuncFormatter(lambda value, _: ""))
            ax.set_ylabel(QUANTITIES[quantity], labelpad=2)
            ax.set_xlabel("virtual time over E[X]")
        legend(picture, list(PROTOCOLS))
    seeds = table.groupby(["problem", "protocol"])["repeat"].nunique()
    several_seeds = " to ".join(dict.fromkeys((str(seeds.min()), str(seeds.max()))))
    rates = "; ".join(f"{name}: {group['rate'].iloc[0]:g}" for name, group in table.groupby("problem", sort=True))
    picture.caption = (
        f"{workers} workers, exponential times, K = {k} where there is one; the same constant rate for all protocols of a panel ({rates}). "
        f"Median of {several_seeds} seeds, bands from the least to the most. The least loss of linear regression is that of least squares."
    )
    picture.data = lines
    picture.alt = f"Lines of error against virtual time, one a protocol, for {'; '.join(problems)}. {picture.finding}"
    return picture


def _lines(table: pd.DataFrame, least: float | None) -> pd.DataFrame:
    """The median and the range over seeds at common times, a protocol a line."""
    problem = str(table["problem"].iloc[0])
    quantity = "excess" if least is not None else "error" if problem.startswith("digits") else "loss"
    values = table["loss"] - least if least is not None else table[quantity]
    table = table.assign(value=values)
    times = np.linspace(0, float(table["budget_s"].iloc[0]), 41)
    parts = []
    for protocol, group in table.groupby("protocol"):
        runs = np.array([np.interp(times, run["time_s"], run["value"]) for _, run in group.groupby("repeat")])
        parts.append(
            pd.DataFrame(
                {
                    "problem": problem,
                    "quantity": quantity,
                    "protocol": protocol,
                    "time_s": times,
                    "value": np.median(runs, axis=0),
                    "low": runs.min(axis=0),
                    "high": runs.max(axis=0),
                }
            )
        )
    return pd.concat(parts)


def _draw(ax: Axes, panel: pd.DataFrame) -> None:
    for protocol in PROTOCOLS:
        line, style = panel[panel["protocol"] == protocol], protocol_look(protocol)
        if len(line):
            ax.fill_between(line["time_s"], line["low"], line["high"], color=style.colour, alpha=0.12, linewidth=0)
            ax.plot(line["time_s"], line["value"], color=style.colour, marker=style.marker, markevery=(style.order, 8), markersize=4)


def _error_finding(lines: pd.DataFrame) -> str | None:
    """Who is ahead soon and in the end of the panel with a known least loss, if the ranges of async and sync do not overlap."""
    panel = lines[lines["quantity"] == "excess"]
    last = panel[panel["time_s"] >= 0.75 * panel["time_s"].max()].groupby("protocol")[["value", "low", "high"]].mean()
    soon = panel[panel["time_s"] == panel["time_s"].drop_duplicates().nsmallest(3).max()].set_index("protocol")
    if not {"sync", "async"} <= set(last.index) or last.loc["async", "low"] <= last.loc["sync", "high"]:
        return None
    if soon.loc["async", "high"] >= soon.loc["sync", "low"]:
        return None
    return "Async falls first, and on linear regression ends further above the least loss than sync"


def ends_sentence(lines: pd.DataFrame) -> str | None:
    """Of which problems async ends above sync, and of which below it: where the ranges over seeds do not meet, over the last quarter.

    Args:
        lines: the data of `figure_error`.
    """
    if lines.empty or "problem" not in lines:
        return None
    above, below = [], []
    for problem, panel in lines.groupby("problem", sort=False):
        last = panel[panel["time_s"] >= 0.75 * panel["time_s"].max()].groupby("protocol")[["low", "high"]].mean()
        if not {"sync", "async"} <= set(last.index):
            continue
        if last.loc["async", "low"] > last.loc["sync", "high"]:
            above.append(str(problem).split(",")[0])
        elif last.loc["async", "high"] < last.loc["sync", "low"]:
            below.append(str(problem).split(",")[0])
    parts = [f"{word} sync on {joined(names)}" for word, names in (("above", above), ("still below", below)) if names]
    return f"When the time is up async lies {', '.join(parts)}." if parts else None


def figure_rates(curves: pd.DataFrame, workers: int = 30) -> Picture:
    """Test error against gradients applied, a panel an n of n-softsync and a line a rule for the rate, beside sync."""
    if curves.empty:
        return message(NOTHING)
    table = curves[(curves["workers"] == workers) & curves["budget_s"].isna() & curves["protocol"].isin(["sync", "k_batch_async"])]
    several = sorted(set(table[table["protocol"] == "k_batch_async"]["gradients_per_update"]), reverse=True)
    if not several:
        return message(NOTHING)
    names = [f"{workers // k}-softsync, K = {k}" for k in several]
    rows = []
    with mpl.rc_context(RC):
        picture, axes = grid_of_axes(len(several), _rates_finding(table, workers), 3.3, 2.5, 2, 1.55, names=names)
        for ax, name, k in zip(axes, names, several, strict=True):
            name_panel(ax, name)
            ends = []
            chosen = [("sync", "constant", protocol_look("sync").colour, "o", "sync")]
            chosen += [("k_batch_async", rule, colour, marker, label) for rule, (colour, marker, label) in RULES.items()]
            for protocol, rule, colour, marker, label in chosen:
                part = table[(table["protocol"] == protocol) & (table["rate_rule"] == rule)]
                part = part[part["gradients_per_update"] == k] if protocol != "sync" else part
                if part.empty:
                    continue
                line = part.groupby("applied")["error"].agg(["median", "min", "max"])
                ax.fill_between(line.index, 100 * line["min"], 100 * line["max"], color=colour, alpha=0.12, linewidth=0)
                ax.plot(line.index, 100 * line["median"], color=colour, marker=marker, markersize=4, markevery=3)
                ends.append((float(line.index[-1]), float(100 * line["median"].iloc[-1]), label, colour))
                rows.append(line.reset_index().assign(n=workers // k, protocol=protocol, rule=rule))
            ax.set_ylim(0, 100)
            ax.set_xlabel("gradients applied")
            label_lines(ax, ends, 2.5)
        axes[0].set_ylabel("test error (%)")
    first = table.iloc[0]
    picture.caption = (
        f"{workers} learners, {first['problem']}, base rate {first['rate']:g}, exponential times: 002's setting on digits instead of its "
        f"images. Median of {table['repeat'].nunique()} seeds, bands from the least to the most. Divided: rate over mean staleness; "
        "bounded: min(c / squared distance, rate)."
    )
    picture.data = pd.concat(rows)
    picture.alt = (
        f"Test error against gradients applied for {', '.join(names)}, with three rules for the rate, beside sync. {picture.finding}"
    )
    return picture


def _rates_finding(table: pd.DataFrame, workers: int) -> str | None:
    """The test error at the end with and without division, if the ranges over seeds do not overlap."""
    last = table[table["applied"] >= 0.75 * table["applied"].max()]
    errors = last[(last["gradients_per_update"] == 1)].groupby(["rate_rule", "repeat"])["error"].mean()
    if not {"constant", "staleness"} <= set(errors.index.get_level_values(0)):
        return None
    constant, divided = errors["constant"], errors["staleness"]
    if divided.max() >= constant.min():
        return None
    return (
        f"{workers}-softsync ends at a test error of {100 * constant.median():.0f}% with the constant rate "
        f"and {100 * divided.median():.1f}% with the rate divided"
    )
