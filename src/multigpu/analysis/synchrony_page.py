"""What the page on synchrony says and shows beside its figures: Records, the answer, tables, and what one can try by hand."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
import pandas as pd

from multigpu.analysis.figure_downpour import downpour_frame
from multigpu.analysis.figure_synchrony import NO_REAL_RUN, figure_k, protocol_look, real_frame, real_who
from multigpu.analysis.figure_synchrony_error import ends_sentence
from multigpu.analysis.layout import grid_of_axes, name_panel, rows_from_top
from multigpu.analysis.picture import Picture, Shown, paragraphs
from multigpu.analysis.style import RC
from multigpu.analysis.synchrony import curves_frame, problem_name, ratio_frame, staleness_frame, synchrony_frame
from multigpu.analysis.synchrony_devices import devices_sentence
from multigpu.analysis.tables import table_html
from multigpu.analysis.verdicts import verdicts
from multigpu.analysis.wording import decimals
from multigpu.claims import SynchronyPredicate, all_claims, evaluate
from multigpu.measure.machine import gpu_count
from multigpu.parameters import Measure
from multigpu.published import published_value
from multigpu.synchrony import grid
from multigpu.synchrony.averaging_record import AveragingStore
from multigpu.synchrony.downpour_record import DownpourStore
from multigpu.synchrony.experiment import build_experiment
from multigpu.synchrony.grid import find_grid, laws
from multigpu.synchrony.laws import harmonic_difference
from multigpu.synchrony.measure import measure as run_grid
from multigpu.synchrony.measure import possible_here
from multigpu.synchrony.problems import LinearRegression
from multigpu.synchrony.protocol import PROTOCOLS
from multigpu.synchrony.record import RECORDS, SynchronyRecord, SynchronyStore
from multigpu.synchrony.simulate import simulate


@dataclass(frozen=True)
class Seen:
    """Every Record, and as `synchrony_frame`, `curves_frame`, `staleness_frame` and `downpour_frame` have them; the least loss by problem
    where it is known.
    """

    records: list[SynchronyRecord]

    frame: pd.DataFrame
    curves: pd.DataFrame
    shares: pd.DataFrame
    downpours: pd.DataFrame
    least: dict[str, float]


def observe(measure: Measure, experiments: str = "study", root: Path = RECORDS) -> Seen:
    """Run these experiments (the name of a grid of them) as asked, and read every Record there is.

    Experiments on a virtual clock repeat to the bit: "all" runs what is missing.

    Raises:
        ValueError: no such grid, or a file is no Record.
    """
    if measure != "none":
        print(run_grid(possible_here(find_grid(experiments), gpu_count()), root))
    records = list(SynchronyStore(root))
    known = {r.experiment.problem for r in records if isinstance(r.experiment.problem, LinearRegression)}
    return Seen(
        records,
        synchrony_frame([*records, *AveragingStore(root)]),
        curves_frame(records),
        staleness_frame(records),
        downpour_frame(DownpourStore(root)),
        {problem_name(problem): problem.build().best_loss for problem in known},
    )


def answer(frame: pd.DataFrame, records: Iterable[SynchronyRecord] = (), lines: pd.DataFrame | None = None) -> Shown:
    """What waiting costs, simulated and on devices, and what not waiting costs; each only where Records support it.

    Args:
        lines: the data of `figure_error`, which says of every problem where async ends.
    """
    sentences: list[str | None] = []
    ratios = ratio_frame(frame)
    at = {(row["workers"], row["unit"]): row for _, row in ratios.iterrows()}
    if (20, "update") in at and (20, "sample") in at:
        update, sample = at[20, "update"], at[20, "sample"]
        sentences.append(
            "In the simulator, where network and server take no time, waiting for the slowest of 20 workers costs "
            f"**{sample['ratio']:.2f}** times the time of async for the same samples ({sample['low']:.2f} to {sample['high']:.2f}, "
            f"exponential times); counted by updates, as 002 does, it is {update['ratio']:.0f} times, but that compares an update of 20 "
            "gradients with one of a single gradient."
        )
    sentences.append(devices_sentence(records))
    ends = _ends(frame)
    if ends is not None:
        sentences.append(
            f"Not waiting can cost a floor: at the same constant rate async ends **{ends[0]:.0f}** times as far above the least "
            f"loss of linear regression as sync ({ends[1]:.0f} to {ends[2]:.0f}), though it is there sooner."
            + (f" {ends_text}" if lines is not None and (ends_text := ends_sentence(lines)) else "")
        )
    text = [sentence for sentence in sentences if sentence] or [
        "No Record supports an answer yet: `python -m multigpu synchrony` runs the experiments."
    ]
    return paragraphs(*text)


def _ends(frame: pd.DataFrame) -> tuple[float, float, float] | None:
    """Excess loss of async over sync over the last quarter, with its interval, if that lies above 1."""
    from scipy import stats

    table = frame[(frame["status"] == "ok") & frame["excess_last"].notna() & frame["budget_s"].notna() & (frame["clock"] == "virtual")]
    sides = [np.log(table[table["protocol"] == name]["excess_last"].to_numpy()) for name in ("async", "sync")]
    if min(map(len, sides)) < 2:
        return None
    test = stats.ttest_ind(*sides, equal_var=False).confidence_interval()
    found = tuple(float(np.exp(value)) for value in (sides[0].mean() - sides[1].mean(), test.low, test.high))
    return (found[0], found[1], found[2]) if found[1] > 1 else None


def ratio_table(frame: pd.DataFrame) -> Shown:
    """Time of sync over async beside P log P, the exact value and the document's figure (read off its plot)."""
    said = {name: published_value("002_statements", f"async_updates_{name}") for name in ("workers", "ratio")}
    published = {(int(said["workers"]), "update"): said["ratio"]}
    rows = []
    for _, row in ratio_frame(frame).sort_values(["unit", "workers"], ascending=[False, True]).iterrows():
        p, scale = int(row["workers"]), row["workers"] if row["unit"] == "update" else 1
        document = published.get((p, row["unit"]))
        rows.append(
            {
                "Per": row["unit"],
                "P": f"{p}",
                "Ours": _three(row["ratio"]),
                "95%": f"{_three(row['low'], row['ratio'])} to {_three(row['high'], row['ratio'])}",
                "Exact": _three(scale * harmonic_difference(p, p)),
                "P log P or log P": _three(scale * np.log(p)),
                "Seeds": str(row["n"]),
                "Document 002": f"about {document:g}" if document else "not given",
            }
        )
    note = "Time of sync over that of async, exponential times, simulated. Exact: P H(P) an update and H(P) a sample, by 002's theorem."
    return table_html(pd.DataFrame(rows), note=note, right=["P", "Ours", "95%", "Exact", "P log P or log P"])


