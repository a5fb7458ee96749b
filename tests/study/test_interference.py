"""The check of sharing: the same Runs alone and beside neighbours, resumed a whole round at a
time.
"""

import os
from collections import Counter
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from benchmarks import interference
from benchmarks.interference import MOST_REPEATS, SLOTS, check_interference, main, repeat_of

from multigpu.analysis.statistics import mean_interval
from multigpu.build import build_run
from multigpu.grids import find_grid
from multigpu.paths import INTERFERENCE
from multigpu.records.record import RecordStore
from multigpu.runner.lanes import undisturbed
from multigpu.spec.run import Run
from tests.multigpu.runner.launched import PATHS
from tests.refusals import refused


def small_runs() -> list[Run]:
    return [
        entry.run
        for entry in find_grid("interference_small", [1])
        if entry.run.framework == "torch"
    ]


def test_repeats_have_numbers_of_their_own() -> None:
    asked = [
        (number, slot, repeat)
        for number in range(3)
        for slot in range(SLOTS)
        for repeat in range(MOST_REPEATS)
    ]
    assert len({repeat_of(*one) for one in asked}) == len(asked)


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="one core makes one lane")
@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_round_is_alone_and_then_together_and_is_not_torn_apart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", PATHS)
    runs, store = small_runs()[:1], RecordStore(tmp_path / "interference")
    assert check_interference(runs, store, rounds=1, repeats=2, progress=False).statuses == {
        "ok": 6
    }
    slots = Counter(
        (record.lane and record.lane.neighbours, record.repeat // MOST_REPEATS) for record in store
    )
    assert slots == {(0, 0): 2, (1, 1): 2, (1, 2): 2}
    again = check_interference(runs, store, rounds=1, repeats=2, progress=False)
    assert (sum(again.statuses.values()), again.reused) == (0, 6)
    lost = next(record for record in store if record.repeat == repeat_of(0, 1, 1))
    store.path(lost.machine.name, lost.key).unlink()
    asked: list[tuple[dict[Any, Any], Any]] = []
    monkeypatch.setattr(
        interference,
        "run_lanes",
        lambda shares, store, bar, summary, retry: asked.append((shares, retry)),
    )
    rest = check_interference(runs, store, rounds=1, repeats=2, progress=False)
    ((shares, retry),) = asked
    assert rest.reused == 2 and "ok" in retry, (
        "lane 0 is not measured without its neighbour, which measures again what it has"
    )
    found = [sorted(point.repeat for point in points) for points in shares.values()]
    assert found == [[repeat_of(0, slot, repeat) for repeat in (0, 1)] for slot in (1, 2)]


def test_what_cannot_be_checked_is_refused_and_the_command_lists_what_can(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    runs, store = small_runs(), RecordStore(tmp_path)
    refused("^0 rounds of 3 repeats", check_interference, runs, store, rounds=0)
    refused("^1 rounds of 101 repeats", check_interference, runs, store, rounds=1, repeats=101)
    refused("needs at least two lanes", check_interference, runs, store, lanes=1)

    assert main(["--dry-run"]) == 0
    assert "resnet" in capsys.readouterr().out
    assert main(["--framework", "tensorflow", "--devices", "2"]) == 2
    assert "nothing of 'tensorflow' is checked on 2 devices" in capsys.readouterr().err


def test_the_committed_check_shows_what_may_share() -> None:
    """The kinds that share by default are those, and only those, that the Records of the check
    allow.
    """
    found, shown = interference.interference_table(RecordStore(INTERFERENCE)), set()
    job = {"workload": "cnn", "model": "resnet_tiny", "placement": "ddp", "batch_size": 4}
    for key, own in found.groupby(["machine", "framework", "execution", "devices", "lanes"]):
        low, high = (
            np.exp(mean_interval(np.log(own["ratio"])))
            if len(own) > 1
            else own[["low", "high"]].iloc[0]
        )
        _, framework, execution, devices, _ = key
        run = build_run(**job, framework=framework, execution=execution, devices=devices)
        assert undisturbed(run) is bool(high <= interference.ALLOWED), (key, low, high)
        shown.add((framework, execution.removeprefix("compiled_"), devices))
    assert shown
    for execution, devices in product(
        ("eager", "compiled", "captured", "compiled_captured"), (1, 2, 4)
    ):
        run = build_run(**job, execution=execution, devices=devices)
        assert (
            not undisturbed(run) or ("torch", execution.removeprefix("compiled_"), devices) in shown
        )
