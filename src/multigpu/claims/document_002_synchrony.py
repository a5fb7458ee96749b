"""Claims of document 002 on parameter servers: how long protocols take, how old gradients get, and what that costs."""

from __future__ import annotations

import math
from typing import Literal

from multigpu.claims.core import REAL, Claim, Contrast, Selection, Term
from multigpu.claims.synchrony import SynchronyPredicate, where_synchrony

Direction = Literal["above", "below", "within"]
ABOUT = 1.25
"""How far a growth law may be off that the document calls "about"."""
LEARNERS = 30
LINEAR, DIGITS, NETWORK, WIDE_BATCH = (
    "linear regression, 10 features, batch 8",
    "digits, batch 32",
    "digits, hidden 64, batch 32",
    "digits, hidden 64, batch 128",
)
VIRTUAL_EXPONENTIAL = where_synchrony(clock="virtual", law="exponential")


def _near(quantity: str, what: str, workers: int, expected: float, factor: float) -> tuple[Contrast, ...]:
    """Time of sync over that of async with `workers` workers, from expected / factor to expected x factor."""
    over, under = (Term(select=where_synchrony(protocol=name), devices=workers) for name in ("sync", "async"))
    label, bounds = f"{what} of sync over async, P = {workers}", (expected / factor, expected * factor)
    ways: tuple[Direction, Direction] = ("above", "below")
    return tuple(
        Contrast(label=label, over=(over,), under=(under,), quantity=quantity, direction=way, bound=bound)
        for way, bound in zip(ways, bounds, strict=True)
    )


def _compared(
    label: str, over: Selection, under: Selection, quantity: str, direction: Direction, bound: float = REAL, where: Selection = ()
) -> Contrast:
    return Contrast(
        label=label,
        over=(Term(select=over),),
        under=(Term(select=under),),
        quantity=quantity,
        direction=direction,
        bound=bound,
        where=where,
    )


def _twins(batch: str, workers: str) -> tuple[Contrast, Contrast]:
    """A K-batch protocol converges as its K twin, update by update, and its updates take less time."""
    over, under = where_synchrony(protocol=batch), where_synchrony(protocol=workers)
    name, twin = (text.replace("k_", "K-").replace("_", "-") for text in (batch, workers))
    trained = where_synchrony(problem=DIGITS, rate_rule="constant", budget_s=None)
    timed = where_synchrony(problem=None)
    return (
        _compared(f"loss of {name} over {twin} after equally many updates", over, under, "loss_last", "within", where=trained),
        _compared(f"time an update of {name} over {twin}", over, under, "update_time_s", "below", 1 / REAL, where=timed),
    )