def _three(value: float, like: float | None = None) -> str:
    """Three digits of `value`, or as many decimals as three digits of `like`; whole from a hundred on."""
    return f"{value:,.{decimals(value if like is None else like)}f}"


def averaging_table(frame: pd.DataFrame) -> Shown:
    """Loss and error of the average of models trained apart, beside one model trained jointly; mean and range over seeds."""
    table = frame[frame["start"].notna()]
    rows = []
    for (problem, start), group in table.groupby(["problem", "start"]):
        sides = {name: group[group["protocol"] == name] for name in ("averaged", "joint")}
        rows.append(
            {
                "Model": _model(problem),
                "Starts": "equal" if start == "same start" else "own",
                **{
                    f"{what}, {name}": _spread(side[column], scale, decimals)
                    for what, column, scale, decimals in (("Loss", "loss_last", 1, 3), ("Error %", "error_last", 100, 1))
                    for name, side in sides.items()
                },
                "Seeds": f"{len(sides['joint'])}",
            }
        )
    workers = int(table["workers"].iloc[0]) if len(table) else 0
    named = "; ".join(f"{_model(problem)}: {problem}" for problem in sorted(set(table["problem"])))
    note = (
        f"{workers} models trained apart on disjoint shards, averaged once; joint: one model with all gradients in as many steps. Starts: "
        f"of the models, all from one or each from its own. Means, least and most. {named}."
    )
    data = pd.DataFrame(rows)
    return table_html(data, note=note, right=[str(name) for name in data if name not in ("Model", "Starts")])


def _model(problem: object) -> str:
    return "network" if "hidden" in str(problem) else "logistic regression"


def claims_table(frame: pd.DataFrame) -> Shown:
    """The claims of 002 that these Records decide."""
    return verdicts([evaluate(claim, frame) for claim in all_claims() if isinstance(claim.predicate, SynchronyPredicate)])


def _spread(values: pd.Series, scale: float, decimals: int) -> str:
    mean, low, high = (f"{scale * value:.{decimals}f}" for value in (values.mean(), values.min(), values.max()))
    return f"{mean} ({low} to {high})"


def twins_table(frame: pd.DataFrame) -> Shown:
    """The K-batch protocols over their K twins: time an update and loss after equally many updates."""
    table = frame[(frame["status"] == "ok") & (frame["clock"] == "virtual") & frame["budget_s"].isna()]
    table = table[table["problem"] == problem_name(grid.DIGITS)]
    rows, counts = [], []
    for (law, k), group in table[table["workers"] == 8].groupby(["law", "gradients_per_update"]):
        for batch, twin in (("k_batch_sync", "k_sync"), ("k_batch_async", "k_async")):
            over, under = (group[group["protocol"] == name] for name in (batch, twin))
            if len(over) and len(under):
                counts += [len(over), len(under)]
                rows.append(
                    {
                        "Law": law,
                        "K": f"{k}",
                        "Protocol over its twin": f"{protocol_look(batch).label} over {protocol_look(twin).label}",
                        "Time an update": f"{over['update_time_s'].mean() / under['update_time_s'].mean():.3f}",
                        "Loss": f"{over['loss_last'].mean() / under['loss_last'].mean():.3f}",
                        "Staleness": f"{over['staleness'].mean():.2f} and {under['staleness'].mean():.2f}",
                    }
                )
    seeds = " to ".join(str(count) for count in sorted({min(counts), max(counts)})) if counts else "no"
    note = f"8 workers, logistic regression on digits, 400 updates each; means over {seeds} seeds."
    return table_html(pd.DataFrame(rows), note=note, right=["K", "Time an update", "Loss"])


