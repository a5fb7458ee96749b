"""What a rate and its schedule do to training: rules at eight times the batch, document 004's decay, and batches of all sizes."""

from __future__ import annotations

import matplotlib as mpl
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, NullLocator

from multigpu.analysis.figure_training import NOTHING
from multigpu.analysis.layout import grid_of_axes, name_panel
from multigpu.analysis.picture import Picture, message
from multigpu.analysis.style import CEILING, RC
from multigpu.analysis.training import job_name
from multigpu.analysis.wording import plural

RULES: dict[tuple[str, str], tuple[str, str, str]] = {
    ("linear", "warmup"): ("#0072b2", "o", "scaled, warmed up"),
    ("linear", "constant"): ("#d55e00", "^", "scaled, no warm-up"),
    ("none", "constant"): ("#009e73", "s", "not scaled"),
}
"""(rate_scaling, schedule) -> colour, marker, label at the large batch."""
SMALL_LOOK = (CEILING, "D", "the small batch")
SCHEDULES = {"one": (CEILING, "D", "one device"), True: ("#0072b2", "o", "adjusted to N"), False: ("#d55e00", "^", "not adjusted")}


def rule_points(frame: pd.DataFrame) -> pd.DataFrame:
    """Runs of the question how the rate follows the batch: of the reference batch, and of 8 times it under the three rules."""
    ok = frame[(frame["status"] == "ok") & (frame["placement"] == "ddp") & frame["accuracy"].notna() & (frame["scaling"] == "weak")]
    ok = ok[ok["schedule"].isin(["constant", "warmup"]) & (ok["precision"] == "fp32")]
    large = ok[ok["multiple"] == 8]
    jobs = ["machine", "model", "inputs", "base_rate", "epochs"]
    both = large[large["schedule"] == "warmup"][jobs].drop_duplicates()
    ok = ok[(ok["multiple"] == 8) | ((ok["multiple"] == 1) & (ok["rate_scaling"] == "none"))]
    return ok.merge(both, on=jobs) if len(both) else ok.iloc[:0]


def _look_of(row: pd.Series) -> tuple[str, str, str]:
    return SMALL_LOOK if row["multiple"] == 1 else RULES[row["rate_scaling"], row["schedule"]]


def _accuracy_axis(ax: Axes) -> None:
    ax.set_ylim(0, 1.02)
    ax.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{100 * value:.0f}%"))


def figure_rules(frame: pd.DataFrame, scores: pd.DataFrame) -> Picture:
    """Held-out accuracy against epochs at 8 times the batch, under each rule for the rate; mean and range over seeds."""
    table = rule_points(frame)
    if table.empty:
        return message(NOTHING)
    joined = table.merge(scores[scores["score"] == "accuracy"], on="key")
    jobs = list(dict.fromkeys(zip(table["model"], table["inputs"], table["machine"], strict=True)))
    names = [job_name(model, inputs) for model, inputs, _ in jobs]
    with mpl.rc_context(RC):
        picture, axes = grid_of_axes(len(jobs), _rules_finding(table), 3.6 if len(jobs) > 1 else 5.6, 2.3, 2, legend=True, names=names)
        looks: dict[str, tuple[str, str, str]] = {}
        for ax, (model, inputs, machine), name in zip(axes, jobs, names, strict=True):
            panel = joined[(joined["model"] == model) & (joined["inputs"] == inputs) & (joined["machine"] == machine)]
            name_panel(ax, name)
            for _, group in panel.groupby(["multiple", "devices", "rate_scaling", "schedule"], sort=True):
                style = _look_of(group.iloc[0])
                looks[style[2]] = style
                by = group.groupby("epoch")["value"].agg(["mean", "min", "max"])
                ax.plot(by.index, by["mean"], color=style[0], marker=style[1], markersize=4)
                ax.fill_between(by.index, by["min"], by["max"], color=style[0], alpha=0.15, linewidth=0)
            _accuracy_axis(ax)
            ax.set_xlabel("epochs")
        axes[0].set_ylabel("accuracy on held-out images")
        picture.legend_line([Line2D([], [], color=c, marker=m, label=label, markersize=5) for c, m, label in looks.values()])
    seeds = table.groupby(["model", "inputs", "multiple", "rate_scaling", "schedule"])["seed"].nunique().min()
    picture.caption = (
        f"Lines: mean over at least {seeds} seeds; bands: the range over seeds. The batch is 8 times the small one's; scaled: 8 times its "
        f"rate (002: base k n / 256); warmed up: from the small batch's rate, in equal steps. {', '.join(dict.fromkeys(table['machine']))}."
    )
    columns = ["model", "inputs", "machine", "multiple", "rate_scaling", "schedule", "seed", "epoch", "value", "key"]
    picture.data = joined[columns].rename(columns={"value": "accuracy"})
    picture.alt = f"Accuracy against epochs at 8 times the batch under three rules for the rate. {picture.finding}"
    return picture


