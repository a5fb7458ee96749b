"""Bounds beside Records: what a model asks of links, what cutting it sends, and none that was committed is faster than its bound."""

import pytest

from multigpu.analysis.frame import frame_of
from multigpu.analysis.limits import bounds, ceilings, crossing_batch, cut_bytes_per_row, link_bounds, sent_share
from multigpu.analysis.points import points
from multigpu.paths import RUNS
from multigpu.record import RecordStore
from multigpu.workloads import find_model
from tests.factory import make_point
from tests.refusals import refused


def test_planted_points_ask_what_their_bytes_and_their_step_say():
    records = [record for count in (1, 4) for record in make_point([6400.0 * count] * 5, devices=count, workload="cnn", launches="abcde")]
    table = link_bounds(points(frame_of(records))).set_index("devices")
    model, row = find_model("cnn", table["model"].iloc[0]), table.loc[4]
    assert row["parameters"] == model.parameters
    flops = 3 * model.forward_flops_per_unit * row["batch_size"]
    assert row["bytes_per_mflop"] == pytest.approx(1e6 * 4 * model.parameters / flops)
    assert row["one_step_s"] == pytest.approx(table.loc[1, "step_time_s"])
    assert row["links_s"] == pytest.approx(1.5 * model.parameter_bytes / ceilings("NVIDIA H200")["device_link"].value)
    assert row["bound_exposed"] == pytest.approx(row["one_step_s"] / (row["one_step_s"] + row["links_s"]))
    assert table.loc[1, "links_s"] == 0 and table.loc[1, "bound_exposed"] == 1


def test_without_a_step_on_one_device_there_is_no_bound():
    table = link_bounds(points(frame_of(make_point([6400.0] * 5, devices=4, workload="cnn"))))
    assert table["bound_exposed"].isna().all() and table["links_s"].gt(0).all()
    assert link_bounds(points(frame_of([]))).empty


def test_no_record_is_faster_than_its_bound() -> None:
    limits = bounds(frame_of(RecordStore(RUNS)))
    known = limits[limits["share_of_bound"].notna()]
    assert len(known) > 500
    fastest = known.sort_values("share_of_bound").iloc[-1]
    assert fastest["share_of_bound"] < 1, fastest["key"]


def test_what_each_device_sends_by_hand():
    # of 4 devices: each sends 3/2 of its gradients in a ring all-reduce; an all-gather passes 3/4 of the whole through each
    assert [4 * sent_share("all_reduce", 4), 4 * sent_share("reduce_scatter", 4), sent_share("all_gather", 4)] == [1.5, 0.75, 0.75]
    model = find_model("stacks", "mlp42m")
    assert cut_bytes_per_row(model, 4) == 1.5 * (4 * 2560 * 2 + 3 * 4)
    assert crossing_batch(model, 4) == crossing_batch(model, 8) == pytest.approx(4 * 41_777_152 / (4 * 2560 * 2 + 12))
    refused("'nmt000' does not say how its matrices are cut", cut_bytes_per_row, find_model("nmt", "nmt000"), 4)
