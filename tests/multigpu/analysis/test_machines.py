"""Machines as rows, every GPU by itself and joules a unit, from planted Records; bounds by hand."""

import math
from typing import Any

import numpy as np
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
from multigpu.analysis.machines import (
    MACHINE_COLUMNS,
    ceilings_frame,
    energy_points,
    gpu_points,
    machines_frame,
)
from multigpu.analysis.points import points
from multigpu.machine.ceilings import Ceilings, ceilings_path
from multigpu.records.record import Record
from multigpu.workloads import find_model
from multigpu.workloads.cnn.layers import Convolution
from tests.factory import make_machine, make_point, make_record
from tests.refusals import refused

ALEXNET: dict[str, Any] = {"workload": "cnn", "model": "alexnet", "batch_size": 512}


def state(memory_clock_mhz: int = 3201) -> dict[str, float | int]:
    return {
        "sm_clock_mhz": 1980,
        "memory_clock_mhz": memory_clock_mhz,
        "power_w": 400.0,
        "temperature_c": 50,
    }


def alone(gpu: int, rate: float, clock: int = 3201, repeat: int = 0) -> Record:
    planted = {"device_states": [state(clock)], "event_time_s": [512 * 30 / rate]}
    return make_record(
        "ddp", 1, rate, repeat=repeat, device_ids=str(gpu), measurement=planted, **ALEXNET
    )


def test_a_slower_gpu_stands_beside_its_clock_with_students_interval() -> None:
    """Rates of e^0.01 and e^-0.01 times their mean: each mean's variance is 1e-4. Alone two such
    means differ (2 degrees of freedom).
    """
    gpus, apart = ((0, 1000, 3201), (1, 850, 3041)), (math.exp(0.01), math.exp(-0.01))
    records = [
        alone(gpu, rate * by, clock, repeat)
        for gpu, rate, clock in gpus
        for repeat, by in enumerate(apart)
    ]
    points = gpu_points(records)
    assert points[["gpu", "n"]].to_numpy().tolist() == [[0, 2], [1, 2]]
    assert points["share"].tolist() == pytest.approx([1.0, 0.85]) and points[
        "memory_clock_mhz"
    ].tolist() == [3201, 3041]
    assert points["half"].tolist() == pytest.approx(
        [0, 0.85 * math.sinh(4.302653 * math.sqrt(2e-4))], rel=1e-5
    )
    assert math.isnan(gpu_points(records[:3])["half"].iloc[1]), "the second GPU was measured once"


@pytest.mark.parametrize(
    ("launches", "t", "variance"), [("aaaa", 3.182446, 1e-4 / 3), ("aabb", 12.706205, 1e-4)]
)
def test_launches_that_differ_are_the_units_of_shares(
    launches: str, t: float, variance: float
) -> None:
    """Shares of 0.8 e^0.01 twice, then of 0.8 e^-0.01, each within a Record: one launch of four
    repeats, or two launches that disagree.
    """
    records = []
    for repeat, launch in enumerate(launches):
        # the host halves everybody's rate in the second half
        host, by = (1.0, 0.01) if repeat < 2 else (2.0, -0.01)
        planted = {
            "device_states": [state()] * 2,
            "event_time_s": [host, host * 1.25 * math.exp(-by)],
        }
        records.append(
            make_record(
                "independent",
                2,
                1000.0,
                repeat=repeat,
                launch_id=launch,
                measurement=planted,
                **ALEXNET,
            )
        )
    points = gpu_points(records)
    share = points["share"].iloc[1]
    assert share == pytest.approx(0.8, rel=0.01) and set(points["how"]) == {"beside others"}
    assert points["half"].tolist() == pytest.approx(
        [0, share * math.sinh(t * math.sqrt(variance))], rel=1e-5
    )


