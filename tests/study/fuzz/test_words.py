"""Whatever is typed of the study's commands, or read of its Records, ends well or with one
sentence.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from multigpu.cli.command import COMMANDS
from multigpu_study.synchrony.store import SynchronyStore
from multigpu_study.training.build import build_training_run
from multigpu_study.training.record import TrainingStore
from multigpu_study.training.run import TrainingRun
from tests.multigpu.fuzz.strategies import examples, one_sentence, pairs_of, parsers, run_fields
from tests.multigpu.fuzz.words import Kinds, damaged, ends_well, fuzzed, lines, read_or_named
from tests.study.synchrony.planted import averaged, record
from tests.study.training.planted import trained

KINDS: Kinds = {
    "synchrony": (SynchronyStore, record("sync", 2, losses=(1.0, 0.5))),
    "averages": (SynchronyStore, averaged(0.1, 0.2)[0]),
    "training": (TrainingStore, trained()),
}
"""A Record of every kind that can be planted, by the folder of its store."""
PARSERS = {name: parser for name, parser in parsers().items() if name in COMMANDS.of_the_study}
NOTHING_ELSE: dict[str, tuple[str, ...]] = {"claims": ()}
"""What keeps a command from measuring; others have `--dry-run`."""


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with fuzzed(tmp_path_factory.mktemp("fuzz")) as root:
        yield root


@pytest.mark.usefixtures("place")
@examples(30)
@given(lines(PARSERS, NOTHING_ELSE))
def test_a_command_ends_well_or_with_one_sentence(words: list[str]) -> None:
    ends_well(words)


@examples(80)
@given(file=damaged(KINDS))
def test_a_record_is_read_or_named(file: tuple[str, bytes], place: Path) -> None:
    read_or_named(*file, KINDS, place)


SCHEDULE = pairs_of(
    {name: field for name, field in TrainingRun.model_fields.items() if name != "run"}
)


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
