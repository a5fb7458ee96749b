"""What a merge takes, by hand: its limits, its growth, and the bytes that placements' rows say it moves."""

import pytest

from multigpu.analysis.forecast_merge import Demand, Links, demand_of, fullest, merge_seconds
from multigpu.placements import find_placement
from multigpu.placements.traffic import predicted_bytes
from multigpu.workloads import find_model
from tests.refusals import refused

ONE_NODE = Links(100.0, host_bytes_per_s=50.0, node=10**6)
NODES = Links(100.0, host_bytes_per_s=50.0, node=4, between_bytes_per_s=10.0)
ALL_REDUCE, SERVER = Demand(reduced=1000.0), Demand(pulled=(1000.0,), pushed=(1000.0,))


LATE = Links(float("inf"), inside_latency_s=1.0, node=4, between_latency_s=100.0)
COPIED, FROM_HOST = Demand(copied=1000.0), Demand(host=1000.0)


@pytest.mark.parametrize(
    ("demand", "links", "seconds"),
    [
        (ALL_REDUCE, ONE_NODE, {1: (0, 0), 2: (10, 0), 4: (15, 0)}),  # 2 (P - 1) / P N / B
        (SERVER, ONE_NODE, {1: (0, 0), 2: (20, 0), 3: (40, 0), 5: (80, 0)}),  # 2 N (P - 1) / B
        (COPIED, ONE_NODE, {1: (0, 0), 2: (10, 0), 3: (20, 0), 5: (40, 0)}),
        (FROM_HOST, ONE_NODE, {1: (0, 0), 2: (20, 0), 3: (40, 0)}),
        (ALL_REDUCE, LATE, {4: (6, 0), 16: (6, 600)}),  # 2 (4 - 1) messages inside, 2 (4 - 1) between
        # four nodes of four: a node's links carry 40 bytes/s, a device's 10; of a home 3 others are inside, 12 beyond
        (ALL_REDUCE, NODES, {16: (15, 2 * 3 / 4 * 1000 / 40)}),
        (SERVER, NODES, {16: (60, 12 * 2000 / 10)}),
        (COPIED, NODES, {16: (30, 1200)}),
        (FROM_HOST, NODES, {16: (300, 12 * 1000 / 40)}),
    ],
)
def test_a_merge_takes_what_its_formula_says(demand, links, seconds):
    for devices, (inside, between) in seconds.items():
        assert merge_seconds(demand, devices, links) == pytest.approx((inside, between))


def test_a_ring_tends_to_twice_the_bytes_over_the_link():
    times = [merge_seconds(ALL_REDUCE, 2**k, ONE_NODE)[0] for k in range(18)]
    assert times == sorted(times) and times[-1] == pytest.approx(20, rel=1e-4) and max(times) < 20


def test_variables_that_are_spread_leave_the_fullest_home_the_largest_of_them():
    spread = Demand(pulled=(60.0, 30.0, 10.0), pushed=(60.0, 30.0, 10.0), elements=(60, 30, 10))
    assert [fullest(spread, p) for p in (1, 2, 3, 100)] == [(100, 100), (60, 60), (60, 60), (60, 60)]
    assert merge_seconds(spread, 2, ONE_NODE)[0] == pytest.approx(1.2), "(P - 1) 120 / 100"
    assert merge_seconds(spread, 101, ONE_NODE)[0] == pytest.approx(120)
    even = Demand(pulled=(10.0,) * 8, pushed=(10.0,) * 8, elements=(10,) * 8)
    assert merge_seconds(even, 8, ONE_NODE)[0] == pytest.approx(2 * 7 / 8 * 80 / 100), "as an all-reduce, if spread evenly"


@pytest.mark.parametrize(
    "name", ["ddp", "replicated_copy", "replicated_ring", "replicated_server", "ps_gpu0", "exp1", "exp2", "exp3", "exp4"]
)
def test_a_rows_demand_holds_the_bytes_that_the_row_predicts(name):
    """All devices' bytes by the placements' own arithmetic; what moves once however many devices there are is not a merge's."""
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
        assert predicted(4)[1 if written_out else 2] == pytest.approx((6 if written_out else 4) * demand.reduced)
    elif demand.copied:
        assert predicted(4)[1] == pytest.approx(12 * demand.copied)
    else:
        # a home's own replica fetches nothing; ids of rows come on top, 8 bytes beside a row of 2048
        between = 3 * (sum(demand.pulled) + sum(demand.pushed))
        assert predicted(4)[1] == pytest.approx(between, rel=0.01)


def test_what_has_no_formula_is_refused():
    variables = find_model("nmt", "nmt000").variables
    refused("cut from one model", demand_of, find_placement("layer_split"), variables)
    refused("do not wait", demand_of, find_placement("parameter_server_async"), variables)
    refused("no formula", demand_of, find_placement("mirrored_hierarchical"), variables)
    refused("above 0", Links, 0.0)
    refused("at least 1 device, not 0", merge_seconds, ALL_REDUCE, 0, ONE_NODE)
