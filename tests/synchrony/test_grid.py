"""The study's grid is what its Records need; measuring goes on where it stopped; averages have Records of their own."""

from __future__ import annotations

from pathlib import Path

import pytest

from multigpu import paths
from multigpu.cli import main as command_line
from multigpu.grid.expand import read_entries
from multigpu.record import RecordStore
from multigpu.synchrony import measure as module
from multigpu.synchrony.averaging_record import AveragingExperiment, AveragingStore, measure_averaging
from multigpu.synchrony.downpour import Downpour
from multigpu.synchrony.downpour_record import DownpourStore, downpour_key, measure_downpour
from multigpu.synchrony.experiment import Experiment
from multigpu.synchrony.grid import APART, EXPERIMENTS, PARTS, find_grid
from multigpu.synchrony.laws import Empirical
from multigpu.synchrony.measure import main, measure, possible_here
from multigpu.synchrony.planned import Planned
from multigpu.synchrony.problems import Digits
from multigpu.synchrony.protocol import PROTOCOLS
from multigpu.synchrony.record import SynchronyRecord, SynchronyStore
from multigpu.synchrony.simulate import simulate
from tests.synchrony.cases import timed, trained

AVERAGING = AveragingExperiment(problem=Digits(shards=2), workers=2, steps=3, rate=0.1, same_start=False)


DOWNPOUR = Downpour(
    replicas=2, shards=2, law={"kind": "exponential", "scale_s": 1.0}, problem=Digits(), rate=0.1, latency=None, batches=30, evaluations=3
)


def small() -> list[Planned]:
    return [
        Planned("a", timed("async", updates=20), 1.0),
        Planned("a", AVERAGING, 1.0),
        Planned("a", DOWNPOUR, 1.0),
        Planned("a", timed("sync", updates=20), 1.0),
    ]


def key(entry: Planned) -> str:
    e = entry.experiment
    return e.key if isinstance(e, AveragingExperiment) else downpour_key(e) if isinstance(e, Downpour) else f"{e.digest} {e.clock}"


def test_the_grid_is_affordable_and_names_every_experiment_once() -> None:
    planned = find_grid("study")
    keys = [key(entry) for entry in planned]
    assert len(set(keys)) == len(keys)
    assert sum(entry.cost_s for entry in planned) < 600
    assert sorted(key(entry) for part in PARTS for entry in find_grid(part)) == sorted(keys)
    assert not set(keys) & {key(entry) for part in APART for entry in find_grid(part)}
    with pytest.raises(ValueError, match="unknown grid 'all': choose one of study, runtime"):
        find_grid("all")


def test_every_law_meets_every_protocol_and_what_is_compared_has_as_many_seeds() -> None:
    runtime = [entry.experiment for entry in find_grid("runtime") if isinstance(entry.experiment, Experiment)]
    laws = {e.law.kind for e in runtime}
    assert len(laws) >= 5
    assert {(e.law.kind, e.protocol, e.workers) for e in runtime} >= {
        (law, protocol, workers) for law in laws for protocol in PROTOCOLS for workers in (2, 64, 1024)
    }
    for grid in ("curves", "rates", "twins"):
        seeds: dict[str, set[int]] = {}
        for entry in find_grid(grid):
            assert isinstance(entry.experiment, Experiment)
            same = entry.experiment.model_copy(update={"seed": 0})
            seeds.setdefault(same.digest, set()).add(entry.experiment.seed)
        assert {len(found) for found in seeds.values()} == {5}, grid


def test_files_are_grids_whose_points_say_what_they_ask_and_why() -> None:
    for path in EXPERIMENTS.glob("*.yaml"):
        assert path.stem in {**PARTS, **APART}
        question, entries = read_entries(path)
        assert question.endswith("?") and all(entry["reason"].endswith(".") for entry in entries), path.name


