"""Document 004's page: sentences, tables and figures from its Records, and what is missing where there are none."""

from __future__ import annotations

import math

import matplotlib as mpl
import pandas as pd

from multigpu.analysis.document_004 import WAY_WORDS, buckets, exposed_by_trace, link_seconds, parts, steps
from multigpu.analysis.figure_hosts import counts_axis
from multigpu.analysis.layout import grid_of_axes, label_ends, label_lines, margin_for, name_panel
from multigpu.analysis.picture import Picture, Shown, message
from multigpu.analysis.style import INK, RC, look
from multigpu.analysis.tables import table_html
from multigpu.analysis.wording import joined, missing, percent_text, plural, rate_text, ratio_text, with_interval
from multigpu.grid.document_004 import BATCH, LENGTH
from multigpu.published import load_published, published_value

NOTHING = (
    "Document 004's step has not been measured here yet: `python -m multigpu measure --grid document_004` does, on a machine with GPUs. "
    "What its links allow follows from its own figures and stands below"
)
WIDTH, HEIGHT = 4.2, 3.0


def _ms(seconds: float, low: float = math.nan, high: float = math.nan) -> str:
    return "not measured" if missing(seconds) else with_interval(f"{1000 * seconds:,.1f} ms", 1000 * low, 1000 * high, ",.1f")


def _bare(seconds: float) -> str:
    """As `_ms`, for a table whose note names the unit."""
    return _ms(seconds).removesuffix(" ms")


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
        f"linear speed remains{beside}; {rate_text(most['words_per_s'])} on {most['devices']} GPUs"
    )


def communication_finding(frame: pd.DataFrame) -> str | None:
    """What communication adds on two devices, and how much of it the backward pass hides on the most."""
    table = parts(frame).dropna(subset=["after_s", "during_s"])
    if table.empty:
        return None
    first, last = table.iloc[0], table.iloc[-1]
    hidden = "" if missing(last["hidden"]) else f"; during backward {percent_text(last['hidden'])} of it is hidden"
    return (
        f"On {int(first['devices'])} GPUs the step grows by {_ms(first['host_s'])} without any communication and by "
        f"**{_ms(first['after_s'])}** more when gradients are summed after the backward pass; on {int(last['devices'])} by "
        f"{_ms(last['host_s'])} and {_ms(last['after_s'])}{hidden}"
    )


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
    """Compute, host and exposed communication by number of devices."""
    rows = [
        {
            "GPUs": f"{int(row['devices'])}",
            "one GPU alone": _bare(row["one_s"]),
            "shared host adds": _bare(row["host_s"]),
            "all-reduce after backward adds": _bare(row["after_s"]),
            "all-reduce during backward adds": _bare(row["during_s"]),
            "hidden": "–" if missing(row["hidden"]) else percent_text(row["hidden"]),
        }
        for _, row in parts(frame).iterrows()
    ]
    data = pd.DataFrame(rows)
    note = (
        "ms, differences of pooled steps; hidden: of what all-reduce after backward adds. Without Records of all three ways a part is "
        "not known."
        if rows
        else NOTHING
    )
    return table_html(data, "What a step is made of" if rows else "", note, [str(name) for name in data if name != "GPUs"])


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
    """Step time against the number of GPUs, a line a way, the document's beside it; and, where measured, against the size of bucket."""
    table, sizes = steps(frame), buckets(frame)
    document = load_published("004_step_times")
    panels = ["Step time over that of one GPU", *(["Step time by size of bucket"] if len(sizes) else [])]
    with mpl.rc_context(RC):
        finding = _steps_headline(table)
        names = ["document 004"]
        picture, axes = grid_of_axes(len(panels), finding, WIDTH, HEIGHT, 2, margin_for(names), names=panels)
        ax, ends = axes[0], []
        name_panel(ax, panels[0])
        for placement, line in table.groupby("placement", sort=False):
            way = look(str(placement))
            x, y = line["devices"].to_numpy(float), line["step_s"].to_numpy(float)
            if x[0] != 1:
                continue  # without one GPU nothing to compare with
            ax.plot(x, y / y[0], marker=way.marker, color=way.colour, markersize=4, clip_on=False)
            ends.append((x[-1], y[-1] / y[0], WAY_WORDS[str(placement)], way.colour))
        x, y = document["gpus"].to_numpy(float), document["step_time_ms"].to_numpy(float)
        y = y / y[0]
        ax.plot(x, y, marker="D", color=INK, markersize=4, linestyle=(0, (3, 2)), clip_on=False)
        ends.append((x[-1], y[-1], "document 004", INK))
        ax.set_xlim(1, float(x[-1]))
        ax.set_ylim(0.95, 1.1 * float(y.max()))
        ax.set_xticks([1, 2, 4, 8, 12, 16])
        ax.minorticks_off()
        ax.set_xlabel("GPUs, weak scaling")
        ax.set_ylabel("times one GPU's step")
        label_ends(ax, ends, HEIGHT)
        if len(sizes):
            ax, ends = axes[1], []
            name_panel(ax, panels[1])
            for devices, line in sizes.groupby("devices"):
                x, y = line["bucket_mib"].to_numpy(float), 1000 * line["step_s"].to_numpy(float)
                ax.plot(x, y, marker="o", color=look("ddp").colour, markersize=4, clip_on=False)
                ends.append((x[-1], y[-1], f"{devices} GPUs", look("ddp").colour))
            counts_axis(ax, sorted(set(sizes["bucket_mib"])), "MiB of gradients in a bucket")
            ax.set_ylim(0, None)
            ax.set_ylabel("ms")
            label_lines(ax, ends, HEIGHT)
    machines = joined(sorted(set(frame.loc[frame["key"].isin(joined_keys(table)), "machine"])))
    picture.caption = (
        f"Document 004's model, {BATCH} pairs of {LENGTH} words a GPU, fp32, launched call by call; weak scaling. Each way over its own "
        "step on one GPU. Dashed: the document, V100, four a machine; from 8 on across machines. "
        + (f"{_measured(table, sizes)} {machines}." if machines else "Nothing measured here yet.")
    )
    picture.data = table
    picture.alt = "Step time against GPUs. " + "; ".join(
        f"{WAY_WORDS[str(row['placement'])]} on {int(row['devices'])}: {1000 * row['step_s']:.1f} ms" for _, row in table.iterrows()
    )
    return picture if len(table) else message(NOTHING.replace("`", ""))


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
