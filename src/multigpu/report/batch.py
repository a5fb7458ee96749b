"""`notebooks/experiment.ipynb` executed for every row of a file, into a folder: `index.html`,
`records/`, and `rows/` with each outcome.
"""

import contextlib
import hashlib
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import nbformat
from jinja2 import Environment, PackageLoader, TemplateNotFound
from nbconvert import HTMLExporter
from pydantic import BaseModel, ConfigDict, ValidationError
from tqdm import tqdm

from multigpu import paths
from multigpu.analysis.estimate import SINGLE_RUN, estimate
from multigpu.build import build_run
from multigpu.grids import Row, devices_here, grid_file, launches_for, launches_of, read_rows
from multigpu.machine.machine import this_machine
from multigpu.records.record import RecordStore
from multigpu.records.store import ROOM_BYTES
from multigpu.report.experiment import following, label, pooled
from multigpu.report.notebooks import NotebookError, execute_one, parameter_names
from multigpu.runner.point import Point, records_here
from multigpu.runner.timed import check_devices
from multigpu.runner.watching import watched
from multigpu.spec.run import Run
from multigpu.writing import check_room, write_whole

TEMPLATE = Environment(loader=PackageLoader("multigpu.report", "."), autoescape=True).get_template(
    "batch.html.j2"
)
STATUS_WORDS = {
    "done": "done",
    "failed": "failed",
    "not_here": "not on this machine",
    "": "not begun",
}
NOTEBOOK = paths.REPOSITORY / "notebooks" / "experiment.ipynb"
# of the names of files of rows that were executed to the end, and of others
ENDINGS = (
    "",
    ".failed",
)


class Outcome(BaseModel):
    """The outcome of a row; "": nothing yet. not_here: this machine lacks its devices."""

    model_config = ConfigDict(frozen=True)
    status: Literal["", "done", "failed", "not_here"] = ""
    reason: str = ""


@dataclass(frozen=True)
class Task:
    """A row to be done. run: without traced steps, which are `trace`."""

    row: Row
    run: Run
    launches: tuple[int, ...]
    trace: int
    compare: bool

    @property
    def name(self) -> str:
        """Of its files: another one where anything differs that is measured or shown, so that rows
        may be added, moved or left out.
        """
        said = f"{self.run.digest} {self.launches} {self.trace} {self.compare}"
        words = (
            self.run.model,
            self.run.placement,
            f"x{self.run.devices}",
            f"b{self.run.batch_size}",
        )
        readable = re.sub(r"[^A-Za-z0-9._-]+", "-", "-".join(words))[:80]
        return f"{readable}-{hashlib.sha256(said.encode()).hexdigest()[:8]}"

    def parameters(self, out: Path, names: Sequence[str]) -> dict[str, Any]:
        """The notebook's parameters; fields of the Run that it has no name for go into `more`."""
        fields = self.run.model_dump() | {"data": self.run.data and list(self.run.data)}
        more = {
            name: value
            for name, value in fields.items()
            if name not in names and value != Run.model_fields[name].default
        }
        plain = self.launches == launches_of(len(self.launches))
        return {name: value for name, value in fields.items() if name in names} | {
            "repeats": len(self.launches) if plain else list(self.launches),
            "trace": self.trace,
            "records": str(out.resolve() / "records"),
            "compare": self.compare,
            "more": more,
        }

    def file(self, out: Path, ending: str) -> Path:
        return out / "rows" / f"{self.name}{ending}"

    def outcome(self, out: Path) -> Outcome:
        """Return the row's outcome so far, as far as it can be read."""
        try:
            found = Outcome.model_validate_json(self.file(out, ".json").read_bytes())
        except (OSError, ValidationError):
            return Outcome()
        return found if found.status != "done" or self.file(out, ".ipynb").is_file() else Outcome()


def find_points(name: str) -> Path:
    """The file of that path, or else the study's grid of that name ("headline",
    "grids/headline.yaml").
    """
    path = Path(name)
    grid = grid_file(path.name.removesuffix(".yaml"))
    return grid if grid is not None and not path.exists() else path


