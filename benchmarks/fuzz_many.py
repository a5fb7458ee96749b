"""Try very many field combinations and command lines, drawn by a seed: each is taken, or refused in
one sentence.

    python -m benchmarks.fuzz_many --fields 1000000 --lines 5000 --seed 1

Commands that would measure get `--dry-run`. Exit status 1: something raised, wrote a traceback, or
ended with another code than 0, 1, 2 or 130; what it was is printed.
"""

import argparse
import random
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, Phase, given, seed, settings
from tests.multigpu.fuzz.strategies import known_runs, pairs_of, parsers
from tests.multigpu.fuzz.words import built_or_refused, ends_well, fuzzed, lines

from multigpu.spec.run import Run

READ_ONLY = (
    *("page", "ceilings", "doctor", "records", "verify", "explain", "advise", "table", "fits"),
    "claims",
)
NOTHING_ELSE: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(READ_ONLY, ()),
    **{"report": ("--only", "no such page"), "study": ("--grid", "no such grid")},
}
"""What keeps a command from measuring or executing pages; others have `--dry-run`."""
SHOWN = 20


class Tried:
    """Counts of how things ended, and what broke."""

    def __init__(self) -> None:
        self.ended, self.broken = Counter[str](), list[str]()

    def __call__(self, given: object, check: Callable[[Any], object]) -> None:
        try:
            self.ended[str(check(given))] += 1
        except Exception:
            self.ended["broken"] += 1
            self.broken.append(f"{given!r}\n{traceback.format_exc(limit=-4)}")

    def told(self, what: str, began: float) -> str:
        ended = ", ".join(f"{count:,} {how}" for how, count in sorted(self.ended.items()))
        return f"{self.ended.total():,} {what} in {time.monotonic() - began:.0f} s: {ended}"


def try_fields(count: int, drawn: random.Random) -> Tried:
    """Change one to four fields of Runs that grids measure, so many times."""
    tried, known, changes = Tried(), known_runs(), pairs_of(Run.model_fields)
    said = {True: "built", False: "refused in a sentence"}
    for _ in range(count):
        fields = drawn.choice(known) | dict(drawn.choices(changes, k=drawn.randint(1, 4)))
        tried(fields, lambda one: said[built_or_refused(one)])
    return tried


def try_lines(count: int, number: int) -> Tried:
    """Run so many command lines in this process, in a folder of their own."""
    tried = Tried()

    @seed(number)
    @settings(
        max_examples=count,
        phases=[Phase.generate],
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(lines(parsers(), NOTHING_ELSE))
    def each(words: list[str]) -> None:
        tried(words, lambda one: f"with code {ends_well(one)}")

    with tempfile.TemporaryDirectory() as folder, fuzzed(Path(folder)):
        each()
    return tried


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--fields", type=int, default=1000, help="combinations of a Run's fields")
    parser.add_argument("--lines", type=int, default=50, help="command lines")
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args(words)
    broken = []
    for what, try_all in (
        ("field combinations", lambda: try_fields(asked.fields, random.Random(asked.seed))),
        ("command lines", lambda: try_lines(asked.lines, asked.seed)),
    ):
        began = time.monotonic()
        tried = try_all()
        print(tried.told(what, began), flush=True)
        broken += tried.broken
    print(*broken[:SHOWN], f"{len(broken)} broke", sep="\n", file=sys.stderr)
    return int(bool(broken))


if __name__ == "__main__":
    sys.exit(main())
