"""Claims about a parameter server's protocols: planted SynchronyRecords decide each in both directions, and nothing else does."""

from __future__ import annotations

import math
from collections.abc import Callable

import pandas as pd
import pytest

from multigpu.analysis.synchrony import synchrony_frame
from multigpu.claims import all_claims, evaluate, find_claim
from multigpu.claims.wording import titled
from multigpu.published import published_value
from multigpu.synchrony.averaging import AveragingRecord
from multigpu.synchrony.problems import LinearRegression
from multigpu.synchrony.record import SynchronyRecord
from tests.synchrony.planted import averaged, record, records

Records = list[SynchronyRecord | AveragingRecord]
CONSTANT = {"kind": "constant", "time_s": 1.0}
RATE = {"kind": "constant", "rate": 0.1}
LINEAR = {"kind": "linear_regression", "batch_size": 8}
DIGITS = {"kind": "digits", "batch_size": 32}
LEARNERS = {"kind": "digits", "hidden": (64,), "batch_size": 128}


def ratio(per_p_log_p: float, at_20: float = 72.0) -> Records:
    """Sync and async whose updates differ by so many times P log P (at 20 and 8, the document's figures times at_20 / 72)."""
    made: Records = []
    for p, times in (
        (8, 8 * 2.72 * at_20 / 72),
        (20, at_20),
        (64, 64 * math.log(64) * per_p_log_p),
        (256, 256 * math.log(256) * per_p_log_p),
    ):
        made += [*records("sync", p, update_time_s=times), *records("async", p, update_time_s=1.0)]
    return made


def floors(early: float, late: float) -> Records:
    """Async with these parts of sync's loss above the least, soon and in the end."""
    least = synchrony_least()
    common = {"problem": LINEAR, "rate": RATE, "time_s": 100.0}
    sync = tuple(least + x for x in (3.0, 1.0, 0.1, 0.1, 0.1))
    other = tuple(least + x for x in (3.0, early, 0.1 * late, 0.1 * late, 0.1 * late))
    # no noise: a part of the whole loss would drown what lies above the least
    return [record(name, 8, losses=losses, seed=seed, **common) for name, losses in (("sync", sync), ("async", other)) for seed in range(5)]


def synchrony_least() -> float:
    """The least loss of LINEAR."""
    return LinearRegression(batch_size=8).build().best_loss


def ages(of_n_k: float) -> Records:
    """n-softsync at 30 learners with this mean staleness over N/K."""
    return [r for k in (1, 5, 30) for r in records("k_batch_async", 30, k, staleness=of_n_k * 30 / k)]


def divided(error: float, constant: float, sync: float) -> Records:
    """Test errors of 30-softsync with the rate divided and constant, and of sync."""
    common = {"problem": LEARNERS, "losses": (1.0,) * 4}
    return [
        *records("sync", 30, rate=RATE, errors=(sync,) * 4, updates=10, **common),
        *records("k_batch_async", 30, 1, rate=RATE, errors=(constant,) * 4, updates=300, **common),
        *records("k_batch_async", 30, 1, rate={"kind": "staleness", "rate": 0.1}, errors=(error,) * 4, updates=300, **common),
    ]


def twins(loss: float, time: float) -> Records:
    """K-batch protocols with these parts of their twins' loss and time an update."""
    made: Records = []
    for batch, twin in (("k_batch_sync", "k_sync"), ("k_batch_async", "k_async")):
        for name, part_loss, part_time in ((twin, 1.0, 1.0), (batch, loss, time)):
            made += records(name, 8, 2, update_time_s=part_time)
            made += records(name, 8, 2, update_time_s=part_time, problem=DIGITS, rate=RATE, losses=(part_loss,) * 4, errors=(0.1,) * 4)
    return made


def sped_up(kept: float, error: float) -> Records:
    """Async on 8 workers that keeps this part of a linear speed-up and ends with this error, beside one worker's 0.1."""
    common = {"problem": LEARNERS, "losses": (1.0,) * 4, "updates": 300}
    return [
        *records("sync", 1, rate=RATE, errors=(0.1,) * 4, **common),
        *records("k_batch_async", 8, 1, rate={"kind": "staleness", "rate": 0.1}, errors=(error,) * 4, update_time_s=1 / 8 / kept, **common),
    ]


def sizes(noise: float, loss: float) -> Records:
    """Batch 8 with these parts of the noise and of the loss of batch 128, the loss after as many updates and after as many samples."""
    made: Records = []
    for size, part, updates in ((128, 1.0, 300), (8, loss, 300), (8, loss, 4800)):
        problem = LEARNERS | {"batch_size": size}
        made += records("sync", 1, law=CONSTANT, problem=problem, rate=RATE, losses=(part,) * 4, errors=(0.1,) * 4, updates=updates)
    floor = synchrony_least() + 0.1
    for size, height in ((128, floor), (8, floor + 0.1 * (noise - 1))):
        common = {"law": CONSTANT, "problem": LINEAR | {"batch_size": size}, "rate": RATE, "updates": 2000}
        made += [record("sync", 1, losses=(height,) * 4, seed=seed, **common) for seed in range(5)]
    return made


