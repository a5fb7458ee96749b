"""Experiments are refused in a sentence and have stable digests; Records are small, come back as written, and are never rewritten."""

import math
from pathlib import Path
from typing import Any

import pytest

from multigpu.measure.machine import this_machine
from multigpu.synchrony.experiment import Experiment
from multigpu.synchrony.grid import build
from multigpu.synchrony.record import histogram, make_record
from multigpu.synchrony.simulate import simulate
from multigpu.synchrony.store import SynchronyStore
from tests.synchrony.cases import EXPONENTIAL, timed, trained


@pytest.mark.parametrize(
    ("changed", "sentence"),
    [
        ({"workers": 0}, "workers = 0: input should be greater than or equal to 1"),
        ({"gradients": 4}, "k_sync cannot wait for 4 gradients: gradients must be 1 to 3"),
        ({"rate": None}, "a problem needs a rate, and a rate a problem: give both or neither"),
        ({"updates": None}, "an experiment needs a budget: give updates, time_s or both"),
        ({"slowdown": (1.0, 2.0)}, "slowdown names 2 workers, not 3: give one factor a worker"),
        ({"engine": "ray"}, "engine 'ray' belongs to the real clock: choose clock 'real', or leave engine out"),
        ({"law": {"kind": "exponential", "scale_s": -1.0}}, "law.exponential.scale_s = -1.0: input should be greater than 0"),
        ({"law": {"kind": "normal"}}, "law: input tag 'normal' found using 'kind' does not match any of the expected tags"),
        ({"protocol": "psync"}, "protocol = 'psync': input should be 'sync', 'k_sync'"),
        ({"speed": 1}, "speed is no field that this version knows"),
        ({"problem": {"kind": "digits", "shards": 2000}}, "problem.digits: 1437 rows cannot be split into 2000 shards"),
        ({"law": {"kind": "computed"}}, "law 'computed' is the time that a gradient takes: it needs clock 'real' and a problem"),
        ({"delays_s": (0.0, 1.0)}, "delays_s names 2 workers, not 3: give one a worker, 0 for none"),
        ({"server_s": 0.1, "clock": "real"}, "server_s and preemptive belong to the virtual clock"),
        ({"server_device": "cpu", "clock": "real", "engine": "ray"}, "server_device 'cpu' needs clock 'real'"),
        ({"server_device": "cpu", "clock": "real", "problem": None, "rate": None}, "server_device 'cpu' needs clock 'real'"),
        ({"server_device": "cpu"}, "server_device 'cpu' needs clock 'real', engine 'processes' and a problem: or leave it out"),
        ({"gradients": None}, "k_sync needs gradients, the number K"),
        ({"protocol": "k_batch_async", "gradients": 0}, "k_batch_async cannot wait for 0 gradients: gradients must be at least 1"),
    ],
)
def test_impossible_experiments_are_refused_in_a_sentence(changed: dict[str, Any], sentence: str) -> None:
    fields = {"protocol": "k_sync", "workers": 3, "gradients": 2, "law": EXPONENTIAL, "updates": 5}
    fields |= {"problem": {"kind": "digits"}, "rate": {"kind": "constant", "rate": 0.1}}
    with pytest.raises(ValueError) as caught:
        build(Experiment, **{**fields, **changed})
    assert str(caught.value).startswith(sentence), caught.value


def test_digests_tell_experiments_apart_and_ignore_defaults() -> None:
    base = trained("async")
    assert base.digest == trained("async", slowdown=None, clock="virtual").digest
    assert base.digest == Experiment.model_validate_json(base.model_dump_json()).digest
    others = [
        trained("async", rate={"kind": "staleness", "rate": 0.02}),  # the same numbers under another kind
        trained("async", seed=1),
        trained("async", clock="real"),
        trained("async", clock="real", engine="ray"),
        trained("async", problem={"kind": "linear_regression"}),
        timed("async"),
        timed("async", law={"kind": "constant", "time_s": 1.0}),
    ]
    assert len({base.digest, *(other.digest for other in others)}) == 8
    virtual, real = (timed("async", clock=clock) for clock in ("virtual", "real"))
    assert virtual.key_on("a") == virtual.key_on("b") != virtual.key_on("a", 1) and real.key_on("a") != real.key_on("b")


def test_a_field_added_later_leaves_the_committed_keys_as_they_are() -> None:
    committed = list(SynchronyStore())
    assert len(committed) > 100 and {"virtual", "averaging", "downpour"} < {r.place for r in committed}
    assert [r.key for r in committed] == [r.experiment.key_on(r.machine.name) for r in committed]


def test_records_come_back_as_written(tmp_path: Path) -> None:
    store = SynchronyStore(tmp_path)
    experiment = trained("k_batch_async", 3, problem={"kind": "digits"}, updates=150)
    outcome = simulate(experiment)
    assert store.of_experiment(experiment) is None
    record = make_record(experiment, outcome)
    path = store.write(record)
    assert path == tmp_path / "virtual" / f"{record.key}.0.json.gz"
    assert store.of_experiment(experiment) == record == next(iter(store))
    assert (record.status, record.machine.name, record.result.updates, record.result.gradients) == ("ok", this_machine().name, 150, 450)
    assert record.result.samples == 450 * 32
    assert (record.result.accounts.received, record.result.parameters, record.result.parameter_bytes) == (450, 650, 8)
    assert record.result.update_time_s == pytest.approx(outcome.end_s / 150)
    assert record.result.curve == list(outcome.curve)
    assert not record.result.diverged


def test_runs_that_failed_diverged_or_never_updated_are_read_back(tmp_path: Path) -> None:
    store = SynchronyStore(tmp_path)
    failed = make_record(timed("async"), None, reason="the server ended")
    assert (failed.status, failed.reason, failed.result) == ("failed", "the server ended", None)
    diverged, idle = trained("async", rate={"kind": "constant", "rate": 50.0}, updates=400), timed("async", updates=None, time_s=1e-9)
    for record in (failed, *(make_record(asked, simulate(asked)) for asked in (diverged, idle))):
        store.write(record)
    assert store.of_experiment(failed.experiment) == failed
    result = store.of_experiment(diverged).result
    assert result.diverged and not math.isfinite(result.curve[-1].loss)
    result = store.of_experiment(idle).result
    assert math.isnan(result.staleness.mean) and result.updates == 0


def test_histograms_are_thinned_and_keep_their_mean() -> None:
    fine = histogram({0: 5, 3: 1})
    assert (fine.mean, fine.width, fine.counts) == (0.5, 1, [5, 0, 0, 1])
    coarse = histogram(dict.fromkeys(range(1000), 2))
    assert (coarse.mean, coarse.width, sum(coarse.counts)) == (499.5, 5, 2000)
    assert len(coarse.counts) == 200
    many = timed("async", workers=512, updates=20_000)
    record = make_record(many, simulate(many))
    assert sum(record.result.staleness.counts) == 20_000 and len(record.model_dump_json()) < 16_000
