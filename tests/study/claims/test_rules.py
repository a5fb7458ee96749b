"""Each rule that turns intervals into verdicts, on planted Records; and how often verdicts are
wrong over synthetic ones.
"""

import math
from typing import Any

import numpy as np
import pandas as pd
import pytest

from multigpu.analysis.statistics import chance_above, chance_of_ratio
from multigpu_study.claims import Contrast, Predicate, Term
from multigpu_study.claims.core import DECIDED
from multigpu_study.claims.joining import after_many_looks, holm, holm_of_families, join
from multigpu_study.claims.reading import selection
from multigpu_study.claims.results import Answer, Setting
from multigpu_study.claims.rows import rows as read
from multigpu_study.claims.statistics import settings_of
from multigpu_study.claims.verdicts import all_of, blocked_by
from tests.further import but
from tests.study.claims.cases import CASES, CNN, on, scaling
from tests.study.claims.planted import LOUD, QUIET, repeats, result_of
from tests.study.claims.planted import PLAIN as ROW

ONCE = (1.0,)
Rows = list[dict[str, Any]]


def batches(speedup: float, rival: float, noise: tuple[float, ...] = QUIET, **fields: Any) -> Rows:
    """C14's sides, batch 64 and 32 a GPU on 8 GPUs and on one, at these speedups."""
    return speedups(8, ({"batch_size": 64}, speedup), ({"batch_size": 32}, rival), noise, **fields)


def overlapped(overlap: float, after: float, **fields: Any) -> Rows:
    """C29's sides on 4 GPUs and on one, at these speedups."""
    return speedups(
        4, ({"placement": "ddp"}, overlap), ({"placement": "replicated_allreduce"}, after), **fields
    )


def speedups(
    devices: int,
    own: tuple[Any, float],
    other: tuple[Any, float],
    noise: tuple[float, ...] = QUIET,
    **fields: Any,
) -> Rows:
    runs = (run for side, speedup in (own, other) for run in scaling(side, devices, speedup))
    return [row for run, rate in runs for row in repeats(rate, noise, **CNN | run | fields)]


def test_a_repeated_minority_decides_nothing_where_most_others_contradict() -> None:
    beside = batches(7.4, 7.3, ONCE, placement="exp2") + batches(7.3, 7.4, ONCE, placement="exp4")
    result = result_of(
        "C14", batches(7.4, 7.3) + beside + batches(4.0, 5.0, ONCE, precision="fp32")
    )
    assert result.verdict == "holds"
    assert "the verdict rests on 1 of 4 settings; 2 of 3 measured once agree with it" in result.why
    assert "3 further settings measured once: 0.80x to 1.01x" in result.figure
    beside = batches(4.0, 5.0, ONCE, placement="exp2") + batches(6.0, 4.0, ONCE, placement="exp4")
    result = result_of(
        "C14", batches(7.4, 7.3) + beside + batches(7.4, 7.3, ONCE, precision="fp32")
    )
    assert (
        result.verdict == "inconclusive"
        and "most of 3 measured too seldom to decide point elsewhere" in result.why
    )
    once = [row for seed in (1, 2, 3) for row in batches(7.4, 7.3, ONCE, seed=seed)]
    assert result_of("C14", batches(7.4, 5.0) + once).verdict == "does not hold", (
        "a counterexample refutes whatever others say"
    )


def test_what_perfect_scaling_would_not_reach_is_out_of_reach() -> None:
    """3.96 of 4 is 99%: at 100% the ratio could be 1.01, and half of the document's difference is
    1.0655.
    """
    result = result_of("C29", overlapped(3.9, 3.96))
    assert result.verdict == "out of reach" and result.settings[0].ceiling == pytest.approx(
        1 / 0.99
    )
    assert (
        "99.0% of perfect scaling, so that perfect scaling would give 1.010x, and not 1.07x"
        in result.why
    )
    assert result_of("C29", overlapped(3.0, 3.0)).verdict == "does not hold", (
        "could have reached it"
    )
    assert result_of("C29", overlapped(3.6, 3.0)).verdict == "holds"
    for good, verdict in ((3.6, "holds"), (3.0, "does not hold")):  # others decide
        assert (
            result_of(
                "C29", overlapped(3.9, 3.96) + overlapped(good, 3.0, machine="second")
            ).verdict
            == verdict
        )