def real_table(frame: pd.DataFrame, engine: str = "processes") -> Shown:
    """Real runs on this engine beside the simulator: medians, their ratio and the mean staleness of both."""
    rows = [
        {
            "Protocol": f"{protocol_look(row['protocol']).label}, K = {row['gradients_per_update']}",
            "Workers": real_who(row),
            "Machine": row["machine"],
            "Real, ms": f"{1e3 * row['real_s']:.2f}",
            "Simulator, ms": f"{1e3 * row['simulated_s']:.2f}",
            "Ratio": f"{row['ratio']:.3f}",
            "Staleness (simulated)": f"{row['staleness']:.2f} ({row['simulated_staleness']:.2f})",
        }
        for _, row in real_frame(frame, engine).iterrows()
    ]
    note = (
        "Medians an update over parts of a run, one run each; P: workers. Ratio: real over simulator, which has the same draws."
        if rows
        else f"{NO_REAL_RUN[engine].replace('`', '')}."
    )
    return table_html(pd.DataFrame(rows), note=note, right=["Real, ms", "Simulator, ms", "Ratio", "Staleness (simulated)"])


def record_keys(frame: pd.DataFrame) -> Shown:
    """Which Records the page rests on, folded."""
    if frame.empty:
        return Shown("<p>No Record.</p>")
    commits = sorted({str(commit)[:7] for commit in frame["commit"]})
    kept = frame.drop_duplicates("key")
    keys = ", ".join(f"<code>{escape(key)}</code>" for key in kept["key"])
    unclean = int((~kept["clean_tree"]).sum())
    first = f"{len(kept)} Records, measured at commit {', '.join(commits)}" + (f" ({unclean} from a changed tree)" if unclean else "")
    return Shown(f"<details><summary>{first}</summary><p>{keys}</p></details>")


def predicted(law: str = "exponential", workers: int = 16, gradients: int = 8, updates: int = 400) -> Picture:
    """Every protocol simulated now for one law, P and K: P workers' time a gradient applied, and mean staleness.

    Raises:
        ValueError: no such law, or K does not suit P.
    """
    known = {found.kind: found for found in laws()}
    if law not in known:
        raise ValueError(f"unknown law {law!r}: choose one of {', '.join(known)}")
    rows: list[dict[str, Any]] = []
    for protocol in PROTOCOLS:
        k = None if protocol in ("sync", "async") else gradients
        outcome = simulate(build_experiment(protocol=protocol, workers=workers, gradients=k, law=known[law], updates=updates))
        each = outcome.experiment.gradients_per_update
        time = workers * outcome.update_times_s[-1] / updates / each / known[law].mean_s
        stale = sum(age * count for age, count in outcome.staleness.items()) / sum(outcome.staleness.values())
        rows.append({"protocol": protocol, "K": each, "time_over_mean": time, "staleness": stale})
    table = pd.DataFrame(rows)
    names = ["Worker time a gradient applied, over E[X]", "Mean staleness (updates)"]
    with mpl.rc_context(RC):
        picture, axes = grid_of_axes(2, None, 3.4, 2.2, 2, left=1.1, names=names)
        for ax, name, column in zip(axes, names, ("time_over_mean", "staleness"), strict=True):
            name_panel(ax, name)
            colours = [protocol_look(protocol).colour for protocol in table["protocol"]]
            ax.barh(range(len(table))[::-1], table[column], color=colours, height=0.6)
            for y, value in zip(range(len(table))[::-1], table[column], strict=True):
                ax.annotate(f"{value:.3g}", (value, y), (3, 0), textcoords="offset points", va="center")
            ax.set_yticks(range(len(table))[::-1], [protocol_look(protocol).label for protocol in table["protocol"]])
            rows_from_top(ax, len(table), len(table))
            ax.set_xlim(0, 1.2 * max(table[column].max(), 0.1))
    picture.caption = f"{law.replace('_', ' ')} times, P = {workers}, K = {gradients}; simulated now, {updates} updates a protocol."
    picture.data = table
    picture.alt = f"Bars of worker time a gradient and staleness for six protocols. {picture.caption}"
    return picture


def explore(frame: pd.DataFrame, by_hand: bool) -> Any:
    """Sliders for law, P and K where somebody is there to move them; else the figure of what K buys."""
    if not by_hand:
        return figure_k(frame)
    try:
        import ipywidgets
    except ImportError:
        return figure_k(frame)
    chosen = ipywidgets.Dropdown(options=[law.kind for law in laws()], value="exponential", description="law")
    workers = ipywidgets.IntSlider(16, 2, 64, description="P")
    gradients = ipywidgets.IntSlider(8, 1, 16, description="K")
    # K above P suits no protocol that counts workers
    workers.observe(lambda change: setattr(gradients, "max", change["new"]), names="value")
    return ipywidgets.interactive(predicted, law=chosen, workers=workers, gradients=gradients, updates=ipywidgets.fixed(400))
