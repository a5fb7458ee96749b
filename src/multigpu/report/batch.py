"""`notebooks/experiment.ipynb` executed for every row of a file, into a folder: `index.html`,
`records/`, and `rows/` with each outcome.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path

import nbformat
from jinja2 import TemplateNotFound
from nbconvert import HTMLExporter
from tqdm import tqdm

from multigpu import paths
from multigpu.grids import devices_here
from multigpu.records.store import ROOM_BYTES
from multigpu.report.batch_index import TEMPLATE, write_index
from multigpu.report.batch_rows import ENDINGS, BatchRow, Outcome, read_tasks
from multigpu.report.experiment import following, label
from multigpu.report.notebooks import NotebookError, execute_one, parameter_names
from multigpu.runner.timed import check_devices
from multigpu.runner.watching import watched
from multigpu.writing import check_room, explaining, write_whole

NOTEBOOK = paths.REPOSITORY / "notebooks" / "experiment.ipynb"


def do(task: BatchRow, out: Path) -> Outcome:
    """Do one row, whatever comes of it; its outcome and its page are in files, too."""
    with explaining(f"--out {out} cannot be written", "; what is done stays"):
        outcome = _execute(task, out)
        write_whole(
            task.file(out, ".json"), outcome.model_dump_json().encode(), replace=True, synced=False
        )
    write_page(task, out)
    return outcome


def _execute(task: BatchRow, out: Path) -> Outcome:
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


def write_page(task: BatchRow, out: Path) -> None:
    """The executed notebook of a row as a page beside it, without its code; nothing where none was
    executed.
    """
    for ending in ENDINGS:
        source, page = task.file(out, f"{ending}.ipynb"), task.file(out, f"{ending}.html")
        if not source.is_file():
            page.unlink(missing_ok=True)
            continue
        executed = nbformat.read(source, as_version=4)
        executed.cells = list(_told(executed.cells))
        try:
            exporter = HTMLExporter(
                template_name="basic",
                exclude_input=True,
                exclude_input_prompt=True,
                exclude_output_prompt=True,
            )
            body, _ = exporter.from_notebook_node(executed)
        # an installation without nbconvert's templates: the notebook itself is there
        except (ValueError, TemplateNotFound) as error:
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
    tasks, impossible, said = read_tasks(points, counts or devices_here())
    for sentence in [*said, *(f"cannot be: {one.words}: {one.why}" for one in impossible)]:
        print(sentence, flush=True)
    if dry_run:
        for task in tasks:
            print(
                f"{task.name}  {task.run.label()}  {len(task.launches)}"
                f" repeats{', traced' if task.settings.trace else ''}"
            )
        return 0
    chosen = [task for task in tasks if row in (None, task.name)]
    if row and not chosen:
        raise ValueError(
            f"{points} has no row {row!r}: `python -m multigpu batch {points} --out {out}"
            " --dry-run` lists them"
        )
    with explaining(f"--out {out} cannot be written", "; choose another folder"):
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
            write_index(points, tasks, impossible, out)
        for task in left:
            bar.set_description(task.run.label())
            outcome = do(task, out)
            bar.update()
            if outcome.status != "done":
                tqdm.write(
                    f"{outcome.status.replace('_', ' ')}: {task.run.label()}: {outcome.reason}"
                )
            if not row:
                write_index(points, tasks, impossible, out)
    missing = sum(task.outcome(out).status != "done" for task in chosen)
    again = f", {missing} of them not done; the same command tries them again" if missing else ""
    print(f"{out / 'index.html'} shows {len(tasks) + len(impossible)} rows{again}")
    return 1 if missing else 0
