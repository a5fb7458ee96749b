"""Draw mutants of the core and count those that a test notices.

Cosmic Ray makes them (`pip install cosmic-ray`, in an environment of its own); each is tried in a
copy of the tracked files, so that nothing here changes. Its tests are those that import the mutated
module, then those of its folder, until one fails. The table grows by a row a mutant, and the same
command goes on from it.

    PYTHONPATH=WHERE_COSMIC_RAY_IS python benchmarks/mutants.py --draw 100 --out mutants.csv
"""

import argparse
import ast
import csv
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from math import sqrt
from pathlib import Path

import hypothesis  # noqa: F401 # imported once, before the tests are forked
import pandas  # noqa: F401
import pytest
import scipy.stats  # noqa: F401
import torch._dynamo  # noqa: F401
from cosmic_ray import plugins
from cosmic_ray.ast import ast_nodes, get_ast_from_path
from cosmic_ray.mutating import use_mutation

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

TESTS = {
    "spec": "spec test_conditions.py placements test_grid.py test_environment.py",
    "placements": "placements equivalence/test_formulas.py spec",
    "records": "test_store.py test_packing.py test_verify.py",
    "engines": "engines/test_buckets.py",
    "analysis": "analysis",
}
"""Folder of the package -> its tests below tests/multigpu, the quick ones first."""

SLOW = (
    *("user_model", "runner", "fuzz", "test_wheel", "test_report", "test_pages", "test_copied"),
    *("tensorflow", "test_placements", "test_twins", "test_recomputed", "test_data_package"),
)
"""Words in the names of files that take too long for one mutant."""
FIELDS = ("module", "line", "operator", "occurrence", "outcome", "seconds", "change")


def annotated(path: Path) -> set[int]:
    """Return the lines of annotations and of imports for type checking: no program reads them."""
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
        tree, passed_over = get_ast_from_path(file), annotated(file)
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


def tests_of(module: Path, tree: Path) -> list[str]:
    """Return the test files of a module: those that import it, then those of its folder."""
    dotted = ".".join(module.relative_to(tree / "src").with_suffix("").parts)
    parent, _, name = dotted.rpartition(".")
    pattern = re.compile(rf"{re.escape(dotted)}\b|from {re.escape(parent)} import [^\n]*\b{name}\b")
    every = sorted(tree.glob("tests/**/test_*.py"))
    direct = [
        file
        for file in every
        if not any(word in str(file) for word in SLOW) and pattern.search(file.read_text())
    ]
    folder = dotted.split(".")[1]
    whole = [tree / "tests" / "multigpu" / part for part in TESTS[folder].split()]
    own = [file for part in whole for file in (sorted(part.rglob("test_*.py")) or [part])]
    return [str(file.relative_to(tree)) for file in dict.fromkeys([*direct, *own])]


def run(tree: Path, tests: list[str], limit_s: float) -> tuple[str, float]:
    """Run the tests on the tree in a fork of this process, which has imported the libraries that
    take longest; "killed", "survived" or "timeout", and the seconds it took.
    """
    began = time.monotonic()
    child = os.fork()
    if not child:
        os.setsid()
        os.chdir(tree)
        sys.path[:0] = [str(tree / "src"), str(tree)]
        os.environ["PYTHONPATH"] = f"{tree / 'src'}:{tree}"
        silent = os.open(os.devnull, os.O_WRONLY)
        os.dup2(silent, 1)
        os.dup2(silent, 2)
        words = ["-x", "-q", "-n0", "-p", "no:cacheprovider", "-m", "not alone and not gpu"]
        os._exit(int(pytest.main([*words, *tests])))
    while not os.waitid(os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT):
        if time.monotonic() > began + limit_s:
            os.killpg(child, signal.SIGKILL)
            os.waitpid(child, 0)
            return "timeout", time.monotonic() - began
        time.sleep(0.05)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    return "killed" if code else "survived", time.monotonic() - began


def wilson(killed: int, of: int) -> tuple[float, float]:
    """Return the 95% interval of a share (Wilson)."""
    z, share = 1.96, killed / of
    middle, width = share + z * z / (2 * of), z * sqrt(share * (1 - share) / of + (z / 2 / of) ** 2)
    return (middle - width) / (1 + z * z / of), (middle + width) / (1 + z * z / of)


def main() -> None:
    """Try the drawn mutants that the table does not hold yet; it grows by a row a mutant."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--draw", type=int, default=100)
    parser.add_argument("--seed", type=int, default=47)
    parser.add_argument("--limit-s", type=float, default=120.0)
    parser.add_argument("--for-s", type=float, default=1e9, help="begin no mutant after so long")
    parser.add_argument("--only", default="", help="a word in the module's path")
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    ends = time.monotonic() + arguments.for_s
    with tempfile.TemporaryDirectory(prefix="mutants-") as scratch:
        tree = Path(scratch) / "tree"
        listed = subprocess.run(["git", "ls-files"], cwd=HERE, capture_output=True, text=True)
        for name in listed.stdout.splitlines():
            if (HERE / name).is_file():
                (tree / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(HERE / name, tree / name)
        every = list(mutants(tree / "src" / "multigpu"))
        drawn = random.Random(arguments.seed).sample(every, min(arguments.draw, len(every)))
        print(f"{len(every)} mutants, {len(drawn)} drawn", flush=True)
        rows: list[dict[str, str]] = []
        if arguments.out.exists():
            with open(arguments.out, newline="") as file:
                rows = list(csv.DictReader(file))
        known = {(row["module"], row["operator"], row["occurrence"]) for row in rows}
        passed: set[str] = set()
        for module, operator, occurrence, line in drawn:
            name = str(module.relative_to(tree))
            if (name, operator, str(occurrence)) in known or arguments.only not in name:
                continue
            if time.monotonic() > ends:
                break
            tests = tests_of(module, tree)
            if name not in passed and run(tree, tests, arguments.limit_s)[0] != "survived":
                sys.exit(f"{' '.join(tests)} fail or take too long without a mutation")
            passed.add(name)
            with use_mutation(module, plugins.get_operator(operator)(), occurrence) as (old, new):
                if new is None:
                    continue
                pairs = zip(old.splitlines(), new.splitlines(), strict=False)
                change = next((f"{a.strip()} -> {b.strip()}" for a, b in pairs if a != b), "")
                outcome, took_s = run(tree, tests, arguments.limit_s)
            row = dict(
                zip(
                    FIELDS,
                    map(str, (name, line, operator, occurrence, outcome, round(took_s), change)),
                    strict=True,
                )
            )
            rows.append(row)
            with open(arguments.out, "w", newline="") as file:
                writer = csv.DictWriter(file, FIELDS)
                writer.writeheader()
                writer.writerows(rows)
            killed = sum(each["outcome"] != "survived" for each in rows)
            low, high = wilson(killed, len(rows))
            print(
                f"{outcome} {took_s:.0f} s {name}:{line} {change}\n"
                f"{killed} of {len(rows)} killed, {low:.0%} to {high:.0%}",
                flush=True,
            )


if __name__ == "__main__":
    main()
