"""The benchmark of ways of training one job, small, on CPUs."""

import os
import time
from dataclasses import replace
from itertools import product
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pandas as pd
import pytest
from training import Comparison, main
from training_jobs import FURTHER, JOBS, WAYS, run_of
from training_ways import Prepared, prepared

from multigpu.spec.run import Run

SLOW_S, NEVER, DIES = 0.1, 1, 2


def planted(run: Run, way: str, rank: int, shared: Path) -> Prepared:
    """Prepare as ever, or what is slow; with these batches what is never ready, or ends."""
    if run.batch_size == NEVER:
        time.sleep(60)
    if run.batch_size == DIES:
        os._exit(3)
    ready = prepared(run, way, rank, shared)

    def slow(number: int) -> Any:
        time.sleep(SLOW_S)
        return ready.step(number)

    return replace(ready, step=slow) if way == "ours-slow" else ready


@pytest.mark.slow
@pytest.mark.parametrize(
    ("devices", "ways"),
    [(1, ("plain", "ours", "ours-slow")), pytest.param(2, WAYS[:2], marks=pytest.mark.further)],
)
def test_ways_on_one_process_and_two_are_timed_in_turn_and_train_the_same(
    devices: int, ways: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "new" / "rounds.csv"
    # in fp64 ways of one computation agree to the end; two threads wait long on a busy machine
    exact = {"model": "resnet_tiny", "precision": "fp64", "host_cores": 1 if devices == 1 else None}
    common = {**JOBS["small"].common, **exact}
    small = replace(JOBS["small"], common=common, others={"ours-slow": {}})
    monkeypatch.setitem(JOBS, "small", small)
    monkeypatch.setattr("training.FURTHER", ("ours-slow",))
    words = f"--batch 8 --rounds 2 --window-s 0.1 --devices {devices} --ways captured"
    main([*words.split(), *ways, "--out", str(path)], planted)
    rows = pd.read_csv(path)
    refused, timed = rows[rows["why"].notna()], rows[rows["why"].isna()]
    assert refused["way"].tolist() == ["captured"] and "CUDA graph" in refused["why"].item()
    assert list(zip(timed["round"], timed["way"], strict=True)) == list(product((0, 1), ways))
    # the rate is of all devices, and all ways have trained on the same
    units = timed["units_per_s"] * timed["wall_s"] / timed["steps"]
    assert units.to_numpy() == pytest.approx(8 * devices, rel=1e-2)
    assert timed["warm_loss"].to_numpy() == pytest.approx(timed["warm_loss"].iloc[0], rel=1e-6)
    assert (rows["devices"] == devices).all() and rows["commit"].notna().all()
    ratios = timed.groupby("way")["over_plain"]
    assert (ratios.get_group("plain") == 1).all() and ratios.count().eq(2).all()
    if devices == 1:
        assert (ratios.get_group("ours-slow") < 0.8 * ratios.get_group("ours").mean()).all()


def test_ways_that_are_not_ready_in_time_or_end_have_a_row_that_says_so() -> None:
    for batch, budget_s, why in ((NEVER, 2, "it was not ready after"), (DIES, 60, "exit code 3")):
        comparison = Comparison("small", batch, 1, time.monotonic() + budget_s, planted)
        assert why in comparison.run(["tensorflow"], 1, 0.1)["why"].item()


def test_a_way_that_fails_in_a_round_stops_no_other_and_a_budget_keeps_what_was_measured() -> None:
    def fails(window_s: float, seconds: float) -> dict[str, Any]:
        raise ValueError("planted")

    def works(window_s: float, seconds: float) -> dict[str, Any]:
        if len(comparison.rows) == 3:  # of the other way, and two of this one
            comparison.until = time.monotonic()
        return {"units_per_s": 1.0, "steps": 3}

    comparison = Comparison("small", 8, 1, time.monotonic() + 60, planted)
    for name, timed in (("ours", fails), ("plain", works)):
        way = SimpleNamespace(name=name, told={}, step_s=1.0, timed=timed, end=lambda: None)
        comparison.ready.append(way)
    rows = comparison.run([], 9, 0.1)
    assert rows["way"].tolist() == ["ours", "plain", "plain", "plain"]
    assert rows["why"].iloc[0] == "failed in round 0: planted"


def test_each_way_of_each_job_is_a_run_that_can_be_measured() -> None:
    for (job, known), way, devices in product(JOBS.items(), WAYS + FURTHER, (1, 2)):
        if way in (*WAYS, *known.others) and (job, way) != ("small", "captured"):
            run = run_of(job, known.batches[0], way, devices)
            assert (run.batch_size, run.devices) == (known.batches[0], devices)
