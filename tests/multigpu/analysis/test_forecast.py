"""The forecast on steps made from known parameters, and on planted Records; what a merge takes, by
hand.
"""

import math
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from multigpu.analysis import forecast_lines as of_records
from multigpu.analysis.expected import from_one_device
from multigpu.analysis.forecast import (
    MOST,
    HeldOutCount,
    Points,
    Shape,
    forecast,
    held_out,
    launch_residuals,
    slowest_of,
    widening_of,
)
from multigpu.analysis.forecast_reduction import (
    Demand,
    Links,
    demand_of,
    fullest,
    reduction_seconds,
)
from multigpu.analysis.frame import frame_of
from multigpu.analysis.laws import Empirical
from multigpu.analysis.merge_cost import cost_of, kind_of, merged
from multigpu.analysis.points import points
from multigpu.build import build_run
from multigpu.placements import find_placement
from multigpu.placements.traffic import predicted_bytes
from multigpu.workloads import find_model
from tests.factory import make_point
from tests.refusals import refused

LINKS = Links(100.0, node=8, between_bytes_per_s=10.0)
RING, SERVER = Demand(reduced=100.0), Demand(pulled=(100.0,), pushed=(100.0,))


def made(c, x, demand, counts=(1, 2, 4), spread=0.0, launches=4, generator=None, noise=()):
    """Points whose steps follow the model, each launch moved by `spread` on logarithms."""
    times = []
    for p in counts:
        inside, between = reduction_seconds(demand, p, LINKS)
        moved = (
            generator.normal(0, spread, launches) if generator is not None else np.zeros(launches)
        )
        times.append(
            tuple((c * slowest_of(noise, [p]).mean() + x * inside + between) * np.exp(moved))
        )
    return Points(tuple(counts), tuple(times), demand, noise)


@settings(deadline=None)
@given(
    c=st.floats(1.0, 100.0),
    slope=st.floats(0.1, 0.99 * MOST),
    kind=st.sampled_from(["reduced", "copied", "host", "home"]),
    counts=st.sampled_from([(1, 2, 4), (1, 3, 8), (1, 4, 8, 16, 32)]),
    one_process=st.booleans(),
    overlaps=st.booleans(),
)
@example(
    c=8.0, slope=0.5, kind="copied", counts=(1, 4, 8, 16, 32), one_process=False, overlaps=True
)
def test_known_parameters_are_found_and_nothing_is_missed_without_noise(
    c, slope, kind, counts, one_process, overlaps
):
    """A process a device: c + x I + s B, s = min(1, x) where merging overlaps, else 1; one process:
    c + h (P - 1) + I.
    """
    links = Links(100.0, host_bytes_per_s=80.0, node=8, between_bytes_per_s=10.0)
    moved = {"pulled": (100.0,), "pushed": (100.0,)} if kind == "home" else {kind: 100.0}
    demand, share = Demand(overlaps=overlaps, **moved), min(1.0, slope) if overlaps else 1.0

    def step_s(p):
        inside, between = reduction_seconds(demand, p, links)
        return (
            (c, inside, 0.0, slope * (p - 1))
            if one_process
            else (c, slope * inside, share * between, 0.0)
        )

    counts = tuple(p for p in counts if p <= 8) if one_process else counts
    points = Points(
        counts, tuple((sum(step_s(p)),) for p in counts), demand, one_process=one_process
    )
    found = forecast(points, [1, 2, 4, 8] + [64] * (not one_process), links)
    assert found[["computation_s", "slope"]].to_numpy() == pytest.approx(
        np.array([[c, slope]] * len(found)), rel=1e-4
    )
    assert found["efficiency"].iloc[0] == pytest.approx(1)
    for _, row in found.iterrows():
        parts = row[
            ["computation_s", "links_of_a_node_s", "links_between_nodes_s", "host_s"]
        ].tolist()
        assert parts == pytest.approx(step_s(int(row["devices"])), rel=1e-4, abs=1e-9) and row[
            "step_s"
        ] == pytest.approx(sum(parts))
    assert found["efficiency_low"].isna().all(), "nothing was repeated, so there is no band"
    if len(counts) > 2:
        held = held_out(points, links)
        assert (
            held.error == pytest.approx(0, abs=1e-4)
            and held.devices == counts[-1]
            and held.inside is None
        )


