"""What a fuzzed input is made of: what somebody might type, and what nobody should."""

import argparse
import contextlib
import math
import os
import re
import resource
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin
from unittest import mock

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from pydantic.fields import FieldInfo

from multigpu.cli import command
from multigpu.cli import main as cli
from multigpu.cli.main import main
from multigpu.grids import GRIDS
from multigpu.placements import placements
from multigpu.spec.run import Run
from multigpu.workloads import workloads

TIMES = int(os.environ.get("MULTIGPU_FUZZ", "1"))
"""How many times its usual examples a test tries; beyond 1 they differ from call to call."""

NUMBERS = (0, 1, 2, 3, 4, 7, 8, 16, 64, 100, 4096, 10**8, 2**31, 2**63, 10**20, -1, -(2**63))
WORDS = (
    *(
        "",
        " ",
        ",",
        "=",
        "-",
        "--",
        "0",
        "1",
        "2",
        "1,2",
        "2,1,",
        "-1",
        "00",
        "1e3",
        "nan",
        "inf",
        "-inf",
        "1e309",
        "9" * 300,
        "²",
        "٣",
    ),
    *(
        "true",
        "none",
        "null",
        "a\nb",
        "caf\udce9",
        "../..",
        "~",
        "x" * 999,
        "{0}",
        "%s",
        "🌲",
        "\u202e",
        "[",
        "'",
        '"',
        "$(date)",
        "*",
    ),
)
"""Words that something might take for a number, a path, a format or a pattern."""

settings.register_profile(
    "fuzz",
    derandomize=TIMES == 1,
    deadline=None,
    database=None,
    suppress_health_check=list(HealthCheck),
)


def examples(count: int) -> settings:
    """So many examples; in `make test` half as many, at most 30, and the same in every call."""
    most = count * TIMES if TIMES > 1 else min(count // 2, 30)
    return settings(settings.get_profile("fuzz"), max_examples=most)


def one_sentence(text: str) -> None:
    """Check that this names what is wrong and no more."""
    lines = text.strip("\n").splitlines()
    assert len(lines) == 1, text[-2000:]
    # what was typed may be said again, however long
    assert len(re.sub(r"(.)\1{99,}", "", lines[0])) <= 3000, text[:2000]
    assert not re.search(r"Traceback|validation error|Error\(|object at 0x", lines[0]), text


@contextlib.contextmanager
def little_memory() -> Iterator[None]:
    """Check that what is inside, even if it raises, does not raise this process's peak by a GiB."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    try:
        yield
    finally:
        assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 1 << 20


def values_of(annotation: Any) -> list[Any]:
    """Values of a declared type, allowed or not."""
    origin, parts = get_origin(annotation), get_args(annotation)
    if origin is Literal:
        return list(parts)
    if origin in (Union, UnionType):
        return [value for part in parts for value in values_of(part)]
    return list(VALUES.get(annotation, ())) or [
        (),
        ("",),
        ("a", "b"),
        ("a\0b",),
        ("/dev/null",),
        tuple(WORDS[:5]),
    ]


NAMES = (
    *placements(),
    *workloads(),
    *(name for workload in workloads().values() for name in (*workload.models, *workload.inputs)),
    *(
        "0",
        "0,1",
        "1,0",
        "3,3",
        "0,,1",
        "01",
        "012",
        "9",
        "ring:64k,tree",
        "nccl",
        "ring#4",
        ":",
        "x",
    ),
)
VALUES = {
    type(None): [None],
    bool: [True, False],
    int: NUMBERS,
    float: [0.0, 0.5, 1e-300, 1e300, math.nan, math.inf, -math.inf],
    str: NAMES,
}


def pairs_of(fields: Mapping[str, FieldInfo]) -> list[tuple[str, Any]]:
    """A name with each value that it might be given; its own type's twice as often as any other."""
    odd, found = [*WORDS, *NUMBERS, None, [], {}, 0.5], []
    for name, field in fields.items():
        own = values_of(field.annotation)
        found += [(name, value) for value in own * max(1, 2 * len(odd) // len(own)) + odd]
    return found


CHANGES = st.sampled_from(pairs_of(Run.model_fields))


@cache
def known_runs() -> list[dict[str, Any]]:
    """The fields of Runs that are measured, from every grid: one of each set of names and
    placement.
    """
    runs = [entry.run for grid in GRIDS.values() for entry in grid([1, 2])]
    dumps = [(run, run.model_dump(exclude_defaults=True)) for run in runs]
    return list(
        {
            (*fields, run.placement, run.workload, run.framework): fields
            for run, fields in reversed(dumps)
        }.values()
    )


def run_fields() -> st.SearchStrategy[dict[str, Any]]:
    """A Run's fields with one to four of them changed."""
    known = st.deferred(lambda: st.sampled_from(known_runs()))
    return st.builds(
        lambda fields, changes: fields | dict(changes),
        known,
        st.lists(CHANGES, min_size=1, max_size=4),
    )


def parsers() -> dict[str, argparse.ArgumentParser]:
    """The parser of every command, by name."""
    whole = cli.build_parser()
    commands = dict(
        next(
            action for action in whole._actions if isinstance(action, argparse._SubParsersAction)
        ).choices
    )
    own_parsers = [command.name for command in cli.COMMANDS.values() if command.arguments is None]
    for name in own_parsers:
        with (
            mock.patch.object(
                command.Parser, "parse_args", autospec=True, side_effect=EOFError
            ) as asked,
            pytest.raises(EOFError),
        ):
            main([name])
        commands[name] = asked.call_args[0][0]
    return commands


def words_of(action: argparse.Action, texts: Sequence[str]) -> st.SearchStrategy[list[str]]:
    """What may stand on a command line for this option or operand."""
    one = st.sampled_from(texts)
    if action.choices is not None:
        one = st.one_of(st.sampled_from([str(choice) for choice in action.choices]), one)
    if not action.option_strings:
        return (
            st.lists(one, max_size=4)
            if action.nargs in ("*", "+", "?")
            else one.map(lambda word: [word])
        )
    option = action.option_strings[-1]
    return (
        st.just([option])
        if action.nargs == 0
        else st.one_of(one.map(lambda word: [option, word]), one.map(lambda w: [f"{option}={w}"]))
    )
