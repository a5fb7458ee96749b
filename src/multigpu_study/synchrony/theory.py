"""Predict runtime and staleness by theory, and simulate a real run. P workers, K gradients an
update, X the time of one batch.

Runtime theory covers equal workers, no time at the server and none on the way. Source: Dutta et al.
(see `protocol`).

002's theorem compares updates: sync takes P E[X_(P:P)]/E[X] times as long as async, for exponential
times P H_P, about P log P. But an update of sync applies P gradients and one of async only one: for
the same samples it is H_P, about log P (at P = 20 72 an update, yet 3.6 a sample).
"""

import math

from multigpu.analysis.laws import Empirical
from multigpu_study.synchrony.experiment import ProtocolExperiment
from multigpu_study.synchrony.laws import Law
from multigpu_study.synchrony.protocol import CANCELS, ProtocolName, check_gradients
from multigpu_study.synchrony.record import ProtocolResult, SynchronyRecord, summarise
from multigpu_study.synchrony.simulate import simulate


def update_time_s(
    protocol: ProtocolName, workers: int, law: Law, gradients: int | None = None
) -> float | None:
    """Expected seconds from one update to the next, in the long run; None where no closed form is
    known.

    sync, k_sync: all workers start together and the K-th to end triggers the update: E[X_(K:P)].
    k_batch_async: no worker ever waits, so each delivers 1/E[X] gradients a second (elementary
        renewal theorem) and P workers deliver an update in K E[X]/P, for every law with a mean.
    async: the same with K = 1, E[X]/P.
    k_batch_sync: exponential times have no memory, so gradients arrive as a Poisson process of rate
        P/E[X]: K E[X]/P. Constant times arrive P at a time: ceil(K/P) X. With K = 1 the first of P
            ends it: E[X_(1:P)].
    k_async: K workers start afresh, P - K are under way. Exponential times do not remember for how
        long: E[X_(K:P)], as k_sync (an upper bound if a batch under way ends sooner than a fresh
            one). K E[X]/P would need workers that never
        wait: it is a lower bound, reached by K = 1 and by k_batch_async. With K = P it is sync.
        Constant times arrive P at a time, and each full set of K makes an update: X / floor(P/K).
    """
    k = check_gradients(protocol, workers, gradients)
    if (
        protocol in ("sync", "k_sync")
        or (protocol == "k_async" and k == workers)
        or (protocol == "k_batch_sync" and k == 1)
    ):
        return law.order_mean_s(k, workers)
    if protocol in ("async", "k_batch_async") or (protocol == "k_async" and k == 1):
        return k * law.mean_s / workers
    if law.kind == "exponential":
        return (
            k * law.mean_s / workers if protocol == "k_batch_sync" else law.order_mean_s(k, workers)
        )
    if law.kind == "constant":
        if protocol == "k_batch_sync":
            return law.time_s * -(-k // workers)
        return law.time_s / (workers // k)
    return None


def mean_staleness(protocol: ProtocolName, workers: int, gradients: int | None = None) -> float:
    """Mean staleness of a gradient (updates between the version it was computed on and that it is
    applied to, its own not counted), in the long run and for every law of step times.

    Every update makes each batch under way one update older, and K gradients leave with it. So the
    mean is (batches under way when an update happens) / K. In k_batch_async those are all but the
    worker whose gradient completes the update: (P-1)/K. In k_async the K workers of the update
    wait: (P-K)/K = P/K - 1. Both give P - 1 for async. 002's N/K is thus k_async with the own
        update counted, exactly; for k_batch_async it would need workers that fetch before their own
        update is made. Sources: W. Zhang, S. Gupta, X. Lian, J. Liu, "Staleness-aware Async-SGD"
        (IJCAI 2016), who do not count the own update; the derivation is ours.
    """
    k = check_gradients(protocol, workers, gradients)
    under_way = (
        0 if protocol in CANCELS else workers - 1 if protocol == "k_batch_async" else workers - k
    )
    return under_way / k


def measured_law(record: SynchronyRecord) -> Empirical:
    """Times of a real run's batches, all workers' together. ValueError: the Record has none."""
    times = tuple(
        time for worker in (record.result.batch_times_s if record.result else []) for time in worker
    )
    if not times:
        raise ValueError(f"Record {record.key} holds no batch times: only real runs measure them")
    return Empirical(times_s=times)


def predict(experiment: ProtocolExperiment, measured: SynchronyRecord) -> ProtocolResult:
    """Simulate a real run's protocol and delays, from the step times and the server's time of the
    run `measured`. Raises as `measured_law`.
    """
    time_s = measured.result.server_time_s if measured.result else None
    law = measured_law(measured)
    latest = 1 + max(experiment.delays_s or (0.0,)) / law.mean_s
    # 50 gradients of the latest worker at least: the one under way at the end is left out of the
    # mean staleness
    updates = max(1500, math.ceil(50 * latest * experiment.workers))
    same = experiment.model_dump(include={"protocol", "workers", "gradients", "delays_s", "seed"})
    twin = ProtocolExperiment(
        **same, law=law, server_s=time_s or 0.0, preemptive=False, updates=updates
    )
    return summarise(simulate(twin))
