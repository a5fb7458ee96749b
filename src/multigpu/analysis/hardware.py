"""Effects of hardware: every GPU beside its clocks, every pair beside its link, and pairs through the host."""

from __future__ import annotations

import math
from collections.abc import Iterable
from statistics import fmean

import numpy as np
import pandas as pd

from multigpu.analysis.picture import Shown
from multigpu.analysis.statistics import interval, sample
from multigpu.analysis.style import look
from multigpu.analysis.tables import table_html
from multigpu.analysis.wording import MODEL_NAMES, execution_text, missing, plural, unbroken
from multigpu.measure.ceilings import Ceilings
from multigpu.record import Record

NO_GPUS = "No Record tells two GPUs of one machine apart."


def _plain(record: Record, *allowed: str) -> bool:
    """Whether nothing but these fields sets this Run apart from the ordinary ones."""
    usual = {
        "workload",
        "model",
        "placement",
        "devices",
        "batch_size",
        "precision",
        "execution",
        "layout",
        "sequence_length",
        "cross_entropy",
    }
    usual |= {"warmup_steps", "timed_steps", "seed"}
    return (
        record.status == "ok"
        and record.measurement is not None
        and not set(record.run.model_dump(exclude_defaults=True)) - usual - {*allowed}
    )


GPU_COLUMNS = {
    **dict.fromkeys(("key", "launch", "machine", "model", "execution", "precision", "how"), "string"),
    **dict.fromkeys(("batch_size", "devices", "gpu"), "int64"),
    **dict.fromkeys(("units_per_s", "sm_clock_mhz", "memory_clock_mhz", "power_w", "temperature_c"), "float64"),
}


def gpu_frame(records: Iterable[Record]) -> pd.DataFrame:
    """A row a GPU and Record that tells one GPU's own rate, with clocks, power and temperature as found after the timed steps.

    how: "alone" (a Run on that GPU alone, which `device_ids` names), or "beside others" (independent replicas, each by its own events:
    they share the host).
    """
    rows = []
    for record in records:
        run, m = record.run, record.measurement
        if not _plain(record, "device_ids") or m is None or run.device_type != "cuda" or len(m.device_states) != run.devices:
            continue
        if run.placement != "independent" if run.devices > 1 else run.device_ids is None:
            continue
        units = np.array(run.shard_sizes) / sum(run.shard_sizes) * m.units
        for rank, state in enumerate(m.device_states):
            rows.append(
                {"key": record.key, "launch": record.launch_id, "machine": record.machine.name}
                | {"model": run.model, "execution": run.execution}
                | {"precision": run.precision, "how": "alone" if run.devices == 1 else "beside others", "batch_size": run.batch_size}
                | {"devices": run.devices, "gpu": run.chosen_devices[rank], "units_per_s": float(units[rank]) / m.event_time_s[rank]}
                | state.model_dump(exclude={"energy_j"})
            )
    return pd.DataFrame({name: pd.Series([row[name] for row in rows], dtype=dtype) for name, dtype in GPU_COLUMNS.items()})


def gpu_points(frame: pd.DataFrame) -> pd.DataFrame:
    """Repeats pooled, a row a GPU, job and `how`: means, n, and `share` of the first GPU's rate with `half` the width of its 95% interval.

    The interval is that of all ratios here (`analysis.statistics`): Student's t on logarithms, launches as units where they differ; NaN
    where either GPU was measured once, 0 of the first, whose share is 1. GPUs beside others are compared within each Record, so that what
    slows all of them falls out; one alone brings its own repeats' scatter and the first one's.

    Of GPUs beside others the Runs on most of them only; jobs that were measured on one GPU only are left out.
    """
    job = ["machine", "model", "batch_size", "precision", "execution", "how"]
    if frame.empty:
        return frame.assign(n=[], half=[], share=[])
    points = []
    for _, group in frame.groupby(job, sort=False):
        if group["gpu"].nunique() < 2:
            continue
        group = group[group["devices"] == group["devices"].max()]
        first = group[group["gpu"] == group["gpu"].min()]
        within = group["how"].iloc[0] == "beside others"
        rates = first.set_index("key")["units_per_s"]
        for gpu, own in group.groupby("gpu"):
            shares = own["units_per_s"] / (own["key"].map(rates) if within else rates.mean())
            compared = [(shares, own)] if within else [(own["units_per_s"], own), (first["units_per_s"], first)]
            width = interval([sample(values.tolist(), rows["launch"].tolist()) for values, rows in compared])
            half = 0.0 if gpu == group["gpu"].min() else shares.mean() * math.sinh(width)
            means = own[["units_per_s", "sm_clock_mhz", "memory_clock_mhz", "power_w", "temperature_c"]].mean()
            row = {field: group[field].iloc[0] for field in job} | {"gpu": gpu, "n": len(own), "half": half, "share": shares.mean()}
            points.append(row | means.to_dict())
    return pd.DataFrame(points)