def test_the_slowest_of_p_is_what_order_statistics_say():
    assert slowest_of([(0.5, 1.5)], [1, 2, 1000])[0] == pytest.approx([1, 1.25, 1.5]), (
        "of two draws three in four times the slow one"
    )
    assert slowest_of([], [1, 64])[0] == pytest.approx([1, 1])
    times = tuple(np.random.default_rng(0).gamma(50, 0.02, 100))
    law = Empirical(times_s=times)
    assert slowest_of([times], [16])[0, 0] == pytest.approx(law.order_mean_s(16, 16) / law.mean_s)
    row = forecast(made(10, 1.0, RING, noise=((0.5, 1.5),)), [1, 1024], LINKS).iloc[1]
    assert (row["computation_s"], row["slope"], row["noise_s"]) == pytest.approx((10, 1, 5))


def test_bands_hold_about_what_they_promise():
    """Noise of launches alone: 120 made studies, their held-out points, their own residuals."""
    generator = np.random.default_rng(1)
    made_up = [
        made(10, 0.8, RING, spread=0.01, launches=5, generator=generator) for _ in range(120)
    ]
    held = [
        held_out(one, LINKS, launch_residuals(one.times_s), draws=150, seed=study)
        for study, one in enumerate(made_up)
    ]
    assert 0.87 <= np.mean([one.inside for one in held]) <= 1.0
    wide = [one.high_s / one.low_s - 1 for one in held]
    assert 0.02 < np.median(wide) < 0.12, (
        "a band of 1% launches, extrapolated, is a few percent wide"
    )
    shares = []
    for one, found in zip(made_up[:30], held, strict=False):
        fewer = replace(one, devices=one.devices[:-1], times_s=one.times_s[:-1])
        residuals = launch_residuals(one.times_s)
        row = forecast(fewer, [4], LINKS, residuals, draws=150).iloc[0]
        fit, both = np.log([row.step_s_high / row.step_s_low, found.high_s / found.low_s]) / 3.92
        shares.append(both**2 / (fit**2 + np.var(residuals) / 5))
    assert np.mean(shares) == pytest.approx(1, abs=0.12), "a band's launches are not its fit's"
    assert launch_residuals([(1.0,), (np.e, np.e**3)]) == pytest.approx(
        [-np.sqrt(2), np.sqrt(2)]
    ), "the sample variance of 1 and 3 is 2"


def test_what_cannot_be_forecast_or_has_no_formula_is_refused():
    refused(
        "1 counts of devices cannot fit 2 parameters",
        held_out,
        made(10, 1, RING, counts=(1, 2)),
        LINKS,
    )
    refused("network_gbit must be above 0", of_records.assumed_links, 0, 5, 8)
    variables = find_model("nmt", "nmt000").variables
    refused("cut from one model", demand_of, find_placement("layer_split"), variables)
    refused("do not wait", demand_of, find_placement("parameter_server_async"), variables)
    refused("no formula", demand_of, find_placement("mirrored_hierarchical"), variables)
    refused("above 0", Links, 0.0)


def test_counts_of_a_forecast_and_latency_is_how_the_shortest_call_grows():
    assert of_records.ahead((1, 3), 8, False, 8) == [1, 2, 3, 4, 8]
    assert of_records.ahead((1, 2), 1024, True, 8) == [1, 2, 4, 8], (
        "one process dispatches for its own host"
    )
    rows = [
        ("captured", 2, 10e-6),
        ("captured", 4, 14e-6),
        ("eager", 2, 90e-6),
        ("eager", 4, 20e-6),
    ]
    table = pd.DataFrame(
        [
            {"kind": "library", "bytes": 4, "execution": e, "devices": d, "time_s": t}
            for e, d, t in rows
        ]
    )
    assert of_records.inside_latency_s(table) == pytest.approx(1e-6), (
        "4 us more for 4 messages more"
    )
    assert of_records.inside_latency_s(table[table["devices"] == 2]) == 0


def a_band(measured_s: float, half: float = 0.1, predicted_s: float = 1.0) -> HeldOutCount:
    return HeldOutCount(
        4, predicted_s, predicted_s * math.exp(-half), predicted_s * math.exp(half), measured_s
    )


@given(miss=st.floats(-0.5, 0.5), half=st.floats(0.001, 1.0), predicted_s=st.floats(1e-3, 1e3))
def test_a_score_says_by_what_a_band_must_be_widened(
    miss: float, half: float, predicted_s: float
) -> None:
    one = a_band(predicted_s * math.exp(miss), half, predicted_s)
    assert one.missed_by == pytest.approx(abs(miss) / half, abs=1e-6)
    assert one.widen(one.missed_by * 1.001 + 1e-9).inside
    assert one.missed_by <= 1.001 or not one.widen(one.missed_by * 0.999).inside


def of_misses(*misses: float) -> list[HeldOutCount | None]:
    """Lines whose measurements lie so many half-widths off."""
    return [a_band(math.exp(0.1 * miss)) for miss in misses]


