"""Boots as a level of variance: by hand, on the committed Records, and on made-up ones."""

import math

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from multigpu import paths
from multigpu.analysis import boots
from multigpu.analysis.boots import Boot, Sample, contrast, rate_half
from multigpu.analysis.compare import versus
from multigpu.analysis.frame import frame_of
from multigpu.analysis.points import points
from multigpu.analysis.read import frames
from multigpu.analysis.statistics import half_width
from tests.factory import make_record
from tests.installed import needs_deepconn
from tests.scripts import load

FITTED = load("between_boots")

EAGER, CAPTURED = (boots.spreads()[form] for form in ("eager", "captured"))


def side(form: str = "eager", variance: float = 1e-6, freedom: float = 4, **means: float) -> Sample:
    """Three repeats in each of these boots, of these means of logarithms."""
    return Sample(
        form, tuple(Boot(name, 3, mean) for name, mean in means.items()), variance, freedom
    )


def over(*sides: Sample) -> boots.LogContrast:
    return contrast(sides, (1.0, -1.0))


def test_a_shared_boot_falls_out_and_boots_that_differ_add_the_spread_of_their_form() -> None:
    shared = over(side(a=1.0), side(a=0.8))
    assert shared.value == pytest.approx(0.2) and shared.variance == pytest.approx(2e-6 / 3)
    assert shared.freedom == pytest.approx(8)
    apart = over(side(a=1.0), side(b=0.8))
    assert apart.value == pytest.approx(0.2)
    assert apart.variance == pytest.approx(2 * EAGER**2 + 2e-6 / 3)
    captured = over(side("captured", a=1.0), side("captured", b=0.8))
    assert captured.variance == pytest.approx(2 * CAPTURED**2 + 2e-6 / 3)


def test_sides_of_two_forms_carry_what_the_host_does_to_one_of_them_also_in_one_boot() -> None:
    one = over(side("captured", a=1.0), side(a=0.8))
    assert one.variance == pytest.approx(EAGER**2 + CAPTURED**2 + 2e-6 / 3)
    two = over(side("captured", a=1.0, b=1.0), side(a=0.8, b=0.8 + 1e-3))
    assert two.variance < one.variance / 2 and two.freedom > boots.FREEDOM
    alone = over(side("", a=1.0), side("", a=0.8))
    assert alone.variance == pytest.approx(2e-6 / 3)


def test_an_unbalanced_day_does_not_bias_a_ratio() -> None:
    """The own side has a slow day more: of the day that both share they are equal."""
    ratio = over(side(a=1.0, b=0.7), side(a=1.0))
    assert abs(ratio.value) < 0.01 and math.sqrt(ratio.variance) < 0.01
    pooled = np.mean([1.0, 0.7]) - 1.0
    assert pooled == pytest.approx(-0.15)


def test_boots_become_the_units_where_ratios_differ_between_them() -> None:
    alike, apart = (
        over(side(a=1.0, b=1.3, c=0.9), side(a=0.8, b=1.1 + gap, c=0.7 - gap)) for gap in (0, 0.05)
    )
    assert alike.freedom > 4 and alike.variance < 1e-6
    assert apart.freedom == 2
    expected = stats.tvar([0.2, 0.15, 0.25]) / 3
    assert apart.variance == pytest.approx(expected, rel=0.01)


def test_a_rate_carries_the_spread_of_its_form_and_a_single_run_has_no_interval() -> None:
    own = side(variance=0.0, a=1.0)
    assert rate_half(own) == pytest.approx(stats.t.ppf(0.975, boots.FREEDOM) * EAGER)
    assert math.isnan(rate_half(side(variance=math.nan, freedom=0, a=1.0)))
    assert rate_half(side("captured", a=1.0)) < 0.02 < 0.2 < rate_half(own)


def test_points_are_paired_within_the_boots_of_their_records() -> None:
    """ddp and exp4 in boot x; exp4 again on a day that is 25% slower, which pooling would charge to
    it; independent on that day only.
    """
    told = [("ddp", "x", 1.0), ("exp4", "x", 1.0), ("exp4", "y", 0.75), ("independent", "y", 0.75)]
    records = [
        make_record(placement, 2, 1e6 * rate * wander, repeat, f"{boot}{place}", boot=boot)
        for placement, boot, rate in told
        for repeat, (place, wander) in enumerate(
            [(0, 1.0), (0, 1.002), (1, 0.998)], 5 * (boot == "y")
        )
    ]
    table = points(frame_of(records))
    assert table["boots"].tolist() == [1, 2, 1]
    ddp, exp4, alone = (
        table[table["placement"].eq(name)] for name in ("ddp", "exp4", "independent")
    )
    (one,) = versus(exp4, ddp).to_dict("records")
    assert one["ratio"] == pytest.approx(1, abs=0.005) and one["verdict"] == "not told apart"
    assert one["ratio_high"] < 1.02
    (other,) = versus(alone, ddp).to_dict("records")
    assert other["ratio"] == pytest.approx(0.75, abs=0.01) and other["verdict"] == "not told apart"


