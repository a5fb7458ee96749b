"""The front page: three findings, the headline picture, the machine and what is missing; each computed from Records or absent.

A finding rests on headline points alone (n >= 5 over two launches) and on intervals that do not overlap.
`fragments(frame)` gives all parts; the functions without arguments read the repository's Records (`multigpu.report` calls them).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from pathlib import Path

import pandas as pd

from multigpu import paths
from multigpu.analysis.figure_models import figure_models
from multigpu.analysis.findings import line_name, panels, widest
from multigpu.analysis.frame import frame_of
from multigpu.analysis.hosts import hosts_frame
from multigpu.analysis.machines import machine_line, machines
from multigpu.analysis.metrics import POINT, scaling_table
from multigpu.analysis.ordinary import of_today, ordinary
from multigpu.analysis.picture import Picture, shown
from multigpu.analysis.step_traces import trace_table
from multigpu.analysis.style import title
from multigpu.analysis.synchrony import synchrony_frame
from multigpu.analysis.training import training_frame, training_records
from multigpu.analysis.wording import (
    MODEL_NAMES,
    decimals,
    describe,
    device_word,
    devices_text,
    joined,
    percent_text,
    plural,
    rate_text,
    ratio_text,
    why_missing,
)
from multigpu.claims import Result, evaluate_all, scoreboard_svg, to_html_table
from multigpu.claims.ledger import changes
from multigpu.claims.tables import tally, to_html_changes
from multigpu.reading import as_read, stored_records, study_records, todays_records
from multigpu.same_gpus import leading_machine
from multigpu.store import Stamp, stamp_of

FINDINGS = 3
NO_FINDING = "No finding yet: a finding needs five repeats over two launches, and intervals that do not overlap."


def front_frame(frame: pd.DataFrame) -> pd.DataFrame:
    """The ordinary rows (`ordinary.ordinary`) of the machines that the front page speaks of."""
    return ordinary(front_machine(frame))


def front_machine(frame: pd.DataFrame) -> pd.DataFrame:
    """Every row of the machine that the front page speaks of: GPUs before CPUs, then, model by model, the one that shows it best.

    That is the machine that measured it on the most devices and often enough (`same_gpus.leading_machine`). What is said of one model
    rests on one machine; models may stand on different ones, and rows of two machines are never divided. Of a model of which nothing was
    measured, what was tried stands for it.
    """
    ok = frame["status"].eq("ok")
    kinds = set(frame.loc[ok if ok.any() else slice(None), "device_type"])
    kind = "cuda" if "cuda" in kinds else "cpu"
    tried = frame[frame["device_type"] == kind]
    jobs = {}
    for job, rows in tried.groupby(MODEL, sort=False):
        own = rows[rows["status"].eq("ok")] if rows["status"].eq("ok").any() else rows
        jobs[job] = leading_machine(zip(own["machine"], own["devices"], strict=True))
    told = pd.Series([jobs.get(job) for job in zip(*(frame[name] for name in MODEL), strict=True)], index=frame.index, dtype="string")
    return frame[frame["device_type"].eq(kind) & frame["machine"].eq(told).fillna(False)]


def told_frame(frame: pd.DataFrame) -> pd.DataFrame:
    """The rows that the front page itself compares: those of `front_frame` of today's programs (`ordinary.of_today`)."""
    return of_today(front_frame(frame))


MODEL = ["workload", "model"]


def headline_table(frame: pd.DataFrame) -> pd.DataFrame:
    """The scaling table's points that a finding may rest on: tier headline."""
    table = scaling_table(frame)
    return table[table["tier"] == "headline"]


def subject(name: str, model: str) -> tuple[str, str]:
    """A panel's name (`findings.panels`) as the model, which a sentence begins with, and its setting in brackets, with which it ends."""
    known = MODEL_NAMES.get(model, model)
    setting = name.removeprefix(known).removeprefix(", ")
    return known, f" ({setting})" if setting else ""


