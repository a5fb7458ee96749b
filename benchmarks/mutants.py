"""Draw mutants of the core and count those that a test notices.

Cosmic Ray makes them, coverage.py says which tests run the mutated line (`pip install --target
WHERE cosmic-ray coverage`, not into the environment of the tests). Only tests that run the line are
tried, the shortest first, until one fails; where none does, the mutant survives.

A mutant inside a function replaces the function's code in a fork of a process that has collected
all tests, which takes no time. What importing runs (rows of placements, defaults, decorators) is
tried in a fork that imports the package anew, with the mutated text in place of the module's. A
test that starts processes of its own sees neither: it does not kill. For `engines`, whose tests
start workers, the file itself is changed for the time of the test. All this happens in a copy of
the tracked files.

No mutants are those of `|` in annotations (no program reads them, or it does not begin), and what
is no Python any more; others are drawn in their place. The table grows by a row a mutant, and the
same command goes on from it; `--again survived` tries survivors anew, after a test was written. A
row whose `reason` a reader has filled in ("equivalent: ...") is not tried again. Each row names the
commit whose core it was drawn from. Rows of another commit count towards the number to draw and are
never tried here; name another `--seed` than theirs, or much the same places are drawn.

    PYTHONPATH=WHERE python benchmarks/mutants.py --draw 400 --folder FOLDER --out mutants.csv
"""

import argparse
import ast
import csv
import json
import random
import shutil
import subprocess
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import hypothesis  # noqa: F401 # imported once, before the tests are forked
import pandas  # noqa: F401
import torch._dynamo  # noqa: F401
from cosmic_ray import plugins
from cosmic_ray.ast import ast_nodes, get_ast_from_path
from cosmic_ray.mutating import mutate_code
from mutants_fork import Fresh, Warm
from mutants_map import name_of, test_files
from scipy.stats import beta

HERE = Path(__file__).resolve().parents[1]
CORE = (
    "spec/**/*.py",
    "placements/**/*.py",
    "records/**/*.py",
    "analysis/boots.py",
    "analysis/compare.py",
    "analysis/estimate.py",
    "analysis/expected.py",
    "analysis/fields.py",
    "analysis/forecast.py",
    "analysis/formulas.py",
    "analysis/frame.py",
    "analysis/physics.py",
    "analysis/points.py",
    "analysis/query.py",
    "analysis/statistics.py",
    "analysis/steps.py",
    "engines/torch/buckets.py",
)
"""Below src/multigpu: what decides what is run, what is stored, and what a number means."""

FRESH_FILES = 2
"""Test files that are collected anew for a mutant of what importing runs."""

FIELDS = (
    "commit",
    "module",
    "line",
    "operator",
    "occurrence",
    "change",
    "outcome",
    "by",
    "seconds",
    "reason",
)
KEY = ("commit", "module", "operator", "occurrence")


def unread(path: Path) -> set[int]:
    """Return the lines of annotations: no program reads them."""
    lines: set[int] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        for name in ("annotation", "returns"):
            if (found := getattr(node, name, None)) is not None:
                lines |= set(range(found.lineno, found.end_lineno + 1))
    return lines


def mutants(package: Path) -> Iterator[tuple[Path, str, int, int]]:
    """Yield every mutant: module, operator, occurrence, line."""
    files = sorted({file for pattern in CORE for file in package.glob(pattern)})
    names = [name for name in plugins.operator_names() if not name.endswith("NoOp")]
    operators = [(name, plugins.get_operator(name)) for name in names]
    for file in files:
        tree, passed_over = get_ast_from_path(file), unread(file)
        for name, operator in operators:
            if operator.arguments():
                continue
            made = operator()
            places = (
                start for node in ast_nodes(tree) for start, _ in made.mutation_positions(node)
            )
            for occurrence, (line, _) in enumerate(places):
                if not ("BitOr" in name and line in passed_over):
                    yield file, name, occurrence, line


def changed(old: str, new: str) -> str:
    """Return the first line that differs, before and after."""
    pairs = zip(old.splitlines(), new.splitlines(), strict=False)
    return next((f"{a.strip()} -> {b.strip()}" for a, b in pairs if a != b), "")


def interval(killed: int, of: int) -> tuple[float, float]:
    """Return the exact 95% interval of a share (Clopper and Pearson)."""
    low = float(beta.ppf(0.025, killed, of - killed + 1)) if killed else 0.0
    high = float(beta.ppf(0.975, killed + 1, of - killed)) if killed < of else 1.0
    return low, high


