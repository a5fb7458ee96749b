"""Downpour SGD: async as its simplest case, Adagrad in each shard, stale and mixed shards, replicas
that die and return.
"""

from typing import Any

import numpy as np
import pytest
from benchmarks.synchrony.downpour import _Simulation, simulate_downpour

from multigpu_study.synchrony.downpour import Downpour, DownpourRecord
from multigpu_study.synchrony.record import histogram
from multigpu_study.synchrony.simulate import simulate
from tests.study.synchrony.cases import EXPONENTIAL, REGRESSION, trained

LATENCY = {"kind": "exponential", "scale_s": 0.3}


def downpour(**fields: Any) -> Downpour:
    plain = {
        "replicas": 4,
        "shards": 3,
        "law": EXPONENTIAL,
        "problem": REGRESSION,
        "rule": "sgd",
        "rate": 0.02,
        "batches": 600,
    }
    return Downpour(**{**plain, **fields})


def trained_by(**fields: Any) -> tuple[DownpourRecord, np.ndarray]:
    asked = downpour(**fields)
    return simulate_downpour(asked, asked.open())


def run_of(**fields: Any) -> DownpourRecord:
    return trained_by(**fields)[0]


@pytest.mark.parametrize("shards", [1, 3, 6])
def test_without_latency_and_with_every_step_it_is_async(shards: int) -> None:
    run, parameters = trained_by(shards=shards, batches=601)
    # the last batch's push would come at the instant after its end
    twin = simulate(trained("async", workers=4, updates=600))
    np.testing.assert_array_equal(parameters, twin.parameters)
    assert set(run.shard_updates) == {600}
    assert run.staleness == [histogram(twin.staleness)] * shards
    assert len(run.spread.counts) == 1


@pytest.mark.parametrize(
    ("rule", "shards"), [("adagrad", 1), ("adagrad", 3), ("adagrad_norm", 1), ("sgd", 3)]
)
def test_each_rule_by_hand(rule: str, shards: int) -> None:
    """One replica, no latency: a rate for each feature, whatever the shards, one that falls as much
    for all, and a constant one.
    """
    problem = {"kind": "rare_features", "features": 6, "rows": 60, "batch_size": 4}
    run, found = trained_by(
        replicas=1, shards=shards, problem=problem, rule=rule, rate=0.3, batches=41
    )
    built = run.experiment.open()
    parameters, squares = built.initial(0), np.zeros(6)
    for batch in range(40):
        gradient = built.gradient(parameters, 0, batch)
        squares += gradient**2
        roots = {
            "adagrad": np.sqrt(squares),
            "adagrad_norm": np.full(6, np.sqrt(squares.mean())),
            "sgd": np.ones(6),
        }[rule]
        parameters = parameters - 0.3 * np.divide(gradient, roots, out=np.zeros(6), where=roots > 0)
    np.testing.assert_allclose(found, parameters, rtol=1e-11)
    np.testing.assert_allclose(run.rates, 0.3 / roots, rtol=1e-11)
    assert (
        run.parameters == found.tolist()
        and run_of(rule=rule).parameters == run_of(rule=rule).rates == []
    )


def test_pushes_of_several_batches_are_their_sum() -> None:
    """One replica that fetches and pushes every 4 batches: the mean of four gradients on one
    version, times four.
    """
    run, found = trained_by(replicas=1, fetch_every=4, push_every=4, batches=41)
    problem = run.experiment.open()
    parameters = problem.initial(0)
    for start in range(0, 40, 4):
        parameters = parameters - 0.02 * sum(
            problem.gradient(parameters, 0, batch) for batch in range(start, start + 4)
        )
    np.testing.assert_allclose(found, parameters, rtol=1e-11)
    assert run.shard_updates == [10, 10, 10]


@pytest.mark.parametrize(("fetch_every", "push_every"), [(1, 1), (5, 1), (3, 4)])
@pytest.mark.parametrize(
    "outages", [(), ({"worker": 1, "at_s": 20.0, "until_s": 60.0}, {"worker": 2, "at_s": 40.0})]
)
def test_every_batch_is_accounted_for(fetch_every: int, push_every: int, outages: tuple) -> None:
    run = run_of(fetch_every=fetch_every, push_every=push_every, latency=LATENCY, outages=outages)
    assert (
        run.batches == 600 == pytest.approx(run.applied + run.travelling + run.accrued + run.lost)
    )
    assert sum(sum(shard.counts) for shard in run.staleness) == sum(run.shard_updates)
    assert run.travelling < 40
    assert (run.lost > 0) <= (bool(outages) and push_every > 1)


def test_shards_drift_apart_and_vectors_mix_their_versions() -> None:
    (run, bits), (again, others) = (trained_by(latency=LATENCY, batches=3000) for _ in range(2))
    np.testing.assert_array_equal(bits, others)
    assert run.curve == again.curve and len(run.curve) == 51
    assert len(run.spread.counts) > 2 and len(run_of().spread.counts) == 1
    # a push without latency is P - 1 = 3 old; here a fetch lands after the next batch began, and
    # messages take their time
    assert min(shard.mean for shard in run.staleness) > 4


def test_parameters_overtaken_on_their_way_are_dropped() -> None:
    experiment = downpour()
    simulation = _Simulation(experiment, experiment.problem.build())
    replica = simulation.replicas[1]
    for version in (5, 3):
        simulation._land(1, (2, np.full(2, float(version)), version), 1.0)
    assert replica.versions == [0, 0, 5]
    np.testing.assert_array_equal(replica.parameters, [0, 0, 0, 0, 5, 5])


def test_replicas_die_and_return_without_stopping_the_rest() -> None:
    dies = {"worker": 0, "at_s": 50.0}
    outages = ((), (dies,), (dies | {"until_s": 100.0},))
    whole, died, back = (
        run_of(batches=None, time_s=200.0, latency=LATENCY, outages=gone) for gone in outages
    )
    assert died.batches == pytest.approx(50 * 4 + 150 * 3, rel=0.12)
    assert died.batches < back.batches < whole.batches
    assert back.batches == pytest.approx(50 * 4 + 50 * 3 + 100 * 4, rel=0.12)
    assert died.curve[-1].loss < 0.1 * died.curve[0].loss
    nobody = run_of(replicas=1, outages=(dies,))
    assert nobody.notes == ["no replica is left: shards keep what they have"]


@pytest.mark.parametrize(
    ("changed", "sentence"),
    [
        ({"batches": None}, "an experiment needs a budget: give batches, time_s or both"),
        ({"outages": ({"worker": 4, "at_s": 1.0},)}, "there is no worker 4 of 4: the last is 3"),
        (
            {"outages": ({"worker": 0, "at_s": 1.0, "until_s": 0.5},)},
            "worker 0 cannot be back at 0.5 s, it leaves at 1.0 s",
        ),
        (
            {"outages": ({"worker": 0, "at_s": 1.0}, {"worker": 0, "at_s": 2.0})},
            "worker 0 cannot leave at 2.0 s, it is away then",
        ),
        ({"shards": 7}, "6 parameters cannot be split into 7 shards"),
    ],
)
def test_what_cannot_be_is_refused(changed: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        run_of(**changed)
