"""Bands widened by what other lines missed: the factor, its promise, and that a line's own point has no say in it."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from multigpu.analysis.forecast import HeldOut, widening_of


def held(measured_s: float, half: float = 0.1, predicted_s: float = 1.0) -> HeldOut:
    return HeldOut(4, (1, 2), predicted_s, predicted_s * math.exp(-half), predicted_s * math.exp(half), measured_s)


@given(miss=st.floats(-0.5, 0.5), half=st.floats(0.001, 1.0), predicted_s=st.floats(1e-3, 1e3))
def test_a_score_says_by_what_a_band_must_be_widened(miss: float, half: float, predicted_s: float) -> None:
    one = held(predicted_s * math.exp(miss), half, predicted_s)
    assert one.missed_by == pytest.approx(abs(miss) / half, abs=1e-6)
    assert one.widen(one.missed_by * 1.001 + 1e-9).inside
    if one.missed_by > 1.001:
        assert not one.inside and not one.widen(one.missed_by * 0.999).inside
    wide = one.widen(3.0)
    assert wide.widening == 3.0 and wide.widen(1 / 3).low_s == pytest.approx(one.low_s)


def test_a_band_without_width_or_without_ends_has_no_score() -> None:
    assert math.isinf(replace(held(1.5), low_s=1.0, high_s=1.0).missed_by)
    assert math.isnan(replace(held(1.5), low_s=math.nan, high_s=math.nan).missed_by)
    assert held(1.0).missed_by == 0.0


def of_misses(*misses: float) -> list[HeldOut | None]:
    """Lines whose measurements lie so many half-widths off."""
    return [held(math.exp(0.1 * miss)) for miss in misses]


def test_the_factor_is_the_quantile_that_keeps_the_promise() -> None:
    assert widening_of(of_misses(*(0.1 * n for n in range(1, 40)))) == pytest.approx(3.8), "the 38th of 39"
    assert widening_of(of_misses(2.0, 1.5)) == pytest.approx(2.0), "too few for the quantile: the largest"
    assert widening_of(of_misses(*[0.2] * 30)) == 1.0, "bands are never made narrower"
    assert widening_of([]) == widening_of([None, replace(held(1.5), low_s=1.0, high_s=1.0)]) == 1.0


def test_widened_bands_hold_95_percent_of_what_they_have_not_seen() -> None:
    """Misses five times as large as bands expect, of unequal widths: each line judged by the others alone."""
    generator = np.random.default_rng(0)
    covered = total = 0
    for _ in range(40):
        halves = np.exp(generator.normal(-3, 1, 40))
        lines = [held(math.exp(5 * half * generator.standard_t(3) / 2), half) for half in halves]
        for index, line in enumerate(lines):
            covered += bool(line.widen(widening_of(lines[:index] + lines[index + 1 :])).inside)
            total += 1
    assert 0.94 < covered / total < 0.98
