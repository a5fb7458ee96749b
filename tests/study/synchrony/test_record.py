"""Experiments are refused in a sentence and have stable digests; grids are what Records need;
measuring goes on where it stopped.
"""

import json
import math
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from benchmarks.synchrony import measure as module
from benchmarks.synchrony.downpour import simulate_downpour
from benchmarks.synchrony.measure import LEFT, main, measure, possible_here

from multigpu import paths
from multigpu.analysis.laws import Empirical
from multigpu.grids import find_grid
from multigpu.grids.expand import read_entries
from multigpu.grids.planned import Planned
from multigpu.records.record import RecordStore
from multigpu_study.synchrony.averaging import AveragingExperiment
from multigpu_study.synchrony.downpour import Downpour, DownpourRecord
from multigpu_study.synchrony.experiment import ProtocolExperiment
from multigpu_study.synchrony.grid import APART, EXPERIMENTS, GRIDS, build
from multigpu_study.synchrony.problems import DigitsProblem
from multigpu_study.synchrony.record import histogram, make_record
from multigpu_study.synchrony.simulate import simulate
from multigpu_study.synchrony.store import SynchronyStore
from multigpu_study.synchrony.theory import predict
from tests.refusals import cases_beside, refused
from tests.study.synchrony.cases import EXPONENTIAL, timed, trained

AVERAGING = AveragingExperiment(
    problem=DigitsProblem(shards=2), workers=2, steps=3, rate=0.1, same_start=False
)
DOWNPOUR = Downpour(
    replicas=2,
    shards=2,
    law=EXPONENTIAL,
    problem=DigitsProblem(),
    rate=0.1,
    batches=30,
    evaluations=3,
)
SMALL = [
    Planned(one, 1.0)
    for one in (timed("async", updates=20), AVERAGING, DOWNPOUR, timed("sync", updates=20))
]


@pytest.mark.parametrize(("changed", "sentence"), cases_beside(__file__, "refused.csv"))
def test_impossible_experiments_are_refused_in_a_sentence(changed: str, sentence: str) -> None:
    fields = {"protocol": "k_sync", "workers": 3, "gradients": 2, "law": EXPONENTIAL, "updates": 5}
    fields |= {"problem": {"kind": "digits"}, "rate": {"kind": "constant", "rate": 0.1}}
    assert refused("", build, ProtocolExperiment, **fields | json.loads(changed)).startswith(
        sentence
    )


def test_digests_tell_experiments_apart_and_ignore_defaults() -> None:
    base = trained("async")
    assert base.digest == trained("async", slowdown=None, clock="virtual").digest
    assert base.digest == ProtocolExperiment.model_validate_json(base.model_dump_json()).digest
    others: list[dict[str, Any]] = [
        {"seed": 1},
        {"clock": "real"},
        {"clock": "real", "engine": "ray"},
    ]
    others += [
        {"problem": {"kind": "linear_regression"}},
        {"law": {"kind": "constant", "time_s": 1.0}},
    ]
    others += [{"rate": {"kind": "staleness", "rate": 0.02}}]  # the same numbers under another kind
    assert (
        len(
            {
                base.digest,
                timed("async").digest,
                *(trained("async", **other).digest for other in others),
            }
        )
        == 8
    )
    virtual, real = (timed("async", clock=clock) for clock in ("virtual", "real"))
    assert virtual.key_on("a") == virtual.key_on("b") != virtual.key_on("a", 1) and real.key_on(
        "a"
    ) != real.key_on("b")


def test_records_say_what_became_of_a_run(tmp_path: Path) -> None:
    store = SynchronyStore(tmp_path)
    asked = trained("k_batch_async", 3, problem={"kind": "digits"}, updates=150)
    outcome, failed = simulate(asked), make_record(timed("async"), None, reason="the server ended")
    diverged = trained("async", rate={"kind": "constant", "rate": 50.0}, updates=400)
    idle = timed("async", updates=None, time_s=1e-9)
    assert store.of_experiment(asked) is None
    for record in (failed, *(make_record(one, simulate(one)) for one in (asked, diverged, idle))):
        path = store.write(record)
        assert path == tmp_path / "virtual" / f"{record.key}.0.json.gz"
    assert store.of_experiment(failed.experiment) == failed and (failed.status, failed.result) == (
        "failed",
        None,
    )
    found, far, never = (store.of_experiment(one).result for one in (asked, diverged, idle))
    assert (found.updates, found.gradients, found.samples, found.accounts.received) == (
        150,
        450,
        450 * 32,
        450,
    )
    assert (found.parameters, found.parameter_bytes, found.curve) == (
        650,
        8,
        outcome.curve,
    ) and not found.diverged
    assert found.update_time_s == pytest.approx(outcome.end_s / 150)
    assert far.diverged and not math.isfinite(far.curve[-1].loss)
    assert math.isnan(never.staleness.mean) and never.updates == 0
    refused("holds no batch times: only real runs measure them", predict, asked, failed)


def test_histograms_are_thinned_and_keep_their_mean() -> None:
    fine = histogram({0: 5, 3: 1})
    assert (fine.mean, fine.width, fine.counts) == (0.5, 1, [5, 0, 0, 1])
    coarse = histogram(dict.fromkeys(range(1000), 2))
    assert (coarse.mean, coarse.width, sum(coarse.counts)) == (499.5, 5, 2000)
    assert len(coarse.counts) == 200
    many = timed("async", workers=512, updates=20_000)
    record = make_record(many, simulate(many))
    assert sum(record.result.staleness.counts) == 20_000 and len(record.model_dump_json()) < 16_000


