"""Runtime of the six protocols: against the number of workers for every law, of sync beside async, against K, and for real."""

from __future__ import annotations

import matplotlib as mpl
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from multigpu.analysis.layout import grid_of_axes, margin_for, name_panel, rows_from_top
from multigpu.analysis.picture import Picture, message
from multigpu.analysis.style import CEILING, INK, RC, Look
from multigpu.analysis.synchrony import ratio_frame
from multigpu.analysis.wording import missing
from multigpu.synchrony.laws import harmonic_difference
from multigpu.synchrony.protocol import PROTOCOLS

NO_REAL_RUN = {
    "processes": "No real run to show: `python -m multigpu synchrony --grid real` makes them",
    "ray": "No run over Ray actors to show: `python -m multigpu synchrony --grid ray` makes them, with the extra `ray`",
}
"""By engine."""
NOTHING = "No SynchronyRecord to draw: `python -m multigpu synchrony` runs the experiments."
# cancelling protocols in blues, the others in warm colours; markers tell them apart in grey
_LOOKS: dict[str, tuple[str, str, str]] = {
    "sync": ("#0072b2", "o", "sync"),
    "k_sync": ("#3a92cc", "s", "K-sync"),
    "k_batch_sync": ("#6a5acd", "D", "K-batch-sync"),
    "async": ("#d55e00", "^", "async"),
    "k_async": ("#b07a00", "v", "K-async"),
    "k_batch_async": ("#aa3377", "X", "K-batch-async"),
}
LAWS = ("constant", "exponential", "shifted exponential", "pareto", "empirical")
UNITS = {"update_time_s": "time an update", "gradient_time_s": "worker time a gradient applied"}


def protocol_look(protocol: str) -> Look:
    """How a protocol looks on every page."""
    colour, marker, label = _LOOKS[protocol]
    return Look(colour, marker, list(_LOOKS).index(protocol), label)


def legend(picture: Picture, protocols: list[str]) -> None:
    """The protocols in one line under the finding."""
    looks = [protocol_look(name) for name in protocols]
    picture.legend_line([Line2D([], [], color=look.colour, marker=look.marker, label=look.label, markersize=5) for look in looks])


def counts_axis(ax: Axes, values: list[int]) -> None:
    """A logarithmic axis of numbers of workers."""
    ax.set_xscale("log", base=2)
    ax.xaxis.set_major_locator(FixedLocator(values))
    ax.xaxis.set_minor_locator(NullLocator())
    ax.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{round(value):,}"))


def figure_runtime(frame: pd.DataFrame, quantity: str = "update_time_s") -> Picture:
    """Seconds an update over the mean time of one batch, against P, a panel a law, at K = P/2.

    quantity: or "gradient_time_s", P workers' seconds a gradient that was applied: 1 if nobody waits and nothing is thrown away.
    Lines are theory where there is a closed form, marks the simulator with 95% intervals.
    """
    table = frame[(frame["status"] == "ok") & (frame["clock"] == "virtual") & frame["problem"].isna() & (frame["repeat"] == 0)]
    free = table["protocol"].isin(["sync", "async"])
    table = table[free | (2 * table["gradients_per_update"] == table["workers"])]
    several = ~table["protocol"].isin(["sync", "async"])
    table = table[table["workers"].isin(table[several]["workers"])]
    if table.empty:
        return message(NOTHING)
    each = table["gradients_per_update"] / table["workers"] if quantity == "gradient_time_s" else 1
    table = table.assign(
        over_mean=table["update_time_s"] / each / table["mean_s"],
        low=table["update_time_low_s"] / each / table["mean_s"],
        high=table["update_time_high_s"] / each / table["mean_s"],
        theory=table["theory_s"] / each / table["mean_s"],
    )
    laws = [name for name in LAWS if name in set(table["law"])]
    with mpl.rc_context(RC):
        picture, axes = grid_of_axes(len(laws), _runtime_finding(table, quantity), 2.0, 1.9, 3, legend=True, names=laws)
        for ax, law in zip(axes, laws, strict=True):
            panel = table[table["law"] == law]
            name_panel(ax, law)
            for protocol in PROTOCOLS:
                line, style = panel[panel["protocol"] == protocol].sort_values("workers"), protocol_look(protocol)
                ax.plot(line["workers"], line["theory"], color=style.colour, linewidth=1.3)
                bars = np.maximum([line["over_mean"] - line["low"], line["high"] - line["over_mean"]], 0)
                ax.errorbar(
                    line["workers"],
                    line["over_mean"],
                    bars,
                    fmt=style.marker,
                    color=style.colour,
                    markersize=4,
                    elinewidth=0.9,
                    clip_on=False,
                )
            if quantity == "update_time_s":
                ax.set_yscale("log")
                ax.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
            else:
                ax.set_ylim(0, None)
            counts_axis(ax, [2, 8, 64, 1024])
            ax.set_xlabel("workers P")
        axes[0].set_ylabel(f"{UNITS[quantity]} over E[X]")
        legend(picture, list(PROTOCOLS))
    n_bound = table[table["theory"].notna() & table["low"].notna()]
    inside = int(((n_bound["low"] <= n_bound["theory"]) & (n_bound["theory"] <= n_bound["high"])).sum())
    picture.caption = (
        f"{UNITS[quantity].capitalize()} in units of the mean time E[X] of one batch, K = P/2 for protocols with a K. Lines: theory, where "
        "a closed form is known. Marks: the simulator, one run each, bars the 95% t interval over 20 successive parts of the run. Theory "
        f"lies within it at {inside} of {len(n_bound)} points. The network and the server take no time."
    )
    picture.data = table[["law", "protocol", "workers", "gradients_per_update", "over_mean", "low", "high", "theory", "key"]]
    picture.alt = f"Lines of {UNITS[quantity]} against the number of workers for {', '.join(laws)} times. {picture.finding}"
    return picture


