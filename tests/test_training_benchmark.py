"""The benchmark of ways of training one job, small, on a CPU."""

import sys
from pathlib import Path

import pandas as pd
import pytest
from benchmarks.training import JOBS, WAYS, beside_plain, main, run_of, summary


def test_ways_are_timed_in_turn_and_each_round_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    path = tmp_path / "new" / "rounds.csv"
    common, batch, best = JOBS["small"]
    monkeypatch.setitem(JOBS, "small", ({**common, "model": "resnet_tiny"}, batch, best))
    words = ["--batch", "2", "--ways", "plain", "ours", "captured", "--rounds", "2", "--window-s", "0.1", "--out", str(path)]
    monkeypatch.setattr(sys, "argv", ["training.py", *words])
    main()
    said, rows = capsys.readouterr().out, pd.read_csv(path)
    assert rows[["way", "round"]].to_numpy().tolist() == [["plain", 0], ["ours", 0], ["plain", 1], ["ours", 1]]
    assert "small captured         is left out: execution 'captured' is a CUDA graph" in said
    assert (rows["units_per_s"] > 0).all() and (rows["steps"] % 5 == 0).all() and rows["spent_s"].nunique() == 1
    assert rows.groupby("round")["loss"].nunique().max() <= 2 and rows["commit"].notna().all()


def test_a_way_that_is_not_ready_in_time_is_left_out(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture) -> None:
    monkeypatch.setattr(sys, "argv", ["training.py", "--batch", "2", "--ways", "plain", "--budget-s", "0"])
    with pytest.raises(SystemExit) as end:
        main()
    said = capsys.readouterr()
    assert "small plain            is left out: it was not ready after 0 s more" in said.out
    assert end.value.code == 2 and "nothing was timed: the lines above say why" in said.err


@pytest.mark.parametrize("job", JOBS)
@pytest.mark.parametrize("way", WAYS)
def test_every_way_of_a_job_on_gpus_is_a_run(job: str, way: str) -> None:
    if JOBS[job][0].get("device_type") == "cpu" and way == "captured":
        pytest.skip("a CPU captures nothing")
    run = run_of(job, 8, way)
    assert run.batch_size == 8 and run.devices == 1


def test_ratios_are_of_one_round() -> None:
    rows = pd.DataFrame(
        [
            ("small", way, number, rate, 1.0)
            for number, rates in enumerate(((10.0, 20.0), (20.0, 40.0)))
            for way, rate in zip(("plain", "ours"), rates, strict=True)
        ],
        columns=["job", "way", "round", "units_per_s", "prepare_s"],
    )
    found = summary(beside_plain(rows)).set_index("way")
    assert found.loc["ours", "over_plain"] == "2.000" and found.loc["ours", "95% of over_plain"] == "2.000 to 2.000"
    assert found.loc["plain", "units_per_s"] == "15"
