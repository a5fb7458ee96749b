"""Noise is called noise: whatever repeats vary, no part is larger than its whole, nothing is better than perfect, no time is negative."""

import re

import pandas as pd
from hypothesis import given, settings
from hypothesis import strategies as st

from multigpu import paths
from multigpu.analysis.advise import rankings, sentences
from multigpu.analysis.compare import best_single, ratio_columns
from multigpu.analysis.explain import WAITS, Explanation, baselines, faster
from multigpu.analysis.explain_text import as_text
from multigpu.analysis.fields import JOB
from multigpu.analysis.frame import frame_of
from multigpu.analysis.limits import bounds
from multigpu.analysis.points import points
from multigpu.analysis.read import frames
from multigpu.record import Record
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
    ones = best_single(table, form=())
    pairs = table[[*JOB]].assign(_row=table.index).merge(ones[[*JOB]].assign(_one=ones.index), on=[*JOB])
    own, base = (table.loc[pairs[name]].reset_index(drop=True) for name in ("_row", "_one"))
    ratios = ratio_columns(own, base, "ratio")
    for place in range(len(pairs)):
        row, ratio = own.iloc[place], ratios.iloc[place]
        ideal = (ratio / row["devices"]).rename(lambda name: name.replace("ratio", "of_ideal"))
        check(told(row, {"one_best": pd.concat([base.iloc[place], ratio, ideal])}))
    assert len(pairs) > 1000


def test_no_record_is_faster_than_its_bound(committed: list[Record]) -> None:
    limits = bounds(frame_of(committed))
    known = limits[limits["share_of_bound"].notna()]
    fastest = known.sort_values("share_of_bound").iloc[-1]
    assert len(known) > 500 and fastest["share_of_bound"] < 1, fastest["key"]


def test_a_single_run_is_not_what_is_told_to_be_faster_where_others_were_repeated() -> None:
    noise = (0.99, 1.0, 1.01)
    rates = {"exp2": [1e6 * one for one in noise], "exp4": [2e6 * one for one in noise], "ddp": [3e6]}
    records = [record for name, own in rates.items() for record in make_point(own, placement=name, devices=2)]
    table = points(frame_of(records))
    found = faster(table, table[table["placement"].eq("exp2")].iloc[0])
    assert list(found["placement"]) == ["exp4", "ddp"] and found["ratio"].iloc[0] < found["ratio"].iloc[1]


def test_computing_that_merging_slows_is_told() -> None:
    """No wait is long, and yet the step is: its kernels are slower than those of replicas that merge nothing."""
    records = [
        *make_point([8e6, 8.01e6, 8e6], placement="independent", devices=4),
        *make_point([6e6, 6.01e6, 6e6], placement="ddp", devices=4),
    ]
    table = points(frame_of([*records, *make_point([2e6, 2.01e6, 2e6], placement="ddp", devices=1)]))
    row = table[table["placement"].eq("ddp") & table["devices"].eq(4)].iloc[0]
    step_s, found = float(row["step_time_s"]), baselines(table, row)
    parts = dict.fromkeys(WAITS, 0.0) | {"compute": step_s}
    for alone_s, longer in ((0.9 * step_s, True), (0.999 * step_s, False), (1.1 * step_s, False), (None, False)):
        one = Explanation(row, found, parts, ("key",), 1.0, {}, pd.DataFrame(), "", alone_s)
        assert ("longer than in replicas that merge nothing beside it" in as_text(one)) == longer
        assert not longer or f"{1e3 * (step_s - alone_s):.2g}" in as_text(one).splitlines()[1]


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


def test_a_single_gpu_in_slower_ways_only_is_no_baseline() -> None:
    """Four GPUs with a kernel that one GPU was never measured with are compared with replicas that have it, too."""
    noise = (0.99, 1.0, 1.01)
    slow = make_point([1e6 * one for one in noise], placement="ddp", devices=1)
    alone = make_point([8e6 * one for one in noise], placement="independent", devices=4)
    own = make_point([6e6 * one for one in noise], placement="ddp", devices=4)
    table = points(frame_of([*slow, *alone, *own]))
    row, free = (table[table["placement"].eq(name) & table["devices"].eq(4)].iloc[0] for name in ("ddp", "independent"))
    said = told(row, baselines(table, row)).splitlines()
    assert (
        "keep 75% (" in said[0] and "of independent replicas; one GPU was measured in slower ways only" in said[0] and "measure" in said[1]
    )
    assert "perfect scaling" in told(free, baselines(table, free)).splitlines()[0]
    table = table[table["placement"].eq("ddp")]
    assert "times the rate of one GPU at its best" in told(row, baselines(table, row)).splitlines()[0]