def _job(row: pd.Series) -> str:
    return f"{MODEL_NAMES.get(row['model'], row['model'])}, batch {row['batch_size']}, {row['precision']}, {row['execution']}"


def gpu_table(points: pd.DataFrame) -> Shown:
    """Document 001's table for this machine, a row a job: every GPU's rate and memory clock, and what else NVML says."""
    if points.empty:
        return table_html(pd.DataFrame(), note=NO_GPUS)
    clocks = points["memory_clock_mhz"].round()
    several = clocks.nunique() > 1  # then every share says its clock
    rows = []
    for _, job in points.groupby(["machine", "how", "model", "batch_size", "precision", "execution"], sort=True):
        first = job.sort_values("gpu").iloc[0]
        shares = {f"GPU {row['gpu']} (%)": _share(row, several) for _, row in job.sort_values("gpu").iloc[1:].iterrows()}
        rows.append(
            {
                "machine": first["machine"],
                "job": unbroken(*_job(first).split(", ", 1)),
                "measured": first["how"],
                f"GPU {first['gpu']} (units/s)": _first(first, several),
                **shares,
            }
            | {"SM clock (MHz)": _least_to_most(job["sm_clock_mhz"]), "power (W)": _least_to_most(job["power_w"])}
            | {"temperature (°C)": _least_to_most(job["temperature_c"]), "n": _least_to_most(job["n"])}
        )
    data = pd.DataFrame(rows).fillna("–")
    told = ["SM clock (MHz)", "power (W)", "temperature (°C)", "n"]
    gpus = sorted((str(name) for name in data if str(name).startswith("GPU ")), key=lambda name: int(name.split()[1]))
    data = data[["machine", "job", "measured", *gpus, *told]]
    note = (
        "Rates of the other GPUs are in percent of the first one's. Clocks, power and temperature as found just after the timed steps, "
        "least to most over GPUs, never set. ±: half the width of the 95% interval, none where a GPU was measured once. Beside others: "
        "shares within each Record." + ("" if several else f" Every GPU: a memory clock of {clocks.iloc[0]:,.0f} MHz.")
    )
    return table_html(data, right=[*gpus, *told], note=note, wide=["job"])


def _share(row: pd.Series, with_clock: bool) -> str:
    half = "" if missing(row["half"]) else f" ± {100 * row['half']:.2f}"
    return f"{100 * row['share']:.2f}{half}" + (f" at {row['memory_clock_mhz']:,.0f} MHz" if with_clock else "")


def _first(row: pd.Series, with_clock: bool) -> str:
    return f"{row['units_per_s']:,.0f}" + (f" at {row['memory_clock_mhz']:,.0f} MHz" if with_clock else "")


def _least_to_most(values: pd.Series) -> str:
    low, high = f"{values.min():,.0f}", f"{values.max():,.0f}"
    return low if low == high else f"{low} to {high}"


HOSTLESS = ("captured", "compiled_captured")
"""Executions whose steps, one CUDA graph each, wait for no host: what such GPUs differ by is the GPUs' own."""


def gpu_finding(points: pd.DataFrame) -> str:
    """How far GPUs are apart by steps that wait for no host, and whether their clocks differ."""
    if points.empty:
        return NO_GPUS
    own = points[points["execution"].isin(HOSTLESS)]
    apart = _apart(own if len(own) else points)
    clocks = sorted(set(points["memory_clock_mhz"].round().astype(int)))
    told = f"all at a memory clock of {clocks[0]:,} MHz" if len(clocks) == 1 else f"at memory clocks of {clocks[0]:,} to {clocks[-1]:,} MHz"
    if own.empty:
        return f"{'; '.join(apart)}: {told}. All these steps wait for their host, so what they differ by need not be the GPUs'."
    return f"By steps that wait for no host, {'; '.join(apart)}: {told}."


def host_bound_finding(points: pd.DataFrame) -> str:
    """How far GPUs are apart by steps that wait for their host, no finding about GPUs; "" where `gpu_finding` tells them."""
    rest = points[~points["execution"].isin(HOSTLESS)] if len(points) else points
    if rest.empty or len(rest) == len(points):
        return ""
    return f"Steps that wait for their host say more of the host than of GPUs: {'; '.join(_apart(rest))}."


def _apart(points: pd.DataFrame) -> list[str]:
    """Of each way of measuring and execution: how many GPUs, how far apart at most, in which job and of how many repeats."""
    said = []
    for (how, execution), group in points.groupby(["how", "execution"], sort=True):
        jobs = group.groupby(["machine", "model", "batch_size", "precision"])
        spread = jobs.agg(
            apart=("share", lambda shares: shares.max() / shares.min() - 1), n=("n", "min"), gpus=("gpu", "nunique")
        ).reset_index()
        worst = spread.sort_values("apart").iloc[-1]
        once = "once" if worst["n"] == 1 else f"n = {worst['n']}"
        said.append(
            f"{plural(int(spread['gpus'].max()), 'GPU')} {how}, {execution_text(execution)}, are at most {100 * worst['apart']:.1f}% apart "
            f"({MODEL_NAMES.get(worst['model'], worst['model'])}, batch {worst['batch_size']}, {once}; {plural(len(spread), 'job')})"
        )
    return said


