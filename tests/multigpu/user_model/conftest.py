import contextlib

import pytest

from multigpu.user_model import compare
from multigpu.user_model.examining import examine_here


@pytest.fixture
def examined_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """Jobs are examined in this process, as `compare` does in one of its own (`test_hangs`)."""
    monkeypatch.setattr(compare, "examine", examine_here)
    monkeypatch.setattr(compare, "read_ahead", contextlib.nullcontext)
