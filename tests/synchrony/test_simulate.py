"""The simulator: identities between protocols, updates against a recursion written out here, accounts, determinism."""

from typing import Any

import numpy as np
import pytest

from multigpu.synchrony.rates import BoundedRate, ConstantRate, StalenessRate, WarmUpRate
from multigpu.synchrony.server import Server
from multigpu.synchrony.simulate import simulate
from tests.synchrony.cases import SIX, check_accounts, timed, trained

RULES: tuple[dict[str, Any], ...] = (
    {"kind": "constant", "rate": 0.02},
    {"kind": "staleness", "rate": 0.05},
    {"kind": "staleness", "rate": 0.05, "per": "gradient"},
    {"kind": "bounded", "c": 0.001, "maximum": 0.05},
    {"kind": "warm_up", "rate": 0.05, "start": 0.01, "updates": 20},
)


def assert_equal(one: Server, other: Server) -> None:
    assert one.events == other.events
    np.testing.assert_array_equal(one.update_times_s, other.update_times_s)
    np.testing.assert_array_equal(one.parameters, other.parameters)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (("k_sync", 5), ("sync", None)),
        (("k_async", 5), ("sync", None)),
        (("k_async", 1), ("async", None)),
        (("k_batch_async", 1), ("async", None)),
        (("k_batch_sync", 1), ("k_sync", 1)),
    ],
    ids=lambda pair: "-".join(map(str, pair)),
)
def test_protocols_that_are_one(one: tuple[str, int | None], other: tuple[str, int | None]) -> None:
    assert_equal(simulate(trained(*one)), simulate(trained(*other)))


@pytest.mark.parametrize(("protocol", "gradients"), SIX)
def test_the_same_experiment_gives_the_same_bits(protocol: str, gradients: int | None) -> None:
    first, again = (simulate(trained(protocol, gradients)) for _ in range(2))
    assert_equal(first, again)
    assert first.curve == again.curve and simulate(trained(protocol, gradients, seed=1)).events != first.events


def recursion(run: Server) -> np.ndarray:
    """w_j+1 = w_j - sum over the update's gradients of rate g(w_tau) / K, from the arrivals alone, with rules of its own."""
    experiment, problem = run.experiment, run.experiment.open()
    k, rule = experiment.gradients_per_update, experiment.rate
    history = [problem.initial(0)]
    for start in range(0, len(run.events), k):
        now, group = history[-1], run.events[start : start + k]
        ages = [len(history) - 1 - event.version for event in group]
        step = np.zeros_like(now)
        for event, age in zip(group, ages, strict=True):
            old = history[event.version]
            match rule:
                case ConstantRate():
                    rate = rule.rate
                case StalenessRate(per="gradient"):
                    rate = rule.rate if age == 0 else rule.rate / age
                case StalenessRate():
                    rate = rule.rate / max(1, np.mean(ages))
                case WarmUpRate():
                    rate = min(rule.rate, rule.start + (rule.rate - rule.start) * (len(history) - 1) / rule.updates)
                case BoundedRate():
                    square = np.sum((now - old) ** 2)
                    rate = rule.maximum if square == 0 else min(rule.maximum, rule.c / square)
            step += rate * problem.gradient(old, event.worker, event.ticket) / k
        history.append(now - step)
    return history[-1]


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: "-".join(map(str, rule.values())))
@pytest.mark.parametrize(("protocol", "gradients"), SIX)
def test_updates_are_those_of_the_recursion(protocol: str, gradients: int | None, rule: dict[str, Any]) -> None:
    run = simulate(trained(protocol, gradients, rate=rule, updates=60))
    np.testing.assert_allclose(run.parameters, recursion(run), rtol=1e-11)
    assert np.linalg.norm(run.parameters) > 0.1


@pytest.mark.parametrize(("protocol", "gradients"), SIX)
def test_batches_and_seconds_are_accounted_for(protocol: str, gradients: int | None) -> None:
    run = simulate(timed(protocol, gradients))
    check_accounts(run, 200)
    a = run.accounts
    assert a.applied == a.received and a.late == a.lost == 0
    spent_s = a.busy_s + a.cancelled_s + a.idle_s
    if protocol in ("sync", "k_sync", "k_batch_sync"):
        # all start afresh at the last update, when the run ends
        assert spent_s == pytest.approx(5 * run.end_s)
    else:
        assert a.cancelled_s == 0
        assert 0.95 * 5 * run.end_s < spent_s <= 5 * run.end_s * (1 + 1e-12)
    assert (a.idle_s > 0) == (protocol in ("sync", "k_sync", "k_async"))


def test_memory_of_versions() -> None:
    assert simulate(trained("sync")).accounts.versions_held == 1 < simulate(trained("async")).accounts.versions_held <= 5


def test_a_time_budget_ends_the_run_there() -> None:
    run = simulate(trained("async", updates=None, time_s=20.0, evaluations=10))
    assert run.end_s == 20.0
    assert run.update_times_s[-1] <= 20.0
    assert [point.time_s for point in run.curve] == sorted(point.time_s for point in run.curve)
    assert (len(run.curve), run.curve[0].updates, run.curve[-1].updates) == (11, 0, len(run.update_times_s))


def test_the_curve_has_its_points() -> None:
    run = simulate(trained("k_batch_async", 2, updates=100, evaluations=10))
    assert [point.updates for point in run.curve] == list(range(0, 101, 10))
    assert all(point.gradients == 2 * point.updates for point in run.curve)
    assert simulate(trained("sync", updates=3, evaluations=50)).curve[-1].updates == 3


def test_blocks_of_updates() -> None:
    run = simulate(timed("sync", law={"kind": "constant", "time_s": 0.5}, updates=45))
    np.testing.assert_allclose(run.block_times_s(20), [0.5] * 22)