def energy(joules: float, window_s: float = 20.0, devices: int = 2, **more: Any) -> Record:
    """Each GPU takes its share of the joules, over 6,400 units in all."""
    window = {
        "window_s": window_s,
        "start_j": 1e6,
        "end_j": 1e6 + joules / devices,
        "steps": 100,
        "units": 6400 // devices,
    }
    return make_record(
        devices=devices,
        energy_window_s=20,
        measurement={"energy": [window] * devices},
        **{"workload": "cnn", **more},
    )


def test_repeats_are_pooled_and_short_windows_left_out() -> None:
    records = [
        energy(960.0),
        energy(640.0, repeat=1),
        energy(1.0, window_s=9.9, repeat=2),
        energy(1280.0, devices=4),
    ]
    records.append(energy(320.0, machine=make_machine(name="another")))
    found = energy_points(records)[
        ["devices", "n", "joules_per_unit", "least", "most", "power_w", "units_per_s"]
    ].to_numpy()
    expected = [
        [2, 2, 0.125, 0.1, 0.15, 40, 320],
        [2, 1, 0.05, 0.05, 0.05, 16, 320],
        [4, 1, 0.2, 0.2, 0.2, 64, 320],
    ]
    assert (
        found == pytest.approx(np.array(expected))
        and energy_points(records[2:3]).empty
        and energy_points([]).empty
    )


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
    table = ceilings_frame(H200).set_index("quantity")
    assert table.loc["device_link", "value"] == 390e9 and ceilings_frame("Tesla P100").empty
    assert (table[["source", "date"]].ne("")).all(axis=None) and (table["value"] > 0).all()


@pytest.mark.parametrize(
    ("gpu", "precision", "units", "moved", "binding", "rate"),
    [
        # the anchors: 127.1 MFLOP a word at 788 TFLOP/s are 6.2 M words/s on one GPU, 49.6 M on
        # eight
        (H200, "bf16", 25_600, None, "compute", 49.6e6),
        (H200, "bf16", 1000, {"host_to_device": 8 * 64e9}, "communication", 1000),
        # an unknown device has no bound and says so
        (
            "Tesla P100",
            "fp32",
            1000,
            None,
            "",
            math.inf,
        ),
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
    model = find_model("stacks", "mlp42m")
    crossing = pytest.approx(4 * 41_777_152 / (4 * 2560 * 2 + 12))
    assert limits.crossing_batch(model, 4) == limits.crossing_batch(model, 8) == crossing
    refused(
        "'nmt000' does not say how its matrices are cut",
        limits.crossing_batch,
        find_model("nmt", "nmt000"),
        4,
    )


@with_machine
def test_rows_beside_their_bounds_and_points_with_what_they_ask_of_links():
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
    records = [
        record
        for count in (1, 4)
        for record in make_point(
            [6400.0 * count] * 5, devices=count, workload="cnn", launches="abcde"
        )
    ]
    table = limits.link_bounds(points(frame_of(records))).set_index("devices")
    model, row = find_model("cnn", table["model"].iloc[0]), table.loc[4]
    flops = 3 * model.forward_flops_per_unit * row["batch_size"]
    assert (
        row["bytes_per_mflop"] == pytest.approx(1e6 * 4 * model.parameters / flops)
        and row["parameters"] == model.parameters
    )
    assert row["links_s"] == pytest.approx(
        1.5 * model.parameter_bytes / ceilings(H200)["device_link"].value
    )
    one_s = table.loc[1, "step_time_s"]
    assert row["one_step_s"] == pytest.approx(one_s) and row["bound_exposed"] == pytest.approx(
        one_s / (one_s + row["links_s"])
    )
    assert table.loc[1, "links_s"] == 0 and table.loc[1, "bound_exposed"] == 1

    without = limits.link_bounds(
        points(frame_of([record for record in records if record.run.devices == 4]))
    )
    assert without["bound_exposed"].isna().all() and without["links_s"].gt(0).all()
    assert limits.link_bounds(points(frame_of([]))).empty