def _rules_finding(table: pd.DataFrame) -> str | None:
    """Where ranges over seeds do not overlap."""
    one = table[(table["model"] == table["model"].iloc[0]) & (table["inputs"] == table["inputs"].iloc[0])]
    large = one[one["multiple"] == 8]
    groups = {rule: large[(large["rate_scaling"] == rule[0]) & (large["schedule"] == rule[1])]["accuracy"] for rule in RULES}
    warm, bare, plain = groups["linear", "warmup"], groups["linear", "constant"], groups["none", "constant"]
    if min(len(warm), len(plain)) < 2:
        return None
    if len(bare) > 1 and warm.min() > bare.max():
        return (
            f"at 8 times the batch, a scaled rate reaches {warm.mean():.1%} after a warm-up and {bare.mean():.1%} without, "
            f"an unscaled one {plain.mean():.1%}"
        )
    if warm.min() > plain.max() or plain.min() > warm.max():
        word = "more" if warm.mean() > plain.mean() else "less"
        return (
            f"at 8 times the batch, scaling the rate after a warm-up reaches {word}: {warm.mean():.1%} against {plain.mean():.1%} unscaled"
        )
    return "at 8 times the batch, the rules for the rate end within each other's range over seeds"


def schedule_points(frame: pd.DataFrame) -> pd.DataFrame:
    """Runs of document 004's decay, of jobs that were trained with the schedule left as it is too: others decay for their own sake."""
    own = frame[(frame["status"] == "ok") & (frame["schedule"] == "luong10") & (frame["placement"] == "ddp")]
    jobs = ["machine", "model", "inputs"]
    compared = own.loc[~own["adjusted"].astype(bool), jobs]
    return own[pd.MultiIndex.from_frame(own[jobs]).isin(pd.MultiIndex.from_frame(compared))]


def figure_schedule(frame: pd.DataFrame, curves: pd.DataFrame) -> Picture:
    """The rate against epochs on one device and on N, with and without adjusting the schedule."""
    table = schedule_points(frame)
    if table.empty:
        return message(NOTHING)
    table = table[table["seed"] == table["seed"].min()]
    joined = table.merge(curves, on="key")
    counts = sorted({int(n) for n in table["devices"] if n > 1})
    finding = None
    ends = joined.sort_values("step").groupby("key").tail(1)
    unaware = ends[~ends["adjusted"] & (ends["devices"] > 1)]
    aware = ends[ends["adjusted"] & (ends["devices"] > 1)]
    if len(unaware) and len(aware):
        finding = (
            f"a schedule unaware of {counts[-1]} devices ends at {unaware['rate'].iloc[-1] / aware['rate'].iloc[-1]:,.0f} times "
            "the rate of one that is adjusted"
        )
    with mpl.rc_context(RC):
        picture, axes = grid_of_axes(
            len(counts), finding, 3.6 if len(counts) > 1 else 5.6, 2.0, 2, legend=True, names=[f"{n} devices" for n in counts]
        )
        for ax, count in zip(axes, counts, strict=True):
            name_panel(ax, f"{count} devices")
            panel = joined[joined["devices"].isin([1, count])]
            for _, line in panel.sort_values(["devices", "adjusted", "step"]).groupby("key", sort=False):
                first = line.iloc[0]
                colour, _, _ = SCHEDULES["one" if first["devices"] == 1 else bool(first["adjusted"])]
                ax.step(line["epoch"], line["rate"], where="pre", color=colour, linewidth=3.2 if first["devices"] == 1 else 1.4, alpha=0.9)
            ax.set_yscale("log")
            ax.set_xlabel("epochs")
        axes[0].set_ylabel("rate")
        picture.legend_line([Line2D([], [], color=colour, label=label) for colour, _, label in SCHEDULES.values()])
    picture.caption = (
        "luong10 over the steps that one device takes: constant for half of them, then ten halvings. With N devices a step is N steps' "
        "samples, so the unaware schedule has come 1/N as far when the data are through."
    )
    picture.data = joined[["key", "devices", "adjusted", "epoch", "step", "rate"]]
    picture.alt = f"The rate against epochs, adjusted to the number of devices and not. {finding or ''}"
    return picture


