"""The study's grid is what its Records need; measuring goes on where it stopped; every kind has Records of its own."""

from pathlib import Path

import pytest

from multigpu import paths
from multigpu.cli import main as command_line
from multigpu.grid.expand import read_entries
from multigpu.record import RecordStore
from multigpu.synchrony import measure as module
from multigpu.synchrony.averaging import AveragingExperiment, measure_averaging
from multigpu.synchrony.downpour import Downpour, DownpourRecord, simulate_downpour
from multigpu.synchrony.experiment import Experiment
from multigpu.synchrony.grid import APART, EXPERIMENTS, PARTS, Planned, find_grid
from multigpu.synchrony.laws import Empirical
from multigpu.synchrony.measure import LEFT, main, measure, possible_here
from multigpu.synchrony.problems import Digits
from multigpu.synchrony.simulate import simulate
from multigpu.synchrony.store import SynchronyStore
from tests.synchrony.cases import EXPONENTIAL, timed, trained

AVERAGING = AveragingExperiment(problem=Digits(shards=2), workers=2, steps=3, rate=0.1, same_start=False)
DOWNPOUR = Downpour(replicas=2, shards=2, law=EXPONENTIAL, problem=Digits(), rate=0.1, batches=30, evaluations=3)


def small() -> list[Planned]:
    return [Planned("a", one, 1.0) for one in (timed("async", updates=20), AVERAGING, DOWNPOUR, timed("sync", updates=20))]


def experiments(grid: str) -> list[Experiment]:
    return [entry.experiment for entry in find_grid(grid) if isinstance(entry.experiment, Experiment)]


def test_the_grid_is_affordable_and_names_every_experiment_once() -> None:
    planned = find_grid("study")
    keys = [entry.experiment.key_on("here") for entry in planned]
    assert len(set(keys)) == len(keys)
    assert sum(entry.cost_s for entry in planned) < 600
    assert not set(keys) & {entry.experiment.key_on("here") for part in APART for entry in find_grid(part)}


def test_every_committed_record_is_of_an_experiment_that_a_grid_asks_for() -> None:
    """Any other formula, law, protocol, seed or twin in a grid's file would leave some to nobody."""
    asked = {entry.experiment.key_on("here") for name in (*PARTS, *APART) for entry in find_grid(name)}
    assert not [record.experiment for record in SynchronyStore() if record.experiment.key_on("here") not in asked]


def test_files_are_grids_whose_points_say_what_they_ask_and_why() -> None:
    for path in EXPERIMENTS.glob("*.yaml"):
        assert path.stem in {*PARTS, *APART}
        question, entries = read_entries(path)
        assert question.endswith("?") and all(entry["reason"].endswith(".") for entry in entries), path.name


def test_the_empirical_law_is_a_records_steps() -> None:
    """Of a translation model, eager, on one GPU, with its variables on the CPU (Exp2)."""
    (law,) = {e.law for e in experiments("runtime") if isinstance(e.law, Empirical)}
    (found,) = [record for record in RecordStore(paths.RUNS) if record.key == "5011dd656cb84a651f96"]
    assert found.measurement is not None
    assert sorted(round(time, 7) for time in found.measurement.step_time_s[0][-30:]) == list(law.times_s)


def test_measuring_goes_on_where_it_stopped_and_again_where_it_is_asked(tmp_path: Path) -> None:
    assert measure(small(), tmp_path, budget_s=0.5, progress=False).statuses == {LEFT: 4}
    first = measure(small(), tmp_path, budget_s=2.5, progress=False)
    done = first.statuses["ok"]
    assert (first.reused, first.statuses[LEFT]) == (0, 4 - done) and done >= 1
    rest = measure(small(), tmp_path, progress=False)
    assert (rest.reused, rest.statuses["ok"], rest.statuses[LEFT]) == (done, 4 - done, 0)
    same = measure(small(), tmp_path, progress=False)
    assert same.reused == 4 and str(same).startswith("nothing to measure; 4 measured before")
    store = SynchronyStore(tmp_path)
    assert sorted(record.place for record in store) == ["averaging", "downpour", "virtual", "virtual"]
    record = store.of_experiment(DOWNPOUR)
    assert isinstance(record, DownpourRecord) and record.curve == simulate_downpour(DOWNPOUR, DOWNPOUR.open())[0].curve
    assert measure(small(), tmp_path, progress=False, retry=("ok",)).statuses == {"ok": 4}
    assert [one.attempt for one in store] == [1] * 4


