"""The benchmark of ways of training one job, small, on a CPU."""

import sys
from itertools import product
from pathlib import Path

import pandas as pd
import pytest
from benchmarks.training import JOBS, WAYS, main, run_of


def test_ways_are_timed_in_turn_and_each_round_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys
) -> None:
    path = tmp_path / "new" / "rounds.csv"
    common, batch, best = JOBS["small"]
    monkeypatch.setitem(JOBS, "small", ({**common, "model": "resnet_tiny"}, batch, best))
    words = [
        "--batch",
        "2",
        "--ways",
        "plain",
        "ours",
        "captured",
        "--rounds",
        "2",
        "--window-s",
        "0.1",
        "--out",
        str(path),
    ]
    monkeypatch.setattr(sys, "argv", ["training.py", *words])
    main()
    said, rows = capsys.readouterr().out, pd.read_csv(path)
    assert rows[["way", "round"]].to_numpy().tolist() == [
        ["plain", 0],
        ["ours", 0],
        ["plain", 1],
        ["ours", 1],
    ]
    assert "small captured         is left out: execution 'captured' is a CUDA graph" in said
    assert (
        (rows["units_per_s"] > 0).all()
        and (rows["steps"] % 5 == 0).all()
        and rows["spent_s"].nunique() == 1
    )
    assert rows.groupby("round")["loss"].nunique().max() <= 2 and rows["commit"].notna().all()
    for job, way in product(JOBS, WAYS):
        if JOBS[job][0].get("device_type") != "cpu" or way != "captured":
            assert (run_of(job, 8, way).batch_size, run_of(job, 8, way).devices) == (8, 1)
