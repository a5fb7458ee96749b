"""Document 004's page: sentences, tables and figures from its Records, and what is missing where there are none."""

from __future__ import annotations

import math

import matplotlib as mpl
import pandas as pd
from matplotlib.axes import Axes

from multigpu.analysis.document_004 import BATCH, LENGTH, WAY_WORDS, buckets, exposed_by_trace, link_seconds, parts, steps
from multigpu.analysis.figure_hosts import counts_axis
from multigpu.analysis.layout import grid_of_axes, label_ends, label_lines, margin_for, name_panel
from multigpu.analysis.picture import Picture, Shown, message
from multigpu.analysis.style import INK, RC, look
from multigpu.analysis.tables import table_html
from multigpu.analysis.wording import joined, missing, percent_text, plural, rate_text, ratio_text, with_interval
from multigpu.published import load_published, published_value

NOTHING = (
    "Document 004's step has not been measured here yet: `python -m multigpu measure --grid document_004` does, on a machine with GPUs. "
    "What its links allow follows from its own figures and stands below"
)
WIDTH, HEIGHT = 3.3, 2.9
ASKED = (2, 4, 8)
"""Numbers of GPUs of which the page asks."""


def _ms(seconds: float, low: float = math.nan, high: float = math.nan) -> str:
    return "not measured" if missing(seconds) else with_interval(f"{1000 * seconds:,.1f} ms", 1000 * low, 1000 * high, ",.1f")


def _bare(seconds: float, low: float = math.nan, high: float = math.nan) -> str:
    """As `_ms`, for a table whose note names the unit."""
    return _ms(seconds, low, high).replace(" ms", "")


def step_finding(frame: pd.DataFrame) -> str:
    """The step on one and on the most devices, beside the document's."""
    table = steps(frame)
    table = table[table["placement"] == "ddp"]
    if len(table) < 2:
        return NOTHING
    one, most = table.iloc[0], table.iloc[-1]
    beside = "" if missing(most["document_s"]) else f" (the document: {percent_text(most['document_efficiency'])})"
    return (
        f"A step of document 004's model takes {_ms(one['step_s'], one['low_s'], one['high_s'])} on one GPU and "
        f"**{_ms(most['step_s'], most['low_s'], most['high_s'])}** on {most['devices']}, so **{percent_text(most['efficiency'])}** of "
        f"linear speed remains{beside}; {rate_text(most['words_per_s'])} on {most['devices']} GPUs{_not_measured(table)}"
    )


def _not_measured(table: pd.DataFrame) -> str:
    """Which of the counts that the page asks about have no Record: "; on 8 GPUs it was not measured"."""
    lost = [str(count) for count in ASKED if count not in set(table["devices"].astype(int))]
    return f"; on {joined(lost)} GPUs it was **not measured**" if lost else ""


def communication_finding(frame: pd.DataFrame) -> str | None:
    """By how much the step grows with and without communication, each way over its own step on one device, and what backward hides."""
    table = parts(frame).dropna(subset=["after", "during"])
    if table.empty:
        return None
    first, last = table.iloc[0], table.iloc[-1]
    hidden = "" if missing(last["hidden"]) else f"; during backward {percent_text(*_of(last, 'hidden'))} of that is hidden"
    more = ""
    if last["devices"] > first["devices"]:
        more = f"; on {int(last['devices'])} by {_ms(*_of(last, 'alone'))} and {_ms(*_of(last, 'after_grows'))}"
    return (
        f"On {int(first['devices'])} GPUs the step grows by {_ms(*_of(first, 'alone'))} without any communication and by "
        f"**{_ms(*_of(first, 'after_grows'))}** when gradients are summed after the backward pass{more}. "
        f"What lies between is what communication costs, {_ms(*_of(last, 'after'))} on {int(last['devices'])}{hidden}"
    )


def _of(row: pd.Series, name: str) -> tuple[float, float, float]:
    """A part with its bounds."""
    return float(row[name]), float(row[f"{name}_low"]), float(row[f"{name}_high"])