def readers(same: float, own: float) -> Records:
    """Eight workers beside one: parts of its loss where all read the same rows, and of its loss above the least with rows of their own."""
    least, made = synchrony_least(), list[SynchronyRecord | AveragingRecord]()
    for workers, equal, drawn in ((1, least, least + 0.1), (8, same * least, least + 0.1 * own)):
        for size, loss in ((1000, equal), (8, drawn)):
            common = {"law": CONSTANT, "problem": LINEAR | {"batch_size": size}, "rate": RATE, "time_s": 400.0}
            made += [record("sync", workers, losses=(loss,) * 4, seed=seed, **common) for seed in range(5)]
    return made


CASES: dict[str, tuple[Callable[[], Records], tuple[Callable[[], Records], ...]]] = {
    "C26": (lambda: ratio(1.1), (lambda: ratio(1.6), lambda: ratio(1.1, at_20=60.0), lambda: ratio(0.5))),
    "C27": (lambda: floors(0.1, 5.0), (lambda: floors(1.0, 5.0), lambda: floors(0.1, 1.0))),
    "C28": (lambda: ages(0.97), (lambda: ages(0.9), lambda: ages(1.2))),
    "C33": (lambda: divided(0.02, 0.9, 0.02), (lambda: divided(0.02, 0.02, 0.02), lambda: divided(0.1, 0.9, 0.02))),
    "C45": (lambda: twins(1.0, 0.8), (lambda: twins(1.2, 0.8), lambda: twins(1.0, 1.0))),
    "C53": (lambda: sizes(5.0, 1.5), (lambda: sizes(1.0, 1.5), lambda: sizes(5.0, 0.9))),
    "C58": (lambda: readers(1.0, 0.2), (lambda: readers(0.8, 0.2), lambda: readers(1.0, 1.0))),
    "C54": (lambda: sped_up(1.0, 0.09), (lambda: sped_up(0.5, 0.09), lambda: sped_up(1.0, 0.2))),
    "C48": (lambda: [*averaged(0.8, 0.1)], (lambda: [*averaged(0.1, 0.1)],)),
}


def test_every_claim_over_synchrony_has_a_case() -> None:
    assert {claim.number for claim in all_claims() if claim.predicate and claim.predicate.of == "synchrony"} == set(CASES)


@pytest.mark.parametrize("number", CASES)
def test_it_holds_and_names_its_records(number: str) -> None:
    planted = CASES[number][0]()
    result = evaluate(find_claim(number), synchrony_frame(planted))
    assert result.verdict == ("holds here only" if number == "C26" else "holds"), result.why  # 72 is not the printed 100
    assert set(result.record_keys) <= {r.key for r in planted} and len(result.record_keys) >= 5
    assert "n = 5 seeds" in result.figure
    assert titled(result) == [f"NumPy: {result.figure}"]


def test_c26_tells_the_documents_figure_from_its_theorems_value() -> None:
    """P H(P) is what the theorem gives: 20 (1 + 1/2 + ... + 1/20) = 71.95, and H(8) = 2.718. The document's plot shows about 100."""
    claim = find_claim("C26")
    assert claim.figure == f"about P log P; about {published_value('002_statements', 'async_updates_ratio'):g} at P = 20 (read off)"
    exact = {p: sum(1 / one for one in range(1, p + 1)) for p in (8, 20)}
    assert claim.predicate is not None
    assert f"P H(P) = {20 * exact[20]:.0f} an update and H(P) = {exact[8]:.2f} a sample" in claim.predicate.scope
    bounds = [contrast.bound for contrast in claim.predicate.contrasts[:4]]
    assert bounds == [72.0 / 1.05, 72.0 * 1.05, 2.72 / 1.05, 2.72 * 1.05]


@pytest.mark.parametrize(("number", "index"), [(number, i) for number, case in CASES.items() for i in range(len(case[1]))])
def test_it_does_not_hold(number: str, index: int) -> None:
    assert evaluate(find_claim(number), synchrony_frame(CASES[number][1][index]())).verdict == "does not hold"


@pytest.mark.parametrize("number", CASES)
def test_one_seed_decides_nothing_and_none_is_not_yet_measured(number: str) -> None:
    planted = CASES[number][0]()
    one = [r for r in planted if r.experiment.seed == 0]
    assert evaluate(find_claim(number), synchrony_frame(one)).verdict == "inconclusive"
    empty = evaluate(find_claim(number), pd.DataFrame())
    assert empty.verdict == "not yet measured" and "worker" in empty.why


def test_real_seconds_and_other_laws_decide_nothing_about_exponential_times() -> None:
    real = [r for p in (8, 20, 64, 256) for name in ("sync", "async") for r in records(name, p, clock="real")]
    constant = [r for r in ratio(1.1) if isinstance(r, SynchronyRecord)]
    law = {"kind": "constant", "time_s": 1.0}
    constant = [r.model_copy(update={"experiment": type(r.experiment)(**{**dict(r.experiment), "law": law})}) for r in constant]
    for planted in (real, constant):
        assert evaluate(find_claim("C26"), synchrony_frame(planted)).verdict == "not yet measured"


def test_models_that_start_equal_are_a_scope_of_their_own() -> None:
    both = [*averaged(0.8, 0.1), *averaged(0.1, 0.1, same_start=True)]
    result = evaluate(find_claim("C48"), synchrony_frame(both))
    assert (result.verdict, result.scope) == ("holds here only", "own start")
    assert evaluate(find_claim("C48"), synchrony_frame([*averaged(0.8, 0.1, hidden=())])).verdict == "not yet measured"