@pytest.mark.parametrize(("noise", "said"), [(QUIET, "excludes"), (LOUD, "does not exclude")])
def test_an_inconclusive_interval_says_whether_it_excludes_the_document(
    noise: tuple[float, ...], said: str
) -> None:
    result = result_of(
        "C2", [*repeats(92.5, noise, **on("exp2")), *repeats(100.0, noise, **on("exp4"))]
    )
    assert result.verdict == "inconclusive" and f"; {said} the document's 0.85x" in result.why


def side(placement: str) -> Term:
    return Term(select=selection({"placement": placement}, "runs"))


def drawn(
    draw: np.random.Generator,
    rate: float,
    noises: tuple[float, float, float],
    host: float,
    **fields: Any,
) -> Rows:
    """Five repeats over three launches at this rate, with log-normal noise of repeats and launches;
    host: this host's own factor.
    """
    launches = np.exp(draw.normal(0, noises[1], 3))
    made = []
    for repeat, launch in enumerate((0, 0, 1, 1, 2)):
        value = rate * host * launches[launch] * math.exp(draw.normal(0, noises[0]))
        of_repeat = {
            "devices": 1,
            "repeat": repeat,
            "launch_id": f"{fields}{launch}",
            "key": f"{fields}{repeat}",
        }
        made.append(
            ROW
            | of_repeat
            | {"units_per_s": value, "median_step_s": 1 / value, "step_time_s": 1 / value}
            | fields
        )
    return made


def of_claims(rows: Rows) -> list[list[Setting]]:
    """The settings of each claim, whose Records have its seed."""
    found: dict[int, list[Setting]] = {}
    for one in settings_of(Predicate(contrasts=(PLAIN,)), PLAIN, read(pd.DataFrame(rows))):
        found.setdefault(int(one.fields["seed"] or 0), []).append(one)
    return [found[claim] for claim in sorted(found)]


CLAIMS = 400
PLAIN = Contrast(label="ratio", over=(side("exp4"),), under=(side("exp3"),))


@pytest.fixture(scope="module")
def synthetic() -> list[tuple[float, list[Setting]]]:
    """True effects from 0.5 to 2, each with its settings: one to six of two models, noise of
    repeats, launches and hosts from 0.2 to 20%.

    A host changes both sides alike, which is no noise of a ratio, and one side by as much again,
    which is. A claim's Records have its seed.
    """
    draw = np.random.default_rng(11)
    truths, rows = [], []
    for claim in range(CLAIMS):
        truths.append(math.exp(draw.uniform(math.log(0.5), math.log(2))))
        noises = [math.exp(draw.uniform(math.log(0.002), math.log(0.2))) for _ in range(3)]
        for setting in range(draw.integers(1, 7)):
            host, own = np.exp(draw.normal(0, noises[2], 2))
            where = {
                "model": ("nmt000", "nmt004")[setting % 2],
                "machine": f"host {setting}",
                "seed": claim,
            }
            for name, rate in (("exp4", truths[-1] * own), ("exp3", 1.0)):
                rows += drawn(
                    draw, rate, (noises[0], noises[1], noises[2]), host, placement=name, **where
                )
    return list(zip(truths, of_claims(rows), strict=True))


@pytest.mark.parametrize("across", but(["same", "most"], ["same", "all", "any", "most"]))
def test_verdicts_are_wrong_in_at_most_a_twentieth_of_claims(
    synthetic: list[tuple[float, list[Setting]]], across: str
) -> None:
    """False is a verdict that says the contrary of the true effect against the margin."""
    contrast = PLAIN.model_copy(update={"across": across})
    verdicts = [
        (
            truth >= contrast.bound,
            join(contrast, after_many_looks([(contrast, one) for one in settings])).verdict,
        )
        for truth, settings in synthetic
    ]
    wrong = sum(verdict == ("does not hold" if true else "holds") for true, verdict in verdicts)
    assert wrong <= 0.05 * CLAIMS, f"{wrong} of {CLAIMS} claims"
    assert sum(verdict in DECIDED for _, verdict in verdicts) >= 0.5 * CLAIMS, (
        "a rule that never decides is never wrong"
    )