def traces_finding(frame: pd.DataFrame, phases: pd.DataFrame) -> str | None:
    """Whether the communication that no compute covers in traced steps lies within what the growth of timed steps says it costs."""
    traced = exposed_by_trace(phases)
    traced = traced[traced["precision"].eq("fp32") & traced["execution"].eq("eager")].set_index(["placement", "devices"])
    told, inside, count = [], 0, 0
    for _, row in parts(frame).iterrows():
        for placement, name in (("replicated_allreduce", "after"), ("ddp", "during")):
            value, low, high = _of(row, name)
            at = (placement, int(row["devices"]))
            if at not in traced.index or missing(low):
                continue
            seconds = float(traced["exposed_s"][at])
            agrees = low <= seconds <= high
            inside, count = inside + agrees, count + 1
            where = "within" if agrees else "outside"
            told.append(f"{_ms(seconds)} {name} backward on {at[1]} GPUs, {where} the {_ms(value, low, high)} of timed steps")
    if not told:
        return None
    verdict = "Traced steps tell the same" if inside == count else f"Traced steps agree in {inside} of {count} cases"
    return f"{verdict}. What no compute covers: {'; '.join(told)}"


def transfer_finding() -> str:
    """Whether 90 ms can be the transfer, by the document's own figures."""
    found = link_seconds()
    low, high, claimed = (1000 * found[name] for name in ("both", "one way", "claimed"))
    size, rate = (published_value("004_statements", name) for name in ("gradient_size", "nvlink_bandwidth"))
    return (
        f"By the document's own figures {size:.0f} MB over {rate:.0f} GB/s take {low:.1f} to {high:.1f} ms (as that figure counts one "
        f"direction or both), so **{claimed - high:.0f} of the {claimed:.0f} ms** are something else"
    )


def bucket_finding(frame: pd.DataFrame) -> str | None:
    """The best and the worst size of bucket on the most devices. One Record each: screening."""
    table = buckets(frame)
    if table.empty:
        return None
    own = table[table["devices"] == table["devices"].max()].sort_values("step_s")
    best, worst = own.iloc[0], own.iloc[-1]
    return (
        f"Of {plural(len(own), 'size')} of bucket on {int(best['devices'])} GPUs, {int(best['bucket_mib'])} MiB gives the shortest step "
        f"and {int(worst['bucket_mib'])} MiB the longest, {ratio_text(worst['step_s'] / best['step_s'])} as long (screening)"
    )


def steps_table(frame: pd.DataFrame) -> Shown:
    """Every way and number of devices beside the document's step."""
    table = steps(frame)
    document = load_published("004_step_times")
    rows = []
    for devices in sorted({*table["devices"].astype(int), *document["gpus"].astype(int)}):
        theirs = document.loc[document["gpus"] == devices, "step_time_ms"]
        cells = {"GPUs": f"{devices}", "document (ms)": f"{theirs.iloc[0]:.0f}" if len(theirs) else "–"}
        for placement, words in WAY_WORDS.items():
            row = table[(table["placement"] == placement) & (table["devices"] == devices)]
            cells[f"{words} (ms)"] = "not measured" if row.empty else _ms(*row.iloc[0][["step_s", "low_s", "high_s"]]).replace(" ms", "")
        during = table[(table["placement"] == "ddp") & (table["devices"] == devices)]
        cells["words/s"] = "not measured" if during.empty else f"{during['words_per_s'].iloc[0]:,.0f}"
        rows.append(cells)
    data = pd.DataFrame(rows)
    wps = ", ".join(f"{published_value('004_statements', f'wps_{count}_gpus'):,.0f} on {count}" for count in (4, 16))
    note = (
        f"Weak scaling, {BATCH} pairs a GPU, fp32, eager. The document's words/s: {wps} GPUs. "
        "Its 8, 12 and 16 GPUs are two to four machines on Ethernet."
    )
    return table_html(data, "Step of document 004's model", note, [str(name) for name in data if name != "GPUs"])


