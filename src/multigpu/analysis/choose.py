"""Advice computed from Records: the fastest way of each job, whether one GPU wins, what is not told from it, and the distance to bounds."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import pandas as pd

from multigpu.analysis.causes import first_like
from multigpu.analysis.findings import line_name, panels
from multigpu.analysis.limits import BINDINGS, bounds, point_bound
from multigpu.analysis.metrics import Key, job_of, scaling_table
from multigpu.analysis.ordinary import of_today
from multigpu.analysis.picture import Shown, folded, together
from multigpu.analysis.style import look
from multigpu.analysis.tables import table_html, tables_by
from multigpu.analysis.ways import ratio_of
from multigpu.analysis.wording import (
    MODEL_NAMES,
    UNIT_NAMES,
    decimals,
    describe,
    joined,
    missing,
    percent_text,
    plural,
    rate_text,
    ratio_text,
    scaled,
    telling,
)
from multigpu.grid import device_counts

WANTED = 8
"""GPUs up to which the documents measured, and so this study's grids go."""
WORKLOAD_NAMES = {"nmt": "translation", "cnn": "image models", "deepconn": "reviews", "stacks": "layers by themselves"}
JOB_FIELDS = ("batch_size", "input_label", "sequence_length", "precision", "optimizer")
"""What tells a model's jobs apart, as far as it does; "a GPU" and "in all" tell scaling."""
WAY_FIELDS = (
    *("model_parallel", "micro_batches", "cross_entropy", "bucket_mib", "bucket_update", "bucket_send", "all_reduce_spec", "wire_dtype"),
    *("loss_scale", "recurrence", "embedding_gradients", "stage_devices"),
)
"""What a way of training has or has not; a field that is empty says nothing."""
FORM = ("framework", "execution")
"""What a rate on several devices must share with the one on a single device beside which it says what devices add."""
WINS, LEVEL, UNTRIED = "wins", "level", "untried"
"""Of a job that is fastest on one device: several in the same form are slower; intervals do not tell; that form was tried on one alone."""
MOST_EQUALS = 2
"""Ways that a cell names of those that are not told from the fastest."""
OVER = "over one GPU in this form"


def overlaps(best: Any, row: Any) -> bool:
    """Whether intervals of rates do not tell a point from the best one; one measured once is a point."""
    low = best["rate"] if missing(best["rate_low"]) else best["rate_low"]
    high = row["rate"] if missing(row["rate_high"]) else row["rate_high"]
    return bool(high >= low)


def jobs(table: pd.DataFrame) -> Iterator[tuple[str, pd.DataFrame]]:
    """Each job that was measured on several devices and in which there is a choice, with its name and its points in every way and on
    every number of devices.

    A job is the model, the batch of a device or of all, input and precision. What one device does is the same job under weak and strong
    scaling; on several devices independent replicas train no one model and are left out.
    """
    table = table[table["n"].gt(0) & (table["placement"].ne("independent") | table["devices"].eq(1))].reset_index(drop=True)
    alone: dict[Key, list[int]] = {}
    alike: dict[Key, list[int]] = {}
    for index, (_, row) in enumerate(table.iterrows()):
        if row["devices"] == 1:
            alone.setdefault(job_of(row), []).append(index)
        else:
            alike.setdefault((*job_of(row), row["scaling"]), []).append(index)
    firsts = table.iloc[[of[0] for of in alike.values()]]
    fields = telling(firsts, JOB_FIELDS) if len(firsts) else {}
    models = [*MODEL_NAMES, *sorted(set(firsts["model"]) - set(MODEL_NAMES))]

    def order(item: tuple[Key, list[int]]) -> tuple[int, int]:
        row = table.iloc[item[1][0]]
        return models.index(row["model"]), int(row["batch_size"])

    for (*job, _), of in sorted(alike.items(), key=order):
        row = table.iloc[of[0]]
        every = [*alone.get(tuple(job), []), *of]
        usual = "input_label" if row["input_label"] == "synthetic" else ""
        told = [field for field in fields[row["model"]] if field not in ("model", "batch_size", usual)]
        if len(every) > 1:
            yield describe(row, ["model", "batch_size", *told]), table.iloc[every]