def _runtime_finding(table: pd.DataFrame, quantity: str) -> str | None:
    panel = table[(table["law"] == "exponential") & (table["workers"] == table["workers"].max())]
    values = panel.drop_duplicates("protocol").set_index("protocol")["over_mean"]
    if not {"sync", "async"} <= set(values.index):
        return None
    ratio, workers = values["sync"] / values["async"], int(panel["workers"].max())
    many = f"{ratio:,.0f}" if ratio >= 100 else f"{ratio:.3g}"
    noun = "an update" if quantity == "update_time_s" else "a gradient"
    return f"At P = {workers:,} and exponential times, {noun} of sync takes {many} times as long as one of async"


def figure_ratio(frame: pd.DataFrame) -> Picture:
    """Time of sync over async against P, an update and a sample, beside P log P and the exact values (exponential times)."""
    table = ratio_frame(frame)
    if table.empty:
        return message(NOTHING)
    finding = None
    at_20 = table[(table["workers"] == 20) & (table["unit"] == "update")]
    same = table[(table["workers"] == 20) & (table["unit"] == "sample")]
    if len(at_20) and len(same):
        finding = (
            f"At P = 20 sync takes {at_20['ratio'].iloc[0]:.0f} times as long as async an update, "
            f"but {same['ratio'].iloc[0]:.1f} times as long a sample"
        )
    names = ["An update", "A sample (a gradient applied)"]
    workers = np.unique(np.geomspace(2, float(table["workers"].max()), 60).round().astype(int))
    exact = np.array([harmonic_difference(int(p), int(p)) for p in workers])
    with mpl.rc_context(RC):
        picture, axes = grid_of_axes(2, finding, 3.4, 2.6, 2, 0.9, names=names)
        for ax, name, unit in zip(axes, names, ("update", "sample"), strict=True):
            name_panel(ax, name)
            scale = workers if unit == "update" else 1
            for values, text, dashes in ((exact, "P H(P)", "-"), (np.log(workers), "P log P", "--")):
                label = text if unit == "update" else text.removeprefix("P ").replace("H(P)", "H(P), exact")
                ax.plot(workers, scale * values, color=CEILING if dashes == "--" else INK, linestyle=dashes, label=label)
            panel = table[table["unit"] == unit].sort_values("workers")
            bars = [panel["ratio"] - panel["low"], panel["high"] - panel["ratio"]]
            ax.errorbar(panel["workers"], panel["ratio"], bars, fmt="o", color="#0072b2", markersize=5, label="simulator")
            counts_axis(ax, [2, *map(int, panel["workers"])])
            ax.set_xlabel("workers P")
            if unit == "update":
                ax.set_yscale("log")
                ax.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,g}"))
            else:
                ax.set_ylim(0, None)
            ax.legend(loc="upper left")
        axes[0].set_ylabel("time of sync over async")
    few, many = int(table["n"].min()), int(table["n"].max())
    seeds = f"{few} seeds" if few == many else f"{few} to {many} seeds"
    picture.caption = (
        "Exponential times of equal workers. An update of sync applies P gradients, one of async a single gradient: hence the factor P "
        f"between the panels. H(P) = 1 + 1/2 + ... + 1/P is about log P + 0.58. Marks: {seeds}, 95% intervals."
    )
    picture.data = table
    picture.alt = f"Ratio of runtimes against workers, an update and a sample, beside P log P and P H(P). {finding or ''}"
    return picture