def parts_table(frame: pd.DataFrame) -> Shown:
    """By how much each way's step grows, and so what communication costs, by number of devices."""
    rows = [
        {
            "GPUs": f"{int(row['devices'])}",
            "grows without communication": _bare(*_of(row, "alone")),
            "grows with all-reduce after backward": _bare(*_of(row, "after_grows")),
            "grows with all-reduce during backward": _bare(*_of(row, "during_grows")),
            "communication after backward": _bare(*_of(row, "after")),
            "communication during backward": _bare(*_of(row, "during")),
            "hidden": "–" if missing(row["hidden"]) else percent_text(*_of(row, "hidden")),
        }
        for _, row in parts(frame).iterrows()
    ]
    data = pd.DataFrame(rows)
    note = (
        "ms with 95% intervals, of pooled steps: each way's step less its own on one GPU, where it runs the same code and exchanges "
        "nothing. Communication: what a way grows by beyond replicas without any. Hidden: of what it costs after backward. Without Records "
        "of a way on both counts a part is not known."
        if rows
        else NOTHING
    )
    return table_html(data, "What a step grows by" if rows else "", note, [str(name) for name in data if name != "GPUs"])


def trace_table(phases: pd.DataFrame) -> Shown:
    """The same from profiles of single steps."""
    rows = [
        {
            "way": WAY_WORDS.get(str(row["placement"]), str(row["placement"])),
            "GPUs": f"{int(row['devices'])}",
            "communication": _bare(row["communication_s"]),
            "without waiting": _bare(row["pure_s"]),
            "not covered by compute": _bare(row["exposed_s"]),
            "host launches for": _bare(row["host_s"]),
            "step": _bare(row["step_s"]),
        }
        for _, row in exposed_by_trace(phases).iterrows()
    ]
    data = pd.DataFrame(rows)
    note = "ms, means over replicas and traced steps." if rows else "No step of this model has been traced yet."
    return table_html(data, note=note, right=[str(name) for name in data if name != "way"])


def _steps_headline(table: pd.DataFrame) -> str | None:
    """How many times as long a step takes on the most GPUs, ours beside the document's; None without two counts."""
    own = table[table["placement"] == "ddp"].sort_values("devices")
    if len(own) < 2:
        return None
    one, most = own.iloc[0], own.iloc[-1]
    beside = "" if missing(most["document_s"]) else f"; the document's takes {1 / most['document_efficiency']:.2f} times"
    return f"On {int(most['devices'])} GPUs the step takes {most['step_s'] / one['step_s']:.2f} times as long as on one{beside}"


def figure_steps(frame: pd.DataFrame) -> Picture:
    """Our ways' steps in ms to the most GPUs measured; the same by size of bucket, if measured, on one axis; the document's growth."""
    table, sizes = steps(frame), buckets(frame)
    if table.empty:
        return message(NOTHING.replace("`", ""))
    panels = ["Step time", *(["Step time by size of bucket"] if len(sizes) else []), "Step over that of one GPU, beside the document"]
    with mpl.rc_context(RC):
        labels = margin_for(WAY_WORDS.values())
        picture, axes = grid_of_axes(len(panels), _steps_headline(table), WIDTH, HEIGHT, 2, labels, names=panels)
        for ax, name in zip(axes, panels, strict=True):
            name_panel(ax, name)
        _ways_panel(axes[0], table)
        if len(sizes):
            _buckets_panel(axes[1], sizes, axes[0].get_ylim())
        _document_panel(axes[-1], table)
    machines = joined(sorted(set(frame.loc[frame["key"].isin(joined_keys(table)), "machine"])))
    picture.caption = (
        f"Document 004's model, {BATCH} pairs of {LENGTH} words a GPU, fp32, launched call by call; weak scaling. Axes of ms do not begin "
        f"at 0. Dashed: the document, V100, four a machine; from 8 on across machines. {_measured(table, sizes)} {machines}."
    )
    picture.data = table
    picture.alt = "Step time against GPUs. " + "; ".join(
        f"{WAY_WORDS[str(row['placement'])]} on {int(row['devices'])}: {1000 * row['step_s']:.1f} ms" for _, row in table.iterrows()
    )
    return picture