def gain(table: pd.DataFrame) -> str | None:
    """What the most devices give over one at its best, of each workload the job with the highest throughput; what scales best first."""
    parts: list[tuple[float, str]] = []
    rows = table[(table["placement"] != "independent") & (table["devices"] > 1) & table["speedup_best_low"].notna()]
    rows = rows[rows["devices"] == rows["devices"].max()]
    named = {index: name for name, panel in panels(table) for index in panel.index}
    for _, group in rows.groupby("workload"):
        row = group.sort_values("rate").iloc[-1]
        rate = rate_text(row["rate"], row["rate_low"], row["rate_high"], row["unit"])
        times = ratio_text(row["speedup_best"], row["speedup_best_low"], row["speedup_best_high"])
        rivals = group[(group["rate_high"] >= row["rate_low"]) & (group.index != row.name) & (group["batch_size"] == row["batch_size"])]
        tied = joined([line_name(rival, table) for _, rival in rivals.iterrows()])
        who = line_name(row, table) + (f" (intervals do not tell {tied} from it)" if tied else "")
        model, setting = subject(named[row.name], row["model"])
        parts.append((row["speedup_best"], f"{model} {times}, {rate} with {who}{setting}"))
    if not parts:
        return None
    parts.sort(key=lambda part: -part[0])
    span = " to ".join(dict.fromkeys(f"{times:.{decimals(times)}f}" for times in (parts[-1][0], parts[0][0])))
    word = device_word(rows["device_type"].iloc[0])
    lead = f"{devices_text(rows['devices'].iloc[0], rows['device_type'].iloc[0])} train {span} times as fast as the best single {word}"
    return f"**{lead}:** {'; '.join(text for _, text in parts)}."


def price(table: pd.DataFrame) -> str | None:
    """What the placement costs: the slowest against the fastest, where that ratio is largest."""
    found = widest(table, "rate")
    if found is None:
        return None
    name, best, worst = found
    on = devices_text(best["devices"], best["device_type"])
    fast, slow = (rate_text(row["rate"], row["rate_low"], row["rate_high"], row["unit"]) for row in (best, worst))
    model, setting = subject(name, best["model"])
    return (
        f"**A placement may cost {percent_text(1 - worst['rate'] / best['rate'])} of the speed:** {model} on {on} trains {slow} with "
        f"{title(worst['placement'])} and {fast} with {title(best['placement'])}{setting}."
    )


def batch(table: pd.DataFrame) -> str | None:
    """What a larger batch gives: the largest rise of efficiency between two batches of one model and placement."""
    rows = table[
        (table["placement"] != "independent") & (table["devices"] > 1) & (table["scaling"] == "weak") & table["efficiency_low"].notna()
    ]
    rows = rows[rows["devices"] == rows["devices"].max()]
    found = []
    same = [column for column in POINT if column not in ("batch_size", "warmup_steps", "timed_steps")]
    for _, group in rows.groupby(same, dropna=False, sort=False):
        small, large = (group.sort_values("batch_size").iloc[index] for index in (0, -1))
        if large["efficiency_low"] > small["efficiency_high"]:
            found.append((large["efficiency"] - small["efficiency"], small, large))
    if not found:
        return None
    _, small, large = max(found, key=lambda item: item[0])
    word, on = device_word(large["device_type"]), devices_text(large["devices"], large["device_type"])
    few, many = (percent_text(row["efficiency"], row["efficiency_low"], row["efficiency_high"]) for row in (small, large))
    return (
        f"**What a larger batch gives:** {MODEL_NAMES.get(large['model'], large['model'])} with {line_name(large, table)} on {on} reaches "
        f"{few} of perfect scaling at batch {small['batch_size']} a {word} and {many} at {large['batch_size']}."
    )


