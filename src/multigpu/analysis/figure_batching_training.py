"""Loss curves by mode of batching, and the memory of step times in corpus order and shuffled."""

from __future__ import annotations

import matplotlib as mpl
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from multigpu.analysis.autocorrelation import LAGS, autocorrelation, band, ljung_box, ljung_box_bound
from multigpu.analysis.batching import shard_frame
from multigpu.analysis.batching_records import MEMORY_COLUMNS
from multigpu.analysis.convergence import differences
from multigpu.analysis.figure_batching import MODE_LOOKS
from multigpu.analysis.layout import grid_of_axes, name_panel
from multigpu.analysis.picture import Picture, message
from multigpu.analysis.style import CEILING, INK, RC
from multigpu.analysis.wording import BATCHING_NAMES, MODEL_NAMES, joined, missing, plural
from multigpu.run import Run

WIDTH, HEIGHT = 3.2, 2.2
ORDERS = {False: ("#d55e00", "o", "corpus order"), True: ("#0072b2", "s", "shuffled")}


def counted_memory(run: Run, column: str = "words") -> pd.DataFrame:
    """`memory_frame` of what each step's largest shard counts, before anything runs; column: of `shard_frame`."""
    series = shard_frame(run).groupby("step")[column].max().to_numpy(float)
    fixed = (run.inputs, run.batching, run.shuffle, run.batch_size, run.devices, run.seed, len(series))
    total = ljung_box(series)
    rows = [(*fixed, lag, float(r), band(len(series)), total, "") for lag, r in enumerate(autocorrelation(series), start=1)]
    return pd.DataFrame(rows, columns=list(MEMORY_COLUMNS))


def figure_memory(memory: pd.DataFrame, what: str) -> Picture:
    """Autocorrelation against lag: a panel a mode of batching, a line an order, with the band of no memory.

    Args:
        memory: of `memory_frame` or `counted_memory`.
        what: the series, for the axis: "step time", "words a step".
    """
    if memory.empty:
        return message(
            f"No Record has {5 * LAGS} timed steps of a corpus yet: `python -m multigpu measure --grid shuffling` measures them."
        )
    modes = [mode for mode in MODE_LOOKS if (memory["batching"] == mode).any()]
    with mpl.rc_context(RC):
        names = [BATCHING_NAMES[mode] for mode in modes]
        picture, axes = grid_of_axes(len(modes), memory_finding(memory, what), WIDTH, HEIGHT, 2, legend=True, names=names)
        for ax, mode, name in zip(axes, modes, names, strict=True):
            _memory_panel(ax, memory[memory["batching"] == mode], name)
        axes[0].set_ylabel(f"autocorrelation of {what}")
        picture.legend_line([Line2D([], [], color=c, marker=m, label=label, markersize=4) for c, m, label in ORDERS.values()])
    picture.caption = (
        f"Autocorrelation of {what}, {plural(int(memory['steps'].max()), 'step')} of {memory['batch_size'].iloc[0]} sentences of the "
        f"committed corpus, one replica{_lines(memory)}. Grey: where 95% of each value lie if steps have no memory."
    )
    picture.data = memory
    picture.alt = f"Lines of autocorrelation against lag. {_memory_words(memory, what)}"
    return picture


def lag_one(memory: pd.DataFrame) -> pd.DataFrame:
    """A row a mode and order, over its Records.

    Returns:
        batching, shuffle; r (median autocorrelation at lag 1), low and high (least and most), ljung_box (median), n, and remembers: how
        many of them have a memory by Q over 20 lags.
    """
    first = memory[memory["lag"] == 1].groupby(["batching", "shuffle"], sort=False)
    table = first.agg(
        r=("r", "median"),
        low=("r", "min"),
        high=("r", "max"),
        ljung_box=("ljung_box", "median"),
        n=("r", "size"),
        remembers=("ljung_box", lambda total: int((total > ljung_box_bound()).sum())),
    )
    return table.reset_index()


def _named(row: pd.Series) -> str:
    return f"{BATCHING_NAMES[row['batching']]}, {ORDERS[bool(row['shuffle'])][2]}"


def _lines(memory: pd.DataFrame) -> str:
    """How many Records each order of a panel has, for a caption; nothing where each has one."""
    table = lag_one(memory)
    said = "; ".join(f"{_named(row)}: {plural(int(row['n']), 'Record')}" for _, row in table.iterrows())
    return f", a line a Record ({said})" if table["n"].max() > 1 else ""


def _memory_words(memory: pd.DataFrame, what: str) -> str:
    parts = [f"{_named(row)}: lag 1 {row['r']:+.2f}, Q over lags {row['ljung_box']:.2f}" for _, row in lag_one(memory).iterrows()]
    return f"{what[:1].upper()}{what[1:]}: {'; '.join(parts)}."


