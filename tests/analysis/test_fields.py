"""Every field of a Run is declared to those who compare Runs, is told in words where it differs, and finds its Records."""

import pandas as pd
import pytest

from multigpu import paths
from multigpu.analysis.asked import command_of
from multigpu.analysis.fields import FIELDS, ROLES, with_role
from multigpu.analysis.points import where
from multigpu.analysis.read import frames
from multigpu.analysis.words import OF_A_JOB, SAYS, way_words
from multigpu.command import parse_fields
from multigpu.run import Run


@pytest.fixture(scope="module")
def everywhere() -> pd.DataFrame:
    return frames(paths.RUNS)[1]


def test_every_field_declares_what_it_is_and_none_is_declared_that_no_run_has() -> None:
    assert set(ROLES) == set(Run.model_fields), "say in `fields.ROLES` what a new field is to those who compare Runs"
    told = {*SAYS, *OF_A_JOB, "placement"}
    untold = set(with_role("way", "condition", "host", "length")) - told
    assert not untold and set(SAYS) <= set(Run.model_fields), "say in `words.SAYS` how its values are called"


@pytest.mark.parametrize("name", [*with_role("way", "condition", "host")])
def test_ways_that_differ_in_one_field_are_called_differently(name: str, everywhere: pd.DataFrame) -> None:
    """`advise` would else print equal rows."""
    usual = {"cross_entropy": "library", "layout": "channels_last"}  # named or not, it is the same way
    row, values = everywhere.iloc[0], [value for value in everywhere[name].dropna().unique() if value != usual.get(name)]
    texts = [way_words(pd.concat([row.drop(name), pd.Series({name: value})])) for value in values]
    assert len(set(texts)) == len(values)


@pytest.mark.parametrize("name", FIELDS)
def test_a_filter_by_any_field_finds_its_records(name: str, everywhere: pd.DataFrame) -> None:
    """As `explain`, `advise` and `measure` read it, with the words of a command that they print."""
    for value in everywhere[name].dropna().unique():
        (word,) = (
            word for word in command_of({name: value.item() if hasattr(value, "item") else value}).split() if word.startswith(f"{name}=")
        )
        found = where(everywhere, **parse_fields([word.strip("'")]))
        assert len(found) == (everywhere[name] == value).sum() > 0, word
