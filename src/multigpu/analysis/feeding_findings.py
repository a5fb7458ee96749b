"""Whether the host can feed the devices, in sentences: how far JPEG files fall behind, what sets the pace, and where workers give out."""

from __future__ import annotations

import math

import pandas as pd

from multigpu.analysis.feeding import EQUAL, JOB, around, crossing_text, job_text, knee, sweeps, swept_text
from multigpu.analysis.feeding_ahead import ahead_finding, repeats_differ
from multigpu.analysis.wording import MODEL_NAMES, joined, percent_text, plural, ratio_text

WAITING = 0.1
"""Of what a fed step is longer: a process that waits for less than this share of it has its batches in time."""


def best_fed(points: pd.DataFrame) -> pd.DataFrame:
    """Of each job that was measured on the device's own images too, its fastest way of being fed with JPEG files."""
    files = points[(points["inputs"] == "jpeg_folder") & points["share"].notna()]
    return files.loc[[rows["sustained_per_s"].idxmax() for _, rows in files.groupby(list(JOB), dropna=False, sort=False)]]


GRAPHS = ("captured",)
"""Executions whose steps wait for no host: one CUDA graph a step."""


EXECUTIONS = {"graph": "as TensorFlow's graph"}


def _whether(best: pd.DataFrame, noise: float) -> list[str]:
    """Yes or no, by the jobs whose step is one CUDA graph where there are any; and what the others say, whose pace is their host's too."""
    graph, launched = best[best["execution"].isin(GRAPHS)], best[~best["execution"].isin(GRAPHS)]
    if graph.empty:
        return [_answered(best, "")]
    said = [_answered(graph, ", each step one CUDA graph,")]
    if len(launched):
        several, once = _extent(launched["share"]), int(launched["n"].eq(1).sum())
        forms = [
            f"{len(own)} {EXECUTIONS.get(str(name), name)}: {_extent(own['share'])}"
            for name, own in launched.groupby("execution", sort=True)
        ]
        of_each = f" ({'; '.join(forms)})" if len(forms) > 1 else ""
        jobs = f"{plural(len(launched), 'further job')}, whose steps the host launches too, reach{'es' * (len(launched) == 1)}"
        said.append(
            f"{jobs} {several}{of_each}, {once} of them measured once. Such steps wander with their host: without feeding, repeats of one "
            f"job differ by up to {ratio_text(noise)}."
        )
    return said


def _answered(best: pd.DataFrame, form: str) -> str:
    """Yes or no, of these jobs."""
    equal, slower = best[best["share"] >= EQUAL], best.loc[best["share"] < EQUAL, "share"]
    answer, reach = ("Yes", "all reach") if slower.empty else ("No", "none reaches") if equal.empty else ("In part", f"{len(equal)} reach")
    reach += "es" if answer == "In part" and len(equal) == 1 else ""
    said = (
        f"**{answer}**: of {plural(len(best), 'job')} fed with JPEG files{form} {reach} {EQUAL:.0%} of the rate that the same job has on "
        "images that stay on its devices"
    )
    if slower.empty:
        return f"{said}."
    return f"{said}; {'the others reach' if len(equal) else 'at best they reach'} {_extent(slower)}."