def test_the_factor_is_the_quantile_that_keeps_the_promise_for_what_it_has_not_seen() -> None:
    assert widening_of(of_misses(*(0.1 * n for n in range(1, 40)))) == pytest.approx(3.8), (
        "the 38th of 39"
    )
    assert widening_of(of_misses(2.0, 1.5)) == pytest.approx(2.0), (
        "too few for the quantile: the largest"
    )
    assert widening_of(of_misses(*[0.2] * 30)) == 1.0, "bands are never made narrower"
    flat = replace(a_band(1.5), low_s=1.0, high_s=1.0)
    unknown = replace(a_band(1.5), low_s=math.nan, high_s=math.nan)
    assert widening_of([]) == widening_of([None, flat]) == 1.0, "what has no width says nothing"
    assert (
        math.isinf(flat.missed_by)
        and math.isnan(unknown.missed_by)
        and a_band(1.0).missed_by == 0.0
    )
    generator = np.random.default_rng(0)
    covered = []
    for _ in range(40):
        halves = np.exp(generator.normal(-3, 1, 40))
        lines = [a_band(math.exp(5 * half * generator.standard_t(3) / 2), half) for half in halves]
        covered += [
            line.widen(widening_of(lines[:index] + lines[index + 1 :])).inside
            for index, line in enumerate(lines)
        ]
    assert 0.94 < np.mean(covered) < 0.98


ONE_NODE = Links(100.0, host_bytes_per_s=50.0, node=10**6)
NODES = Links(100.0, host_bytes_per_s=50.0, node=4, between_bytes_per_s=10.0)
ALL_REDUCE, HOME = Demand(reduced=1000.0), Demand(pulled=(1000.0,), pushed=(1000.0,))
LATE = Links(float("inf"), inside_latency_s=1.0, node=4, between_latency_s=100.0)
COPIED, FROM_HOST = Demand(copied=1000.0), Demand(host=1000.0)


@pytest.mark.parametrize(
    ("demand", "links", "seconds"),
    [
        (ALL_REDUCE, ONE_NODE, {1: (0, 0), 2: (10, 0), 4: (15, 0)}),  # 2 (P - 1) / P N / B
        (HOME, ONE_NODE, {1: (0, 0), 2: (20, 0), 3: (40, 0), 5: (80, 0)}),  # 2 N (P - 1) / B
        (COPIED, ONE_NODE, {1: (0, 0), 2: (10, 0), 3: (20, 0), 5: (40, 0)}),
        (FROM_HOST, ONE_NODE, {1: (0, 0), 2: (20, 0), 3: (40, 0)}),
        # 2 (4 - 1) messages inside, 2 (4 - 1) between
        (ALL_REDUCE, LATE, {4: (6, 0), 16: (6, 600)}),
        # four nodes of four: a node's links carry 40 bytes/s, a device's 10; of a home 3 others are
        # inside, 12 beyond
        (ALL_REDUCE, NODES, {16: (15, 2 * 3 / 4 * 1000 / 40)}),
        (HOME, NODES, {16: (60, 12 * 2000 / 10)}),
        (COPIED, NODES, {16: (30, 1200)}),
        (FROM_HOST, NODES, {16: (300, 12 * 1000 / 40)}),
    ],
)
def test_a_merge_takes_what_its_formula_says(demand, links, seconds):
    for devices, (inside, between) in seconds.items():
        assert reduction_seconds(demand, devices, links) == pytest.approx((inside, between))


def test_variables_that_are_spread_leave_the_fullest_home_the_largest_of_them():
    spread = Demand(pulled=(60.0, 30.0, 10.0), pushed=(60.0, 30.0, 10.0), elements=(60, 30, 10))
    assert [fullest(spread, p) for p in (1, 2, 3, 100)] == [
        (100, 100),
        (60, 60),
        (60, 60),
        (60, 60),
    ]
    assert reduction_seconds(spread, 2, ONE_NODE)[0] == pytest.approx(1.2), "(P - 1) 120 / 100"
    assert reduction_seconds(spread, 101, ONE_NODE)[0] == pytest.approx(120)
    even = Demand(pulled=(10.0,) * 8, pushed=(10.0,) * 8, elements=(10,) * 8)
    assert reduction_seconds(even, 8, ONE_NODE)[0] == pytest.approx(2 * 7 / 8 * 80 / 100), (
        "as an all-reduce, if spread evenly"
    )


