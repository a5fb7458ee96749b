"""Whatever is typed, given or read ends well or with one sentence: command lines, fields of Runs,
and files of every kind, damaged.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import example, given
from hypothesis import strategies as st

from multigpu.cli.command import COMMANDS
from multigpu.cli.main import main
from multigpu.records.collective import CollectiveStore
from multigpu.records.record import RecordStore
from multigpu.report import experiment
from multigpu.report.batch_rows import read_tasks
from multigpu.report.experiment import planned
from multigpu.report.notebooks import load_parameters
from multigpu.spec.parameters import ParameterError
from multigpu.spec.run import Run
from tests.factory import make_record, plant
from tests.multigpu.collectives.planted import make_record as make_all_reduce
from tests.multigpu.fuzz.strategies import (
    NUMBERS,
    WORDS,
    examples,
    little_memory,
    one_sentence,
    parsers,
    run_fields,
)
from tests.multigpu.fuzz.words import (
    LEAVES,
    Kinds,
    built_or_refused,
    changed,
    changes_of,
    damaged,
    ends_well,
    fuzzed,
    lines,
    packed,
    read_or_named,
)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with fuzzed(tmp_path_factory.mktemp("fuzz")) as root:
        yield root


NOTHING_ELSE: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("page", "ceilings", "doctor", "records", "verify", "explain", "advise"), ()),
    **{"report": ("--only", "no such page"), "study": ("--grid", "no such grid")},
}
"""What keeps a command from measuring or executing pages; others have `--dry-run`."""


PARSERS = {name: parser for name, parser in parsers().items() if name not in COMMANDS.of_the_study}


@pytest.mark.usefixtures("place")
@examples(60)
@given(lines(PARSERS, NOTHING_ELSE))
def test_a_command_ends_well_or_with_one_sentence(words: list[str]) -> None:
    """Bad input says one sentence, and what stopped says why."""
    ends_well(words)


@examples(1000)
@given(run_fields())
@example({"mod\nel": 1})
@example({"workload": "nmt\u2028"})
@example(
    {"workload": "nmt", "model": "nmt_small", "placement": "ddp", "batch_size": 8, "data": "a\nb"}
)
def test_a_run_is_built_or_refused_in_one_sentence(fields: dict[str, Any]) -> None:
    with little_memory():
        built_or_refused(fields)


KINDS: Kinds = {
    "runs": (RecordStore, make_record(repeat=1)),
    "collectives": (CollectiveStore, make_all_reduce("ring")),
}
"""A Record of every kind that can be planted, by the folder of its store."""
RUN_RECORD = json.loads(KINDS["runs"][1].model_dump_json())


@examples(200)
@given(file=damaged(KINDS))
def test_a_record_is_read_or_named(file: tuple[str, bytes], place: Path) -> None:
    read_or_named(*file, KINDS, place)


@examples(15)
@given(changes=changes_of(RUN_RECORD))
def test_what_is_read_spoils_no_command(
    changes: Any, place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Whatever of a damaged Record still passes for one."""
    root, one = place / "believed", KINDS["runs"][1]
    found = plant(RecordStore(root), [] if root.exists() else [make_record(), make_record("exp4")])
    found.path(one.machine.name, one.key).write_bytes(packed(changed(RUN_RECORD, changes)))
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
@example(odd={"repeats": 10**8})
@example(odd={"records": "x" * 999})
def test_the_parameters_of_an_experiment(odd: dict[str, Any]) -> None:
    """As papermill puts them behind the parameters cell."""
    injected = ["# Parameters\n" + "".join(f"{name} = {value!r}\n" for name, value in odd.items())]
    try:
        with little_memory():
            planned({**PARAMETERS, **odd, "In": injected})
    except ParameterError as error:
        one_sentence(str(error))