def host_finding(points: pd.DataFrame) -> str:
    """Where the host gives out: how many workers a GPU bring nothing more, and how many its captured steps need; "" without a sweep.

    A worker's rate is the one before the bend of a sweep, where cores are left.
    """
    found = [(row, knee(rows["input_workers"].tolist(), rows["sustained_per_s"].tolist())) for row, rows in sweeps(points)]
    if not found:
        return ""
    bends = [bend.workers for _, bend in found if not math.isinf(bend.ceiling)]
    said, count = "**Where the host gives out**", plural(len(found), "sweep")
    if bends:
        forms = joined(sorted({str(row["execution"]) for row, _ in found}))
        said += f": beyond {_between(bends, 1)} workers a GPU more bring nothing in {len(bends)} of {count}, all of {forms} steps"
    else:
        said += f" lies beyond the workers that were tried, in {count}"
    same = [name for name in JOB if name not in ("machine", "execution", "devices")]
    held = points[points["inputs"].eq("synthetic") & points["execution"].isin(GRAPHS)]
    swept = pd.DataFrame([row[same].to_dict() | {"made": bend.per_worker / row["devices"]} for row, bend in found])
    for job, rows in swept.groupby(same, dropna=False, sort=False):
        own = held[[tuple(map(str, row)) == tuple(map(str, job)) for row in held[same].itertuples(index=False)]]
        if own.empty:
            continue
        rate, made = float((own["sustained_per_s"] / own["devices"]).max()), rows["made"].tolist()
        named = rows.iloc[0]
        said += (
            f". The {rate:,.0f} images/s of a GPU whose step is one CUDA graph ({MODEL_NAMES.get(named['model'], named['model'])}, "
            f"batch {named['batch_size']}) take {_between([math.ceil(rate / most) for most in made], 0)} workers, each of which makes "
            f"{_between(made, 0)}"
        )
    return f"{said}."


def _between(values: list[float] | list[int], digits: int) -> str:
    least, most = f"{min(values):,.{digits}f}", f"{max(values):,.{digits}f}"
    return least if least == most else f"{least} to {most}"


def _told(row: pd.Series) -> str:
    """A job's share, and by how much its step is longer."""
    whole = row["sustained_per_s"] / row["share"]
    spread = f"n = {row['n']}, {percent_text(row['low'] / whole)} to {percent_text(row['high'] / whole)}"
    return (
        f"{percent_text(row['share'])} in {job_text(row)} ({'measured once' if row['n'] == 1 else spread}; "
        f"{1e3 * row['longer_s']:.1f} ms longer)"
    )


def _list(rows: pd.DataFrame) -> str:
    return f"Of the rate on images that stay on the device: {'; '.join(_told(row) for _, row in rows.iterrows())}."


def _paces(best: pd.DataFrame) -> list[str]:
    """What sets the pace of the jobs that fall behind: what makes their batches, or something else."""
    behind = best[(best["share"] < EQUAL) & best["wait_s"].notna() & best["longer_s"].gt(0)]
    late = behind["wait_s"] > WAITING * behind["longer_s"]
    said = []
    if late.any():
        own = behind[late]
        wait = f"{1e3 * own['wait_s'].min():.1f}" + (f" to {1e3 * own['wait_s'].max():.1f}" if len(own) > 1 else "")
        said.append(
            f"**Batches come late**. {_list(own)} The process waits {wait} ms a step for its batch, so workers set the pace. Most of such "
            "a wait is no loss, since the GPU meanwhile computes steps launched before: feeding costs what the step is longer."
        )
    if not late.all():
        own = behind[~late]
        said.append(
            f"**Batches are there in time, and steps are longer**. {_list(own)} The process waits at most "
            f"{1e3 * own['wait_s'].max():.1f} ms a step for its batch, so something other than workers sets the pace: the host, whose "
            "cores they share, may launch kernels later, or the GPU may wait for a copy under way. Only a trace tells which."
        )
    return said


