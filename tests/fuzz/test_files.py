"""Files of every kind, damaged in every way: what cannot be read is named in one sentence, and what can be spoils no command."""

import copy
import gzip
import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from multigpu import experiment
from multigpu.batch import read_tasks
from multigpu.cli import main
from multigpu.collectives.record import CollectiveStore
from multigpu.experiment import planned
from multigpu.notebooks import load_parameters
from multigpu.parameters import ParameterError
from multigpu.record import RecordStore
from multigpu.run import Run
from multigpu.store import Store
from multigpu.synchrony.store import SynchronyStore
from multigpu.training.record import TrainingStore
from tests.collectives.planted import make_record as make_all_reduce
from tests.factory import make_record, plant
from tests.fuzz.strategies import NUMBERS, WORDS, examples, little_memory, one_sentence
from tests.synchrony.planted import averaged, record
from tests.training.planted import trained

LEAVES = [*NUMBERS, *WORDS, None, True, [], {}, [[]], 0.5, -0.5, 1e308, float("nan"), float("inf")]
Spots = list[tuple[Any, ...]]


def spots_of(value: Any, at: tuple[Any, ...] = ()) -> Spots:
    """Where something stands in JSON: every object, list and value."""
    inner = value.items() if isinstance(value, dict) else list(enumerate(value))[:3] if isinstance(value, list) else ()
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
TEXTS = {name: json.loads(one.model_dump_json()) for name, (_, one) in KINDS.items()}


def changes_of(name: str) -> st.SearchStrategy[list[Any]]:
    return st.lists(st.tuples(st.sampled_from(spots_of(TEXTS[name])), st.sampled_from([*LEAVES, KeyError])), min_size=1, max_size=3)


def packed(content: Any) -> bytes:
    return gzip.compress(json.dumps(content).encode("utf-8", "surrogatepass"), mtime=0)


@st.composite
def damaged(draw: st.DrawFn) -> tuple[str, bytes]:
    """The kind of a Record, and what its file holds."""
    name = draw(st.sampled_from(list(TEXTS)))
    data = packed(changed(TEXTS[name], draw(changes_of(name))))
    if draw(st.integers(0, 4)) == 0:
        data = data[: draw(st.integers(0, len(data)))] + draw(st.binary(max_size=8)) + data[draw(st.integers(0, len(data))) :]
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
def test_what_is_read_spoils_no_command(changes: Any, place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Whatever of a damaged Record still passes for one."""
    root, one = place / "believed", KINDS["runs"][1]
    found = plant(RecordStore(root), [] if root.exists() else [make_record(), make_record("exp4")])
    found.path(one.machine.name, one.key).write_bytes(packed(changed(TEXTS["runs"], changes)))
    if len(list(found)) < 3:
        return
    for words in (["verify"], ["records"], ["explain", one.key], ["advise", "workload=nmt"]):
        assert main(["--records", str(root), *words]) in (0, 1, 2)
        assert "Traceback" not in capsys.readouterr().err


NAMES = st.sampled_from(
    [
        *(*Run.model_fields, "points", "common", "where", "job", "way", "only", "without", "cases", "repeats", "launches", "trace"),
        *("compare", "cost_s", "tier", "tea"),
    ]
)
YAML = st.recursive(
    st.sampled_from([*NUMBERS, *WORDS[:40], None, True, 0.5]),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(NAMES, inner, max_size=3)),
    max_leaves=8,
)
ENTRY = {"workload": "nmt", "model": "nmt_small", "placement": ["ddp", "exp4"], "batch_size": 8, "sequence_length": 5, "device_type": "cpu"}


@st.composite
def yaml_text(draw: st.DrawFn) -> str:
    """A file of points, of which some are odd; or something else."""
    if draw(st.integers(0, 3)) == 0:
        odd = ["&a [*a]", "!!python/object:os.system x", "a: &x {b: *x}", "- [", "\t", "{a: 1, a: 2}", "[" * 900]
        return draw(st.one_of(st.sampled_from(odd), st.text()))
    entries = [ENTRY | draw(st.dictionaries(NAMES, YAML, max_size=3)) for _ in range(draw(st.integers(1, 2)))]
    whole = {"points": entries} | draw(st.dictionaries(st.sampled_from(["question", "common", "points", "tea"]), YAML, max_size=1))
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
    **{name: Run.model_fields[name].default for name in experiment.PARAMETERS if name in Run.model_fields},
    **{"workload": "nmt", "model": "nmt_small", "placement": "ddp", "batch_size": 8, "sequence_length": 5, "device_type": "auto"},
    **{"repeats": 1, "trace": 0, "records": None, "compare": True, "more": {}},
}


@examples(200)
@given(odd=st.dictionaries(st.sampled_from([*PARAMETERS, "tea"]), st.one_of(YAML, st.sampled_from(LEAVES)), max_size=3))
def test_the_parameters_of_an_experiment(odd: dict[str, Any]) -> None:
    """As papermill puts them behind the parameters cell."""
    injected = ["# Parameters\n" + "".join(f"{name} = {value!r}\n" for name, value in odd.items())]
    try:
        planned({**PARAMETERS, **odd, "In": injected})
    except ParameterError as error:
        one_sentence(str(error))
