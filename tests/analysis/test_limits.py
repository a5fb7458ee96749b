"""Bounds by hand."""

import math

import pytest

from multigpu.analysis.frame import frame_of
from multigpu.analysis.limits import CEILINGS, bound_units_per_s, bounds, ceilings, communication_time_s
from multigpu.workloads import find_model
from tests.factory import make_record

H200 = "NVIDIA H200"


def test_every_ceiling_names_its_source_and_date():
    for table in CEILINGS.values():
        assert all(c.source and c.date and c.value > 0 for c in table)
    assert ceilings("an abacus") == {}


def test_arithmetic_bound_of_000():
    # the anchors: 127.1 MFLOP a word at 788 TFLOP/s are 6.2 M words/s on one GPU, 49.6 M on eight
    bound = bound_units_per_s(find_model("nmt", "nmt000"), H200, "bf16", 8, 25_600)
    assert bound.units_per_s == pytest.approx(49.6e6, rel=0.01)
    assert bound.binding == "compute"


def test_memory_bound_of_resnet():
    # the anchors: 367 MB an image at 4.3 TB/s are 93,600 images/s on eight GPUs
    bound = bound_units_per_s(find_model("cnn", "resnet50_v1.5"), H200, "bf16", 8, 512, memory_bytes_per_unit=367.4e6)
    assert bound.memory == pytest.approx(93_600, rel=0.01)


def test_communication_time_by_hand():
    # 4 replicas hand in 1 GB each: every device sends 2 * 3/4 * 1 GB at 1 GB/s
    assert communication_time_s({"all_reduce": 4e9}, 4, 1e9, 1e9) == pytest.approx(1.5)
    # 8 GB of copies spread over 4 links
    assert communication_time_s({"device_to_device": 8e9}, 4, 1e9, 1e9) == pytest.approx(2.0)
    # both ways overlap, the larger one counts
    assert communication_time_s({"host_to_device": 8e9, "device_to_host": 4e9}, 4, 1e9, 0.5e9) == pytest.approx(4.0)


def test_traffic_can_bind():
    bound = bound_units_per_s(find_model("nmt", "nmt000"), H200, "bf16", 8, 1000, {"host_to_device": 8 * 64e9})
    assert (bound.binding, bound.communication) == ("communication", pytest.approx(1000))


def test_an_unknown_device_has_no_bound_and_says_so():
    bound = bound_units_per_s(find_model("nmt", "nmt000"), "Tesla P100", "fp32", 1, 1000)
    assert math.isinf(bound.units_per_s) and bound.missing == ("fp32",) and bound.binding == ""


def test_rows_beside_their_bounds():
    frame = frame_of([make_record("ddp", 8, 4.96e6), make_record("ddp", 2, device_type="cpu", precision="fp32")])
    table = bounds(frame)
    assert table["share_of_bound"].iloc[0] == pytest.approx(0.1, rel=0.01)
    assert math.isnan(table["bound"].iloc[1])
    assert len(bounds(frame_of([]))) == 0
