"""Noise is called noise: whatever repeats vary, no part is larger than its whole, nothing is better than perfect, no time is negative."""

import re

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from multigpu import paths
from multigpu.analysis.advise import rankings, sentences
from multigpu.analysis.compare import best_single, ratio_columns
from multigpu.analysis.explain import Explanation, baselines
from multigpu.analysis.explain_text import as_text
from multigpu.analysis.fields import JOB
from multigpu.analysis.frame import frame_of
from multigpu.analysis.points import points, where
from multigpu.analysis.read import frames
from tests.factory import make_point

SHARE = re.compile(r"([\d.]+)%[^%;\n]*? of (?:perfect|its best|\d+ times)")
NEGATIVE = re.compile(r"(?<![\w.])-\d[\d.,]*\s*(?:ms|s|%|µs)")


def told(row: pd.Series, found: dict[str, pd.Series]) -> str:
    """The whole text of an explanation of which no step was traced."""
    return as_text(Explanation(row, found, None, (), float("nan"), {}, pd.DataFrame(), "measure"), details=True)


def check(text: str) -> None:
    assert all(float(share) <= 100 for share in SHARE.findall(text)), text
    assert not NEGATIVE.search(text), text


def test_no_committed_point_is_better_than_perfect() -> None:
    """Every measured point beside one device at its best."""
    table = frames(paths.RUNS)[1]
    table = table[table["n"] > 0].reset_index(drop=True)
    ones, count = best_single(table, form=()), 0
    on = ["machine", *(name for name in JOB if name != "machine")]
    pairs = table[on].assign(_row=table.index).merge(ones[on].assign(_one=ones.index), on=on)
    own, base = (table.loc[pairs[name]].reset_index(drop=True) for name in ("_row", "_one"))
    ratios = ratio_columns(own, base, "ratio")
    for place in range(len(pairs)):
        row, ratio = own.iloc[place], ratios.iloc[place]
        ideal = (ratio / row["devices"]).rename(lambda name: name.replace("ratio", "of_ideal"))
        check(told(row, {"one_best": pd.concat([base.iloc[place], ratio, ideal])}))
        count += 1
    assert count > 1000


RATES = st.lists(st.floats(0.5e6, 2e6), min_size=1, max_size=4)


@settings(max_examples=30, deadline=None, derandomize=True)
@given(RATES, RATES, RATES, st.sampled_from([1, 2, 8]))
def test_made_up_points_are_told_within_their_wholes(one: list[float], alone: list[float], many: list[float], devices: int) -> None:
    """Rates of any spread: of one device, of a replica alone and of a placement that may be faster than perfect."""
    records = [*make_point(one, devices=1), *make_point(alone, placement="independent", devices=1)]
    records += make_point([devices * rate for rate in many], placement="replicated_allreduce", devices=devices)
    table = points(frame_of(records))
    for _, row in table.iterrows():
        check(told(row, baselines(table, row)))
    for advice in rankings(table, {"workload": "nmt", "devices": devices})[0]:
        check(" ".join(sentences(advice)))
        assert devices > 1 or "independent" not in " ".join(sentences(advice))


@pytest.mark.parametrize("placement", ["independent", "ddp"])
def test_one_gpu_is_not_advised_to_be_independent(placement: str) -> None:
    table = points(frame_of(make_point([1e6, 1.01e6, 0.99e6], placement=placement, devices=1)))
    (advice,) = rankings(table, {"workload": "nmt", "devices": 1})[0]
    said = sentences(advice)[0]
    assert "independent" not in said and ("one replica alone" in said) == (placement == "independent")
    assert where(table, devices=1)["placement"].tolist() == [placement]
