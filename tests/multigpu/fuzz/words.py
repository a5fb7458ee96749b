"""Command lines and files of Records that fuzz tests of the tool and of the study try, and what is
checked of each.
"""

import argparse
import contextlib
import copy
import gzip
import io
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from hypothesis import strategies as st

from multigpu import paths
from multigpu.build import build_run
from multigpu.cli import measure as cli_measure
from multigpu.cli.main import main
from multigpu.grids import GRIDS
from multigpu.machine.machine import this_machine
from multigpu.placements.resolve import shard_sizes
from multigpu.records import store
from multigpu.records.record import RecordStore
from multigpu.records.store import Store
from multigpu.runner.lanes import lanes_of
from multigpu.runner.timed import check_devices
from multigpu.spec.run import Run
from multigpu.workloads.sources import check_inputs
from tests.conftest import FOLDERS
from tests.factory import make_point, make_record, plant
from tests.multigpu.fuzz.strategies import (
    NUMBERS,
    WORDS,
    known_runs,
    little_memory,
    one_sentence,
    pairs_of,
    words_of,
)


@contextlib.contextmanager
def fuzzed(root: Path) -> Iterator[Path]:
    """A folder in which any command may be tried, with a few Records in `runs`: nothing that it
    reads or writes is the study's.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(root)
        for name in FOLDERS:
            (root / name.lower()).mkdir()
            patch.setattr(paths, name, root / name.lower())
        patch.setattr(cli_measure, "measure_ceilings", lambda folder: folder)
        patch.setattr(store, "_told", set())
        others = [
            make_record("exp4"),
            make_record(devices=1),
            make_record(status="failed", repeat=9),
        ]
        plant(RecordStore(root / "runs"), [*others, *make_point([1e6, 1.1e6, 0.9e6, 1e6, 1e6])])
        # commands tell the processes that they start things this way
        with mock.patch.dict(os.environ):
            yield root
    this_machine.cache_clear()


FIELDS = st.one_of(
    st.sampled_from(pairs_of(Run.model_fields)).map(lambda pair: "=".join(map(str, pair))),
    st.deferred(
        lambda: st.sampled_from(
            [f"{name}={value}" for fields in known_runs()[::40] for name, value in fields.items()]
        )
    ),
)


TEXTS = [
    *(word for word in WORDS if word.isprintable()),
    *list(GRIDS)[:20],
    *(
        make_record().key,
        "runs",
        "collectives",
        "points.yaml",
        "out",
        "table.csv",
        "table.parquet",
        "status=ok",
    ),
]


@st.composite
def lines(
    draw: st.DrawFn,
    parsers: Mapping[str, argparse.ArgumentParser],
    nothing_else: Mapping[str, Sequence[str]],
) -> list[str]:
    """A command with a few of its options and operands.
    nothing_else: what keeps a command from measuring; others have `--dry-run`.
    """
    command = draw(st.sampled_from(list(parsers)))
    actions = [
        action
        for action in parsers[command]._actions
        if not isinstance(action, argparse._HelpAction)
    ]
    words = []
    for action in (
        draw(st.lists(st.sampled_from(actions), max_size=4, unique_by=id)) if actions else ()
    ):
        words += draw(words_of(action, TEXTS))
    if any(not action.option_strings for action in actions):
        words += draw(st.lists(FIELDS, max_size=5))
    if draw(st.integers(0, 9)) == 0:
        words.insert(draw(st.integers(0, len(words))), draw(st.sampled_from(TEXTS)))
    first = draw(
        st.sampled_from(
            [[], [], [], ["--records", "runs"], ["--records", draw(st.sampled_from(TEXTS))]]
        )
    )
    return [*first, command, *words, *nothing_else.get(command, ["--dry-run"])]


LEAVES = [*NUMBERS, *WORDS, None, True, [], {}, [[]], 0.5, -0.5, 1e308, float("nan"), float("inf")]


Kinds = Mapping[str, tuple[type[Store], Any]]
"""Name -> the store of a kind of Record, and a planted one."""
Spots = list[tuple[Any, ...]]


def spots_of(value: Any, at: tuple[Any, ...] = ()) -> Spots:
    """Where something stands in JSON: every object, list and value."""
    inner = (
        value.items()
        if isinstance(value, dict)
        else list(enumerate(value))[:3]
        if isinstance(value, list)
        else ()
    )
    return [at, *(spot for name, one in inner for spot in spots_of(one, (*at, name)))]


def changed(content: Any, changes: list[tuple[tuple[Any, ...], Any]]) -> Any:
    """A copy with other values at some spots; what is gone by then is passed over."""
    whole = {"": copy.deepcopy(content)}
    for spot, value in changes:
        holder: Any = whole
        try:
            for name in ("", *spot)[:-1]:
                holder = holder[name]
            holder[("", *spot)[-1]] = value
            if value is KeyError:
                del holder[("", *spot)[-1]]
        except (KeyError, IndexError, TypeError):
            continue
    return whole.get("")


def changes_of(content: Any) -> st.SearchStrategy[list[Any]]:
    return st.lists(
        st.tuples(st.sampled_from(spots_of(content)), st.sampled_from([*LEAVES, KeyError])),
        min_size=1,
        max_size=3,
    )


def packed(content: Any) -> bytes:
    return gzip.compress(json.dumps(content).encode("utf-8", "surrogatepass"), mtime=0)


@st.composite
def damaged(draw: st.DrawFn, kinds: Kinds) -> tuple[str, bytes]:
    """The kind of a Record, and what its file holds."""
    name = draw(st.sampled_from(list(kinds)))
    content = json.loads(kinds[name][1].model_dump_json())
    data = packed(changed(content, draw(changes_of(content))))
    if draw(st.integers(0, 4)) == 0:
        data = (
            data[: draw(st.integers(0, len(data)))]
            + draw(st.binary(max_size=8))
            + data[draw(st.integers(0, len(data))) :]
        )
    return name, data


def built_or_refused(fields: Mapping[str, Any]) -> bool:
    """Check that fields make a whole Run, or are refused in one sentence; whether they do."""
    try:
        run = build_run(**fields)
    except ValueError as error:
        one_sentence(str(error))
        return False
    assert (
        Run.model_validate_json(run.model_dump_json()) == run
        and build_run(**run.model_dump()).digest == run.digest
    )
    assert sum(shard_sizes(run)) > 0 and run.label() and run.digest and lanes_of(run) >= 1
    for check in (check_devices, lambda one: check_inputs([one])):
        try:
            check(run)
        except ValueError as error:
            one_sentence(str(error))
    return True


def ends_well(words: list[str]) -> int:
    """Check that a command line ends well, or with one sentence; its exit code."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err), little_memory():
        try:
            code = main(words)
        except SystemExit as end:
            code = int(end.code or 0)
    assert code in (0, 1, 2) and "Traceback" not in out.getvalue() + err.getvalue(), err.getvalue()[
        -3000:
    ]
    if code == 2:
        said = [
            line
            for line in err.getvalue().splitlines()
            if not line.startswith(("multigpu: left out:", "multigpu: more is left"))
        ]
        one_sentence("\n".join(said))
        assert said[0].startswith("multigpu: "), said
    return code


def read_or_named(name: str, data: bytes, kinds: Kinds, place: Path) -> None:
    """Check that a file with this content is read as a Record of its kind, or named."""
    kind, one = kinds[name]
    found: Store = kind(place / "damaged" / name)
    path = found.path(one.place, one.key, one.attempt)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    with little_memory():
        said, read = list(found.unreadable()), list(found)
    assert len(said) + len(read) == 1
    for sentence in said:
        one_sentence(sentence)
        assert str(path) in sentence