def test_formulas_of_a_file_are_those_of_its_experiments() -> None:
    """Batches over what an update takes; gradients over K; the last worker late; K = P/2 where there is a K."""
    for entry in find_grid("rates"):
        assert isinstance(entry.experiment, Experiment)
        assert (entry.experiment.updates or 0) * entry.experiment.gradients_per_update == 3000
    for entry in find_grid("gpus"):
        e = entry.experiment
        assert isinstance(e, Experiment)
        assert e.gradients == (e.workers // 2 if e.protocol == "k_sync" else None)
        assert e.delays_s is None or e.delays_s == (*(0.0,) * (e.workers - 1), 0.02)
    for entry in find_grid("runtime"):
        e = entry.experiment
        assert isinstance(e, Experiment) and e.updates
        taken = {"sync": e.workers, "k_sync": e.workers, "k_batch_sync": e.workers + (e.gradients or 1)}.get(e.protocol, e.gradients or 1)
        work = 40_000 if e.seed else 20_000
        assert e.updates == min(6000, max(40, work // taken)), e


def test_twins_and_rules_are_compared_after_equal_work() -> None:
    for grid in ("twins", "rates"):
        trained = [e for e in (entry.experiment for entry in find_grid(grid)) if isinstance(e, Experiment) and e.problem]
        work = {(e.gradients if grid == "twins" else None, (e.updates or 0) * e.gradients_per_update) for e in trained}
        assert len(work) == (2 if grid == "twins" else 1)


def test_the_empirical_law_is_a_records_steps() -> None:
    """Of a translation model, eager, on one GPU, with its variables on the CPU (Exp2)."""
    (law,) = {
        e.law for e in (entry.experiment for entry in find_grid("runtime")) if isinstance(e, Experiment) and isinstance(e.law, Empirical)
    }
    (found,) = [record for record in RecordStore(paths.RUNS) if record.key == "5011dd656cb84a651f96"]
    assert found.measurement is not None
    assert sorted(round(time, 7) for time in found.measurement.step_time_s[0][-30:]) == list(law.times_s)


def test_measuring_goes_on_where_it_stopped(tmp_path: Path) -> None:
    first = measure(small(), tmp_path, budget_s=2.5, progress=False)
    assert (first.known, first.left) == (0, 4 - first.run) and first.run >= 1
    rest = measure(small(), tmp_path, progress=False)
    assert (rest.known, rest.run, rest.left) == (first.run, first.left, 0)
    again = measure(small(), tmp_path, progress=False)
    assert (again.known, again.run) == (4, 0) and str(again) == "0 experiments run in 0 s, 4 had a Record"
    assert len(list(SynchronyStore(tmp_path))) == 2 and len(list(AveragingStore(tmp_path))) == 1
    (record,) = DownpourStore(tmp_path)
    again_measured = measure_downpour(DOWNPOUR)
    assert record.curve == again_measured.curve and record.key == downpour_key(DOWNPOUR) and record.batches == 30
    assert sum(sum(shard.counts) for shard in record.staleness) == sum(record.shard_updates)


def test_a_budget_too_small_runs_nothing(tmp_path: Path) -> None:
    assert str(measure(small(), tmp_path, budget_s=0.5, progress=False)).endswith("4 left for the same command with more time")


def test_a_real_run_that_fails_leaves_a_record_and_is_run_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise RuntimeError("the server ended (exit code 1)")

    monkeypatch.setattr(module, "run_real", fail)
    planned = [Planned("real", timed("async", workers=2, clock="real", updates=3), 1.0)]
    for attempt in (0, 1):
        assert measure(planned, tmp_path, progress=False).failed == 1
        (record,) = SynchronyStore(tmp_path)
        assert isinstance(record, SynchronyRecord)
        assert (record.attempt, record.status, record.reason) == (attempt, "failed", "the server ended (exit code 1)")


def test_runs_over_ray_have_twins_and_need_the_extra(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    planned = find_grid("ray")
    of = [(e.engine, e.clock, e.protocol, e.workers, e.gradients, e.updates, e.seed) for e in (entry.experiment for entry in planned)]
    over_ray = [rest for engine, clock, *rest in of if (engine, clock) == ("ray", "real")]
    assert over_ray == [rest for engine, clock, *rest in of if (engine, clock) == ("processes", "virtual")]
    assert {(name, workers) for name, workers, *_ in over_ray} == {(n, p) for n in ("sync", "k_sync", "async") for p in (2, 3, 4)}
    # a call of an actor takes milliseconds
    assert all(entry.experiment.law.mean_s >= 0.4 for entry in planned) and sum(entry.cost_s for entry in planned) < 600
    monkeypatch.setattr("multigpu.synchrony.over_ray.importlib.util.find_spec", lambda name: None)
    assert main(["--grid", "ray"]) == 2
    assert "Ray is not installed: pip install 'multigpu[ray]'" in capsys.readouterr().err


def test_a_run_over_ray_is_recorded_apart_from_one_of_processes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What it returns is that of the simulator here: the path to the Record is tried without Ray."""
    asked = timed("async", workers=2, clock="real", engine="ray", updates=3)
    options: dict[str, object] = {}

    def run(experiment: Experiment, **given: object) -> object:
        options.update(given)
        return simulate(experiment)

    monkeypatch.setattr(module, "run_over_ray", run)
    assert measure([Planned("ray", asked, 1.0)], tmp_path, progress=False).run == 1
    assert options["num_cpus"] == 0
    assert measure([Planned("ray", asked, 1.0)], tmp_path, progress=False).known == 1
    store = SynchronyStore(tmp_path)
    (record,) = store
    assert (record.experiment.engine, record.status) == ("ray", "ok")
    assert store.find(asked.model_copy(update={"engine": "processes"})) is None


def test_averages_come_back_as_written_and_are_never_rewritten(tmp_path: Path) -> None:
    record, store = measure_averaging(AVERAGING), AveragingStore(tmp_path)
    path = store.write(record)
    assert store.find(AVERAGING) == record and list(store) == [record]
    assert path.stat().st_size < 2000 and len(record.apart) == 2
    with pytest.raises(FileExistsError):
        store.write(record)
    other = AVERAGING.model_copy(update={"same_start": True})
    assert store.find(other) is None and other.key != AVERAGING.key
    path.write_bytes(b"x")
    assert not list(store) and "is not an AveragingRecord of this version" in next(store.unreadable())
    with pytest.raises(ValueError, match="2 workers need as many shards to be disjoint, not 1"):
        AveragingExperiment(problem=Digits(), workers=2, steps=3, rate=0.1, same_start=False)


def test_the_command_refuses_in_a_sentence(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main(["--grid", "all", "--folder", str(tmp_path)]) == 2
    assert "unknown grid 'all'" in capsys.readouterr().err
    assert command_line(["synchrony", "--grid", "all"]) == 2
    assert "unknown grid 'all'" in capsys.readouterr().err
    with pytest.raises(SystemExit) as stopped:
        main(["--budget-s", "0", "--folder", str(tmp_path)])
    assert stopped.value.code == 2 and "'0' is no span of time" in capsys.readouterr().err
    assert main(["--grid", "averaging", "--budget-s", "0.01", "--folder", str(tmp_path), "--quiet"]) == 0
    assert "20 left for the same command with more time" in capsys.readouterr().out


def test_real_runs_on_gpus_need_as_many_gpus_as_workers(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    planned = find_grid("gpus")
    assert {e.experiment.workers for e in planned} == {2, 4, 8} and planned[0].experiment.workers == 8
    # what has the server on a GPU comes last
    places = [e.experiment.server_device for e in planned]
    assert places == ["host"] * 24 + ["cuda"] * 18 and {e.experiment.protocol for e in planned[24:]} == {"sync", "k_sync", "async"}
    assert sum(entry.cost_s for entry in planned) < 1400
    four = possible_here(planned, 4)
    assert {e.experiment.workers for e in four} == {2, 4}
    assert len(possible_here(find_grid("real"), 0)) == 12
    monkeypatch.setattr(module, "gpu_count", lambda: 1)
    assert main(["--grid", "gpus"]) == 2
    assert "these experiments need 2 GPUs or more, and this machine has 1" in capsys.readouterr().err
    assert main(["--grid", "devices_cpu", "--dry-run"]) == 0
    out = capsys.readouterr().out
    assert "sync P=2 K=2 computed resnet_tiny real straggler 0.05 s seed 0" in out and len(out.splitlines()) == 19
    assert "k_sync P=2 K=1 computed resnet_tiny real, server on cpu straggler 0.05 s seed 0" in out
    assert [len(possible_here([Planned("a", trained("async", workers=1, clock="real", server_device="cuda"), 1.0)], 1))] == [1]
    injected = [entry.experiment for entry in find_grid("gpus_injected")]
    # every real run has its twin on the virtual clock, which draws the same times, and those take longer than a batch on a GPU
    of = {(e.clock, e.protocol, e.workers, e.gradients, e.updates, e.law) for e in injected}
    assert len(of) == len(injected) == 18
    assert {("virtual", *rest) for clock, *rest in of if clock == "real"} == {key for key in of if key[0] == "virtual"}
