"""Whatever is typed, given or read ends well or with one sentence: command lines, fields of Runs,
and files of every kind, damaged.
"""

import argparse
import contextlib
import copy
import gzip
import io
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import yaml
from hypothesis import example, given
from hypothesis import strategies as st

from multigpu import paths
from multigpu.build import build_run, build_training_run
from multigpu.cli import measure as cli_measure
from multigpu.cli import read as cli_read
from multigpu.cli.main import main
from multigpu.grids import GRIDS
from multigpu.machine.machine import this_machine
from multigpu.placements.resolve import shard_sizes
from multigpu.records import store
from multigpu.records.collective import CollectiveStore
from multigpu.records.record import RecordStore
from multigpu.records.store import Store
from multigpu.records.training import TrainingStore
from multigpu.report import experiment
from multigpu.report.batch import read_tasks
from multigpu.report.experiment import planned
from multigpu.report.notebooks import load_parameters
from multigpu.runner.lanes import lanes_of
from multigpu.runner.point import key_here
from multigpu.runner.timed import check_devices
from multigpu.spec.parameters import ParameterError
from multigpu.spec.run import Run
from multigpu.spec.training import TrainingRun
from multigpu.workloads.sources import check_inputs
from multigpu_study.stages import measure as stages
from multigpu_study.synchrony.store import SynchronyStore
from tests.conftest import FOLDERS
from tests.factory import make_point, make_record, plant
from tests.multigpu.collectives.planted import make_record as make_all_reduce
from tests.multigpu.fuzz.strategies import (
    NUMBERS,
    WORDS,
    examples,
    known_runs,
    little_memory,
    one_sentence,
    pairs_of,
    parsers,
    run_fields,
    words_of,
)
from tests.multigpu.training.planted import trained
from tests.study.synchrony.planted import averaged, record


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder in which any command may be tried, with a few Records in `runs`: nothing that it
    reads or writes is the study's.
    """
    root = tmp_path_factory.mktemp("fuzz")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(root)
        for name in FOLDERS:
            (root / name.lower()).mkdir()
            patch.setattr(paths, name, root / name.lower())
        patch.setattr(cli_measure, "measure_ceilings", lambda folder: folder)
        patch.setattr(
            stages, "measure_stages", mock.Mock(side_effect=RuntimeError("nothing is measured"))
        )
        patch.setattr(cli_read, "measured_again", lambda *_: iter(()))
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


NOTHING_ELSE: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(
        (
            "stages",
            "page",
            "ceilings",
            "doctor",
            "records",
            "verify",
            "explain",
            "advise",
            "claims",
        ),
        (),
    ),
    **{"report": ("--only", "no such page"), "study": ("--grid", "no such grid")},
}
"""What keeps a command from measuring or executing pages; others have `--dry-run`."""


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
PARSERS = parsers()


@st.composite
def lines(draw: st.DrawFn) -> list[str]:
    """A command with a few of its options and operands."""
    command = draw(st.sampled_from(list(PARSERS)))
    actions = [
        action
        for action in PARSERS[command]._actions
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
    return [*first, command, *words, *NOTHING_ELSE.get(command, ["--dry-run"])]


@pytest.mark.usefixtures("place")
@examples(60)
@given(lines())
def test_a_command_ends_well_or_with_one_sentence(words: list[str]) -> None:
    """Bad input says one sentence, and what stopped says why."""
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


SCHEDULE = pairs_of(
    {name: field for name, field in TrainingRun.model_fields.items() if name != "run"}
)


@examples(1000)
@given(run_fields())
@example({"mod\nel": 1})
@example({"workload": "nmt\u2028"})
@example(
    {"workload": "nmt", "model": "nmt_small", "placement": "ddp", "batch_size": 8, "data": "a\nb"}
)
def test_a_run_is_built_or_refused_in_one_sentence(fields: dict[str, Any]) -> None:
    with little_memory():
        try:
            run = build_run(**fields)
        except ValueError as error:
            one_sentence(str(error))
            return
        assert (
            Run.model_validate_json(run.model_dump_json()) == run
            and build_run(**run.model_dump()).digest == run.digest
        )
        assert sum(shard_sizes(run)) > 0 and run.label() and key_here(run, 0) and lanes_of(run) >= 1
        for check in (check_devices, lambda one: check_inputs([one])):
            try:
                check(run)
            except ValueError as error:
                one_sentence(str(error))


@examples(400)
@given(run_fields(), st.lists(st.sampled_from(SCHEDULE), min_size=1, max_size=4).map(dict))
def test_a_training_too(fields: dict[str, Any], schedule: dict[str, Any]) -> None:
    try:
        training = build_training_run(**fields | schedule)
    except ValueError as error:
        one_sentence(str(error))
        return
    assert (
        TrainingRun.model_validate_json(training.model_dump_json()) == training and training.digest
    )


LEAVES = [*NUMBERS, *WORDS, None, True, [], {}, [[]], 0.5, -0.5, 1e308, float("nan"), float("inf")]
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


KINDS: dict[str, tuple[type[Store], Any]] = {
    "runs": (RecordStore, make_record(repeat=1)),
    "collectives": (CollectiveStore, make_all_reduce("ring")),
    "training": (TrainingStore, trained()),
    "synchrony": (SynchronyStore, record("sync", 2, losses=(1.0, 0.5))),
    "averages": (SynchronyStore, averaged(0.1, 0.2)[0]),
}
"""A Record of every kind that can be planted, by the folder of its store."""
RECORDS = {name: json.loads(one.model_dump_json()) for name, (_, one) in KINDS.items()}


def changes_of(name: str) -> st.SearchStrategy[list[Any]]:
    return st.lists(
        st.tuples(st.sampled_from(spots_of(RECORDS[name])), st.sampled_from([*LEAVES, KeyError])),
        min_size=1,
        max_size=3,
    )


def packed(content: Any) -> bytes:
    return gzip.compress(json.dumps(content).encode("utf-8", "surrogatepass"), mtime=0)


@st.composite
def damaged(draw: st.DrawFn) -> tuple[str, bytes]:
    """The kind of a Record, and what its file holds."""
    name = draw(st.sampled_from(list(RECORDS)))
    data = packed(changed(RECORDS[name], draw(changes_of(name))))
    if draw(st.integers(0, 4)) == 0:
        data = (
            data[: draw(st.integers(0, len(data)))]
            + draw(st.binary(max_size=8))
            + data[draw(st.integers(0, len(data))) :]
        )
    return name, data


@examples(200)
@given(file=damaged())
def test_a_record_is_read_or_named(file: tuple[str, bytes], place: Path) -> None:
    name, data = file
    kind, one = KINDS[name]
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


@examples(15)
@given(changes=changes_of("runs"))
def test_what_is_read_spoils_no_command(
    changes: Any, place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Whatever of a damaged Record still passes for one."""
    root, one = place / "believed", KINDS["runs"][1]
    found = plant(RecordStore(root), [] if root.exists() else [make_record(), make_record("exp4")])
    found.path(one.machine.name, one.key).write_bytes(packed(changed(RECORDS["runs"], changes)))
    if len(list(found)) < 3:
        return
    for words in (["verify"], ["records"], ["explain", one.key], ["advise", "workload=nmt"]):
        assert main(["--records", str(root), *words]) in (0, 1, 2)
        assert "Traceback" not in capsys.readouterr().err