def merging(table: pd.DataFrame) -> str | None:
    """What merging costs the best placement against independent replicas on the same devices, where it costs most."""
    rows = table[(table["placement"] != "independent") & (table["devices"] > 1) & table["ceiling_ratio_low"].notna()]
    rows = rows[rows["devices"] == rows["devices"].max()]
    best = rows.loc[rows.groupby(["model", "batch_size"], sort=False)["rate"].idxmax()] if len(rows) else rows
    best = best[best["ceiling_ratio_high"].lt(1)]
    if best.empty:
        return None
    row = best.sort_values("ceiling_ratio").iloc[0]
    name = next(name for name, panel in panels(table) if row.name in panel.index)
    share = percent_text(row["ceiling_ratio"], row["ceiling_ratio_low"], row["ceiling_ratio_high"])
    on = devices_text(row["devices"], row["device_type"])
    model, setting = subject(name, row["model"])
    who = line_name(row, table)
    return f"**What merging costs:** {model} on {on} with {who} reaches {share} of the speed of independent replicas{setting}."


def host(table: pd.DataFrame) -> str | None:
    """What launching kernel by kernel costs: a point against the same one as a captured graph, where the gain is largest."""
    rows = table[(table["framework"] == "torch") & table["rate_low"].notna()]
    same = [column for column in POINT if column != "execution"]
    found = []
    for _, group in rows.groupby(same, dropna=False, sort=False):
        forms = {row["execution"]: row for _, row in group.iterrows()}
        eager, captured = forms.get("eager"), forms.get("captured")
        if eager is not None and captured is not None and captured["rate_low"] > eager["rate_high"]:
            found.append((captured["rate"] / eager["rate"], eager, captured))
    if not found:
        return None
    times, eager, captured = max(found, key=lambda item: item[0])
    on = devices_text(eager["devices"], eager["device_type"])
    slow, fast = (rate_text(row["rate"], row["rate_low"], row["rate_high"], row["unit"]) for row in (eager, captured))
    model, setting = subject(describe(eager, ["model", "batch_size"]), eager["model"])
    return (
        f"**Launching a step kernel by kernel may cost a factor of {times:.{decimals(times, 2)}f}:** {model} on {on} with "
        f"{title(eager['placement'])} trains {slow} so, and {fast} as one captured graph a step{setting}."
    )


CANDIDATES: tuple[Callable[[pd.DataFrame], str | None], ...] = (gain, price, host, batch, merging)
"""In order of interest; the front page shows the first three that the data support."""


def findings_of(frame: pd.DataFrame) -> list[str]:
    """At most three findings, each one sentence with figures and intervals."""
    table = headline_table(told_frame(frame))
    found = [candidate(table) for candidate in CANDIDATES] if len(table) else []
    return [sentence for sentence in found if sentence][:FINDINGS]


def missing_of(frame: pd.DataFrame) -> str:
    """What the front page cannot say and why: statuses that are not ok, and what was measured once."""
    if frame.empty:
        return "Nothing has been measured yet."
    table = scaling_table(told_frame(frame))
    lost = table[table["n"] == 0]
    whys = dict.fromkeys(why_missing(row).split(":")[0] for _, row in lost.iterrows())
    parts = [f"{plural(len(lost), 'point')} of {len(table)} without a figure ({', '.join(whys)})"] if len(lost) else []
    once = int((table["tier"] == "screening").sum())
    parts += [f"{plural(once, 'point')} of {len(table)} measured too few times for a finding (screening)"] if once else []
    return f"{'; '.join(parts)}." if parts else ""


def headline_picture(frame: pd.DataFrame) -> Picture:
    """The headline picture: efficiency against the best single device, of the headline points, and if there are none, of all; of jobs
    whose placements can be compared, on their most devices. The best single device is sought among all points.
    """
    return figure_models(told_frame(frame), "best", compared=True, headline=True)


def shown_headline(frame: pd.DataFrame) -> str:
    """The headline picture as HTML."""
    picture = headline_picture(frame)
    return shown(picture, "headline", picture.data).html