def _copying(points: pd.DataFrame) -> list[str]:
    """What copying alone costs, of images that lie in the host's memory: where the step is one graph, and where the host launches it."""
    held = points[(points["inputs"] == "synthetic_host") & points["share"].notna()]
    best = held.loc[[rows["sustained_per_s"].idxmax() for _, rows in held.groupby(list(JOB), dropna=False, sort=False)]]
    forms = {name: best[best["execution"].eq(name)] for name in ("captured", "eager")}
    shares = {name: own["share"] for name, own in forms.items()}
    if shares["captured"].empty or shares["eager"].empty:
        return []
    reach = {name: _extent(own) for name, own in shares.items()}
    jobs = {name: plural(len(own), "job") + ", measured once" * bool(own["n"].eq(1).all()) for name, own in forms.items()}
    weighed = "the copy is cheap" if shares["captured"].min() >= EQUAL else "the copy itself costs"
    if shares["eager"].min() < EQUAL <= shares["captured"].min():
        weighed += ", so what eager steps lose beyond that is their host's, which launches their kernels too"
    return [
        f"**Copying alone**. Images from the host's memory reach {reach['captured']} of that rate where the step is one CUDA graph "
        f"({jobs['captured']}), {reach['eager']} where it is eager ({jobs['eager']}): {weighed}."
    ]


def _extent(shares: pd.Series) -> str:
    least, most = percent_text(shares.min()), percent_text(shares.max())
    return least if least == most else f"{least} to {most}"


NO_LINE = {"execution": "how a step is executed", "crossing": "what crosses to the GPU", "batch_size": "the batch"}
"""What jobs of one line have in common, in words."""


def _no_line(best: pd.DataFrame) -> list[str]:
    """Which jobs of one model on several numbers of devices differ in more than devices."""
    said = []
    for (model, _), rows in best.groupby(["model", "framework"], sort=False):
        ordered = rows.sort_values("devices").assign(crossing=[crossing_text(row) for _, row in rows.sort_values("devices").iterrows()])
        differ = {name: text for name, text in NO_LINE.items() if ordered[name].nunique() > 1}
        if rows["devices"].nunique() == 1 or not differ:
            continue
        said.append(
            f"These jobs of {MODEL_NAMES.get(str(model), str(model))} are no scaling line: they differ in "
            f"{joined(list(differ.values()))} too."
        )
    return said


def knee_findings(points: pd.DataFrame) -> list[str]:
    """What a worker makes in each sweep, and where the fitted bend lies."""
    said = []
    for row, rows in sweeps(points):
        workers = [int(count) for count in rows["input_workers"]]
        found = knee(workers, rows["sustained_per_s"].tolist())
        each = f"{swept_text(row)}: a worker makes {found.per_worker / row['devices']:,.0f} images/s"
        beside = around(workers, found)
        if math.isinf(found.ceiling) or beside is None:
            said.append(f"{each} and rates still rise at {max(workers)} a device: the host does not give out before.")
            continue
        once = ", each measured once" if rows["n"].eq(1).all() else ""
        said.append(
            f"{each}; beyond about {found.workers:.1f} a device more of them bring nothing. That bend is a fit to "
            f"{plural(len(rows), 'point')}{once}: it lies between the measured {beside[0]} and {beside[1]}."
        )
    return said


def feeding_findings(points: pd.DataFrame) -> list[str]:
    """Can the host feed the devices, what does copying alone cost, and what do batches ahead of their step give?"""
    if points.empty or not points["inputs"].eq("jpeg_folder").any():
        return ["No Record with JPEG files yet: whether synthetic input trains as fast as real input has not been measured."]
    best = best_fed(points)
    answered = [" ".join(_whether(best, repeats_differ(_of(points, best)))), host_finding(points), *_copying(points)] if len(best) else []
    return [said for said in (*answered, ahead_finding(points)) if said]


def _of(points: pd.DataFrame, jobs: pd.DataFrame) -> pd.DataFrame:
    """What was measured of those of these jobs that the host launches."""
    named = {tuple(map(str, row)) for row in jobs.loc[~jobs["execution"].isin(GRAPHS), list(JOB)].itertuples(index=False)}
    return points[[tuple(map(str, row)) in named for row in points[list(JOB)].itertuples(index=False)]]


def pace_findings(points: pd.DataFrame) -> list[str]:
    """What sets the pace of the jobs that JPEG files do not feed fast enough, and which of them make no scaling line."""
    best = best_fed(points)
    return [*_paces(best), *_no_line(best)] if len(best) else []
