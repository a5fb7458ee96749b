"""The soak of `benchmarks/soak.py`, small: what is killed loses nothing, and what is measured stays readable."""

from __future__ import annotations

from pathlib import Path

import pytest
from benchmarks.soak import soak

from tests.measure.launched import descendants


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_random_kills_lose_no_run(tmp_path: Path) -> None:
    before = set(descendants())
    store, kills, _ = soak(tmp_path, runs=10, every=4)
    assert [record.status for record in store] == ["ok"] * 10 and not list(store.unreadable())
    assert kills and {kill.victim for kill in kills} <= {"agent", "worker"} and not set(descendants()) - before