def way_text(row: Any, rows: pd.DataFrame) -> str:
    """How a point was trained: placement, framework if it is not PyTorch, form of execution, and what else is not the library's own way.

    rows: of the same job; how pixels lie is said where it differs among them.
    """
    several = rows.loc[rows["framework"].eq(row["framework"]), "framework_version"].nunique() > 1
    version = ["framework_version"] if several else ["framework"] if row["framework"] != "torch" else []
    process = ["processes"] if row["framework"] == "torch" and row["processes"] == "one" and row["devices"] > 1 else []
    varied = [field for field in ("layout", "batch_norm") if rows[field].nunique(dropna=False) > 1]
    told = describe(row, [*version, "execution", *process, *varied, *WAY_FIELDS])
    return f"{look(row['placement']).label}, {told.replace('channels first', 'NCHW').replace('channels last', 'NHWC')}"


def advice(frame: pd.DataFrame) -> pd.DataFrame:
    """The fastest way of each job on each number of devices: every placement, framework and form of execution, however often measured.

    Returns:
        workload, model, job, devices, best (whether this is the fastest on any number of devices), way, once (measured once), rate,
        rate_low, rate_high, unit, over_own (and bounds: over the best single device in the same FORM; NaN without any), ceiling_ratio (and
        bounds), single and single_rate (the best single device), single_alone (whether its FORM was tried on one device alone), alone (of
        a best on one device: WINS, LEVEL or UNTRIED), several and several_rate (the fastest on several devices), equals (ways on as many
        devices that are not told from it, each with its share of the rate), slowest (that is told from it, or "") and its share.
    """
    frame = of_today(frame)
    table = scaling_table(frame)
    kept = ["rate", "rate_low", "rate_high", "unit", "single_rate", *(f"ceiling_ratio{end}" for end in ("", "_low", "_high"))]
    table = table.rename(columns={"best_single_rate": "single_rate"})
    found = []
    for name, rows in jobs(table):
        rows = rows.sort_values("rate", ascending=False)
        ones, more = rows[rows["devices"] == 1], rows[rows["devices"] > 1]
        single, tried = ones.head(1), set(more[list(FORM)].itertuples(index=False, name=None))
        untried = len(single) > 0 and tuple(single.iloc[0][list(FORM)]) not in tried
        for devices, group in rows.groupby("devices", sort=True):
            best = group.iloc[0]
            others = [(other, overlaps(best, other)) for _, other in group.iloc[1:].iterrows()]
            slower = [other for other, same in others if not same]
            first = best.name == rows.index[0]
            alone = (UNTRIED if untried else LEVEL if overlaps(best, more.iloc[0]) else WINS) if first and devices == 1 else ""
            over = ratio_of(frame, best, first_like(ones, {name: best[name] for name in FORM}))
            found.append(
                {"workload": str(best["workload"]), "model": str(best["model"]), "job": name, "devices": int(str(devices))}
                | {"best": first, "way": way_text(best, rows), "once": best["n"] == 1, "alone": alone}
                | {column: best[column] for column in kept}
                | {"over_own": over[0], "over_own_low": over[1].low, "over_own_high": over[1].high}
                | {"single": way_text(single.iloc[0], rows) if len(single) else "", "single_alone": untried}
                | {"several": f"{way_text(more.iloc[0], rows)} on {more.iloc[0]['devices']} GPUs", "several_rate": more.iloc[0]["rate"]}
                | {"equals": [f"{way_text(other, rows)} ({percent_text(other['rate'] / best['rate'])})" for other, same in others if same]}
                | {"slowest": way_text(slower[-1], rows) if slower else ""}
                | {"slowest_share": slower[-1]["rate"] / best["rate"] if slower else math.nan}
            )
    return pd.DataFrame(found)


def advice_sentence(frame: pd.DataFrame) -> str | None:
    """In how many jobs that several devices were tried on one device alone is fastest, in how many that is not known, and of which models;
    None without any job.
    """
    table = advice(frame)
    if table.empty:
        return None
    best = table[table["best"]]
    of = {why: best[best["alone"] == why] for why in (WINS, LEVEL, UNTRIED)}
    models = {why: "; ".join(MODEL_NAMES.get(name, name) for name in dict.fromkeys(own["model"])) for why, own in of.items()}
    wins = f"**In {len(of[WINS])} of them one GPU alone is fastest**: {models[WINS]}." if len(of[WINS]) else ""
    wins = wins or "In none of them one GPU alone is known to be fastest."
    if len(of[LEVEL]):
        wins += f" In {len(of[LEVEL])} intervals do not tell one GPU from several: {models[LEVEL]}."
    if len(of[UNTRIED]):
        none = "the fastest form was measured on one GPU alone, so nothing says which number wins"
        wins += f" In {len(of[UNTRIED])} {none}: {models[UNTRIED]}."
    once = int(best["once"].sum())
    marked = f" The fastest of {once} {'was' if once == 1 else 'were'} measured once, as marked." if once else ""
    return f"{plural(len(best), 'job')} (a model, batch, input and precision) ran on several GPUs. {wins}{marked}"


