"""What a batch shows: a page for every row that was executed, and the index of all."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import nbformat
from jinja2 import Environment, PackageLoader, TemplateNotFound
from nbconvert import HTMLExporter

from multigpu.analysis.estimate import SINGLE_RUN, estimate
from multigpu.experiment import label, pooled
from multigpu.measure.machine import this_machine
from multigpu.measure.point import Point, records_here
from multigpu.record import RecordStore
from multigpu.writing import write_whole

if TYPE_CHECKING:
    from multigpu.batch import Task

TEMPLATE = Environment(loader=PackageLoader("multigpu", "."), autoescape=True).get_template("batch.html.j2")
STATUS_WORDS = {"done": "done", "failed": "failed", "not_here": "not on this machine", "": "not begun"}


def write_page(task: Task, out: Path) -> None:
    """The executed notebook of a row as a page beside it, without its code; nothing where none was executed."""
    for ending in (".ipynb", ".failed.ipynb"):
        source, page = task.file(out, ending), task.file(out, f"{ending.removesuffix('.ipynb')}.html")
        if not source.is_file():
            page.unlink(missing_ok=True)
            continue
        exporter = HTMLExporter(template_name="basic", exclude_input=True, exclude_input_prompt=True, exclude_output_prompt=True)
        executed = nbformat.read(source, as_version=4)
        executed.cells = list(_told(executed.cells))
        try:
            body, _ = exporter.from_notebook_node(executed)
        except (ValueError, TemplateNotFound) as error:  # an installation without nbconvert's templates: the notebook itself is there
            print(f"{page.name} was not made: {str(error).splitlines()[0]}", flush=True)
            continue
        page.write_text(TEMPLATE.render(title=label(task.run), body=body), encoding="utf-8")


def _told(cells: list[nbformat.NotebookNode]) -> Iterator[nbformat.NotebookNode]:
    """What a page shows of a notebook: not how it is used, and nothing behind the cell that stopped it."""
    for cell in cells:
        if not cell.source.startswith("# ") and not any(tag.startswith("papermill-error") for tag in cell.metadata.get("tags", [])):
            yield cell
        if any(output.output_type == "error" for output in cell.get("outputs", [])):
            return


def write_index(points: Path, tasks: list[Task], out: Path) -> None:
    """The page of all rows: what each is, what became of it, its rate, and where to read more."""
    rows, heading = [], ""
    for task in tasks:
        outcome = task.outcome(out)
        said = task.row.settings.reason
        row: dict[str, Any] = {
            "heading": said if said != heading else "",
            "label": label(task.run),
            "status": outcome.status,
            "status_words": STATUS_WORDS[outcome.status],
            "reason": outcome.reason,
            "links": [(name, path.relative_to(out).as_posix()) for name, path in _files(task, out)],
        }
        heading = said
        rows.append(row | _rate(task, out))
    counts = {words: sum(row["status_words"] == words for row in rows) for words in STATUS_WORDS.values()}
    told = ", ".join(f"{count} {words}" for words, count in counts.items() if count)
    title = tasks[0].row.settings.question or points.stem
    text = TEMPLATE.render(title=title, summary=f"{len(rows)} rows of {points.name}: {told}. Machine: {this_machine().name}.", rows=rows)
    write_whole(out / "index.html", text.encode(), replace=True, synced=False)


def _files(task: Task, out: Path) -> list[tuple[str, Path]]:
    """What there is to read of a row."""
    endings = {"page": (".html", ".failed.html"), "notebook": (".ipynb", ".failed.ipynb")}
    return [(name, task.file(out, each)) for name, both in endings.items() for each in both if task.file(out, each).is_file()]


def _rate(task: Task, out: Path) -> dict[str, str]:
    """The rate of a row with its interval and repeats; empty where nothing was measured on this machine."""
    points = [Point(task.run, repeat) for repeat in range(len(task.launches))]
    records = [record for record in records_here(points, RecordStore(out / "records")) if record.status == "ok"]
    if not records:
        return dict.fromkeys(("rate", "interval", "n"), "")
    row = pooled(records).iloc[0]
    rate = estimate(row, "rate")
    interval = f"{rate.low:,.0f} to {rate.high:,.0f}" if rate.known else SINGLE_RUN
    return {"rate": f"{rate:rate}", "interval": interval, "n": str(row["n"])}