class Map:
    """Which tests run a line, and how many seconds each takes, read from the folder of the map."""

    def __init__(self, folder: Path, files: Sequence[str]) -> None:
        self.seconds: dict[str, float] = {}
        self.by_line: dict[tuple[str, int], list[str]] = defaultdict(list)
        self.imported: dict[str, set[int]] = defaultdict(set)
        self.near: dict[str, dict[str, float]] = defaultdict(dict)
        paths = [folder / "imported.json", *sorted({folder / name_of(file) for file in files})]
        for path in paths:
            held = json.loads(path.read_text())
            failed = set(held["failed"])
            self.seconds |= {k: v for k, v in held["seconds"].items() if k not in failed}
            for module, lines in held["lines"].items():
                for line, tests in lines.items():
                    if "" in tests:
                        self.imported[module].add(int(line))
                    own = [test for test in tests if test and test not in failed]
                    self.by_line[module, int(line)] += own
                    for test in own:
                        self.near[module][test] = self.near[module].get(test, 0) + 1

    def tests_of(self, module: str, lines: range, budget_s: float) -> list[str]:
        """Return the tests that run a line, file by file, the shortest file first."""
        tests = {test for line in lines for test in self.by_line.get((module, line), ())}
        return self.ordered(tests, budget_s)

    def tests_near(self, module: str, budget_s: float, most: int) -> list[str]:
        """Return the tests that run most lines of a module, as far as the budget goes, of so many
        files: each takes time to be collected.
        """
        near = self.near[module]
        files: dict[str, float] = defaultdict(float)
        for test, lines in near.items():
            files[test.partition("::")[0]] = max(files[test.partition("::")[0]], lines)
        chosen = sorted(files, key=lambda file: -files[file])[:most]
        near = {test: lines for test, lines in near.items() if test.partition("::")[0] in chosen}
        return self.ordered(set(near), budget_s, lambda test: -near[test])

    def ordered(self, tests: set[str], budget_s: float, rank: Any = None) -> list[str]:
        chosen, total = [], 0.0
        for test in sorted(tests, key=rank or (lambda test: self.seconds[test])):
            if total + self.seconds[test] <= budget_s or not chosen:
                chosen.append(test)
                total += self.seconds[test]
        file_s: dict[str, float] = defaultdict(float)
        for test in chosen:
            file_s[test.partition("::")[0]] += self.seconds[test]
        return sorted(chosen, key=lambda test: (file_s[name := test.partition("::")[0]], name))