def _cancelling(table: pd.DataFrame, within: float = 0.1) -> str:
    """That protocols which cancel lie on their twins which do not, where their times a gradient differ by less than `within` at every K."""
    times = table.pivot_table(index="gradients_per_update", columns="protocol", values="gradient_time_s")
    twins = [
        (one, other) for one, other in (("k_sync", "k_async"), ("k_batch_sync", "k_batch_async")) if {one, other} <= set(times.columns)
    ]
    if not twins or any((times[one] / times[other] - 1).abs().max() >= within for one, other in twins):
        return ""
    names = " and ".join(f"{protocol_look(one).label} on {protocol_look(other).label}" for one, other in twins)
    return f" Under this law that time costs next to nothing: on the left {names} lies within {100 * within:.0f}%."


def figure_k(frame: pd.DataFrame, workers: int = 16, law: str = "exponential") -> Picture:
    """What K buys: P workers' time a gradient applied, and staleness, against K from 1 to P."""
    table = frame[
        (frame["status"] == "ok")
        & (frame["clock"] == "virtual")
        & frame["problem"].isna()
        & (frame["workers"] == workers)
        & (frame["law"] == law)
        & (frame["repeat"] == 0)
    ]
    several = table[table["gradients"].notna()]
    if several.empty:
        return message(NOTHING)
    names = ["Worker time a gradient applied", "Mean staleness"]
    with mpl.rc_context(RC):
        picture, axes = grid_of_axes(2, None, 3.6, 2.5, 2, legend=True, names=names)
        for ax, name, column in zip(axes, names, ("gradient_time_s", "staleness"), strict=True):
            name_panel(ax, name)
            for protocol in PROTOCOLS:
                line, style = table[table["protocol"] == protocol].sort_values("gradients_per_update"), protocol_look(protocol)
                values = line[column] * (workers / line["mean_s"] if column == "gradient_time_s" else 1)
                ax.plot(line["gradients_per_update"], values, marker=style.marker, color=style.colour, clip_on=False)
            ax.set_xlabel("gradients an update, K")
            ax.set_ylim(0, None)
            ax.xaxis.set_major_locator(FixedLocator(sorted(set(several["gradients_per_update"]))))
        axes[0].set_ylabel("over E[X]")
        axes[1].set_ylabel("updates, own not counted")
        legend(picture, list(PROTOCOLS))
    picture.caption = (
        f"P = {workers}, {law} times, one run a point. sync has K = P and async K = 1. Protocols that cancel compute on the current "
        f"version: no staleness, but time thrown away.{_cancelling(table)}"
    )
    picture.data = table[["protocol", "gradients_per_update", "gradient_time_s", "staleness", "mean_s", "key"]]
    picture.alt = f"Time a gradient and staleness against K for six protocols with {workers} workers."
    return picture


