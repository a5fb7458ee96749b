"""The study's own models as problems, real runs whose times are their own, and the simulator's predictions of them."""

from typing import Any

import numpy as np
import pytest

from multigpu.synchrony.experiment import Experiment, TrainedModel
from multigpu.synchrony.real import run_real
from multigpu.synchrony.record import make_record
from multigpu.synchrony.simulate import simulate
from multigpu.synchrony.theory import measured_law, predict
from tests.synchrony.cases import timed
from tests.synchrony.replay import replay

COMPUTED = {"kind": "computed"}
RESNET = TrainedModel(workload="cnn", model="resnet_tiny", batch_size=16, rows=16, test_rows=16)
NMT = TrainedModel(workload="nmt", model="nmt_tiny", batch_size=8, rows=8, test_rows=8, longest=5)
ONE = {"kind": "constant", "time_s": 1.0}


@pytest.mark.parametrize("description", [RESNET, NMT], ids=lambda description: description.model)
def test_a_models_gradient_is_that_of_its_loss(description: TrainedModel) -> None:
    """Where a batch is all rows: the loss rises along the gradient as fast as that is long; equal arguments give equal bits."""
    problem = description.build()
    start = problem.initial(3)
    assert start.dtype == problem.dtype == np.float32 and start.shape == (problem.size,)
    gradient = problem.gradient(start, 0, 0)
    np.testing.assert_array_equal(gradient, problem.gradient(start, 1, 5))
    length = float(np.linalg.norm(gradient))
    step = np.float32(2e-4) * gradient / np.float32(length)
    slope = (problem.loss(start + step) - problem.loss(start - step)) / 4e-4
    assert slope == pytest.approx(length, rel=0.03)
    error = problem.error(start)
    assert error is not None and 0.5 < error <= 1
    parameters = start
    for _ in range(8):
        parameters = parameters - np.float32(0.3) * problem.gradient(parameters, 0, 0)
    assert problem.loss(parameters) < 0.99 * problem.loss(start)


def test_what_a_model_cannot_be_is_refused() -> None:
    with pytest.raises(ValueError, match="unknown model 'resnet' of workload 'cnn': choose one of"):
        TrainedModel(workload="cnn", model="resnet")
    with pytest.raises(ValueError, match=r"the corpus has \d+ pairs of at most 2 words, not 90000: ask for fewer rows"):
        NMT.model_copy(update={"longest": 2, "rows": 89_000, "test_rows": 1000}).build().loss(np.zeros(1, np.float32))


def mean_s(protocol: str, gradients: int | None = None, **fields: Any) -> float:
    outcome = simulate(timed(protocol, gradients, law=ONE, updates=120, **fields))
    return float(outcome.update_times_s[-1] / 120)


def test_a_straggler_a_busy_server_and_computations_that_go_on_take_their_time() -> None:
    """Constant times of 1: all by hand."""
    late = {"workers": 2, "delays_s": (0.0, 0.5)}
    assert mean_s("sync", **late) == pytest.approx(1.5)
    # one worker delivers every second, the other every 1.5
    assert mean_s("async", **late) == pytest.approx(1 / (1 + 1 / 1.5), rel=0.02)
    assert mean_s("k_sync", 1, **late) == pytest.approx(1.0)
    # a server that needs 0.5 a gradient handles two a second, whoever sends them; sync's last of four is through after 1 + 4 x 0.5
    assert mean_s("async", workers=4, server_s=0.5) == pytest.approx(0.5, rel=0.03)
    assert mean_s("sync", workers=4, server_s=0.5) == pytest.approx(3.0)
    # worker 1 computes for 1.6 what worker 0 made useless after 1: it is never the first
    slow = {"workers": 2, "slowdown": (1.0, 1.6)}
    assert mean_s("k_sync", 1, **slow) == mean_s("k_sync", 1, preemptive=False, **slow) == pytest.approx(1.0)
    # with K = 2 of 3, the third computes its cancelled batch to the end (1.5), then the next one until 3.0, where it is among the first two
    third = {"workers": 3, "slowdown": (1.0, 1.2, 1.5)}
    assert mean_s("k_sync", 2, **third) == pytest.approx(1.2)
    assert simulate(timed("k_sync", 2, law=ONE, updates=2, preemptive=False, **third)).update_times_s == pytest.approx([1.2, 2.4])


@pytest.mark.alone
@pytest.mark.slow
def test_a_model_trains_on_two_devices_and_its_arrivals_are_replayed() -> None:
    """Float32 through shared memory, times measured by the workers, a straggler; the Record predicts other protocols."""
    fields = {"workers": 2, "law": COMPUTED, "clock": "real", "rate": {"kind": "constant", "rate": 0.1}, "evaluations": 2}
    late = Experiment(protocol="async", problem=RESNET.model_copy(update={"batch_size": 4}), updates=200, delays_s=(0.0, 0.3), **fields)
    run = run_real(late)
    np.testing.assert_array_equal(replay(late, run.events), run.parameters)
    assert run.parameters is not None and run.parameters.dtype == np.float32
    record = make_record(late, run)
    assert record.status == "ok" and record.result is not None
    result = record.result
    first, second = (len(times) for times in result.batch_times_s)
    assert first > second >= 1 and first + second <= 200 and all(time > 0 for times in result.batch_times_s for time in times)
    # the injected 0.3 s is not part of what a batch takes
    assert result.server_time_s is not None and 0 < result.server_time_s < 0.1 and result.parameter_bytes == 4
    assert min(result.batch_times_s[1]) < 0.3
    assert len(measured_law(record).times_s) == first + second
    mean = measured_law(record).mean_s + result.server_time_s
    predicted = predict(late.model_copy(update={"protocol": "sync", "updates": 50}), record)
    assert 0.3 < predicted.update_time_s < 0.3 + 6 * mean and predicted.staleness == 0
    assert predict(late, record).staleness == pytest.approx(1.0, abs=0.05)


def test_a_run_without_batch_times_predicts_nothing() -> None:
    record = make_record(timed("async"), simulate(timed("async")))
    with pytest.raises(ValueError, match="holds no batch times: only real runs measure them"):
        predict(timed("sync"), record)