def advice_table(frame: pd.DataFrame) -> Shown:
    """`advice` in words: a table a workload with the fastest way of every job, and folded a table a workload on each number of devices."""
    table = advice(frame)
    if table.empty:
        return table_html(table, note="No job has a Record on several GPUs yet.")
    factors = {str(name): scaled(rates.max())[0] for name, rates in table.groupby("workload")["rate"]}
    rows = [
        {
            "workload": _heading(row, factors[row["workload"]]),
            "job": row["job"],
            "GPUs": str(row["devices"]),
            "fastest": _fastest_cell(row, factors[row["workload"]]),
            "rate": _rate(row["rate"], factors[row["workload"]]) + (" (once)" if row["once"] else ""),
            "best single GPU": _single_cell(row, factors[row["workload"]]),
            OVER: _times(row),
            "share of independent replicas": _ceiling_cell(row),
            "not told from it": _first(row["equals"]),
            "slowest told from it": f"{row['slowest']}: {percent_text(row['slowest_share'])}" if row["slowest"] else "–",
        }
        for _, row in table.iterrows()
    ]
    every = pd.DataFrame(rows)
    note = (
        "Fastest: of every placement, framework (PyTorch where none is named), form of execution, loss, bucket and number of GPUs "
        "measured; “(once)”: one repeat, no interval. Batches of a GPU grow with the GPUs, those in all do not. Over one GPU in this form: "
        "over the best single GPU of the same framework and form of execution; “–” where that form was measured on one GPU alone, or on "
        "several alone. †: the best single GPU's form was measured on one GPU alone. Behind “or”: ways on as many GPUs whose intervals "
        "overlap, with their share of the rate; of many the first."
    )
    also = ["" if equals == "–" else f"; or {equals}" for equals in every["not told from it"]]
    best = every.assign(fastest=every["fastest"] + also)[table["best"]]
    best[OVER] = [_times(row, interval=False) for _, row in table[table["best"]].iterrows()]
    best = best.drop(columns=["share of independent replicas", "not told from it", "slowest told from it"])
    shown = tables_by(best, "workload", note, ["GPUs", "rate", OVER], ["job", "fastest", "best single GPU"])
    further = (
        "Over one GPU in this form: with a 95% interval where both were repeated. Share of independent replicas: of those done in the same "
        "way on as many GPUs. The slowest's share is of the fastest's rate; “–” where intervals tell none from the fastest."
    )
    rest = tables_by(
        every.drop(columns=["best single GPU"]),
        "workload",
        further,
        ["GPUs", "rate", OVER],
        ["job", "fastest", "not told from it", "slowest told from it"],
    )
    summary = f"{plural(len(best), 'job')} on every number of GPUs, with the slowest way"
    return together(shown, folded(summary, rest))


def _first(names: Sequence[str]) -> str:
    """The first names and how many more, parted by semicolons since names hold commas."""
    further = [f"{len(names) - MOST_EQUALS} further"] if len(names) > MOST_EQUALS else []
    return "; ".join([*names[:MOST_EQUALS], *further]) or "–"


def _fastest_cell(row: Any, factor: float) -> str:
    """The way, and of a job that is fastest on one device whether several were shown to be slower."""
    if row["alone"] == UNTRIED:
        other = f"{row['several']}: {_rate(row['several_rate'], factor)}"
        return f"{row['way']} (this form was measured on one GPU alone; fastest on several: {other})"
    return {WINS: "one GPU wins: ", LEVEL: "one GPU, not told from several: "}.get(row["alone"], "") + row["way"]


def _single_cell(row: Any, factor: float) -> str:
    """The way behind the best single device, unless it is the row's own."""
    if not row["single"]:
        return "not measured"
    if row["devices"] == 1:
        return "the same"
    return f"{_beside(row['single'], row['way'])}: {_rate(row['single_rate'], factor)}{'†' if row['single_alone'] else ''}"


def _beside(single: str, way: str) -> str:
    """A way beside another one of the same row: what it has in common is not said again where it differs in one thing."""
    own, other = single.split(", "), way.split(", ")
    added, lost = [part for part in own if part not in other], [part for part in other if part not in own]
    if not added and not lost:
        return "the same way"
    if len(added) == 1 and len(lost) <= 1:
        return f"the same, {'but' if lost else 'with'} {added[0]}"
    return single


