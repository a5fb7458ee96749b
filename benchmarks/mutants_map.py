"""Record which tests run which lines of the core, and how long each takes (for `mutants.py`).

Each test file runs once under coverage.py, in a fork of a process that has collected them all.
Lines that importing runs are kept apart: no single test runs them. The map grows by a file a test
file, and the same command goes on from it.
"""

import json
import os
import resource
import signal
import sys
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

WORDS = ["-q", "-n0", "-p", "no:cacheprovider"]
MARKS = "not alone and not gpu and not slow"
FILES = (
    "tests/multigpu/spec",
    "tests/multigpu/placements",
    "tests/multigpu/test_store.py",
    "tests/multigpu/test_packing.py",
    "tests/multigpu/test_conditions.py",
    "tests/study/placements/test_formulas.py",
    "tests/study/placements/test_movement.py",
    "tests/multigpu/analysis",
    *(
        f"tests/multigpu/analysis/test_advise.py::{test}"
        for test in (
            "test_what_was_measured_lies_in_the_band_of_the_same_model_at_batches_beside_it",
            "test_explain_and_advise_forecast_more_devices_and_say_so",
            "test_a_batch_in_parts_takes_as_many_steps_of_a_part_and_merges_once_or_at_each",
        )
    ),
    "tests/multigpu/engines/test_buckets.py",
    "tests/multigpu/engines/test_copied_sums.py",
    "tests/multigpu/engines/test_compressed.py",
    "tests/multigpu/equivalence/test_placements.py::"
    "test_stretches_are_equal_and_variables_begin_aligned",
    "tests/multigpu/test_grid.py",
    "tests/multigpu/test_environment.py",
    "tests/multigpu/test_verify.py",
    "tests/multigpu/collectives",
    "tests/multigpu/workloads/test_descriptions.py",
    "tests/study/claims",
    "tests/study/analysis/test_forecast.py",
    "tests/study/analysis/test_matrix_plot.py",
    "tests/study/analysis/test_points.py",
    "tests/study/collectives/test_order.py",
    "tests/study/stages/test_stages.py",
    "tests/study/test_rules.py",
)
"""What is mapped, the nearest to the core first."""
LONG = (
    "placements/test_memory.py",
    "analysis/test_advise.py",
    "analysis/test_questions_agree.py",
    "claims/test_other_records.py",
    "claims/test_verdicts.py",
)
"""Files that start processes or take minutes: no mutant can wait for them."""


def cpu_s() -> float:
    """Return the seconds of CPU that this process has used."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def enter(tree: Path) -> None:
    """Make this forked process one that tests the tree, silently."""
    os.setsid()
    os.chdir(tree)
    sys.path[:0] = [str(tree / "src"), str(tree)]
    os.environ["PYTHONPATH"] = f"{tree / 'src'}:{tree}"
    # processes that tests start import no main module of ours
    sys.modules["__main__"] = ModuleType("__main__")
    silent = os.open(os.devnull, os.O_WRONLY)
    os.dup2(silent, 1)
    os.dup2(silent, 2)


def ended(child: int, limit_s: float) -> int | None:
    """Wait for a forked process and its group; return its exit code, None if it took too long."""
    began = time.monotonic()
    while not os.waitid(os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT):
        if time.monotonic() > began + limit_s:
            os.killpg(child, signal.SIGKILL)
            os.waitpid(child, 0)
            return None
        time.sleep(0.01)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def name_of(test: str) -> str:
    """Return the name of the map of a test file."""
    return f"{test.partition('::')[0].replace('/', '+')}.json"


class Watch:
    """A plugin of pytest: gives each test its context, its time and its outcome."""

    def __init__(self, coverage: Any) -> None:
        self.coverage = coverage
        self.seconds: dict[str, float] = {}
        self.failed: list[str] = []

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        self.coverage.switch_context(item.nodeid)
        began = cpu_s()
        yield
        self.seconds[item.nodeid] = round(cpu_s() - began, 3)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if not report.passed:
            self.failed.append(report.nodeid)


class Mapping:
    """Runs each collected file in a fork of its own, under coverage, and writes what its tests ran.
    Make one before the package is imported: it watches that as well.
    """

    def __init__(self, tree: Path, core: Sequence[Path], folder: Path, limit_s: float) -> None:
        import coverage

        self.tree, self.folder, self.limit_s = tree, folder, limit_s
        self.coverage = partial(
            coverage.Coverage, data_file=None, include=[str(path) for path in core]
        )
        self.importing = self.coverage()
        self.importing.start()

    def ran(self, watched: Any) -> dict[str, dict[int, list[str]]]:
        """Return the tests that ran each line, module by module."""
        watched.stop()
        data = watched.get_data()
        return {
            str(Path(file).relative_to(self.tree)): data.contexts_by_lineno(file)
            for file in data.measured_files()
        }

    def write(self, session: pytest.Session) -> None:
        """Write what importing ran, and map the files that the folder does not hold yet."""
        self.folder.mkdir(parents=True, exist_ok=True)
        if not (imported := self.folder / "imported.json").exists():
            lines = self.ran(self.importing)
            imported.write_text(json.dumps({"seconds": {}, "failed": [], "lines": lines}))
        else:
            self.importing.stop()
        files: dict[str, list[pytest.Item]] = defaultdict(list)
        for item in session.items:
            files[item.nodeid.partition("::")[0]].append(item)
        for name, items in files.items():
            out = self.folder / name_of(name)
            if out.exists():
                continue
            began = time.monotonic()
            child = os.fork()
            if not child:
                os.setsid()
                self.map_file(session, items, out)
                os._exit(0)
            code = ended(child, self.limit_s)
            if not out.exists():
                out.write_text(json.dumps({"seconds": {}, "failed": [], "lines": {}}))
            held = json.loads(out.read_text())
            with open(self.folder / "log", "a") as log:
                print(
                    f"{time.monotonic() - began:.0f} s, {sum(held['seconds'].values()):.1f} of CPU,"
                    f" {len(items)} tests, {len(held['failed'])} failed, {code}: {name}",
                    file=log,
                )

    def map_file(self, session: pytest.Session, items: list[pytest.Item], out: Path) -> None:
        watched = self.coverage()
        watch = Watch(watched)
        session.config.pluginmanager.register(watch)
        watched.start()
        for item, following in zip(items, [*items[1:], None], strict=True):
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
        lines = self.ran(watched)
        out.write_text(
            json.dumps({"seconds": watch.seconds, "failed": watch.failed, "lines": lines})
        )


def test_files(tree: Path) -> list[str]:
    """Return the test files of `FILES` but the long ones."""
    return [
        str(path.relative_to(tree))
        for name in FILES
        for path in (sorted((tree / name).rglob("test_*.py")) or [tree / name])
        if "::" in name or not str(path).endswith(LONG)
    ]