def read_tasks(points: Path, counts: Sequence[int]) -> tuple[list[Task], list[str]]:
    """The rows of a file (or a ValueError), each once, and in words which stand there several
    times.
    """
    found, said = dict[str, Task](), []
    for row in read_rows(points, counts):
        run = build_run(
            **row.built.model_dump(exclude_defaults=True) | {"traced_steps": 0, "traced_from": None}
        )
        task = Task(
            row,
            run,
            launches_for(row),
            max(row.settings.trace, row.built.traced_steps),
            row.settings.compare,
        )
        if known := found.get(run.digest):
            said.append(
                f"{row.where} is {known.row.where.rpartition(', ')[2]} again, {run.label()}:"
                " measured once"
            )
            longest = max(known.launches, task.launches, key=len)
            known = replace(
                known,
                launches=longest,
                trace=max(known.trace, task.trace),
                compare=known.compare or task.compare,
            )
        found[run.digest] = known or task
    if not found:
        raise ValueError(
            f"{points} leaves no point: its filters `only` and `without` leave out every one"
        )
    return list(found.values()), said


def do(task: Task, out: Path) -> Outcome:
    """Do one row, whatever comes of it; its outcome and its page are in files, too."""
    with _written(out, "what is done stays"):
        outcome = _execute(task, out)
        write_whole(
            task.file(out, ".json"), outcome.model_dump_json().encode(), replace=True, synced=False
        )
    write_page(task, out)
    return outcome


@contextlib.contextmanager
def _written(out: Path, then: str) -> Iterator[None]:
    """Turn a failure to write into a ValueError."""
    try:
        yield
    except OSError as error:
        raise ValueError(
            f"--out {out} cannot be written: {error.strerror or error}; {then}"
        ) from None


def _execute(task: Task, out: Path) -> Outcome:
    """Execute the notebook with the row's parameters."""
    try:
        check_devices(task.run)
    except ValueError as error:
        return Outcome(status="not_here", reason=str(error))
    for ending in ENDINGS:
        task.file(out, f"{ending}.ipynb").unlink(missing_ok=True)
    try:
        execute_one(
            NOTEBOOK, task.file(out, ".ipynb"), task.parameters(out, parameter_names(NOTEBOOK))
        )
    except NotebookError as error:
        return Outcome(status="failed", reason=str(error).partition("Error: ")[2] or str(error))
    return Outcome(status="done")


def write_page(task: Task, out: Path) -> None:
    """The executed notebook of a row as a page beside it, without its code; nothing where none was
    executed.
    """
    for ending in ENDINGS:
        source, page = task.file(out, f"{ending}.ipynb"), task.file(out, f"{ending}.html")
        if not source.is_file():
            page.unlink(missing_ok=True)
            continue
        exporter = HTMLExporter(
            template_name="basic",
            exclude_input=True,
            exclude_input_prompt=True,
            exclude_output_prompt=True,
        )
        executed = nbformat.read(source, as_version=4)
        executed.cells = list(_told(executed.cells))
        try:
            body, _ = exporter.from_notebook_node(executed)
        except (
            ValueError,
            TemplateNotFound,
        ) as error:  # an installation without nbconvert's templates: the notebook itself is there
            print(f"{page.name} was not made: {str(error).splitlines()[0]}", flush=True)
            continue
        page.write_text(TEMPLATE.render(title=label(task.run), body=body), encoding="utf-8")


def _told(cells: list[nbformat.NotebookNode]) -> Iterator[nbformat.NotebookNode]:
    """Yield the cells of a notebook that a page shows: not how it is used, and nothing behind the
    cell that stopped it.
    """
    for cell in cells:
        if not cell.source.startswith("# ") and not any(
            tag.startswith("papermill-error") for tag in cell.metadata.get("tags", [])
        ):
            yield cell
        if any(output.output_type == "error" for output in cell.get("outputs", [])):
            return