def test_many_looks_are_paid_for() -> None:
    """One example of forty by luck, where nothing is true, must not decide what one example
    decides.
    """
    draw = np.random.default_rng(5)
    contrast = PLAIN.model_copy(update={"across": "any"})
    rows = [
        row
        for claim in range(40)
        for setting in range(40)
        for name, rate in (("exp4", 1.05), ("exp3", 1.0))
        for row in drawn(
            draw, rate, (0.05, 0.0, 0.0), 1.0, placement=name, machine=f"host {setting}", seed=claim
        )
    ]
    found = of_claims(rows)
    assert [len(own) for own in found] == [40] * 40
    lucky = sum(
        join(contrast, after_many_looks([(contrast, one) for one in own])).verdict == "holds"
        for own in found
    )
    assert lucky <= 4, "forty looks at 2.5% would find one in 64% of claims"


def test_holm_and_chances_by_hand() -> None:
    assert holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    assert holm([]) == [] and holm([0.5]) == [0.5]
    assert holm_of_families([0.01, 0.04, 0.03], ["a", "a", "b"]) == pytest.approx(
        [0.04, 0.08, 0.04]
    )
    assert chance_above(2.0, 1.0, 1e9) == pytest.approx(0.02275, abs=1e-4)
    assert chance_above(-2.0, 1.0, 1e9) == pytest.approx(0.97725, abs=1e-4)
    assert (chance_above(1.0, 0.0, 1.0), chance_above(0.0, 0.0, 1.0)) == (0.0, 1.0)
    assert chance_of_ratio(1.57, 20) == pytest.approx(0.05, abs=2e-3), (
        "chi-squared with 20 degrees of freedom"
    )
    assert chance_of_ratio(2.12, 20, 20) == pytest.approx(0.05, abs=2e-3), "F with 20 and 20"


def median_of(rows: Rows, factor: float) -> Rows:
    """The rows with a median step that is `factor` of their mean step."""
    return [row | {"median_step_s": row["step_time_s"] * factor} for row in rows]


def test_two_clocks_that_disagree_about_the_verdict_are_a_hosts_noise() -> None:
    """C2's 0.82 by the wall clock is 0.98 by the median step: the host waits, and 0.925 lies
    between.
    """
    slow, fast = CASES["C2"].rows("holds")[:5], CASES["C2"].rows("holds")[5:]
    result = result_of("C2", median_of(slow, 0.82 / 0.98) + median_of(fast, 1.0))
    assert (
        result.verdict == "inconclusive"
        and "host noise: 0.82x by the wall clock, 0.98x by the median step" in result.why
    )
    for factor in (1.0, 0.97):
        assert result_of("C2", median_of(slow, factor) + median_of(fast, 1.0)).verdict == "holds", (
            "both say the same by far"
        )


def test_the_worst_counts_of_what_must_hold_and_scopes_that_differ_hold_here_only() -> None:
    few = Answer(verdict="holds", decidable=3, leaning="holds")
    many = Answer(verdict="inconclusive", decidable=195, leaning="holds")
    assert blocked_by({"tensorflow": few, "torch": many}) == ["torch"]
    assert blocked_by({"tensorflow": few, "torch": many.model_copy(update={"decidable": 3})}) == []
    assert blocked_by(
        {
            "tensorflow": few,
            "torch": many.model_copy(update={"decidable": 3, "leaning": "does not hold"}),
        }
    ) == ["torch"]
    assert all_of([("holds", False), ("holds", True)]) == "holds"
    assert all_of([("holds", False), ("does not hold", True)]) == "holds here only", (
        "size only narrows"
    )
    assert (
        all_of([("holds", False), ("does not hold", False)])
        == all_of([("does not hold", True)])
        == "does not hold"
    )
    assert all_of([("inconclusive", False), ("out of reach", False)]) == "out of reach"
    result = result_of(
        "C12", CASES["C12"].rows("holds") + CASES["C12"].rows("fails", placement="exp2")
    )
    assert (result.verdict, result.scope) == ("holds here only", "ddp")
    common = {"model": "nmt004", "batch_size": 64, "sequence_length": None}
    rows = []
    for placement, steps in (
        ("replicated_allreduce", (100.0, 120.0)),
        ("independent", (100.0, 102.0)),
    ):
        for devices, step in zip((1, 2), steps, strict=True):
            rows += repeats(
                1000 * devices / step,
                (1.0, 1.0005, 0.9995, 1.0004, 0.9996),
                **common,
                placement=placement,
                devices=devices,
            )
    (share,) = [s for s in result_of("C39", rows).settings if s.contrast.startswith("share")]
    assert (
        share.estimate == pytest.approx(0.9, abs=1e-3)
        and share.verdict == "holds"
        and share.low < 0.9 < share.high
    )