def _heading(row: Any, factor: float) -> str:
    """A workload's name and the unit of its table: one for all rows, since a click on a heading sorts by the first number."""
    return f"{WORKLOAD_NAMES.get(row['workload'], row['workload'])},{scaled(factor)[1]} {UNIT_NAMES[row['unit']]}"


def _rate(rate: float, factor: float) -> str:
    """A rate in the table's unit, to three digits."""
    if missing(rate):
        return "not measured"
    return rate_text(rate, unit="words").split(" ")[0] if factor == 1 else f"{rate / factor:.{max(2, decimals(rate / factor))}f}"


def _times(row: Any, interval: bool = True) -> str:
    """The rate over a single GPU's in the same form, with its interval unless told otherwise, without the word that its heading says."""
    if missing(row["over_own"]) or row["alone"] == UNTRIED:
        return "–"
    bounds_of = (row["over_own_low"], row["over_own_high"]) if interval else ()
    return ratio_text(row["over_own"], *bounds_of).replace(" times", "")


def _ceiling_cell(row: Any) -> str:
    """The share of the ceiling with its interval, or that no independent replicas were measured so."""
    known = not missing(row["ceiling_ratio"])
    return percent_text(row["ceiling_ratio"], row["ceiling_ratio_low"], row["ceiling_ratio_high"]) if known else "not measured"


def unmeasured_sentence(frame: pd.DataFrame, wanted: int = WANTED, grid: str = "headline") -> str | None:
    """On which of 1, 2, 4 ... `wanted` GPUs these Records have no point, and what measures there; None where they have all.

    Args:
        grid: whose command is named.
    """
    measured = frame[frame["status"].eq("ok") & frame["device_type"].eq("cuda")]
    lacking = [str(count) for count in device_counts(wanted) if count not in set(measured["devices"])]
    if not lacking:
        return None
    found = joined([str(count) for count in sorted(set(measured["devices"]))])
    has = f"these Records are of {found} {'GPU' if found == '1' else 'GPUs'}" if found else "no Record is of a GPU"
    command = f"python -m multigpu measure --grid {grid} --devices {','.join(lacking)}"
    return f"Nothing here says what {joined(lacking)} GPUs do: {has}. `{command}` measures the rest where there are as many."


def of_this_gpu(frame: pd.DataFrame, ours: pd.DataFrame) -> pd.DataFrame:
    """The rows of every machine with the kind of GPU that `ours` has: what one of them reaches does not depend on the others."""
    return frame[frame["gpu"].isin(set(ours["gpu"]))]


def bound_table(frame: pd.DataFrame) -> Shown:
    """Each job's fastest headline point on the most devices with its bound, what sets the bound, and the share of it that was reached; the
    other placements' points folded below. A table a workload: rows are sorted by a click.
    """
    frame = of_today(frame)
    table, limits = scaling_table(frame), bounds(frame)
    rows = []
    factors = {str(name): scaled(rates.max())[0] for name, rates in table.groupby("workload")["rate"]}
    for name, panel in panels(table[table["tier"] == "headline"]):
        most = panel[panel["devices"] == panel["devices"].max()].sort_values("rate", ascending=False)
        for place, (_, row) in enumerate(most.iterrows()):
            limit, binding, share = point_bound(limits, row)
            rows.append(
                {
                    "workload": _heading(row, factors[row["workload"]]),
                    "first": place == 0,
                    "job": name,
                    "GPUs": str(row["devices"]),
                    "placement": line_name(row, panel),
                    "rate": _rate(row["rate"], factors[row["workload"]]),
                    "bound": _rate(limit, factors[row["workload"]]),
                    "set by": BINDINGS.get(binding, "unknown"),
                    "reached": percent_text(share),
                }
            )
    if not rows:
        return table_html(pd.DataFrame(), note="No headline point yet.")
    every = pd.DataFrame(rows)
    figures, first = ["GPUs", "rate", "bound", "reached"], every["first"]
    shown = tables_by(every[first].drop(columns="first"), "workload", "", figures, ["job"])
    if first.all():
        return shown
    rest = tables_by(every[~first].drop(columns="first"), "workload", "", figures, ["job"])
    summary = f"{plural(int((~first).sum()), 'slower point')} of the same jobs"
    return together(shown, folded(summary, rest))
