"""What theory says of runtime and staleness. P workers, K gradients an update, X the time of one batch.

Runtime theory covers equal workers, no time at the server and none on the way; where no closed form is known, the answer is
None. Source: Dutta et al. (see `protocol`); the derivations are repeated where they are short.
"""

from __future__ import annotations

from typing import NamedTuple

from multigpu.synchrony.laws import Constant, Exponential, Law
from multigpu.synchrony.protocol import CANCELS, ProtocolName, check_gradients


def update_time_s(protocol: ProtocolName, workers: int, law: Law, gradients: int | None = None) -> float | None:
    """Expected seconds from one update to the next, in the long run; None where no closed form is known.

    sync, k_sync: all workers start together and the K-th to end triggers the update: E[X_(K:P)].
    k_batch_async: no worker ever waits, so each delivers 1/E[X] gradients a second (elementary renewal theorem) and P workers
        deliver an update in K E[X]/P, for every law with a mean.
    async: the same with K = 1, E[X]/P.
    k_batch_sync: exponential times have no memory, so gradients arrive as a Poisson process of rate P/E[X]: K E[X]/P.
        Constant times arrive P at a time: ceil(K/P) X. With K = 1 the first of P ends it: E[X_(1:P)].
    k_async: K workers start afresh, P - K are under way. Exponential times do not remember for how long: E[X_(K:P)], as
        k_sync (an upper bound if a batch under way ends sooner than a fresh one). K E[X]/P would need workers that never
        wait: it is a lower bound, reached by K = 1 and by k_batch_async. With K = P it is sync.
        Constant times arrive P at a time, and each full set of K makes an update: X / floor(P/K).

    Raises:
        ValueError: K does not suit the protocol.
    """
    k = check_gradients(protocol, workers, gradients)
    if protocol in ("sync", "k_sync") or (protocol == "k_async" and k == workers) or (protocol == "k_batch_sync" and k == 1):
        return law.order_mean_s(k, workers)
    if protocol in ("async", "k_batch_async") or (protocol == "k_async" and k == 1):
        return k * law.mean_s / workers
    if isinstance(law, Exponential):
        return k * law.mean_s / workers if protocol == "k_batch_sync" else law.order_mean_s(k, workers)
    if isinstance(law, Constant):
        return law.time_s * -(-k // workers) if protocol == "k_batch_sync" else law.time_s / (workers // k)
    return None


def gradient_time_s(protocol: ProtocolName, workers: int, law: Law, gradients: int | None = None) -> float | None:
    """Expected seconds per gradient that is applied; over the batch, seconds per sample. An update applies K of them."""
    time_s = update_time_s(protocol, workers, law, gradients)
    return None if time_s is None else time_s / check_gradients(protocol, workers, gradients)


class Ratio(NamedTuple):
    """Runtime of sync over that of async, for one update and for one sample."""

    per_update: float
    per_sample: float


def sync_over_async(workers: int, law: Law) -> Ratio:
    """How many times as long sync takes as async.

    002's theorem compares updates: E[X_(P:P)] / (E[X]/P) = P E[X_(P:P)]/E[X], for exponential times P H_P, about P log P.
    But an update of sync applies P gradients and one of async only one. For the same samples the ratio is
    E[X_(P:P)]/E[X], for exponential times H_P, about log P: 72 an update at P = 20, yet 3.6 a sample.
    """
    per_sample = law.order_mean_s(workers, workers) / law.mean_s
    return Ratio(workers * per_sample, per_sample)


def mean_staleness(protocol: ProtocolName, workers: int, gradients: int | None = None, *, own_update_counted: bool = False) -> float:
    """Mean staleness of a gradient, in the long run and for every law of step times.

    Staleness is the number of updates between the version a gradient was computed on and the version it is applied to. The
    update it belongs to is not counted (so it is 0 in sync), unless `own_update_counted`, which adds 1.

    Every update makes each batch under way one update older, and K gradients leave with it. So the mean is (batches under way
    when an update happens) / K. In k_batch_async those are all but the worker whose gradient completes the update:
    (P-1)/K. In k_async the K workers of the update wait: (P-K)/K = P/K - 1. Both give P - 1 for async.
    002's N/K is thus k_async with the own update counted, exactly; for k_batch_async it would need workers that fetch
    before their own update is made. Sources: W. Zhang, S. Gupta, X. Lian, J. Liu, "Staleness-aware Async-SGD" (IJCAI 2016),
    who do not count the own update; the derivation is ours.

    Raises:
        ValueError: K does not suit the protocol.
    """
    k = check_gradients(protocol, workers, gradients)
    under_way = 0 if protocol in CANCELS else workers - 1 if protocol == "k_batch_async" else workers - k
    return under_way / k + own_update_counted


def async_staleness_probability(workers: int, staleness: int) -> float:
    """P(staleness = s) in async with exponential times: each next arrival is the worker's own with probability 1/P, (1-1/P)^s / P."""
    return (1 - 1 / workers) ** staleness / workers


def softsync_gradients(workers: int, n: int) -> int:
    """K of n-softsync: the server updates after floor(P/n) gradients, whoever computed them; n is then about the mean staleness.

    As k_batch_async: its exact mean is (P-1)/K. Source: Zhang et al. 2016; 002 shows P = 30.

    Raises:
        ValueError: n is not between 1 and P.
    """
    if not 1 <= n <= workers:
        raise ValueError(f"n-softsync with {workers} workers needs n from 1 to {workers}, not {n}")
    return workers // n
