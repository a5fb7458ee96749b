"""`python -m multigpu batch`: every row of a file that is not done, and the index after each."""

from __future__ import annotations

import contextlib
import os
import tempfile
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from tqdm import tqdm

from multigpu.batch import do, prepare, read_tasks
from multigpu.batch_index import write_index, write_page
from multigpu.grid import devices_here
from multigpu.measure.watching import WATCHED, Watched


@contextlib.contextmanager
def _followed(bar: Any) -> Iterator[None]:
    """While a row is done, the bar shows which of its steps has come."""
    ended = threading.Event()
    with tempfile.TemporaryDirectory(prefix="multigpu-batch-") as folder:
        watched = Watched(Path(folder, "watched"))
        os.environ[WATCHED] = str(watched.path)

        def follow() -> None:
            while not ended.wait(1.0):
                stage, steps = watched.state()
                bar.set_postfix_str(f"{stage} {steps}" if stage else "")

        thread = threading.Thread(target=follow, daemon=True)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()
            del os.environ[WATCHED]


def batch(points: Path, out: Path, counts: Sequence[int] | None = None, dry_run: bool = False, progress: bool = True) -> int:
    """Do every row that is not done, write the index after each, and say what came of it; the exit code.

    Raises:
        ValueError: the file or the folder cannot be used; nothing was started.
    """
    tasks, said = read_tasks(points, counts or devices_here())
    for sentence in said:
        print(sentence, flush=True)
    if dry_run:
        for task in tasks:
            print(f"{task.name}  {task.run.label()}  {len(task.launches)} repeats{', traced' if task.trace else ''}")
        return 0
    prepare(out)
    known = {task.name: task.outcome(out) for task in tasks}
    left = [task for task in tasks if (found := known[task.name]) is None or found.status != "done"]
    print(f"{len(tasks)} rows, {len(tasks) - len(left)} of them done before", flush=True)
    with tqdm(total=len(tasks), initial=len(tasks) - len(left), unit="row", disable=not progress) as bar, _followed(bar):
        write_index(points, tasks, out)
        for task in left:
            bar.set_description(task.run.label())
            outcome = do(task, out)
            write_page(task, out)
            write_index(points, tasks, out)
            bar.update()
            if outcome.status != "done":
                tqdm.write(f"{outcome.status.replace('_', ' ')}: {task.run.label()}: {outcome.reason}")
    missing = sum(outcome is None or outcome.status != "done" for outcome in (task.outcome(out) for task in tasks))
    print(
        f"{out / 'index.html'} shows {len(tasks)} rows"
        + (f", {missing} of them not done; the same command tries them again" if missing else "")
    )
    return 1 if missing else 0
