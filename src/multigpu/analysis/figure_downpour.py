"""Downpour SGD: time to a fixed error against replicas, how old and how mixed what they compute on is, and replicas that die."""

from __future__ import annotations

from collections.abc import Iterable

import matplotlib as mpl
import pandas as pd
from matplotlib.lines import Line2D
from matplotlib.ticker import LogLocator

from multigpu.analysis.figure_synchrony import counts_axis
from multigpu.analysis.layout import grid_of_axes, name_panel
from multigpu.analysis.picture import Picture, Shown, message
from multigpu.analysis.style import RC
from multigpu.analysis.tables import table_html
from multigpu.synchrony.downpour import first_time_s
from multigpu.synchrony.downpour_record import DownpourRecord
from multigpu.synchrony.grid_training import TARGET_ERROR

NOTHING = "No DownpourRecord to draw: `python -m multigpu synchrony --grid downpour` makes them."
LOOKS = {("adagrad", 1): ("#0072b2", "o"), ("adagrad", 5): ("#3a92cc", "s"), ("sgd", 1): ("#d55e00", "^"), ("sgd", 5): ("#b07a00", "v")}
COLUMNS = [
    *("key", "replicas", "shards", "rule", "rate", "every", "outages", "seed", "budget_s", "time_to_error_s", "error_last"),
    *("batches", "lost", "staleness", "staleness_theory", "spread"),
]


def downpour_frame(records: Iterable[DownpourRecord], error: float = TARGET_ERROR) -> pd.DataFrame:
    """A row a run. every: batches between two fetches and two pushes. time_to_error_s: first reached, missing if never.

    staleness: mean over shards; staleness_theory: P - 1 own-fetch updates plus those that pass while messages travel are not in it:
    it is (P - 1) for a push that follows its fetch at once. spread: mean difference between the most and least updated shard of a vector.
    outages: "none", "leave" or "return".
    """
    rows = []
    for record in records:
        e = record.experiment
        back = any(outage.until_s is not None for outage in e.outages)
        rows.append(
            {
                "key": record.key,
                "replicas": e.replicas,
                "shards": e.shards,
                "rule": e.rule,
                "rate": e.rate,
                "every": e.push_every,
                "outages": "none" if not e.outages else "return" if back else "leave",
                "seed": e.seed,
                "budget_s": e.time_s,
                "time_to_error_s": first_time_s(record.curve, error),
                "error_last": record.curve[-1].error,
                "batches": record.batches,
                "lost": record.lost,
                "staleness": sum(shard.mean for shard in record.staleness) / len(record.staleness),
                "staleness_theory": e.replicas - 1,
                "spread": record.spread.mean,
            }
        )
    return pd.DataFrame(rows, columns=COLUMNS)


def case_name(rule: str, every: int) -> str:
    """The rule and how often a replica fetches and pushes."""
    return f"{'Adagrad' if rule == 'adagrad' else 'SGD'}, every {'batch' if every == 1 else f'{every} batches'}"


def _scaling(frame: pd.DataFrame) -> pd.DataFrame:
    """Runs without outages on as much work as the others: the budget times the replicas is the same."""
    plain = frame[frame["outages"] == "none"]
    work = plain["budget_s"] * plain["replicas"]
    return plain[work == work.max()] if len(plain) else plain


