"""The check of sharing: the same Runs alone and beside neighbours, with numbers that never collide, resumed a whole round at a time.

And a Run against itself.
"""

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats

from multigpu.grid import find_grid
from multigpu.measure import interference
from multigpu.measure.interference import MOST_REPEATS, SLOTS, check_interference, main, repeat_of
from multigpu.measure.point import Point
from multigpu.measure.sweep import measure
from multigpu.record import Record, RecordStore
from multigpu.run import Run
from tests.measure.launched import PATHS
from tests.refusals import refused

needs_two_cores = pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="one core makes one lane")


def small_runs() -> list[Run]:
    return [entry.run for entry in find_grid("interference_small", [1]) if entry.run.framework == "torch"]


def slots(records: list[Record]) -> dict[tuple[int, int], int]:
    """(neighbours, slot) -> how many Records."""
    found: dict[tuple[int, int], int] = {}
    for record in records:
        assert record.lane
        key = (record.lane.neighbours, record.repeat // MOST_REPEATS)
        found[key] = found.get(key, 0) + 1
    return found


def test_repeats_have_numbers_of_their_own() -> None:
    asked = [(number, slot, repeat) for number in range(3) for slot in range(SLOTS) for repeat in range(MOST_REPEATS)]
    assert len({repeat_of(*one) for one in asked}) == len(asked)


@needs_two_cores
@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_round_is_alone_and_then_together_and_is_not_torn_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", PATHS)
    runs, store = small_runs()[:1], RecordStore(tmp_path / "interference")
    done = check_interference(runs, store, rounds=1, repeats=2, progress=False)
    assert done.statuses == {"ok": 6}
    assert slots(list(store)) == {(0, 0): 2, (1, 1): 2, (1, 2): 2}
    again = check_interference(runs, store, rounds=1, repeats=2, progress=False)
    assert (sum(again.statuses.values()), again.reused) == (0, 6)
    lost = next(record for record in store if record.repeat == repeat_of(0, 1, 1))
    store.path(lost.machine.name, lost.key).unlink()
    asked: list[tuple[list[Any], Any]] = []
    monkeypatch.setattr(interference, "run_lanes", lambda shares, store, bar, summary, retry: asked.append((shares, retry)))
    rest = check_interference(runs, store, rounds=1, repeats=2, progress=False)
    ((shares, retry),) = asked
    assert rest.reused == 2 and "ok" in retry, "lane 0 is not measured without its neighbour, which measures again what it has"
    assert [sorted(point.repeat for point in share.points) for share in shares] == [
        [repeat_of(0, slot, repeat) for repeat in (0, 1)] for slot in (1, 2)
    ]


def test_what_cannot_be_checked_is_refused(tmp_path: Path) -> None:
    runs, store = small_runs(), RecordStore(tmp_path)
    refused("^0 rounds of 3 repeats", check_interference, runs, store, rounds=0)
    refused("^1 rounds of 101 repeats", check_interference, runs, store, rounds=1, repeats=101)
    refused("needs at least two lanes", check_interference, runs, store, lanes=1)


def test_the_command_lists_what_it_would_measure(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--dry-run"]) == 0
    assert "resnet" in capsys.readouterr().out
    assert main(["--framework", "tensorflow", "--devices", "2"]) == 2
    assert "nothing of 'tensorflow' is checked on 2 devices" in capsys.readouterr().err


@pytest.mark.alone
@pytest.mark.slow
@pytest.mark.timeout(180)
def test_a_against_a(tmp_path) -> None:
    """Ten repeats in shuffled order, even ones called A and odd ones called A again.

    The interval is that of 99.9%: this machine's other work may disturb one half, and one test run in a thousand may fail by chance.
    """
    run = Run(
        workload="cnn", model="resnet_tiny", placement="independent", device_type="cpu", batch_size=16, warmup_steps=3, timed_steps=20
    )
    store = RecordStore(tmp_path)
    assert measure([Point(run, repeat) for repeat in range(10)], store, progress=False).statuses == {"ok": 10}
    parts = [[record.measurement for record in store if record.repeat % 2 == half] for half in (0, 1)]
    halves = [np.log([m.units / m.wall_s for m in found]) for found in parts]
    assert stats.ttest_ind(*halves, equal_var=False).pvalue > 0.001
