"""What stands beside a verdict: how few settings it rests on and how the others spread, and bounds that perfect scaling does not reach."""

from __future__ import annotations

from typing import Any

import pytest

from multigpu.claims import Result, evaluate, find_claim
from multigpu.claims.cautions import ENOUGH, few_settings
from multigpu.claims.core import Claim
from multigpu.claims.verdicts import settled
from tests.claims.cases import CASES, CNN, IN_GRAPH, scaling
from tests.claims.planted import QUIET, repeats, table

ONCE = (1.0,)
Rows = list[dict[str, Any]]


def claim_of(number: str) -> Claim:
    """A claim as far as Runs decide it."""
    return find_claim(number).model_copy(update={"further": ()})


def result_of(number: str, rows: Rows) -> Result:
    return evaluate(claim_of(number), table(rows))


def batches(speedup: float, rival: float, noise: tuple[float, ...] = QUIET, **fields: Any) -> Rows:
    """C14's sides, batch 64 and 32 a GPU on 8 GPUs and on one, at these speedups."""
    runs = (*scaling({"batch_size": 64}, 8, speedup, 0), *scaling({"batch_size": 32}, 8, rival, 0))
    return [row for run, rate, _ in runs for row in repeats(rate, noise, **CNN | run | fields)]


def test_a_verdict_by_one_setting_of_four_says_so_and_how_the_others_spread() -> None:
    """7.4 over 7.3 decides that batches are equal within 5%; of three measured once, 7.4 over 7.3 agrees, 4 over 5 and 6 over 4 do not."""
    beside = (
        batches(4.0, 5.0, ONCE, placement="exp2") + batches(6.0, 4.0, ONCE, placement="exp4") + batches(7.4, 7.3, ONCE, precision="fp32")
    )
    result = result_of("C14", batches(7.4, 7.3) + beside)
    assert result.verdict == "holds" and result.why == result.by_framework["torch"].why
    assert result.why == (
        "speedup at batch 64 over that at batch 32: the verdict rests on 1 of 4 settings, while the other 3, measured once, "
        "run from 0.80x to 1.50x, 1 of them in agreement with it"
    )
    assert few_settings(result.why) == "1 of 4 settings"
    none = result_of("C14", batches(7.4, 7.3) + beside[:8])
    assert none.verdict == "holds" and none.why.endswith(
        "while the other 2, measured once, run from 0.80x to 1.50x, none of them in agreement with it"
    )
    often = result_of("C14", batches(7.4, 7.3) + batches(7.4, 7.3, QUIET[:2], placement="exp2") + batches(7.3, 7.4, ONCE, placement="exp4"))
    assert often.why.endswith("the other 2, measured too seldom to decide, run from 0.99x to 1.01x, all in agreement with it")


def test_half_of_the_settings_or_all_of_them_need_no_caution() -> None:
    decided = batches(7.4, 7.3)
    assert result_of("C14", decided).why == "" and few_settings("") == ""
    assert result_of("C14", decided + batches(4.0, 5.0, ONCE, placement="exp2")).why == "", "one of two is half"


def test_settings_that_are_open_with_an_interval_are_told_from_those_measured_once() -> None:
    """Beside the counterexample one interval straddles the bound, and 4 settings have none."""
    open_one = batches(7.4, 7.2, (1.0, 1.2, 0.8, 1.1, 0.9), placement="exp4")
    once = [row for seed in (1, 2, 3, 4) for row in batches(7.4, 6.0 + seed / 10, ONCE, placement="exp2", seed=seed)]
    result = result_of("C14", batches(7.4, 5.0) + open_one + once)
    assert result.verdict == "does not hold"
    assert result.why == (
        "speedup at batch 64 over that at batch 32: shown in none of 2 settings of ResNet-50 v1.5, refuted in 1, open in 1; the "
        "verdict rests on 1 of 6 settings (one counterexample is enough), while another 4, measured once, run from 1.16x to 1.21x, all in "
        "agreement with it"
    )


def test_one_more_setting_is_told_in_the_singular() -> None:
    open_one = batches(7.4, 7.2, (1.0, 1.2, 0.8, 1.1, 0.9), placement="exp4")
    result = result_of("C14", batches(7.4, 5.0) + open_one + batches(7.4, 7.3, ONCE, placement="exp2"))
    assert result.why.endswith("while another, measured once, gives 1.01x, not in agreement with it")


def test_what_is_undecided_rests_on_nothing() -> None:
    """C30 has one of two contrasts: that one's few settings are no verdict's."""
    single = [row for row in CASES["C30"].rows("holds") if row["devices"] == 1]
    once = [row for seed in (1, 2) for row in CASES["C30"].rows("holds", ONCE, seed=seed) if row["devices"] == 1]
    result = result_of("C30", single + once)
    assert result.verdict == "not yet measured" and "rests on" not in result.why and "2 further settings measured once" in result.figure