def write_index(points: Path, tasks: list[Task], out: Path) -> None:
    """The page of all rows: what each is, what became of it, its rate, and where to read more."""
    rows: list[dict[str, Any]] = []
    for task in tasks:
        files = [
            (word, task.file(out, f"{each}{kind}"))
            for word, kind in (("page", ".html"), ("notebook", ".ipynb"))
            for each in ENDINGS
        ]
        links = [(word, path.relative_to(out).as_posix()) for word, path in files if path.is_file()]
        rows.append(
            {
                "task": task,
                "label": label(task.run),
                "outcome": task.outcome(out),
                "links": links,
                **_rate(task, out),
            }
        )
    counts = Counter(row["outcome"].status for row in rows)
    told = ", ".join(
        f"{counts[status]} {words}" for status, words in STATUS_WORDS.items() if counts[status]
    )
    title = tasks[0].row.settings.question or points.stem
    summary = f"{len(rows)} rows of {points.name}: {told}. Machine: {this_machine().name}."
    text = TEMPLATE.render(title=title, summary=summary, rows=rows, words=STATUS_WORDS)
    write_whole(out / "index.html", text.encode(), replace=True, synced=False)


def _rate(task: Task, out: Path) -> dict[str, str]:
    """The rate of a row with its interval and repeats; empty where this machine has measured
    nothing.
    """
    points = [Point(task.run, repeat) for repeat in range(len(task.launches))]
    records = [
        record
        for record in records_here(points, RecordStore(out / "records"))
        if record.status == "ok"
    ]
    if not records:
        return {}
    row = pooled(records).iloc[0]
    rate = estimate(row, "rate")
    interval = f"{rate.low:,.0f} to {rate.high:,.0f}" if rate.known else SINGLE_RUN
    return {"rate": f"{rate:rate}", "interval": interval, "n": str(row["n"])}


def batch(
    points: Path,
    out: Path,
    counts: Sequence[int] | None = None,
    dry_run: bool = False,
    progress: bool = True,
    row: str | None = None,
) -> int:
    """Do every row that is not done, write the index after each, and say what came of it; the exit
    code. Or a ValueError before any.
    row: do the one of this name alone, and no index, since others may be done meanwhile; "": write
        the index alone.
    """
    tasks, said = read_tasks(points, counts or devices_here())
    for sentence in said:
        print(sentence, flush=True)
    if dry_run:
        for task in tasks:
            print(
                f"{task.name}  {task.run.label()}  {len(task.launches)}"
                f" repeats{', traced' if task.trace else ''}"
            )
        return 0
    chosen = [task for task in tasks if row in (None, task.name)]
    if row and not chosen:
        raise ValueError(
            f"{points} has no row {row!r}: `python -m multigpu batch {points} --out {out}"
            " --dry-run` lists them"
        )
    with _written(out, "choose another folder"):
        for folder in (out / "rows", out / "records"):
            check_room(folder, ROOM_BYTES)
    left = [task for task in chosen if task.outcome(out).status != "done"]
    print(f"{len(chosen)} rows, {len(chosen) - len(left)} of them done before", flush=True)
    bar = tqdm(total=len(chosen), initial=len(chosen) - len(left), unit="row", disable=not progress)
    with (
        bar,
        watched() as found,
        following(
            found, lambda stage, steps: bar.set_postfix_str(f"{stage} {steps}" if stage else "")
        ),
    ):
        if not row:
            write_index(points, tasks, out)
        for task in left:
            bar.set_description(task.run.label())
            outcome = do(task, out)
            bar.update()
            if outcome.status != "done":
                tqdm.write(
                    f"{outcome.status.replace('_', ' ')}: {task.run.label()}: {outcome.reason}"
                )
            if not row:
                write_index(points, tasks, out)
    missing = sum(task.outcome(out).status != "done" for task in chosen)
    again = f", {missing} of them not done; the same command tries them again" if missing else ""
    print(f"{out / 'index.html'} shows {len(tasks)} rows{again}")
    return 1 if missing else 0
