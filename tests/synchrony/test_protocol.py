"""The state machine alone, by random sequences of events; what each protocol does with them: `test_simulate` and `test_theory`."""

import random

import pytest

from multigpu.synchrony.protocol import PROTOCOLS, CannotContinue, Coordinator, Decision, Job, check_gradients
from tests.refusals import refused
from tests.synchrony.cases import SIX


def begun(protocol: str, workers: int, gradients: int | None = None) -> Coordinator:
    coordinator = Coordinator(protocol, workers, gradients)
    assert [job.worker for job in coordinator.begin().started] == list(range(workers))
    return coordinator


def test_k_sync_cancels_the_rest_and_drops_what_they_send() -> None:
    server = begun("k_sync", 3, 2)
    server.arrived(2, 0)
    decision = server.arrived(0, 0)
    assert decision.cancelled == (Job(1, 0, 0),)
    assert decision.started == (Job(0, 1, 1), Job(1, 1, 1), Job(2, 1, 1))
    assert server.arrived(1, 0) == Decision(late=True)
    assert (server.late, server.cancelled, len(server.waiting)) == (1, 1, 0)


@pytest.mark.parametrize(("protocol", "gradients"), SIX)
def test_every_batch_is_in_exactly_one_account(protocol: str, gradients: int | None) -> None:
    """In several runs, each of which loses up to two workers."""
    chance = random.Random(7)
    applied = cancelled = lost = 0
    for _ in range(20):
        server = begun(protocol, 5, gradients)
        seen: set[Job] = set()
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
            assert server.started == server.applied + len(server.waiting) + len(server.running) + server.cancelled + server.lost
            assert len(seen) == server.applied
        applied, cancelled, lost = applied + server.applied, cancelled + server.cancelled, lost + server.lost
    assert applied > 300
    assert (cancelled > 0) == (protocol in ("k_sync", "k_batch_sync"))
    assert lost > 0


def test_sync_cannot_go_on_without_a_worker_and_async_can() -> None:
    why = "sync needs gradients of 3 workers for an update, and 2 of 3 workers are left"
    for protocol, gradients in (("k_async", 2), ("async", None), ("k_batch_sync", 9), ("sync", None)):
        server = begun(protocol, 3, gradients)
        server.left(1)
        refused(why, server.check_possible, error=CannotContinue) if protocol == "sync" else server.check_possible()


def test_a_batch_lost_with_its_worker_does_not_count() -> None:
    server = begun("async", 2)
    assert server.left(1) == Job(1, 0, 0)
    server.arrived(0, 0)
    assert server.arrived(1, 0).late and server.left(1) is None


def test_unknown_arrivals_are_refused() -> None:
    for protocol in PROTOCOLS:
        server = begun(protocol, 2, {"sync": None, "async": None}.get(protocol, 2))
        for worker, ticket in ((2, 0), (-1, 0), (0, 1)):
            refused(f"worker {worker} never started a batch with ticket {ticket}", server.arrived, worker, ticket)


def test_a_fixed_number_of_gradients_may_be_left_out_and_not_changed() -> None:
    refused("sync with 4 workers takes 4 gradients an update, not 3: leave gradients out", check_gradients, "sync", 4, 3)
    refused("async with 4 workers takes 1 gradients an update, not 2: leave gradients out", check_gradients, "async", 4, 2)