NAMES = st.sampled_from(
    [
        *(
            *Run.model_fields,
            "points",
            "common",
            "where",
            "job",
            "way",
            "only",
            "without",
            "cases",
            "repeats",
            "launches",
            "trace",
        ),
        *("compare", "cost_s", "tier", "tea"),
    ]
)
YAML = st.recursive(
    st.sampled_from([*NUMBERS, *WORDS[:40], None, True, 0.5]),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(NAMES, inner, max_size=3)),
    max_leaves=8,
)
ENTRY = {
    "workload": "nmt",
    "model": "nmt_small",
    "placement": ["ddp", "exp4"],
    "batch_size": 8,
    "sequence_length": 5,
    "device_type": "cpu",
}


@st.composite
def yaml_text(draw: st.DrawFn) -> str:
    """A file of points, of which some are odd; or something else."""
    if draw(st.integers(0, 3)) == 0:
        odd = [
            "&a [*a]",
            "!!python/object:os.system x",
            "a: &x {b: *x}",
            "- [",
            "\t",
            "{a: 1, a: 2}",
            "[" * 900,
        ]
        return draw(st.one_of(st.sampled_from(odd), st.text()))
    entries = [
        ENTRY | draw(st.dictionaries(NAMES, YAML, max_size=3))
        for _ in range(draw(st.integers(1, 2)))
    ]
    whole = {"points": entries} | draw(
        st.dictionaries(st.sampled_from(["question", "common", "points", "tea"]), YAML, max_size=1)
    )
    return yaml.safe_dump(draw(st.sampled_from([whole, entries])), allow_unicode=True)


@examples(100)
@given(text=yaml_text())
def test_a_file_of_points_or_parameters(text: str, place: Path) -> None:
    file = place / "points.yaml"
    file.write_bytes(text.encode("utf-8", "surrogatepass"))
    for read in (lambda: read_tasks(file, [1, 2]), lambda: load_parameters(file)):
        try:
            with little_memory():
                read()
        except (ValueError, ParameterError) as error:
            one_sentence(str(error))
            assert str(file) in str(error)


PARAMETERS = {
    **{
        name: Run.model_fields[name].default
        for name in experiment.PARAMETERS
        if name in Run.model_fields
    },
    **{
        "workload": "nmt",
        "model": "nmt_small",
        "placement": "ddp",
        "batch_size": 8,
        "sequence_length": 5,
        "device_type": "auto",
    },
    **{"repeats": 1, "trace": 0, "records": None, "compare": True, "more": {}},
}


@examples(200)
@given(
    odd=st.dictionaries(
        st.sampled_from([*PARAMETERS, "tea"]), st.one_of(YAML, st.sampled_from(LEAVES)), max_size=3
    )
)
def test_the_parameters_of_an_experiment(odd: dict[str, Any]) -> None:
    """As papermill puts them behind the parameters cell."""
    injected = ["# Parameters\n" + "".join(f"{name} = {value!r}\n" for name, value in odd.items())]
    try:
        planned({**PARAMETERS, **odd, "In": injected})
    except ParameterError as error:
        one_sentence(str(error))
