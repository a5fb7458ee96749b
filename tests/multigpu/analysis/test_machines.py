"""Machines as rows, from planted Records; bounds by hand."""

import math

import pytest

from multigpu.analysis import limits
from multigpu.analysis.frame import frame_of
from multigpu.analysis.limits import (
    bound_units_per_s,
    ceilings,
    communication_time_s,
    memory_bytes_per_unit,
    sent_share,
)
from multigpu.analysis.machines import MACHINE_COLUMNS, machines_frame
from multigpu.machine.ceilings import Ceilings, ceilings_path
from multigpu.workloads import find_model
from multigpu.workloads.cnn.layers import Convolution
from tests.factory import make_machine, make_record


def test_machines_are_described_once_by_their_latest_record() -> None:
    old = make_record(
        machine=make_machine(8).model_copy(update={"driver": "1"}), measured_at="2025-01-01"
    )
    both = make_machine(2).model_copy(update={"links": [["self", "NVLink"], ["PCIe", "self"]]})
    table = machines_frame(
        [make_record(), old, make_record(machine=make_machine(0)), make_record(machine=both)]
    )
    expected = [
        ["", 0, "", 1, "2026-01-02"],
        ["570.0", 2, "NVLink, PCIe", 1, "2026-01-02"],
        ["570.0", 8, "NVLink", 2, "2025-01-01"],
    ]
    found = (
        table[["driver", "gpus", "links", "records", "first_day"]]
        .sort_values("gpus")
        .to_numpy()
        .tolist()
    )
    assert found == expected and list(machines_frame([]).columns) == list(MACHINE_COLUMNS)


H200 = "NVIDIA H200"


@pytest.fixture
def machine(tmp_path, monkeypatch):
    """A measured machine with round figures (the anchors'), instead of the repository's own."""
    told = {
        "machine": "2x-test",
        "gpu": H200,
        "measured_at": "2026-01-02T00:00:00+00:00",
        "commit": "0123456789",
        "versions": {},
    }
    told |= {
        "matmul": {"bf16": [780e12, 796e12]},
        "memory": [4.3e12, 4.3e12],
        "links": [[0.0, 400e9], [380e9, 0.0]],
    }
    found = Ceilings(**told, host_to_device=[64e9, 64e9], device_to_host=[80e9, 64e9])
    path = ceilings_path(tmp_path, "2x-test")
    path.parent.mkdir()
    path.write_text(found.model_dump_json())
    monkeypatch.setattr("multigpu.paths.RUNS", tmp_path)


with_machine = pytest.mark.usefixtures("machine")


@with_machine
def test_measured_ceilings_replace_the_data_sheet():
    known = ceilings(H200)
    assert (known["bf16"].value, known["bf16"].how) == (788e12, "measured")
    assert known["device_link"].value == 390e9, (
        "the median over pairs, a device's link to itself left out"
    )
    assert known["host_link"].value == 64e9, "the slower direction"
    assert (known["fp32"].how, known["fp32"].value) == ("datasheet", 67e12), (
        "what was not measured stays"
    )
    assert (
        "2x-test" in known["bf16"].source
        and known["bf16"].date == "2026-01-02"
        and ceilings("an abacus") == {}
    )


@pytest.mark.parametrize(
    ("gpu", "precision", "units", "moved", "binding", "rate"),
    [
        # the anchors: 127.1 MFLOP a word at 788 TFLOP/s are 6.2 M words/s on one GPU, 49.6 M on
        # eight
        (H200, "bf16", 25_600, None, "compute", 49.6e6),
        (H200, "bf16", 1000, {"host_to_device": 8 * 64e9}, "communication", 1000),
        # an unknown device has no bound and says so
        ("Tesla P100", "fp32", 1000, None, "", math.inf),
    ],
)
@with_machine
def test_the_lowest_bound_of_000_binds(gpu, precision, units, moved, binding, rate):
    bound = bound_units_per_s(find_model("nmt", "nmt000"), gpu, precision, 8, units, moved)
    assert bound.binding == binding and bound.units_per_s == pytest.approx(rate, rel=0.01)


@with_machine
def test_fast_convolutions_spare_operations_in_fp32_alone():
    vgg, nmt = find_model("cnn", "vgg16"), find_model("nmt", "nmt000")
    direct, spared, known = vgg.forward_flops_per_unit, vgg.spared_flops_per_unit, ceilings(H200)
    # thirteen 3 x 3 convolutions of stride 1: of nine products a result and pair of channels two
    # are left
    dense = 2 * (25088 * 4096 + 4096 * 4096 + 4096 * 1001)
    assert spared == pytest.approx((direct - dense) * 7 / 9, rel=1e-6)
    for precision, ratio in (("fp32", direct / (direct - spared)), ("tf32", 1), ("bf16", 1)):
        bound = bound_units_per_s(vgg, H200, precision, 1, 64).compute
        assert bound * 3 * direct / known[precision].value == pytest.approx(ratio)
    assert nmt.spared_flops_per_unit == 0
    for other in (Convolution(kernel=3, stride=2, filters=8), Convolution(kernel=1, filters=8)):
        assert other.trace((3, 32, 32), "conv").spared == 0


@with_machine
def test_memory_bound_of_resnet():
    # worked out independently: 367 MB an image at 4.3 TB/s, 93,600 images/s on eight GPUs; ours
    # counts ReLU with what it follows
    model = find_model("cnn", "resnet50_v1.5")
    assert 0.9 * 367.4e6 < memory_bytes_per_unit(model, "bf16") < 367.4e6
    bound = bound_units_per_s(model, H200, "bf16", 8, 512)
    assert (
        bound.memory == pytest.approx(8 * 4.3e12 / memory_bytes_per_unit(model, "bf16"))
        and bound.binding == "memory"
    )
    assert memory_bytes_per_unit(model, "fp32") == 2 * memory_bytes_per_unit(model, "bf16")


def test_communication_time_and_what_each_device_sends_by_hand():
    # 4 replicas hand in 1 GB each: every device sends 2 * 3/4 * 1 GB at 1 GB/s
    assert communication_time_s({"all_reduce": 4e9}, 4, 1e9, 1e9) == pytest.approx(1.5)
    # 8 GB of copies spread over 4 links; of the host's both ways overlap, the larger one counts
    assert communication_time_s({"device_to_device": 8e9}, 4, 1e9, 1e9) == pytest.approx(2.0)
    assert communication_time_s(
        {"host_to_device": 8e9, "device_to_host": 4e9}, 4, 1e9, 0.5e9
    ) == pytest.approx(4.0)
    # of 4 devices: each sends 3/2 of its gradients in a ring all-reduce; an all-gather passes 3/4
    # of the whole through each
    assert [
        4 * sent_share("all_reduce", 4),
        4 * sent_share("reduce_scatter", 4),
        sent_share("all_gather", 4),
    ] == [1.5, 0.75, 0.75]


@with_machine
def test_rows_stand_beside_their_bounds():
    table = limits.bounds(
        frame_of(
            [
                make_record("ddp", 8, 4.96e6),
                make_record("ddp", 2, device_type="cpu", precision="fp32"),
            ]
        )
    )
    assert table["share_of_bound"].iloc[0] == pytest.approx(0.1, rel=0.01) and math.isnan(
        table["bound"].iloc[1]
    )
    assert len(limits.bounds(frame_of([]))) == 0
