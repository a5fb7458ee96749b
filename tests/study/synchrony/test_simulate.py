"""The state machine alone, by random events; the simulator: identities between protocols, updates
by a recursion, accounts, determinism.
"""

import random
from typing import Any

import numpy as np
import pytest

from multigpu_study.synchrony.experiment import BoundedRate, ConstantRate, StalenessRate, WarmUpRate
from multigpu_study.synchrony.protocol import CannotContinue, Coordinator, Decision, GradientTask
from multigpu_study.synchrony.server import Server
from multigpu_study.synchrony.simulate import simulate
from tests.refusals import refused
from tests.study.synchrony.cases import RULES, SIX, check_accounts, timed, trained

ONE = {"kind": "constant", "time_s": 1.0}


def begun(protocol: str, workers: int, gradients: int | None) -> Coordinator:
    coordinator = Coordinator(protocol, workers, gradients)
    assert [job.worker for job in coordinator.begin().started] == list(range(workers))
    return coordinator


def test_k_sync_cancels_the_rest_and_drops_what_they_send() -> None:
    server = begun("k_sync", 3, 2)
    server.arrived(2, 0)
    decision = server.arrived(0, 0)
    assert decision.cancelled == (GradientTask(1, 0, 0),)
    assert decision.started == (GradientTask(0, 1, 1), GradientTask(1, 1, 1), GradientTask(2, 1, 1))
    assert server.arrived(1, 0) == Decision(late=True)
    assert (server.late, server.cancelled, len(server.waiting)) == (1, 1, 0)


@pytest.mark.parametrize(("protocol", "gradients"), SIX)
def test_every_batch_is_in_exactly_one_account(protocol: str, gradients: int | None) -> None:
    """In several runs, each of which loses up to two workers."""
    chance = random.Random(7)
    applied = cancelled = lost = 0
    for _ in range(20):
        server = begun(protocol, 5, gradients)
        seen: set[GradientTask] = set()
        sent = [(job.worker, job.ticket) for job in server.running.values()]
        for _ in range(200):
            decision = Decision()
            if chance.random() < 0.01 and len(server.alive) > 3:
                server.left(chance.choice(sorted(server.alive)))
            elif sent:
                # any batch ever started may knock, also a cancelled or lost one; none twice
                decision = server.arrived(*sent.pop(chance.randrange(len(sent))))
            sent += [(job.worker, job.ticket) for job in decision.started]
            assert not seen.intersection(decision.update), "a gradient was applied twice"
            seen.update(decision.update)
            if decision.update:
                assert len(decision.update) == server.gradients
            if not server.batches:
                assert len({job.worker for job in decision.update}) == len(decision.update)
            assert (
                server.started
                == server.applied
                + len(server.waiting)
                + len(server.running)
                + server.cancelled
                + server.lost
            )
            assert len(seen) == server.applied
        applied = applied + server.applied
        cancelled = cancelled + server.cancelled
        lost = lost + server.lost
    assert applied > 300
    assert (cancelled > 0) == (protocol in ("k_sync", "k_batch_sync"))
    assert lost > 0


