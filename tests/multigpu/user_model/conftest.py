import contextlib

import pytest

from multigpu.user_model import compare
from tests.multigpu.user_model.examined import examine_here


@pytest.fixture
def examined_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """Jobs are examined here; else `compare` and `fits` do so apart (`test_notebook_job`,
    `test_hangs`).
    """
    monkeypatch.setattr(compare, "examine", examine_here)
    monkeypatch.setattr("multigpu.user_model.fits.examine_apart", examine_here)
    monkeypatch.setattr(compare, "read_ahead", contextlib.nullcontext)