def test_grids_say_why_name_every_experiment_once_and_are_what_committed_records_answer() -> None:
    study = [entry.run.key_on("here") for entry in find_grid("study", grids=GRIDS)]
    apart = {entry.run.key_on("here") for part in APART for entry in find_grid(part, grids=GRIDS)}
    assert len(set(study)) == len(study) and not apart.intersection(study)
    assert sum(entry.cost_s for entry in find_grid("study", grids=GRIDS)) < 600
    for path in EXPERIMENTS.glob("*.yaml"):
        assert path.stem in GRIDS
        question, entries = read_entries(path)
        assert question.endswith("?") and all(entry["reason"].endswith(".") for entry in entries), (
            path.name
        )
    committed = list(SynchronyStore(paths.SYNCHRONY))
    assert len(committed) > 100 and {"virtual", "averaging", "downpour"} < {
        record.place for record in committed
    }
    assert [record.key for record in committed] == [
        record.experiment.key_on(record.machine.name) for record in committed
    ]
    # any other formula, law, protocol, seed or twin in a grid's file would leave some Records to
    # nobody
    assert {record.experiment.key_on("here") for record in committed} <= apart.union(study)


def test_the_empirical_law_is_a_records_steps() -> None:
    """Of a translation model, eager, on one GPU, with its variables on the CPU (Exp2)."""
    (law,) = {
        entry.run.law
        for entry in find_grid("runtime", grids=GRIDS)
        if isinstance(entry.run.law, Empirical)
    }
    (found,) = [
        record for record in RecordStore(paths.RUNS) if record.key == "5011dd656cb84a651f96"
    ]
    assert found.measurement is not None
    assert sorted(round(time, 7) for time in found.measurement.step_time_s[0][-30:]) == list(
        law.times_s
    )


def test_measuring_goes_on_where_it_stopped_and_again_where_it_is_asked(tmp_path: Path) -> None:
    assert measure(SMALL, tmp_path, budget_s=0.5, progress=False).statuses == {LEFT: 4}
    first = measure(SMALL, tmp_path, budget_s=2.5, progress=False)
    done = first.statuses["ok"]
    assert (first.reused, first.statuses[LEFT]) == (0, 4 - done) and done >= 1
    rest = measure(SMALL, tmp_path, progress=False)
    assert (rest.reused, rest.statuses["ok"], rest.statuses[LEFT]) == (done, 4 - done, 0)
    same = measure(SMALL, tmp_path, progress=False)
    assert same.reused == 4 and str(same).startswith("nothing to measure; 4 measured before")
    store = SynchronyStore(tmp_path)
    assert sorted(record.place for record in store) == [
        "averaging",
        "downpour",
        "virtual",
        "virtual",
    ]
    record = store.of_experiment(DOWNPOUR)
    assert (
        isinstance(record, DownpourRecord)
        and record.curve == simulate_downpour(DOWNPOUR, DOWNPOUR.open())[0].curve
    )
    assert measure(SMALL, tmp_path, progress=False, retry=("ok",)).statuses == {"ok": 4}
    assert [one.attempt for one in store] == [1] * 4


def test_real_runs_that_fail_are_run_again_and_what_ended_well_is_not(tmp_path: Path) -> None:
    def fail(*_: object, **__: object) -> None:
        raise RuntimeError("worker 0 ended before the run began")

    failing, simulated = (
        module.MEASURES | {ProtocolExperiment: partial(module.measure_protocol, real=real)}
        for real in (fail, simulate)
    )
    asked = [Planned(timed("async", workers=2, clock="real", updates=3), 1.0)]
    for attempt in (0, 1):
        summary = measure(asked, tmp_path, progress=False, measures=failing)
        assert summary.exit_code == 1 and "worker 0 ended before the run began" in str(summary)
        (record,) = SynchronyStore(tmp_path)
        assert (record.attempt, record.status, record.reason) == (
            attempt,
            "failed",
            "worker 0 ended before the run began",
        )
    assert measure(asked, tmp_path, progress=False, measures=simulated).statuses == {"ok": 1}
    # its seconds are another occasion's: what ended well is never run again
    assert measure(asked, tmp_path, progress=False, retry=("ok",)).reused == 1


def test_the_command_refuses_in_a_sentence(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert main(["--grid", "all"]) == 2
    assert "unknown grid 'all': choose one of study, runtime" in capsys.readouterr().err
    assert (
        main(["--grid", "averaging", "--budget-s", "0.01", "--folder", str(tmp_path), "--quiet"])
        == 0
    )
    assert f"20 {LEFT}" in capsys.readouterr().out
    assert main(["--grid", "ray"]) == 2
    assert "are run by `python -m benchmarks.over_ray`" in capsys.readouterr().err


def test_real_runs_on_gpus_need_as_many_gpus_as_workers(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert {entry.run.workers for entry in find_grid("gpus", grids=GRIDS)} == {2, 4, 8}
    assert {entry.run.gpus for entry in possible_here(find_grid("gpus", grids=GRIDS), 4)} == {2, 4}
    assert possible_here(
        [Planned(trained("async", workers=1, clock="real", server_device="cuda"), 1.0)], 1
    )
    monkeypatch.setattr(module, "gpu_count", lambda: 1)
    assert main(["--grid", "gpus"]) == 2
    assert (
        "these experiments need 2 GPUs or more, and this machine has 1" in capsys.readouterr().err
    )
    assert main(["--grid", "devices_cpu", "--dry-run"]) == 0
    out = capsys.readouterr().out
    assert "sync P=2 K=2 computed resnet_tiny real straggler 0.05 s seed 0" in out
    assert "k_sync P=2 K=1 computed resnet_tiny real, server on cpu straggler 0.05 s seed 0" in out