def test_each_framework_says_what_its_own_verdict_rests_on() -> None:
    case, other = CASES["C2"], {"framework": "tensorflow", **IN_GRAPH}
    once = [row for seed in (1, 2) for row in case.rows("holds", ONCE, seed=seed)]
    both = result_of("C2", case.rows("holds") + case.rows("holds", **other) + once)
    assert both.verdict == "holds" and both.why.startswith("PyTorch: words/s of Exp2 over Exp4: the verdict rests on 1 of 3 settings, ")
    assert "TensorFlow" not in both.why
    more = [row for seed in (1, 2, 3) for row in case.rows("holds", ONCE, seed=seed, **other)]
    apart = result_of("C2", case.rows("holds") + case.rows("holds", **other) + once + more)
    assert "; TensorFlow: words/s of Exp2 over Exp4: the verdict rests on 1 of 4 settings, " in apart.why
    assert few_settings(apart.why) == "1 of 3 settings", "the part that rests on fewest"


def test_what_settles_a_contrast_is_said_in_words() -> None:
    predicate = find_claim("C14").predicate
    assert predicate is not None
    contrast = predicate.contrasts[0]
    assert contrast.across == "all" and settled(contrast, "does not hold") and not settled(contrast, "holds")
    assert set(ENOUGH) == {("any", "holds"), ("all", "does not hold")}


def efficiencies(above: float, below: float, noise: tuple[float, ...] = QUIET, **fields: Any) -> Rows:
    """C46's Runs: 512 and 16 images a GPU on 4 GPUs, with these speedups."""
    runs = (*scaling({"batch_size": 512}, 4, above, 0), *scaling({"batch_size": 16}, 4, below, 0))
    return [row for run, rate, _ in runs for row in repeats(rate, noise, **CNN | {"execution": "captured"} | run | fields)]


def test_a_bound_that_perfect_scaling_does_not_reach_is_explained() -> None:
    """3.84 of 4 is 96%: at 100% the ratio could be 1/0.96 = 1.042 at most, and the bound is 1.05."""
    result = result_of("C46", efficiencies(3.96, 3.84))
    assert result.verdict == "does not hold"
    not_so, why = result.why.split("; ")
    assert not_so == "not so: efficiency at 512 images a GPU over that at 16 at least 1.05x"
    said = "on 4 GPUs batch 16 a GPU keeps 96.0% of perfect scaling already, "
    said += "so that perfect scaling of batch 512 a GPU would give 1.042x (95% "
    assert why.startswith(said) and why.endswith("): 1.05x is out of reach there")
    low, high = map(float, why.removeprefix(said).split(")")[0].split("-"))
    assert 1.03 < low < 1 / 0.96 < high < 1.05


def test_a_bound_within_the_interval_of_the_largest_ratio_is_out_of_reach_as_far_as_repeats_tell() -> None:
    result = result_of("C46", efficiencies(3.85, 3.84, (1.0, 1.01, 0.99, 1.012, 0.988)))
    assert result.verdict == "does not hold" and result.why.endswith("1.05x is out of reach there, as far as these repeats tell")


@pytest.mark.parametrize(("above", "below"), [(3.7, 3.6), (2.0, 3.0)])
def test_a_bound_that_could_be_reached_is_not_excused(above: float, below: float) -> None:
    """1/0.9 = 1.111 and 1/0.75 = 1.333 lie beyond 1.05."""
    result = result_of("C46", efficiencies(above, below))
    assert result.verdict == "does not hold" and "out of reach" not in result.why
    assert "out of reach" not in result_of("C46", efficiencies(3.96, 3.0)).why


def test_of_several_settings_it_is_said_in_how_many_the_bound_is_out_of_reach() -> None:
    """Of three machines two keep 96 and 98%, the third 90%."""
    rows = efficiencies(3.96, 3.84) + efficiencies(3.96, 3.92, machine="second") + efficiencies(3.6, 3.6, machine="third")
    result = result_of("C46", rows)
    assert result.verdict == "does not hold"
    assert (
        "in 2 of 3 settings the latter keeps 96.0% to 98.0% of perfect scaling already, so that perfect scaling of the former" in result.why
    )
    assert "would give 1.020x to 1.042x: 1.05x is out of reach there" in result.why


def test_only_ratios_of_efficiencies_have_a_largest_one() -> None:
    """C2 compares rates and C14 asks for equality: neither has a largest ratio."""
    for number in ("C2", "C14", "C37"):
        assert "perfect scaling" not in result_of(number, CASES[number].rows("fails")).why