def drawn_from(tree: Path, count: int, seed: int) -> list[tuple[Path, str, int, int]]:
    """Return the drawn mutants, and a third more in case some are none; the list is kept beside the
    tree, as making it takes a while.
    """
    kept = tree.parent / f"drawn-{seed}-{count}.json"
    if not kept.exists():
        every = list(mutants(tree / "src" / "multigpu"))
        drawn = random.Random(seed).sample(every, min(count * 4 // 3, len(every)))
        print(f"{len(every)} mutants", flush=True)
        kept.write_text(json.dumps([[str(file), *more] for file, *more in drawn]))
    return [(Path(file), *more) for file, *more in json.loads(kept.read_text())]


def statement_lines(path: Path, line: int) -> range:
    """Return the lines of the smallest statement that holds the line, of one with a body its head:
    which of them coverage names depends on how it is written.
    """
    spans = [range(line, line + 1)]
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.stmt):
            begin = min(
                [node.lineno, *(each.lineno for each in getattr(node, "decorator_list", ()))]
            )
            body = getattr(node, "body", None)
            end = body[0].lineno if body else (node.end_lineno or node.lineno) + 1
            spans.append(range(begin, max(end, begin + 1)))
    return min((span for span in spans[1:] if line in span), key=len, default=spans[0])


def git(*words: str) -> str:
    """Return what git says of this checkout."""
    return subprocess.run(["git", *words], cwd=HERE, capture_output=True, text=True).stdout.strip()


def copied(tree: Path) -> None:
    """Copy the tracked files of this checkout, and write its commit beside them."""
    tree.mkdir(parents=True)
    (tree.parent / "commit").write_text(git("rev-parse", "--short=9", "HEAD"))
    for name in git("ls-files").splitlines():
        if (HERE / name).is_file():
            (tree / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(HERE / name, tree / name)


def main() -> None:
    """Try the drawn mutants that the table does not hold yet; it grows by a row a mutant."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--draw", type=int, default=400)
    parser.add_argument("--seed", type=int, default=47)
    parser.add_argument("--budget-s", type=float, default=6.0, help="of tests, for one mutant")
    parser.add_argument("--limit-s", type=float, default=150.0, help="of the clock, for one mutant")
    parser.add_argument("--again", default="", help="try those of this outcome anew")
    parser.add_argument("--folder", type=Path, required=True, help="of the copy and the map")
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    tree, folder = arguments.folder / "tree", arguments.folder / "map"
    if not tree.exists():
        copied(tree)
    core = sorted({p for pattern in CORE for p in (tree / "src" / "multigpu").glob(pattern)})
    warm, fresh = Warm(tree, core, folder, arguments.limit_s), Fresh(tree)
    known = Map(folder, test_files(tree))
    commit = (arguments.folder / "commit").read_text()
    rows: dict[tuple[str, ...], dict[str, str]] = {}
    if arguments.out.exists():
        with open(arguments.out, newline="") as file:
            rows = {tuple(row[name] for name in KEY): row for row in csv.DictReader(file)}
    valid = sum(row["commit"] != commit for row in rows.values())
    for module, operator, occurrence, line in drawn_from(
        tree, arguments.draw - valid, arguments.seed
    ):
        if valid == arguments.draw:
            break
        name = str(module.relative_to(tree))
        own = (commit, name, operator, str(occurrence))
        done = rows.get(own)
        if done and (done["outcome"] != arguments.again or done["reason"]):
            valid += 1
            continue
        old = module.read_text(encoding="utf-8")
        new = mutated(old, name, operator, occurrence)
        if new is None:
            continue
        valid += 1
        began = time.monotonic()
        outcome, by = tried(known, warm, fresh, name, line, (old, new), arguments)
        took_s = time.monotonic() - began
        change = changed(old, new)
        told = (commit, name, line, operator, occurrence, change, outcome, by, round(took_s, 1))
        rows[own] = dict(zip(FIELDS, [*map(str, told), ""], strict=True))
        part = arguments.out.with_suffix(".part")
        with open(part, "w", newline="") as file:
            writer = csv.DictWriter(file, FIELDS, lineterminator="\n")
            writer.writeheader()
            writer.writerows(rows.values())
        part.replace(arguments.out)
        killed = sum(each["outcome"] in ("killed", "timeout") for each in rows.values())
        low, high = interval(killed, len(rows))
        print(
            f"{outcome} {took_s:.0f} s {name}:{line} {changed(old, new)} {by}\n"
            f"{killed} of {len(rows)} killed, {low:.0%} to {high:.0%}",
            flush=True,
        )


def mutated(old: str, name: str, operator: str, occurrence: int) -> str | None:
    """Return the text of a mutant; None where it is no Python, or Cosmic Ray cannot make it (it
    takes ** before a dictionary's entries for a power, and fails on a tuple of exceptions).
    """
    try:
        new = mutate_code(old, plugins.get_operator(operator)(), occurrence)
        if new is not None:
            compile(new, name, "exec", dont_inherit=True)
    except (SyntaxError, AttributeError):
        return None
    return new


def tried(
    known: Map,
    warm: Warm,
    fresh: Fresh,
    name: str,
    line: int,
    texts: tuple[str, str],
    arguments: Any,
) -> tuple[str, str]:
    """Return the outcome of a mutant, and the test that killed it."""
    lines = statement_lines(fresh.tree / name, line)
    at_import = not known.imported[name].isdisjoint(lines)
    tests = known.tests_of(name, lines, arguments.budget_s)
    outcome, by = "survived", "no test runs it" if not (tests or at_import) else ""
    if "/engines/" in name:
        near = known.tests_near(name, arguments.budget_s, FRESH_FILES)
        return fresh.run(name, texts, tests or near, arguments.limit_s, on_disk=True)
    if tests:
        outcome, by = warm.run(name, texts, tests, arguments.limit_s)
    if at_import and outcome == "survived":
        tests = known.tests_near(name, arguments.budget_s / 3, FRESH_FILES)
        outcome, by = fresh.run(name, texts, tests, arguments.limit_s)
    return outcome, by


if __name__ == "__main__":
    main()
