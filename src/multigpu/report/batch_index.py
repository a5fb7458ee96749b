"""The page of a batch: its file's question answered by a sentence, a figure and a table of what was
measured, and a line for every row.
"""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd
from jinja2 import Environment, PackageLoader

from multigpu.analysis.advise import Advice, advise
from multigpu.analysis.compare import EQUAL
from multigpu.analysis.estimate import SINGLE_RUN, TOO_FEW, estimate
from multigpu.analysis.picture import shown
from multigpu.analysis.plots import dots
from multigpu.analysis.points import where
from multigpu.analysis.show import table
from multigpu.analysis.words import field_words, joined, named
from multigpu.machine.machine import this_machine
from multigpu.records.record import RecordStore
from multigpu.report.batch_rows import ENDINGS, BatchRow, Impossible
from multigpu.report.experiment import label, pooled
from multigpu.runner.point import Point, records_here
from multigpu.spec.run import Run
from multigpu.writing import write_whole

TEMPLATE = Environment(loader=PackageLoader("multigpu.report", "."), autoescape=True).get_template(
    "batch.html.j2"
)
STATUS_WORDS = {
    "done": "done",
    "failed": "failed",
    "not_here": "not on this machine",
    "impossible": "cannot be",
    "": "not begun",
}


def own_names(runs: Sequence[Run]) -> list[str]:
    """Name each Run by the fields in which these differ: "Exp4, bf16"."""
    each = [run.model_dump() for run in runs]
    differing = [name for name in Run.model_fields if len({str(one[name]) for one in each}) > 1]

    def words(name: str, value: Any) -> str:
        told = named(name, value) if isinstance(value, str) else field_words(name, value)
        return told if isinstance(value, str) or not told.isdecimal() else f"{told} {name}"

    return [
        ", ".join(filter(None, (words(name, one[name]) for name in differing)))
        or f"{run.model} {run.placement}"
        for one, run in zip(each, runs, strict=True)
    ]


def measured_rows(tasks: Sequence[BatchRow], out: Path) -> pd.DataFrame:
    """The points that this machine measured, with `name` and the digest of their Run; empty where
    there is none.
    """
    found, store = [], RecordStore(out / "records")
    for task, name in zip(tasks, own_names([task.run for task in tasks]), strict=True):
        points = [Point(task.run, repeat) for repeat in range(len(task.launches))]
        ok = [record for record in records_here(points, store) if record.status == "ok"]
        if ok:
            found.append(pooled(ok).assign(name=name, digest=task.run.digest))
    return pd.concat(found, ignore_index=True) if found else pd.DataFrame(columns=["digest"])


def answered(ranked: Advice) -> str:
    """Answer which of these rows is the fastest, and how sure that is."""
    if ranked.best is None:
        return "None of these rows trains one model on the global batch, so none is called fastest."
    best, rate = ranked.best, estimate(ranked.best, "rate")
    others, equal = where(ranked.ranked, standing="slower"), where(ranked.ranked, standing=EQUAL)
    once = where(ranked.ranked, standing="faster, single run")
    if len(once):
        best, rate = once.iloc[0], estimate(once.iloc[0], "rate")
    if rate.is_too_few or not rate.known:
        return f"Ahead as measured is {best['name']}, {rate:rate interval}: give it more repeats."
    said = f"{best['name']} is fastest: {rate:rate interval}"
    if len(equal):
        said = f"{best['name']} is ahead with {rate:rate interval}, not told apart from"
        return f"{said} {joined([*equal['name']])}."
    if others.empty:
        return f"{said}."
    share = estimate(others.iloc[0], "of_best")
    return f"{said}; the next, {others.iloc[0]['name']}, reaches {share:percent interval} of it."


def answers(rows: pd.DataFrame) -> list[str]:
    """The question's answer as HTML, a sentence, a figure and a table for each model; none where
    fewer than two rows of it were measured.
    """
    html = []
    for number, (model, own) in enumerate(rows.groupby("model", sort=False) if len(rows) else ()):
        if len(own) < 2:
            continue
        ranked, caption = advise(own, own), "95% intervals; hollow: a single run."
        rows_shown = ranked.ranked.assign(
            of_best=ranked.ranked["of_best"].mask(ranked.ranked["standing"].eq("best")),
            stands=ranked.ranked["standing"].replace({"slower": "", EQUAL: "not told apart"}),
        )
        title = f"Rate of each row, {named('model', model)}"
        picture = dots(
            rows_shown.head(20), "rate", "name", title, caption, hue="placement", form="rate"
        )
        columns = "row = name | rate | of best = of_best:percent interval | step_time_s | n"
        html.append(
            f'<p class="answer">{answered(ranked)}</p>'
            f"{shown(picture, f'answer-{number}').html}"
            f"{table(rows_shown, f'{columns} | stands').html}"
        )
    return html


def write_index(
    points: Path, tasks: list[BatchRow], impossible: Sequence[Impossible], out: Path
) -> None:
    """Write the page of all rows: the question's answer, what each row is, what became of it, its
    rate, and where to read more.
    """
    rows: list[dict[str, Any]] = []
    measured = measured_rows(tasks, out)
    for task in tasks:
        files = [
            (word, task.file(out, f"{each}{kind}"))
            for word, kind in (("page", ".html"), ("notebook", ".ipynb"))
            for each in ENDINGS
        ]
        links = [(word, path.relative_to(out).as_posix()) for word, path in files if path.is_file()]
        outcome = task.outcome(out)
        rows.append(
            {
                "asked": task.settings.reason,
                "label": label(task.run),
                "status": outcome.status,
                "reason": outcome.reason,
                "links": links,
                **_rate(measured[measured["digest"].eq(task.run.digest)]),
            }
        )
    rows += [
        {"asked": one.reason, "label": one.words, "status": "impossible", "reason": one.why}
        for one in impossible
    ]
    counts = Counter(row["status"] for row in rows)
    told = ", ".join(
        f"{counts[status]} {words}" for status, words in STATUS_WORDS.items() if counts[status]
    )
    title = tasks[0].settings.question or points.stem
    summary = f"{len(rows)} rows of {points.name}: {told}. Machine: {this_machine().name}."
    text = TEMPLATE.render(
        title=title, summary=summary, answers=answers(measured), rows=rows, words=STATUS_WORDS
    )
    write_whole(out / "index.html", text.encode(), replace=True, synced=False)


def _rate(measured: pd.DataFrame) -> dict[str, str]:
    """The rate of a row with its interval and repeats; empty where this machine has measured
    nothing.
    """
    if measured.empty:
        return {}
    row = measured.iloc[0]
    rate = estimate(row, "rate")
    interval = f"{rate.low:,.0f} to {rate.high:,.0f}" if rate.known else SINGLE_RUN
    interval = TOO_FEW if rate.is_too_few else interval
    return {"rate": f"{rate:rate}", "interval": interval, "n": str(row["n"])}