def figure_downpour(frame: pd.DataFrame) -> Picture:
    """Time to the error, how old gradients are, and how far shards drift apart, against replicas; `frame`: of `downpour_frame`."""
    table = _scaling(frame)
    if table.empty:
        return message(NOTHING.replace("`", ""))
    first = table.iloc[0]
    names = [f"Time to {100 * TARGET_ERROR:g}% test error", "Staleness of what a shard applies", "Versions mixed in one vector"]
    finding, rows = _downpour_finding(table), []
    counts = sorted({int(count) for count in table["replicas"]})
    with mpl.rc_context(RC):
        picture, axes = grid_of_axes(3, finding, 2.2, 2.2, 3, legend=True, names=names)
        for ax, name, column in zip(axes, names, ("time_to_error_s", "staleness", "spread"), strict=True):
            name_panel(ax, name)
            for (rule, every), (colour, marker) in LOOKS.items():
                group = table[(table["rule"] == rule) & (table["every"] == every)]
                if group.empty:
                    continue
                line = group.groupby("replicas")[column].agg(["median", "min", "max", "count", "size"])
                # a median over seeds some of which never came there would flatter
                line = line[line["count"] == line["size"]]
                bars = [line["median"] - line["min"], line["max"] - line["median"]]
                ax.errorbar(line.index, line["median"], bars, color=colour, marker=marker, elinewidth=0.9)
                rows.append(line.reset_index().assign(rule=rule, every=every, quantity=column))
            counts_axis(ax, counts)
            ax.set_xlabel("replicas")
            if (table[column] > 0).all():
                ax.set_yscale("log")
                ax.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
                ax.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
                ax.yaxis.set_minor_formatter(lambda value, _: "")
        axes[0].set_ylabel("virtual time over E[X]")
        axes[1].set_ylabel("shard's updates")
        axes[2].set_ylabel("updates, most - least")
        looks = [(LOOKS[case], case_name(*case)) for case in LOOKS if (table["rule"].eq(case[0]) & table["every"].eq(case[1])).any()]
        picture.legend_line([Line2D([], [], color=c, marker=m, label=label, markersize=5) for (c, m), label in looks])
    missing = _never(table)
    picture.caption = (
        f"{first['shards']} shards, digits, exponential times, messages take a tenth of a batch on average; median of "
        f"{table['seed'].nunique()} seeds, bars from the least to the most; equal work, so time falls as replicas rise where each batch "
        f"counts as much. Points left out, since some seed never reached the error: {missing or 'none'}."
    )
    picture.data = pd.concat(rows)
    picture.alt = f"Time to an error, staleness and mixed versions against replicas of Downpour SGD. {finding or ''}"
    return picture


def _never(table: pd.DataFrame) -> str:
    """The points that some seed never reached, in words."""
    lost = table[table["time_to_error_s"].isna()]
    parts = []
    for rule, every in LOOKS:
        counts = sorted({int(count) for count in lost[(lost["rule"] == rule) & (lost["every"] == every)]["replicas"]})
        parts += [f"{case_name(rule, every)} with {', '.join(map(str, counts))}"] if counts else []
    return "; ".join(parts)


def _downpour_finding(table: pd.DataFrame) -> str | None:
    """How much sooner most replicas that always came there were than one, where ranges over seeds part."""
    group = table[(table["rule"] == "adagrad") & (table["every"] == 1)]
    counts = sorted({int(count) for count in group["replicas"]})
    there = [count for count in counts if group[group["replicas"] == count]["time_to_error_s"].notna().all()]
    if len(there) < 2 or there[0] != 1:
        return None
    one, most = (group[group["replicas"] == count]["time_to_error_s"] for count in (1, there[-1]))
    if most.max() >= one.min():
        return None
    return f"{there[-1]} replicas reach the error {one.median() / most.median():.1f} times as soon as one, not {there[-1]} times"


def outages_table(frame: pd.DataFrame) -> Shown:
    """What replicas that die cost, with and without their return."""
    table = frame[frame["budget_s"].isin(frame[frame["outages"] != "none"]["budget_s"]) & (frame["replicas"] == 8) & (frame["every"] == 1)]
    table = table[table["rule"] == "adagrad"] if (frame["outages"] != "none").any() else table.iloc[:0]
    words = {"none": "all stay", "leave": "4 of 8 die at 20", "return": "4 of 8 die at 20, return at 60"}
    rows = [
        {
            "Replicas": words[name],
            "Batches": f"{group['batches'].mean():,.0f}",
            "Staleness": f"{group['staleness'].mean():.1f}",
            "Test error at 100 (%)": f"{100 * group['error_last'].mean():.1f}",
            "range": f"{100 * group['error_last'].min():.1f} to {100 * group['error_last'].max():.1f}",
            "Seeds": f"{len(group)}",
        }
        for name in words
        if len(group := table[table["outages"] == name])
    ]
    note = "Times in E[X]. Nobody waits for a replica that is gone: the others and the shards go on." if rows else NOTHING.replace("`", "")
    return table_html(pd.DataFrame(rows), note=note, right=["Batches", "Staleness", "Test error at 100 (%)", "range", "Seeds"])
