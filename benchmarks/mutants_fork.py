"""Run tests on a mutant in a fork (for `mutants.py`): of a process that has collected all tests, or
of one that has not imported the package yet.
"""

import gc
import importlib
import importlib.machinery
import json
import os
import shutil
import socket
import sys
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any

import pytest
from mutants_map import MARKS, WORDS, Mapping, ended, enter, test_files

UNKNOWN = 99
Outcome = tuple[str, str]
"""killed, timeout or survived; and the test that failed."""


class Judge:
    """A plugin of pytest: writes the name of the first test that fails."""

    def __init__(self, pipe: int) -> None:
        self.pipe, self.failed = pipe, False

    def told(self, name: str) -> None:
        if not self.failed:
            os.write(self.pipe, name.encode())
        self.failed = True

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self.told(report.nodeid)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self.told(f"{report.nodeid} (collecting)")


def codes(
    code: CodeType, found: dict[tuple[str, int], CodeType]
) -> dict[tuple[str, int], CodeType]:
    """Return the code of a module's functions by name and first line."""
    for each in code.co_consts:
        if isinstance(each, CodeType):
            found[each.co_qualname, each.co_firstlineno] = each
            codes(each, found)
    return found


class Served:
    """A plugin of pytest: instead of running the collected tests, it runs those that are asked for,
    in a fork for each mutant.
    """

    def __init__(self, peer: socket.socket, mapping: Mapping) -> None:
        self.peer, self.mapping = peer, mapping
        self.functions: dict[tuple[str, str, int], list[FunctionType]] = defaultdict(list)

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        self.mapping.write(session)
        gc.unfreeze()
        for each in gc.get_objects():
            if isinstance(each, FunctionType):
                code = each.__code__
                key = (code.co_filename, code.co_qualname, code.co_firstlineno)
                self.functions[key].append(each)
        gc.freeze()
        items = {item.nodeid: item for item in session.items}
        stream = self.peer.makefile("rw")
        print(json.dumps(len(items)), file=stream, flush=True)
        for line in stream:
            job = json.loads(line)
            read, write = os.pipe()
            child = os.fork()
            if not child:
                os.setsid()
                judge = Judge(write)
                session.config.pluginmanager.register(judge)
                try:
                    self.mutate(job["file"], job["texts"])
                    chosen = [items[name] for name in job["tests"] if name in items]
                    for item, following in zip(chosen, [*chosen[1:], None], strict=True):
                        item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
                        if judge.failed:
                            break
                except BaseException as error:
                    judge.told(f"{type(error).__name__}: {error}"[:200])
                os._exit(int(judge.failed))
            os.close(write)
            code = ended(child, job["limit_s"])
            by = os.read(read, 4096).decode()
            os.close(read)
            outcome = "timeout" if code is None else "killed" if code else "survived"
            print(json.dumps([outcome, by]), file=stream, flush=True)
        return True

    def mutate(self, file: str, texts: Sequence[str]) -> None:
        """Replace the code of each function that the two texts differ in."""
        old, new = (codes(compile(text, file, "exec", dont_inherit=True), {}) for text in texts)
        if old.keys() != new.keys():
            return
        for (name, line), code in new.items():
            if code != old[name, line]:
                for function in self.functions.get((file, name, line), ()):
                    function.__code__ = code


def restore(tree: Path) -> None:
    """Undo what a mutant did to results that are cached on disk."""
    cache, kept = tree / "data" / "cache", tree.parent / "cache"
    if not kept.exists():
        cache.mkdir(parents=True, exist_ok=True)
        shutil.copytree(cache, kept)
    elif sorted(os.listdir(cache)) != sorted(os.listdir(kept)):
        shutil.rmtree(cache)
        shutil.copytree(kept, cache)


class Warm:
    """A process that has collected all tests, and runs some of them on a mutant."""

    def __init__(self, tree: Path, core: Sequence[Path], folder: Path, limit_s: float) -> None:
        self.tree = tree
        ours, theirs = socket.socketpair()
        self.child = os.fork()
        if not self.child:
            ours.close()
            enter(tree)
            served = Served(theirs, Mapping(tree, core, folder, limit_s))
            pytest.main([*WORDS, "-m", MARKS, *test_files(tree)], plugins=[served])
            os._exit(0)
        theirs.close()
        self.stream = ours.makefile("rw")
        line = self.stream.readline()
        if not line:
            sys.exit("the tests cannot be collected")
        print(f"{line.strip()} tests are collected", flush=True)
        restore(tree)

    def run(self, name: str, texts: tuple[str, str], tests: list[str], limit_s: float) -> Outcome:
        """Return the outcome of a mutant inside a function."""
        file = str(self.tree / name)
        job = {"file": file, "texts": texts, "tests": tests, "limit_s": limit_s}
        print(json.dumps(job), file=self.stream, flush=True)
        outcome, by = json.loads(self.stream.readline())
        restore(self.tree)
        return outcome, by


class Fresh:
    """Imports the package anew for each mutant."""

    def __init__(self, tree: Path) -> None:
        self.tree = tree

    def run(
        self,
        name: str,
        texts: tuple[str, str],
        tests: list[str],
        limit_s: float,
        on_disk: bool = False,
    ) -> Outcome:
        """Return the outcome of a mutant of anything; on_disk: other processes see it as well."""
        path, read, write = self.tree / name, *os.pipe()
        was = path.stat()
        child = os.fork()
        if not child:
            enter(self.tree)
            if on_disk:
                path.write_text(texts[1], encoding="utf-8")
            else:
                with_text(path, texts[1])
            judge = Judge(write)
            try:
                importlib.import_module(dotted(name))
                importlib.import_module("tests.conftest")
            except BaseException as error:
                judge.told(f"importing: {type(error).__name__}: {error}"[:200])
                os._exit(1)
            code = pytest.main([*WORDS, "-x", "-m", MARKS, *tests], plugins=[judge])
            # a test that is not there is no verdict; that pytest itself breaks is one
            os._exit(UNKNOWN if code == pytest.ExitCode.USAGE_ERROR and not judge.failed else code)
        os.close(write)
        try:
            code = ended(child, limit_s)
        finally:
            if on_disk:  # as if nothing had been: what is cached is kept by the files' times
                path.write_text(texts[0], encoding="utf-8")
                os.utime(path, ns=(was.st_atime_ns, was.st_mtime_ns))
        restore(self.tree)
        by = os.read(read, 4096).decode()
        os.close(read)
        if code == UNKNOWN:
            sys.exit(f"{path}: the map names tests that are not there")
        killed = by or code not in (0, pytest.ExitCode.NO_TESTS_COLLECTED)
        return ("timeout" if code is None else "killed" if killed else "survived"), by


def dotted(name: str) -> str:
    """Return the name by which a file below src is imported."""
    parts = Path(name).with_suffix("").parts[1:]
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def with_text(path: Path, text: str) -> None:
    """Let this process import another text as the module of the path."""
    loader: Any = importlib.machinery.SourceFileLoader
    original = loader.get_code

    def get_code(self: Any, fullname: str) -> Any:
        if self.path == str(path):
            return compile(text, self.path, "exec", dont_inherit=True)
        return original(self, fullname)

    loader.get_code = get_code
