"""Bounds by hand; what a model asks of links, and what cutting it sends."""

import math

import pytest

from multigpu.analysis.frame import frame_of
from multigpu.analysis.limits import (
    CEILINGS,
    bound_units_per_s,
    bounds,
    ceilings,
    communication_time_s,
    crossing_batch,
    cut_bytes_per_row,
    link_bounds,
    memory_bytes_per_unit,
    sent_share,
)
from multigpu.analysis.points import points
from multigpu.measure.ceilings import Ceilings, ceilings_path
from multigpu.workloads import find_model
from multigpu.workloads.cnn.layers import Convolution
from tests.factory import make_point, make_record
from tests.refusals import refused

H200 = "NVIDIA H200"


@pytest.fixture(autouse=True)
def machine(tmp_path, monkeypatch):
    """A measured machine with round figures (the anchors'), instead of the repository's own."""
    found = Ceilings(
        machine="2x-test",
        gpu=H200,
        measured_at="2026-01-02T00:00:00+00:00",
        commit="0123456789",
        versions={},
        matmul={"bf16": [780e12, 796e12]},
        memory=[4.3e12, 4.3e12],
        host_to_device=[64e9, 64e9],
        device_to_host=[80e9, 64e9],
        links=[[0.0, 400e9], [380e9, 0.0]],
    )
    path = ceilings_path(tmp_path, "2x-test")
    path.parent.mkdir()
    path.write_text(found.model_dump_json())
    monkeypatch.setattr("multigpu.paths.RUNS", tmp_path)
    yield


def test_measured_ceilings_replace_the_data_sheet():
    known = ceilings(H200)
    assert (known["bf16"].value, known["bf16"].how) == (788e12, "measured")
    assert known["device_link"].value == 390e9, "the median over pairs, a device's link to itself left out"
    assert known["host_link"].value == 64e9, "the slower direction"
    assert (known["fp32"].how, known["fp32"].value) == ("datasheet", 67e12), "what was not measured stays"
    assert "2x-test" in known["bf16"].source and known["bf16"].date == "2026-01-02" and ceilings("an abacus") == {}
    assert all(c.source and c.date and c.value > 0 for table in CEILINGS.values() for c in table)


@pytest.mark.parametrize(
    ("gpu", "precision", "units", "moved", "binding", "rate"),
    [
        # the anchors: 127.1 MFLOP a word at 788 TFLOP/s are 6.2 M words/s on one GPU, 49.6 M on eight
        (H200, "bf16", 25_600, None, "compute", 49.6e6),
        (H200, "bf16", 1000, {"host_to_device": 8 * 64e9}, "communication", 1000),
        ("Tesla P100", "fp32", 1000, None, "", math.inf),  # an unknown device has no bound and says so
    ],
)
def test_the_lowest_bound_of_000_binds(gpu, precision, units, moved, binding, rate):
    bound = bound_units_per_s(find_model("nmt", "nmt000"), gpu, precision, 8, units, moved)
    assert bound.binding == binding and bound.units_per_s == pytest.approx(rate, rel=0.01)


def test_fast_convolutions_spare_operations_in_fp32_alone():
    vgg, nmt = find_model("cnn", "vgg16"), find_model("nmt", "nmt000")
    direct, spared = vgg.forward_flops_per_unit, vgg.spared_flops_per_unit
    # thirteen 3 x 3 convolutions of stride 1: of nine products a result and pair of channels two are left
    dense = 2 * (25088 * 4096 + 4096 * 4096 + 4096 * 1001)
    assert spared == pytest.approx((direct - dense) * 7 / 9, rel=1e-6)
    ratios = {
        precision: bound_units_per_s(vgg, "NVIDIA H200", precision, 1, 64).compute * 3 * direct / ceilings("NVIDIA H200")[precision].value
        for precision in ("fp32", "tf32", "bf16")
    }
    assert ratios == {"fp32": pytest.approx(direct / (direct - spared)), "tf32": pytest.approx(1), "bf16": pytest.approx(1)}
    assert nmt.spared_flops_per_unit == 0
    strided = Convolution(kernel=3, stride=2, filters=8).trace((3, 32, 32), "conv")
    pointwise = Convolution(kernel=1, filters=8).trace((3, 32, 32), "conv")
    assert strided.spared == pointwise.spared == 0 and strided.flops > 0


def test_memory_bound_of_resnet():
    # worked out independently: 367 MB an image at 4.3 TB/s, 93,600 images/s on eight GPUs; ours counts ReLU with what it follows
    model = find_model("cnn", "resnet50_v1.5")
    assert 0.9 * 367.4e6 < memory_bytes_per_unit(model, "bf16") < 367.4e6
    bound = bound_units_per_s(model, H200, "bf16", 8, 512)
    assert bound.memory == pytest.approx(8 * 4.3e12 / memory_bytes_per_unit(model, "bf16")) and bound.binding == "memory"
    assert memory_bytes_per_unit(model, "fp32") == 2 * memory_bytes_per_unit(model, "bf16")


def test_communication_time_by_hand():
    # 4 replicas hand in 1 GB each: every device sends 2 * 3/4 * 1 GB at 1 GB/s
    assert communication_time_s({"all_reduce": 4e9}, 4, 1e9, 1e9) == pytest.approx(1.5)
    # 8 GB of copies spread over 4 links
    assert communication_time_s({"device_to_device": 8e9}, 4, 1e9, 1e9) == pytest.approx(2.0)
    # both ways overlap, the larger one counts
    assert communication_time_s({"host_to_device": 8e9, "device_to_host": 4e9}, 4, 1e9, 0.5e9) == pytest.approx(4.0)


def test_rows_beside_their_bounds_and_points_with_what_they_ask_of_links():
    frame = frame_of([make_record("ddp", 8, 4.96e6), make_record("ddp", 2, device_type="cpu", precision="fp32")])
    table = bounds(frame)
    assert table["share_of_bound"].iloc[0] == pytest.approx(0.1, rel=0.01)
    assert math.isnan(table["bound"].iloc[1])
    assert len(bounds(frame_of([]))) == 0
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

    without = link_bounds(points(frame_of([record for record in records if record.run.devices == 4])))
    assert without["bound_exposed"].isna().all() and without["links_s"].gt(0).all()
    assert link_bounds(points(frame_of([]))).empty


def test_what_each_device_sends_by_hand():
    # of 4 devices: each sends 3/2 of its gradients in a ring all-reduce; an all-gather passes 3/4 of the whole through each
    assert [4 * sent_share("all_reduce", 4), 4 * sent_share("reduce_scatter", 4), sent_share("all_gather", 4)] == [1.5, 0.75, 0.75]
    model = find_model("stacks", "mlp42m")
    assert cut_bytes_per_row(model, 4) == 1.5 * (4 * 2560 * 2 + 3 * 4)
    assert crossing_batch(model, 4) == crossing_batch(model, 8) == pytest.approx(4 * 41_777_152 / (4 * 2560 * 2 + 12))
    refused("'nmt000' does not say how its matrices are cut", cut_bytes_per_row, find_model("nmt", "nmt000"), 4)