def figure_real(frame: pd.DataFrame) -> Picture:
    """Median seconds an update of real processes beside the simulator's on the same draws, a row a protocol."""
    table = real_frame(frame)
    if table.empty:
        return message(f"{NO_REAL_RUN['processes']}.")
    worst = table["ratio"].sub(1).abs().max()
    finding = f"Real processes and the simulator agree within {100 * worst:.0f}% on the time an update" if worst < 0.2 else None
    several = len(table[["machine", "workers", "problem"]].drop_duplicates()) > 1
    labels = [
        f"{protocol_look(row['protocol']).label}, K = {row['gradients_per_update']}" + (f", {real_who(row, short=True)}" if several else "")
        for _, row in table.iterrows()
    ]
    with mpl.rc_context(RC):
        picture, (ax,) = grid_of_axes(1, finding, 4.4, 0.32 * len(table) + 0.3, 1, 1.3, left=margin_for(labels, 1.55))
        for index, (_, row) in enumerate(table.iterrows()):
            y, style = len(table) - 1 - index, protocol_look(row["protocol"])
            ax.plot([1e3 * row["simulated_s"], 1e3 * row["real_s"]], [y, y], color=style.colour, linewidth=1)
            ax.plot(1e3 * row["simulated_s"], y, marker="|", color=INK, markersize=14, markeredgewidth=2, linestyle="none")
            ax.plot(1e3 * row["real_s"], y, marker=style.marker, color=style.colour, markersize=7, linestyle="none", clip_on=False)
            ax.text(1.02, y, f"{row['ratio']:.3f}", transform=ax.get_yaxis_transform(), va="center", color=style.colour, fontweight="bold")
        rows_from_top(ax, len(table), len(table))
        ax.text(1.02, len(table) - 0.35, "real over simulated", transform=ax.get_yaxis_transform(), va="bottom", color=INK, fontsize=8)
        ax.set_yticks(range(len(table))[::-1], labels)
        ax.set_xlim(0, 1.05e3 * max(table["real_s"].max(), table["simulated_s"].max()))
        ax.set_xlabel("ms an update")
    picture.caption = (
        f"Coloured: worker processes and a server on {', '.join(sorted(set(table['machine'])))}, with injected "
        f"{' and '.join(dict.fromkeys(table['law']))} times; bar: the simulator on the same draws. Medians over parts of a run, one run "
        "each."
    )
    picture.data = table
    picture.alt = f"Milliseconds an update of six protocols, real and simulated. {finding or ''}"
    return picture


def real_who(row: pd.Series, short: bool = False) -> str:
    """On how many workers and what they train; in short without the problem's size."""
    problem = "" if missing(row["problem"]) else str(row["problem"]).split(",")[0] if short else str(row["problem"])
    return f"P = {row['workers']}" + (f", {problem}" if problem else "")


def real_frame(frame: pd.DataFrame, engine: str = "processes") -> pd.DataFrame:
    """A row a protocol that ran for real on this engine, its server on the host, and on the virtual clock: protocol,
    gradients_per_update, workers, law, problem, machine, real_s, simulated_s (medians), ratio, staleness, simulated_staleness, keys.
    """
    ok = frame[(frame["status"] == "ok") & frame["protocol"].isin(list(PROTOCOLS))]
    real = ok[(ok["clock"] == "real") & (ok["engine"] == engine) & (ok["server_device"] == "host")]
    virtual = ok[ok["clock"] == "virtual"]
    draws = ["protocol", "gradients_per_update", "workers", "law", "repeat", "mean_s"]
    both = real.merge(virtual, on=[*draws, "problem", "rate"], suffixes=("", "_virtual"))
    # the time an update does not depend on the gradients: those of a model on devices are left out on the virtual clock
    bare = virtual[virtual["problem"].isna()].drop(columns=["problem", "rate"])
    others = real[~real["key"].isin(both["key"])].merge(bare, on=draws, suffixes=("", "_virtual"))
    both = pd.concat([both, others], ignore_index=True) if len(others) else both
    both = both.assign(order=both["protocol"].map(lambda name: protocol_look(name).order)).sort_values(
        ["machine", "workers", "problem", "order"]
    )
    return pd.DataFrame(
        {
            **{name: both[name] for name in ("protocol", "gradients_per_update", "workers", "law", "problem", "machine")},
            "real_s": both["block_median_s"],
            "simulated_s": both["block_median_s_virtual"],
            "ratio": both["block_median_s"] / both["block_median_s_virtual"],
            "staleness": both["staleness"],
            "simulated_staleness": both["staleness_virtual"],
            "keys": both["key"] + " " + both["key_virtual"],
        }
    ).reset_index(drop=True)