def test_workers_that_leave_take_their_batch_along_and_end_sync_alone() -> None:
    refused(
        "sync with 4 workers takes 4 gradients an update, not 3: leave gradients out",
        Coordinator,
        "sync",
        4,
        3,
    )
    why = "sync needs gradients of 3 workers for an update, and 2 of 3 workers are left"
    for protocol, gradients in (
        ("k_async", 2),
        ("async", None),
        ("k_batch_sync", 9),
        ("sync", None),
    ):
        server = begun(protocol, 3, gradients)
        assert server.left(1) == GradientTask(1, 0, 0)
        refused(
            why, server.check_possible, error=CannotContinue
        ) if protocol == "sync" else server.check_possible()
        assert server.arrived(1, 0).late and server.left(1) is None
        for worker, ticket in ((3, 0), (-1, 0), (0, 1)):
            refused(
                f"worker {worker} never started a batch with ticket {ticket}",
                server.arrived,
                worker,
                ticket,
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
    assert (
        first.curve == again.curve
        and simulate(trained(protocol, gradients, seed=1)).events != first.events
    )


def recursion(run: Server) -> np.ndarray:
    """w_j+1 = w_j - sum over the update's gradients of rate g(w_tau) / K, from the arrivals alone,
    with rules of its own.
    """
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
                    rate = min(
                        rule.rate,
                        rule.start + (rule.rate - rule.start) * (len(history) - 1) / rule.updates,
                    )
                case BoundedRate():
                    square = np.sum((now - old) ** 2)
                    rate = rule.maximum if square == 0 else min(rule.maximum, rule.c / square)
            step += rate * problem.gradient(old, event.worker, event.ticket) / k
        history.append(now - step)
    return history[-1]


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: "-".join(map(str, rule.values())))
@pytest.mark.parametrize(("protocol", "gradients"), SIX)
def test_updates_are_those_of_the_recursion(
    protocol: str, gradients: int | None, rule: dict[str, Any]
) -> None:
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


def test_budgets_curves_versions_and_blocks() -> None:
    run = simulate(trained("async", updates=None, time_s=20.0, evaluations=10))
    assert run.end_s == 20.0 >= run.update_times_s[-1]
    assert [point.time_s for point in run.curve] == sorted(point.time_s for point in run.curve)
    assert (len(run.curve), run.curve[0].updates, run.curve[-1].updates) == (
        11,
        0,
        len(run.update_times_s),
    )
    run = simulate(trained("k_batch_async", 2, updates=100, evaluations=10))
    assert [(point.updates, point.gradients) for point in run.curve] == [
        (count, 2 * count) for count in range(0, 101, 10)
    ]
    assert simulate(trained("sync", updates=3, evaluations=50)).curve[-1].updates == 3
    assert (
        simulate(trained("sync")).accounts.versions_held
        == 1
        < simulate(trained("async")).accounts.versions_held
        <= 5
    )
    run = simulate(timed("sync", law={"kind": "constant", "time_s": 0.5}, updates=45))
    np.testing.assert_allclose(run.block_times_s(20), [0.5] * 22)


def mean_s(protocol: str, gradients: int | None = None, **fields: Any) -> float:
    return (
        simulate(timed(protocol, gradients, law=ONE, updates=120, **fields)).update_times_s[-1]
        / 120
    )


def test_a_straggler_a_busy_server_and_computations_that_go_on_take_their_time() -> None:
    """Constant times of 1: all by hand."""
    late = {"workers": 2, "delays_s": (0.0, 0.5)}
    assert mean_s("sync", **late) == pytest.approx(1.5)
    # one worker delivers every second, the other every 1.5
    assert mean_s("async", **late) == pytest.approx(1 / (1 + 1 / 1.5), rel=0.02)
    assert mean_s("k_sync", 1, **late) == pytest.approx(1.0)
    # a server that needs 0.5 a gradient handles two a second, whoever sends them; sync's last of
    # four is through after 1 + 4 x 0.5
    assert mean_s("async", workers=4, server_s=0.5) == pytest.approx(0.5, rel=0.03)
    assert mean_s("sync", workers=4, server_s=0.5) == pytest.approx(3.0)
    # worker 1 computes for 1.6 what worker 0 made useless after 1: it is never the first
    slow = {"workers": 2, "slowdown": (1.0, 1.6)}
    assert (
        mean_s("k_sync", 1, **slow)
        == mean_s("k_sync", 1, preemptive=False, **slow)
        == pytest.approx(1.0)
    )
    # with K = 2 of 3, the third computes its cancelled batch to the end (1.5), then the next one
    # until 3.0, where it is among the first two
    third = {"workers": 3, "slowdown": (1.0, 1.2, 1.5)}
    assert mean_s("k_sync", 2, **third) == pytest.approx(1.2)
    assert simulate(
        timed("k_sync", 2, law=ONE, updates=2, preemptive=False, **third)
    ).update_times_s == pytest.approx([1.2, 2.4])