def memory_finding(memory: pd.DataFrame, what: str) -> str | None:
    """What shuffling does to the memory at lag 1, of every mode whose Records in corpus order all have one by Q over 20 lags.

    Medians over Records; nothing of a mode of which some shuffled Records keep a memory and some do not.
    """
    table, parts = lag_one(memory), []
    for mode in MODE_LOOKS:
        own = table[table["batching"] == mode]
        orders = [own[own["shuffle"] == shuffle] for shuffle in (False, True)]
        if not all(map(len, orders)):
            continue
        plain, shuffled = (order.iloc[0] for order in orders)
        if plain["remembers"] == plain["n"] and shuffled["remembers"] in (0, shuffled["n"]):
            parts.append((BATCHING_NAMES[mode], shuffled["remembers"] == 0, f"{plain['r']:.2f} to {shuffled['r']:.2f}"))
    if not parts:
        return None
    (name, gone, change), *others = parts
    first = f"With {name}, shuffling takes {'the' if gone else 'not all'} memory out of {what}: {change} at lag 1"
    return "; ".join([first, *(f"with {name} it takes {'it' if gone else 'not all of it'} ({change})" for name, gone, change in others)])


def _memory_panel(ax: Axes, memory: pd.DataFrame, title: str) -> None:
    name_panel(ax, title)
    half = float(memory["band"].max())
    ax.axhspan(-half, half, color=CEILING, alpha=0.2, linewidth=0)
    ax.axhline(0, color=INK, linewidth=0.8)
    for shuffle, (colour, marker, _) in ORDERS.items():
        for _, line in memory[memory["shuffle"] == shuffle].groupby(["seed", "key"], sort=False):
            ax.plot(line["lag"], line["r"], color=colour, marker=marker, markersize=3, linewidth=1.1)
    ax.set_ylim(min(-0.4, 1.1 * float(memory["r"].min())), max(0.8, 1.1 * float(memory["r"].max())))
    ax.set_xticks([1, 5, 10, 15, 20])
    ax.set_xlabel("lag (steps)")


def _convergence_finding(scores: pd.DataFrame) -> str | None:
    """Which modes end at another held-out loss than own buckets, beyond what seeds differ by; nothing from one seed."""
    found = [each for each in differences(scores) if not missing(each.low)]
    if not found:
        return None
    other = [each for each in found if each.differs]
    if other:
        return "; ".join(f"With {BATCHING_NAMES[each.mode]} the held-out loss ends {each.mean:+.3f} from own buckets'" for each in other)
    modes = joined([BATCHING_NAMES[each.mode] for each in found])
    return f"With {modes} the held-out loss ends where own buckets' does, within what {min(each.pairs for each in found)} seeds tell"


def figure_convergence(curves: pd.DataFrame, scores: pd.DataFrame) -> Picture:
    """Training loss and held-out loss against epochs, a line a seed, a colour a mode.

    Args:
        curves: of `convergence.mode_curves`. scores: of `convergence.mode_scores`.
    """
    if curves.empty:
        return message(
            "No job was trained in two modes of batching yet: `python -m multigpu train --grid batching_cpu` (on GPUs: batching_gpu) does."
        )
    jobs = list(dict.fromkeys(zip(curves["machine"], curves["model"], curves["inputs"], curves["devices"], strict=True)))
    names = [
        f"{MODEL_NAMES.get(model, model)}, {plural(int(devices), 'replica')}: {what}"
        for _, model, _, devices in jobs
        for what in ("training", "held out")
    ]
    with mpl.rc_context(RC):
        picture, axes = grid_of_axes(len(names), _convergence_finding(scores), WIDTH, HEIGHT, 2, legend=True, names=names)
        for index, (job, name) in enumerate(zip([job for job in jobs for _ in (0, 1)], names, strict=True)):
            ax, table, value = (
                (axes[index], curves, "loss") if index % 2 == 0 else (axes[index], scores[scores["score"] == "loss"], "value")
            )
            name_panel(ax, name)
            own = table[
                (table["machine"] == job[0]) & (table["model"] == job[1]) & (table["inputs"] == job[2]) & (table["devices"] == job[3])
            ]
            for mode, style in MODE_LOOKS.items():
                for _, line in own[own["batching"] == mode].groupby("seed"):
                    ordered = line.sort_values("step")
                    ax.plot(ordered["epoch"], ordered[value], color=style.colour, linewidth=1.0, alpha=0.85)
            ax.set_xlabel("epochs")
        axes[0].set_ylabel("cross entropy a piece (nats)")
        shown = [mode for mode in MODE_LOOKS if (curves["batching"] == mode).any()]
        picture.legend_line([Line2D([], [], color=MODE_LOOKS[mode].colour, label=BATCHING_NAMES[mode]) for mode in shown])
    picture.caption = (
        f"A line a seed ({curves['seed'].nunique()} of them), the same words, rates and numbers of steps in every mode; training: a "
        f"running mean. {', '.join(dict.fromkeys(curves['machine']))}."
    )
    picture.data = curves
    ends = curves.sort_values("step").groupby(["batching", "seed"])["loss"].last().groupby("batching").mean()
    picture.alt = "Loss against epochs by mode. Last training loss, mean over seeds: " + ", ".join(
        f"{BATCHING_NAMES[str(mode)]} {loss:.3f}" for mode, loss in ends.items()
    )
    return picture
