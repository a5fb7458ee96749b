"""What training takes that outlives Python's own memory is given back where its building fails."""

from functools import partial
from pathlib import Path
from typing import Any

import pytest

from multigpu_study.training.duties import files_written
from tests.multigpu.engines.test_closing import Pages, are_unlocked
from tests.multigpu.engines.test_closing import pages as pages
from tests.study.training.cases import Case, session_of, training


def test_files_are_watched_until_what_writes_them_fails(tmp_path: Path) -> None:
    with pytest.raises(KeyError), files_written(tmp_path) as names:
        raise KeyError
    (tmp_path / "later").touch()
    assert not names


@pytest.mark.parametrize("shape", [{"devices": 1}, {"devices": 2, "processes": "one"}])
def test_pages_are_unlocked_where_building_fails(
    shape: dict[str, Any], pages: Pages, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = partial(session_of, Case("one", training("exp2", **shape)), 0)
    # the trainer stands by then
    place = "multigpu_study.training.session.files_written"
    are_unlocked(place, opened, pages, tmp_path, monkeypatch)