@pytest.mark.parametrize(
    "name",
    [
        "ddp",
        "replicated_copy",
        "replicated_ring",
        "replicated_server",
        "ps_gpu0",
        "exp1",
        "exp2",
        "exp3",
        "exp4",
    ],
)
def test_a_rows_demand_holds_the_bytes_that_the_row_predicts(name):
    """All devices' bytes by the placements' own arithmetic; what moves once however many devices
    there are is not a merge's.
    """
    placement, variables = find_placement(name), find_model("nmt", "nmt000").variables
    tables = [variable.name for variable in variables if variable.kind == "embedding"]
    demand = demand_of(placement, variables, rows=300)

    def predicted(p):
        moved = predicted_bytes(placement, variables, [dict.fromkeys(tables, 300)] * p)
        host = moved.get("host_to_device", 0) + moved.get("device_to_host", 0)
        return host, moved.get("device_to_device", 0), moved.get("all_reduce", 0)

    assert predicted(4)[0] - predicted(2)[0] == pytest.approx(2 * demand.host)
    if demand.reduced:
        written_out = placement.algorithm is not None
        assert predicted(4)[1 if written_out else 2] == pytest.approx(
            (6 if written_out else 4) * demand.reduced
        )
    elif demand.copied:
        assert predicted(4)[1] == pytest.approx(12 * demand.copied)
    else:
        # a home's own replica fetches nothing; ids of rows come on top, 8 bytes beside a row of
        # 2048
        between = 3 * (sum(demand.pulled) + sum(demand.pushed))
        assert predicted(4)[1] == pytest.approx(between, rel=0.01)


def test_counts_beyond_what_is_fitted_are_moved_by_errors_of_the_fit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of either sign, enlarged as variances of what two parameters leave; by none where there are
    as many counts as parameters.
    """
    fit, seen = Shape.fit, []
    monkeypatch.setattr(
        Shape, "fit", lambda self, *given: (seen.append((self, given)), fit(self, *given))[1]
    )
    for steps in ((5.0, 9.0, 8.0, 11.0, 12.0), (5.0, 9.0)):
        seen.clear()
        counts = (1, 2, 4, 8, 16)[: len(steps)]
        forecast(Points(counts, tuple((step,) for step in steps), RING), [16], LINKS, [0.0], 40)
        (shape, first), others = seen[0], [given[0] for _, given in seen[1:]]
        missed = np.log(first[0] / shape.parts(*fit(shape, *first)).sum(axis=0)) * math.sqrt(5 / 3)
        moved = np.abs(np.log(np.array(others) / first[0]))
        assert moved.shape == (40, len(steps))
        expected = np.abs(missed) if len(steps) == 5 else [0.0]
        assert {*np.round(moved, 9).ravel()} == {*np.round(expected, 9)}


def test_a_batch_that_was_not_measured_takes_as_many_steps_as_one_that_was() -> None:
    """In parts, or a part of it; at worst a smaller batch takes as long as the measured one."""
    job = {"workload": "cnn", "model": "resnet_tiny", "precision": "bf16"}
    job["layout"] = "channels_last"
    table = points(frame_of(make_point([1000.0, 1010.0, 990.0], devices=1, batch_size=32, **job)))
    rate, noise = table.iloc[0]["rate"], table.iloc[0]["rate_high"] / table.iloc[0]["rate"]
    for batch, parts, slower in ((32, None, 1), (16, None, 2), (64, 2, 1), (64, 4, 2)):
        run = build_run(**job, placement="ddp", batch_size=batch, micro_steps=parts)
        found = from_one_device(run, table, LINKS)
        assert found is not None and found.rate.value == pytest.approx(rate)
        ends = (rate / max(noise, slower), rate * noise)
        assert (found.rate.low, found.rate.high) == pytest.approx(ends)
        assert ("with a batch of 32" in found.basis) == (batch != 32)
    assert from_one_device(build_run(**job, placement="ddp", batch_size=15), table, LINKS) is None


@pytest.mark.parametrize("devices", [2, 4])
def test_a_forecast_sends_the_rows_that_one_replica_looks_up_in_one_table(devices: int) -> None:
    """As the formula of measured points says it, whose cost of merging the forecast takes."""
    job = {"workload": "nmt", "model": "nmt000", "precision": "bf16", "placement": "ps_gpu0"}
    table = points(frame_of(make_point([1000.0, 1010.0, 990.0], devices=1, batch_size=32, **job)))
    found = from_one_device(build_run(**job, batch_size=32, devices=devices), table, LINKS)
    one = table.iloc[0].to_dict()
    words = one["rate"] * one["step_time_s"]
    merge_s = sum(reduction_seconds(of_records.demand_of_point(one, words), devices, LINKS))
    step_s = one["step_time_s"]
    cost = cost_of("eager", "per_device", one["jitter_s"] / one["step_time_s"])
    told = merged(words, devices, (step_s,) * 3, merge_s, kind_of("ps_gpu0", None), cost, "words/s")
    assert found is not None and found.rate.value == pytest.approx(told.value)