PAIR_COLUMNS = {
    **dict.fromkeys(("machine", "model", "placement", "execution", "precision", "pair", "peer"), "string"),
    **dict.fromkeys(("batch_size", "n"), "int64"),
    **dict.fromkeys(("units_per_s", "low", "high"), "float64"),
}


def pair_points(records: Iterable[Record]) -> pd.DataFrame:
    """Runs on a named pair of GPUs, repeats pooled; peer: "on", or "off" where NCCL went through the host's memory."""
    known: dict[tuple[object, ...], list[float]] = {}
    for record in records:
        run, m = record.run, record.measurement
        if run.device_ids is None or run.devices != 2 or not _plain(record, "device_ids", "peer_access") or m is None:
            continue
        name = (record.machine.name, run.model, run.placement, run.execution, run.precision, run.device_ids, run.peer_access or "on")
        known.setdefault((*name, run.batch_size), []).append(m.units / m.wall_s)
    rows = [
        (*name, len(rates), len(rates) / sum(1 / r for r in rates), min(rates), max(rates))
        for name, rates in sorted(known.items(), key=str)
    ]
    return pd.DataFrame(rows, columns=list(PAIR_COLUMNS)).astype(PAIR_COLUMNS)


def peer_table(points: pd.DataFrame) -> Shown:
    """Pairs with peer access and without, a row a placement and machine: a stand-in for pairs on one and on two sides of a switch. A ratio
    is of one machine alone.
    """
    rows = []
    job = ["machine", "model", "placement", "execution", "batch_size"]
    for (machine, model, placement, execution, batch), group in points.groupby(job, sort=False):
        direct, around = (group[group["peer"] == peer] for peer in ("on", "off"))
        pairs = sorted(set(around["pair"])) or sorted(set(direct["pair"]))[:3]
        cells = {f"GPUs {pair}": _rate(direct, pair) for pair in pairs}
        both = [pair for pair in pairs if pair in set(direct["pair"]) and pair in set(around["pair"])]
        times = [_value(direct, pair) / _value(around, pair) for pair in both]
        rows.append(
            {
                "machine": machine,
                "model": f"{MODEL_NAMES.get(str(model), str(model))}, batch {batch}",
                "placement": look(str(placement)).label,
                "execution": execution,
                **cells,
            }
            | {f"{pair} through the host": _rate(around, pair) for pair in pairs}
            | {"direct over through the host": f"{fmean(times):.2f}x" if times else "–", "n": _least_to_most(group["n"])}
        )
    note = "images/s on two GPUs. Through the host: NCCL_P2P_DISABLE=1, which NCCL alone heeds; a stand-in, not a switch. "
    note += "n: repeats of each side, least to most; a ratio has no interval, and none where its machine measured one side alone."
    missing_note = "No Run on a named pair of GPUs yet: `python -m multigpu measure --grid hardware` measures them."
    return table_html(pd.DataFrame(rows).fillna("–") if rows else pd.DataFrame(), note=note if rows else missing_note)


def _value(rows: pd.DataFrame, pair: str) -> float:
    found = rows[rows["pair"] == pair]["units_per_s"]
    return float(found.iloc[0]) if len(found) else math.nan


def _rate(rows: pd.DataFrame, pair: str) -> str:
    value = _value(rows, pair)
    return "–" if math.isnan(value) else f"{value:,.0f}"


def pair_finding(points: pd.DataFrame, ceilings: Ceilings | None) -> str:
    """How far pairs are apart, in bandwidth and in training."""
    said = []
    if ceilings and len(ceilings.links) > 1:
        values = [value for i, row in enumerate(ceilings.links) for j, value in enumerate(row) if i != j]
        said.append(f"one-way bandwidth between pairs is {min(values) / 1e9:,.0f} to {max(values) / 1e9:,.0f} GB/s")
    direct = points[points["peer"] == "on"]
    for (model, placement), group in direct.groupby(["model", "placement"], sort=False):
        if group["pair"].nunique() > 1:
            apart = group["units_per_s"].max() / group["units_per_s"].min() - 1
            said.append(f"{MODEL_NAMES.get(str(model), str(model))} under {placement} is at most {100 * apart:.1f}% apart between pairs")
    if direct.empty:
        said.append("training on named pairs has not been measured yet")
    elif direct["pair"].nunique() == 1:
        said.append("training was measured on one pair alone")
    elif not said:
        said.append("no placement has been measured on two pairs")
    return (said[0][:1].upper() + "; ".join(said)[1:]) + "."