def _ways_panel(ax: Axes, table: pd.DataFrame) -> None:
    """Our ways in ms, with intervals, on an axis on which they can be told apart."""
    ends = []
    for placement, line in table.groupby("placement", sort=False):
        way, (x, y) = look(str(placement)), (line["devices"].to_numpy(float), 1000 * line["step_s"].to_numpy(float))
        ax.plot(x, y, marker=way.marker, color=way.colour, markersize=4, clip_on=False)
        ax.vlines(x, 1000 * line["low_s"], 1000 * line["high_s"], color=way.colour, linewidth=1.2)
        ends.append((x[-1], y[-1], WAY_WORDS[str(placement)], way.colour))
    low, high = 1000 * table["step_s"].min(), 1000 * table["step_s"].max()
    ax.set_ylim(math.floor(low - 0.2 * (high - low)), math.ceil(high + 0.1 * (high - low)))
    ax.set_ylabel("ms")
    counts_axis(ax, sorted(int(count) for count in table["devices"].unique()), "GPUs, weak scaling")
    label_lines(ax, ends, HEIGHT)


def _buckets_panel(ax: Axes, sizes: pd.DataFrame, limits: tuple[float, float]) -> None:
    """By size of bucket, on the axis of the ways as far as it reaches."""
    ends = []
    for devices, line in sizes.groupby("devices"):
        x, y = line["bucket_mib"].to_numpy(float), 1000 * line["step_s"].to_numpy(float)
        ax.plot(x, y, marker="o", color=look("ddp").colour, markersize=4, clip_on=False)
        ends.append((x[-1], y[-1], f"{devices} GPUs", look("ddp").colour))
    counts_axis(ax, sorted(set(sizes["bucket_mib"])), "MiB of gradients in a bucket")
    ax.set_ylim(min(limits[0], math.floor(1000 * sizes["step_s"].min())), max(limits[1], math.ceil(1000 * sizes["step_s"].max())))
    ax.set_ylabel("ms")
    label_lines(ax, ends, HEIGHT)


def _document_panel(ax: Axes, table: pd.DataFrame) -> None:
    """Steps over one GPU's: the document's, and ours of the way that it took."""
    document, ends = load_published("004_step_times"), []
    own, way = table[table["placement"] == "ddp"], look("ddp")
    if len(own) and own["devices"].iloc[0] == 1:
        x, y = own["devices"].to_numpy(float), (own["step_s"] / own["step_s"].iloc[0]).to_numpy(float)
        ax.plot(x, y, marker=way.marker, color=way.colour, markersize=4, clip_on=False)
        ends.append((x[-1], y[-1], "ours", way.colour))
    x, y = document["gpus"].to_numpy(float), document["step_time_ms"].to_numpy(float)
    ax.plot(x, y / y[0], marker="D", color=INK, markersize=4, linestyle=(0, (3, 2)), clip_on=False)
    ends.append((x[-1], y[-1] / y[0], "document 004", INK))
    ax.set_xlim(1, float(x[-1]))
    ax.set_ylim(0, 1.1 * float(y.max() / y[0]))
    ax.set_xticks([1, 2, 4, 8, 12, 16])
    ax.minorticks_off()
    ax.set_xlabel("GPUs, weak scaling")
    ax.set_ylabel("times one GPU's step")
    label_ends(ax, ends, HEIGHT)


def _measured(table: pd.DataFrame, sizes: pd.DataFrame) -> str:
    """How often points were measured, for a caption."""

    def span(low: int, high: int) -> str:
        return f"{low}" if low == high else f"{low} to {high}"

    n, launches = (span(int(table[name].min()), int(table[name].max())) for name in ("n", "launches"))
    buckets_too = "; sizes of bucket once (screening)" if len(sizes) else ""
    return f"n = {n} over {launches} launches, intervals in the table{buckets_too}."


def joined_keys(table: pd.DataFrame) -> list[str]:
    """All keys of a table of pooled points."""
    return [key for keys in table["keys"] for key in str(keys).split(", ")]