def numbered(sentences: list[str]) -> str:
    """The findings as a Markdown list; without any, why there is none."""
    return "\n".join(f"{index}. {sentence}" for index, sentence in enumerate(sentences, 1)) or NO_FINDING


def fragments(frame: pd.DataFrame, machine: str = "") -> dict[str, str]:
    """The front page's parts as Markdown or HTML: "findings", "headline_figure", "machine", "missing".

    Args:
        machine: the machine's line, if known (see `machines.machine_line`); else what the frame says of it.
    """
    own = front_frame(frame)
    row = own.iloc[0] if len(own) else None
    known = "" if row is None else f"{row['machine']} ({', '.join(filter(None, [row['gpu'], row['cpu']]))})"
    return {
        "findings": numbered(findings_of(frame)),
        "headline_figure": shown_headline(frame),
        "machine": machine or known,
        "missing": missing_of(frame),
    }


# What `multigpu.report` asks for, each from the repository's Records; None while there is no Record.


def _stamp() -> Stamp:
    return stamp_of(paths.RUNS, paths.HOSTS, paths.SYNCHRONY, paths.TRAINING)


@lru_cache(maxsize=1)
def _read(root: Path, _: Stamp) -> tuple[pd.DataFrame, dict[str, str]]:
    """The frame and the machines' lines; read again only when a file of the store has changed."""
    records = stored_records(root)
    return frame_of(as_read(records)), {name: machine_line(machine) for name, machine in machines(records).items()}


def _records() -> tuple[pd.DataFrame, dict[str, str]]:
    return _read(paths.RUNS, _stamp())


@lru_cache(maxsize=1)
def _today(root: Path, _: Stamp) -> pd.DataFrame:
    """The frame that the front page's own sentences and picture are of: today's programs alone."""
    return frame_of(todays_records(root))


def _told() -> pd.DataFrame:
    return _today(paths.RUNS, _stamp())


def machine() -> str | None:
    """One line that names the machines of the Records, the front page's own first."""
    frame, lines = _records()
    told = front_frame(frame)
    if told.empty:
        return None
    models = told.groupby("machine")["model"].nunique()
    rows = told["machine"].value_counts()
    own = rows.index[0]
    elsewhere = [f"{plural(int(models[name]), 'further model')} on {name}" for name in rows.index[1:]]
    others = [name for name in lines if name not in rows]
    more = (f"; {joined(elsewhere)}" if elsewhere else "") + "." + (f" Other Records: {', '.join(others)}." if others else "")
    return f"Measured on {lines[own]}{more}"


def findings() -> str | None:
    """The findings as a list, and what is missing."""
    frame = _told()
    if frame.empty:
        return None
    lost = missing_of(frame)
    return numbered(findings_of(frame)) + (f"\n\n{{.muted}}\n{lost}" if lost else "")


def headline() -> str | None:
    """The headline picture with its caption and data."""
    frame = _told()
    return None if frame.empty else shown_headline(frame)


@lru_cache(maxsize=1)
def _results(root: Path, stamp: Stamp) -> list[Result]:
    return evaluate_all(
        _read(root, stamp)[0],
        hosts_frame(paths.HOSTS),
        synchrony_frame(paths.SYNCHRONY),
        trace_table(study_records(root)),
        training_frame(training_records(paths.TRAINING)),
    )


def results() -> list[Result]:
    """What all Records there are, of every kind, say of every claim."""
    return _results(paths.RUNS, _stamp())


def scoreboard() -> str | None:
    """One cell a claim; without Records every claim is open."""
    return f'<figure class="picture">\n{scoreboard_svg(results())}</figure>\n'


def claims() -> str | None:
    """How many claims have which verdict, and the table of all claims."""
    table, changed = to_html_table(results(), ""), to_html_changes(changes())
    return f'{tally(results())}<div class="wide">\n{table}</div>\n\n## Changed verdicts\n\n<div class="wide">\n{changed}</div>\n'