CLAIMS = (
    Claim(
        number="C26",
        sentence="With exponential step times, a synchronous update takes about P log P times as long as an asynchronous one.",
        documents=("002",),
        figure="about P log P; about 100 at P = 20 (read off)",
        predicate=SynchronyPredicate(
            where=VIRTUAL_EXPONENTIAL + where_synchrony(problem=None),
            contrasts=(
                *_near("update_time_s", "time an update", 20, 72.0, REAL),
                *_near("gradient_time_s", "time a sample", 8, 2.72, REAL),
                *(c for p in (64, 256) for c in _near("update_time_s", "time an update", p, p * math.log(p), ABOUT)),
            ),
            scope="Exponential times of equal workers. An update of sync applies P gradients and one of async only one: for equally many "
            "samples the ratio is about log P. At P = 20 and 8 the test is against the exact value of the document's theorem, P H(P) = 72 "
            "an update and H(P) = 2.72 a sample, and not against the 100 read off its plot.",
        ),
    ),
    Claim(
        number="C27",
        sentence="Asynchronous training is faster at first and ends at a higher error.",
        documents=("002",),
        figure="a sketch, without a figure",
        predicate=SynchronyPredicate(
            where=VIRTUAL_EXPONENTIAL + where_synchrony(problem=LINEAR, rate_rule="constant"),
            contrasts=(
                _compared(
                    "loss above the least of async over sync, after 5% of the time",
                    where_synchrony(protocol="async"),
                    where_synchrony(protocol="sync"),
                    "excess_early",
                    direction="below",
                    bound=1 / REAL,
                ),
                _compared(
                    "the same over the last quarter",
                    where_synchrony(protocol="async"),
                    where_synchrony(protocol="sync"),
                    "excess_last",
                    direction="above",
                    bound=REAL,
                ),
            ),
            scope="Linear regression, whose least loss is known, at one constant rate for both, in time long enough for both to stop "
            "falling. Where noise vanishes at the minimum, or time ends before, there is no such floor to see.",
        ),
    ),
    Claim(
        number="C28",
        sentence="A gradient is on average N/K updates old when it is applied.",
        documents=("002",),
        figure="N/K for N learners and K gradients an update",
        predicate=SynchronyPredicate(
            where=where_synchrony(clock="virtual", problem=None, protocol="k_batch_async"),
            contrasts=(
                Contrast(
                    label="mean staleness over N/K",
                    over=(Term(devices=LEARNERS),),
                    quantity="staleness_of_n_k",
                    direction="within",
                    bound=REAL,
                    across="all",
                ),
            ),
            scope="n-softsync (K-batch-async) at the document's 30 learners, own update not counted, every K and law measured. It is "
            "(N-1)/K exactly, so few learners are further off; K-async has N/K only if the own update is counted.",
        ),
    ),
    Claim(
        number="C33",
        sentence="Dividing the learning rate by the staleness restores the convergence of asynchronous training.",
        documents=("002",),
        figure="30 learners, batch 128; a plot, without a figure",
        predicate=SynchronyPredicate(
            where=VIRTUAL_EXPONENTIAL + where_synchrony(problem=WIDE_BATCH),
            contrasts=(
                _compared(
                    "test error of 30-softsync with the rate divided over the constant rate",
                    where_synchrony(protocol="k_batch_async", gradients=1, rate_rule="staleness"),
                    where_synchrony(protocol="k_batch_async", gradients=1, rate_rule="constant"),
                    "error_last",
                    direction="below",
                    bound=1 / REAL,
                ),
                _compared(
                    "test error of 30-softsync with the rate divided over sync after as many samples",
                    where_synchrony(protocol="k_batch_async", gradients=1, rate_rule="staleness"),
                    where_synchrony(protocol="sync", rate_rule="constant"),
                    "error_last",
                    direction="below",
                    bound=REAL,
                ),
            ),
            scope="30 learners, batch 128, a network with one hidden layer on digits instead of the document's images, at one rate at "
            "which sync converges.",
        ),
    ),
    Claim(
        number="C45",
        sentence="K-batch-sync and K-batch-async converge as K-sync and K-async do, with shorter iterations.",
        documents=("002",),
        figure="no figure",
        predicate=SynchronyPredicate(
            where=VIRTUAL_EXPONENTIAL,
            contrasts=(*_twins("k_batch_sync", "k_sync"), *_twins("k_batch_async", "k_async")),
            scope="Logistic regression on digits, 8 workers, K = 2 and 4, exponential times. With a fixed part in every time a worker "
            "seldom ends twice within an update of K-batch-sync, and its updates are hardly shorter.",
        ),
    ),
    Claim(
        number="C48",
        sentence="Averaging separately trained models does not give the global model.",
        documents=("002",),
        figure="no figure",
        predicate=SynchronyPredicate(
            where=where_synchrony(clock="virtual", start="own start", problem=NETWORK),
            contrasts=tuple(
                _compared(
                    f"{what} of the average over that of one model trained jointly",
                    where_synchrony(protocol="averaged"),
                    where_synchrony(protocol="joint"),
                    quantity,
                    direction="above",
                    bound=REAL,
                )
                for quantity, what in (("loss_last", "training loss"), ("error_last", "test error"))
            ),
            scope="A network with one hidden layer, each model trained apart from its own start on its own shard. Models that start equal, "
            "and logistic regression, which has one minimum, are another matter: the page on synchrony shows them.",
            protocol="Models trained apart in NumPy on disjoint shards, averaged once; beside them one model that took the mean of all "
            "gradients in equally many steps. A repeat is a seed.",
        ),
    ),
)