@needs_deepconn
def test_intervals_hold_a_point_against_itself_in_another_boot() -> None:
    """The committed A/A table, each point left out of the estimate that judges it."""
    table = frames(paths.RUNS)[1]
    pairs = FITTED.repeated_points(table["sample"].dropna())
    held = FITTED.held_without_itself(pairs)
    low, high = stats.binomtest(int(held.sum()), len(held)).proportion_ci(0.95)
    assert len(held) >= 280 and low <= 0.95 <= high
    known = FITTED.estimated(pairs)
    known["eager"] = FITTED.at_least(known["eager"])
    assert {form: round(spread, 5) for form, spread in known.items()} == pytest.approx(
        boots.spreads(), rel=0.02
    ), "run workflow/between_boots.py, which writes between_boots.yaml again"
    page = (paths.REPOSITORY / "report" / "method.md").read_text()
    assert f"{held.sum()} of {len(held)} pairs" in page
    assert all(f"{spread:.1%} for" in page for spread in known.values()), "as the method page says"
    half = pd.Series(FITTED.width(pairs["form"].map(known), pairs["within"], pairs["freedom"]))
    middle = half.groupby(pairs["form"]).quantile(interpolation="higher")
    assert "{eager:.1%}, {graph:.1%} and {captured:.1%} in the median".format(**middle) in page
    blind = pairs["apart"] <= half_width(pairs["within"], pairs["freedom"])
    assert blind.mean() < 0.9, "without boots' spread the table would not show this"


def made_up(form: str, count: int, random: np.random.Generator, most: int = 2) -> list[Sample]:
    """Points measured in so many boots, two to five repeats in each; their spread between boots
    varies from point to point about the committed one.
    """
    frame = []
    spread = boots.spreads()[form]
    for point in range(count):
        own = spread * math.sqrt(boots.FREEDOM / random.chisquare(boots.FREEDOM))
        luck = spread / random.uniform(1, 4)
        for boot in range(most):
            day = random.normal(0, own)
            for _ in range(random.integers(2, 6)):
                frame.append((point, f"{point}.{boot}", day + random.normal(0, luck)))
    table = pd.DataFrame(frame, columns=["point", "boot", "log"])
    return boots.samples(
        np.exp(table["log"]),
        table["point"],
        table.index.to_series().astype(str),
        table["boot"],
        pd.Series(form, index=table.index),
    ).tolist()