def test_a_real_run_that_fails_leaves_a_record_and_is_run_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise RuntimeError("worker 0 ended before the run began")

    monkeypatch.setattr(module, "run_real", fail)
    planned = [Planned("real", timed("async", workers=2, clock="real", updates=3), 1.0)]
    for attempt in (0, 1):
        summary = measure(planned, tmp_path, progress=False)
        assert summary.exit_code == 1 and "worker 0 ended before the run began" in str(summary)
        (record,) = SynchronyStore(tmp_path)
        assert (record.attempt, record.status, record.reason) == (attempt, "failed", "worker 0 ended before the run began")


def test_runs_over_ray_need_the_extra(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("multigpu.synchrony.over_ray.importlib.util.find_spec", lambda name: None)
    assert main(["--grid", "ray"]) == 2
    assert "Ray is not installed: pip install 'multigpu[ray]'" in capsys.readouterr().err


def test_a_run_over_ray_is_recorded_apart_from_one_of_processes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What it returns is that of the simulator here: the path to the Record is tried without Ray."""
    asked = timed("async", workers=2, clock="real", engine="ray", updates=3)
    monkeypatch.setattr(module, "run_over_ray", simulate)
    assert measure([Planned("ray", asked, 1.0)], tmp_path, progress=False).statuses == {"ok": 1}
    # its seconds are another occasion's: what ended well is never run again
    assert measure([Planned("ray", asked, 1.0)], tmp_path, progress=False, retry=("ok",)).reused == 1
    store = SynchronyStore(tmp_path)
    assert [record.status for record in store] == ["ok"] and store.of_experiment(asked.model_copy(update={"engine": "processes"})) is None


def test_averages_come_back_as_written(tmp_path: Path) -> None:
    record, store = measure_averaging(AVERAGING, AVERAGING.open()), SynchronyStore(tmp_path)
    path = store.write(record)
    assert store.of_experiment(AVERAGING) == record and store.of_experiment(AVERAGING.model_copy(update={"same_start": True})) is None
    path.write_bytes(b"x")
    assert not list(store) and "is not an AveragingRecord of this version" in next(store.unreadable())
    with pytest.raises(ValueError, match="2 workers need as many shards to be disjoint, not 1"):
        AveragingExperiment(problem=Digits(), workers=2, steps=3, rate=0.1, same_start=False)


def test_the_command_refuses_in_a_sentence(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert command_line(["synchrony", "--grid", "all"]) == 2
    assert "unknown grid 'all': choose one of study, runtime" in capsys.readouterr().err
    assert main(["--grid", "averaging", "--budget-s", "0.01", "--folder", str(tmp_path), "--quiet"]) == 0
    assert f"20 {LEFT}" in capsys.readouterr().out


def test_real_runs_on_gpus_need_as_many_gpus_as_workers(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    planned = find_grid("gpus")
    assert {e.workers for e in experiments("gpus")} == {2, 4, 8}
    assert {entry.experiment.gpus for entry in possible_here(planned, 4)} == {2, 4}
    assert len(possible_here(find_grid("real"), 0)) == len(find_grid("real"))
    assert possible_here([Planned("a", trained("async", workers=1, clock="real", server_device="cuda"), 1.0)], 1)
    monkeypatch.setattr(module, "gpu_count", lambda: 1)
    assert main(["--grid", "gpus"]) == 2
    assert "these experiments need 2 GPUs or more, and this machine has 1" in capsys.readouterr().err
    assert main(["--grid", "devices_cpu", "--dry-run"]) == 0
    out = capsys.readouterr().out
    assert "sync P=2 K=2 computed resnet_tiny real straggler 0.05 s seed 0" in out
    assert "k_sync P=2 K=1 computed resnet_tiny real, server on cpu straggler 0.05 s seed 0" in out