def batch_points(frame: pd.DataFrame) -> pd.DataFrame:
    """Runs that differ in the joined batch alone, at least three batches a seed: linear scaling with warm-up."""
    ok = frame[
        (frame["status"] == "ok") & (frame["placement"] == "ddp") & (frame["rate_scaling"] == "linear") & (frame["schedule"] == "warmup")
    ]
    jobs = ["machine", "model", "inputs", "devices", "epochs", "base_rate", "precision", "execution", "seed"]
    if ok.empty:
        return ok
    sizes = ok.groupby(jobs)["joined_batch"].transform("nunique")
    return ok[sizes >= 3]


def seeds_of(table: pd.DataFrame) -> str:
    """How many seeds each batch of `batch_points` was trained with."""
    if table.empty:
        return ""
    counts = table.groupby(["machine", "model", "inputs", "joined_batch"])["seed"].nunique()
    low, high = int(counts.min()), int(counts.max())
    if high == 1:
        return "One seed (screening)."
    return f"{plural(low, 'seed')} a batch." if low == high else f"{low} to {high} seeds a batch, means over them; one seed is screening."


def figure_batch(frame: pd.DataFrame, reach: pd.DataFrame) -> Picture:
    """Final accuracy, and steps and epochs to a level, against the joined batch. reach: of `reach_frame` at one level a job."""
    table = batch_points(frame)
    if table.empty:
        return message(NOTHING)
    jobs = list(dict.fromkeys(zip(table["model"], table["inputs"], table["machine"], strict=True)))
    means = table.groupby(["model", "inputs", "machine", "joined_batch"])["accuracy"].mean().reset_index().sort_values("accuracy")
    first = means[(means["model"] == jobs[0][0]) & (means["inputs"] == jobs[0][1]) & (means["machine"] == jobs[0][2])]
    worst, top = first.iloc[0], first.iloc[-1]
    finding = (
        f"with equal epochs a batch of {worst['joined_batch']:,} reaches {worst['accuracy']:.0%}, one of {top['joined_batch']:,} "
        f"{top['accuracy']:.0%}"
        if worst["accuracy"] < top["accuracy"] - 0.02
        else None
    )
    with mpl.rc_context(RC):
        names = [job_name(model, inputs) for model, inputs, _ in jobs for _ in (0, 1)]
        picture, axes = grid_of_axes(2 * len(jobs), finding, 3.2, 2.0, 2, names=names)
        for index, (model, inputs, machine) in enumerate(jobs):
            panel = table[(table["model"] == model) & (table["inputs"] == inputs) & (table["machine"] == machine)].sort_values(
                "joined_batch"
            )
            left, right = axes[2 * index], axes[2 * index + 1]
            name_panel(left, f"{job_name(model, inputs)}: accuracy after {panel['epochs'].iloc[0]:.0f} epochs")
            mean = panel.groupby("joined_batch")["accuracy"].mean()
            left.plot(mean.index, mean, "-", color="#0072b2")
            left.plot(panel["joined_batch"], panel["accuracy"], "o", color="#0072b2")
            _accuracy_axis(left)
            found = panel.merge(reach, on="key", suffixes=("", "_to"))
            level = found["level"].iloc[0] if len(found) else float("nan")
            name_panel(right, f"steps to {level:.0%}")
            mean = found.groupby("joined_batch")["steps_to"].mean()
            right.plot(mean.index, mean, "-", color="#d55e00")
            right.plot(found["joined_batch"], found["steps_to"], "^", color="#d55e00")
            right.set_yscale("log")
            if found["steps_to"].notna().any():
                right.set_ylim(found["steps_to"].min() / 2, 2 * found["steps_to"].max())
            right.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
            right.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
            right.yaxis.set_minor_locator(NullLocator())
            for batch in mean.index[mean.isna()]:
                right.text(
                    batch,
                    0.04,
                    "never",
                    transform=right.get_xaxis_transform(),
                    rotation=90,
                    ha="center",
                    va="bottom",
                    fontsize=8,
                )
            for ax in (left, right):
                ax.set_xscale("log", base=2)
                ax.xaxis.set_major_locator(FixedLocator(sorted({int(b) for b in panel["joined_batch"]})))
                ax.xaxis.set_minor_locator(NullLocator())
                ax.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{round(value):,}"))
                ax.set_xlabel("joined batch")
            right.set_xlim(left.get_xlim())
    picture.caption = (
        f"{seeds_of(table)} Linear scaling of the rate with warm-up, equal epochs: a batch twice as large takes half the steps. Scored "
        f"after every epoch. {', '.join(dict.fromkeys(table['machine']))}."
    )
    columns = ["key", "model", "inputs", "joined_batch", "seed", "accuracy", "level", "steps_to", "epochs_to"]
    picture.data = table.merge(reach, on="key", how="left", suffixes=("", "_to"))[columns]
    picture.alt = f"Accuracy after equal epochs, and steps to a level, against the joined batch. {finding or ''}"
    return picture