@pytest.mark.parametrize("form", sorted(boots.spreads()))
def test_made_up_points_are_held_in_95_of_100(form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """2,000 differences between two boots, judged by the estimates of 20 made-up tables."""
    random, held = np.random.default_rng(1), []
    for _ in range(20):
        known = FITTED.estimated(FITTED.repeated_points(made_up(form, 130, random)))
        monkeypatch.setattr(boots, "spreads", lambda known=known: known)
        contrast.cache_clear()
        for one in made_up(form, 100, random):
            sides = [one._replace(boots=(boot,)) for boot in one.boots]
            found = over(*sides)
            held.append(abs(found.value) <= half_width(found.variance, found.freedom))
        monkeypatch.undo()
    contrast.cache_clear()
    assert len(held) == 2000 and 0.93 <= np.mean(held) <= 0.97


@pytest.mark.parametrize(
    ("own", "base"), [("a", "b"), ("a", "a"), ("ab", "ab"), ("ab", "bc"), ("a", "ab")]
)
def test_verdicts_at_the_edge_of_a_margin_are_rarely_wrong_with_days_12_percent_apart(
    own: str, base: str
) -> None:
    """Two eager points that differ by exactly the margin, in boots of these names, three repeats in
    each: whatever is decided is wrong.
    """
    random, wrong, times = np.random.default_rng(2), 0, 2000
    for _ in range(times):
        day = dict.fromkeys("abc", 0.0)
        day = {boot: random.normal(0, 0.12) for boot in day}
        logs = {
            (number, boot): day[boot] + number * math.log(1.05) + random.normal(0, 0.01, 3)
            for number, names in enumerate((base, own))
            for boot in names
        }
        sides = []
        for number, names in enumerate((base, own)):
            each = [logs[number, boot] for boot in names]
            variance = float(np.mean([np.var(one, ddof=1) for one in each]))
            told = tuple(Boot(n, 3, float(one.mean())) for n, one in zip(names, each, strict=True))
            sides.append(Sample("eager", told, variance, 2.0 * len(names)))
        found = over(sides[1], sides[0])
        half = float(half_width(found.variance, found.freedom))
        wrong += abs(found.value - math.log(1.05)) > half
    assert wrong / times <= 0.05
    assert stats.binomtest(wrong, times).proportion_ci(0.95).high <= 0.065


def test_launches_of_a_boot_are_its_units_where_they_differ() -> None:
    values = [1.0, 1.001, 0.999, 1.2, 1.201, 2.0, 2.001, 1.999, 2.4, 2.401]
    own = pd.Series(values)
    nothing = pd.Series("eager", index=own.index)
    (found,) = boots.samples(
        own,
        pd.Series(0, own.index),
        pd.Series([*"aaabbcccdd"]),
        pd.Series([*"xxxxxyyyyy"]),
        nothing,
    )
    assert found.freedom == 2 and [boot.n for boot in found.boots] == [5, 5]
    logs = np.log(values)
    expected = sum(
        len(own) * (own.mean() - day.mean()) ** 2
        for day in (logs[:5], logs[5:])
        for own in (day[:3], day[3:])
    )
    assert found.variance == pytest.approx(expected / 2)


def test_where_no_boot_is_named_a_pause_of_over_five_minutes_begins_another() -> None:
    """Counted from the last Record of any launch before, for each machine and commit."""
    rows = [
        ("a.0", "00:00", "one", ""),
        ("c.0", "11:01", "one", ""),
        ("a.1", "01:00", "one", ""),
        ("b.0", "06:00", "one", ""),
        ("d.0", "06:30", "other", ""),
        ("e.0", "11:02", "one", "named"),
        ("f.0", "11:03", "one", None),
    ]
    frame = pd.DataFrame(rows, columns=["launch_id", "measured_at", "commit", "boot"])
    frame["measured_at"] = "2026-01-01T12:" + frame["measured_at"] + "+00:00"
    found = boots.named_boots(frame.assign(machine="m"))
    assert found.iloc[5] == "named"
    unnamed = found.drop(5)
    sweeps = [sorted(own) for own in unnamed.groupby(unnamed.to_numpy()).groups.values()]
    assert sorted(sweeps) == [[0, 2, 3], [1, 6], [4]]
    assert boots.named_boots(frame.assign(machine="m", boot="x")).eq("x").all()
    two = frame.assign(machine=["m", "m", "m", "n", "m", "m", "m"])
    assert boots.named_boots(two).nunique() == 5


def test_two_boots_of_a_point_are_a_pair_and_the_spread_holds_95_of_100_of_them() -> None:
    """And one pair more than there are: of 39 the largest alone is left out, of 20 none."""
    several = Sample("eager", (Boot("a", 2, 0.0), Boot("b", 4, 0.3), Boot("c", 1, 0.1)), 0.04, 5.0)
    once = several._replace(boots=(Boot("a", 1, 0.0), Boot("b", 1, 0.3)))
    pairs = FITTED.repeated_points([several._replace(form=""), once, several, side(a=1.0)])
    assert pairs[["form", "point", "freedom", "least"]].to_numpy().tolist() == [
        ["eager", 2, 5.0, 2],
        ["eager", 2, 5.0, 1],
    ]
    assert pairs["apart"].tolist() == pytest.approx([0.3, 0.2])
    assert pairs["within"].tolist() == pytest.approx([0.04 * 3 / 4, 0.04 * 5 / 4])
    half = stats.t.ppf(0.975, 0.03**2 / (0.02**2 / boots.FREEDOM + 0.01**2 / 5)) * math.sqrt(0.03)
    assert float(FITTED.width(0.1, 0.01, 5.0)) == pytest.approx(half)
    many = pd.DataFrame(
        {"form": "eager", "apart": np.linspace(0.1, 0.5, 39), "within": 1e-4, "freedom": 8.0}
    )
    for count, place in ((39, -2), (20, -1), (3, -1)):
        own = many.head(count).sample(frac=1, random_state=1)
        spread = FITTED.estimated(own)["eager"]
        assert spread == pytest.approx(np.sort(FITTED.needed(own))[place])
        held = own["apart"] <= FITTED.width(spread * (1 + 1e-9), own["within"], own["freedom"])
        assert held.sum() == count + 1 + place


def test_many_boots_tell_a_small_difference_between_them() -> None:
    """Forty that differ by half as much again as their repeats do."""
    apart = math.sqrt(1.5 * 2e-6 / 3)
    means = {f"b{number}": 1.0 + apart * (-1) ** number for number in range(40)}
    one = side(freedom=80, **means)
    other = side(freedom=80, **dict.fromkeys(means, 0.8))
    found = over(one, other)
    assert found.value == pytest.approx(0.2) and found.freedom == 39
    assert found.variance == pytest.approx(1.5 * 40 / 39 * 2e-6 / 3 / 40)
    # a rate on three boots: the form's spread with four degrees of freedom, its own with two more
    shown = stats.tvar([1.0, 1.2, 0.9]) - 1e-6 / 3
    terms = [(1e-6 / 9, 4), ((4 * EAGER**2 + 2 * shown) / 6 / 3, 6)]
    total = sum(part for part, _ in terms)
    freedom = total**2 / sum(part**2 / own for part, own in terms)
    half = stats.t.ppf(0.975, freedom) * math.sqrt(total)
    assert rate_half(side(a=1.0, b=1.2, c=0.9)) == pytest.approx(half)
