"""Machines as rows, every GPU by itself and joules a unit, from planted Records."""

import math
from pathlib import Path
from typing import Any

import pytest

from multigpu.analysis.machines import MACHINE_COLUMNS, ceilings_frame, energy_points, gpu_points, machines_frame
from multigpu.record import Record
from tests.factory import make_machine, make_record

ALEXNET: dict[str, Any] = {"workload": "cnn", "model": "alexnet", "batch_size": 512}


def state(memory_clock_mhz: int = 3201) -> dict[str, float | int]:
    return {"sm_clock_mhz": 1980, "memory_clock_mhz": memory_clock_mhz, "power_w": 400.0, "temperature_c": 50}


def alone(gpu: int, rate: float, clock: int = 3201, repeat: int = 0) -> Record:
    seconds = 512 * 30 / rate
    planted = {"device_states": [state(clock)], "event_time_s": [seconds]}
    return make_record("ddp", 1, rate, repeat=repeat, device_ids=str(gpu), measurement=planted, **ALEXNET)


def test_a_slower_gpu_stands_beside_its_clock_with_students_interval() -> None:
    """Rates of e^0.01 and e^-0.01 times their mean: each mean's variance is 1e-4. Alone two such means differ (2 degrees of freedom)."""
    gpus, apart = ((0, 1000, 3201), (1, 850, 3041)), (math.exp(0.01), math.exp(-0.01))
    records = [alone(gpu, rate * by, clock, repeat) for gpu, rate, clock in gpus for repeat, by in enumerate(apart)]
    points = gpu_points(records)
    assert list(points["gpu"]) == [0, 1] and list(points["n"]) == [2, 2]
    assert points["share"].tolist() == pytest.approx([1.0, 0.85]) and points["memory_clock_mhz"].tolist() == [3201, 3041]
    assert points["half"].tolist() == pytest.approx([0, 0.85 * math.sinh(4.302653 * math.sqrt(2e-4))], rel=1e-5)
    once = gpu_points([*records[:2], records[2]])
    assert math.isnan(once["half"].iloc[1]), "the second GPU was measured once"


@pytest.mark.parametrize(("launches", "t", "variance"), [("aaaa", 3.182446, 1e-4 / 3), ("aabb", 12.706205, 1e-4)])
def test_launches_that_differ_are_the_units_of_shares(launches: str, t: float, variance: float) -> None:
    """Shares of 0.8 e^0.01 twice, then of 0.8 e^-0.01, each within a Record: one launch of four repeats, or two launches that disagree."""
    records = []
    for repeat, launch in enumerate(launches):
        by = 0.01 if repeat < 2 else -0.01
        planted = {"device_states": [state()] * 2, "event_time_s": [1.0, 1.25 * math.exp(-by)]}
        records.append(make_record("independent", 2, 1000.0, repeat=repeat, launch_id=launch, measurement=planted, **ALEXNET))
    points = gpu_points(records)
    share = points["share"].iloc[1]
    assert share == pytest.approx(0.8, rel=0.01)
    assert points["half"].tolist() == pytest.approx([0, share * math.sinh(t * math.sqrt(variance))], rel=1e-5)


def test_gpus_beside_others_are_compared_within_a_record() -> None:
    records = []
    for repeat, host in enumerate((1.0, 2.0)):  # the host halves everybody's rate in the second
        planted = {"device_states": [state()] * 4, "event_time_s": [host, host, host * 1.25, host]}
        records.append(make_record("independent", 4, 1000.0, repeat=repeat, measurement=planted, **ALEXNET))
    points = gpu_points(records)
    assert points["share"].tolist() == pytest.approx([1, 1, 0.8, 1]) and points["half"].max() == pytest.approx(0, abs=1e-12)
    assert set(points["how"]) == {"beside others"}
    assert gpu_points([make_record("ddp", 4, 1000.0, measurement={"device_states": [state()] * 4}, **ALEXNET)]).empty
    assert gpu_points([]).empty


def energy(joules: float, window_s: float = 20.0, devices: int = 2, **more: Any) -> Record:
    """Each GPU takes its share of the joules, over 6,400 units in all."""
    window = {"window_s": window_s, "start_j": 1e6, "end_j": 1e6 + joules / devices, "steps": 100, "units": 6400 // devices}
    return make_record(devices=devices, energy_window_s=20, measurement={"energy": [window] * devices}, **{"workload": "cnn", **more})


def test_repeats_are_pooled_and_short_windows_left_out() -> None:
    records = [energy(960.0), energy(640.0, repeat=1), energy(1.0, window_s=9.9, repeat=2), energy(1280.0, devices=4)]
    points = energy_points(records)
    assert points[["devices", "n"]].to_numpy().tolist() == [[2, 2], [4, 1]]
    assert points["joules_per_unit"].tolist() == pytest.approx([0.125, 0.2])
    assert points["power_w"].tolist() == pytest.approx([40.0, 64.0]) and points["units_per_s"].tolist() == [320.0, 320.0]
    for nothing in ([], [energy(1.0, window_s=9.9)]):
        assert energy_points(nothing).empty
    assert points["least"].tolist() == pytest.approx([0.1, 0.2]) and points["most"].tolist() == pytest.approx([0.15, 0.2])
    two = energy_points([energy(960.0), energy(320.0, machine=make_machine(name="another"))])
    assert sorted(two["joules_per_unit"]) == pytest.approx([0.05, 0.15])


def test_machines_are_described_once_by_their_latest_record() -> None:
    old = make_record(machine=make_machine(8).model_copy(update={"driver": "1"}), measured_at="2025-01-01")
    records = [make_record(), old, make_record(machine=make_machine(0))]
    table = machines_frame(records).set_index("machine")
    row = table.loc["8x-nvidia-h200"]
    assert (row["driver"], row["gpus"], row["links"], row["records"], row["first_day"]) == ("570.0", 8, "NVLink", 2, "2025-01-01")
    assert len(table) == 2 and table["gpus"].min() == 0 and table.loc[table["gpus"].eq(0), "links"].eq("").all()
    assert list(machines_frame([]).columns) == list(MACHINE_COLUMNS)
    both = make_machine(2).model_copy(update={"links": [["self", "NVLink"], ["PCIe", "self"]]})
    assert machines_frame([make_record(machine=both)])["links"].tolist() == ["NVLink, PCIe"]


def test_ceilings_name_their_source(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("multigpu.paths.RUNS", tmp_path)  # without measured ones
    table = ceilings_frame("NVIDIA H200").set_index("quantity")
    assert set(table["how"]) == {"datasheet"} and table.loc["device_link", "value"] == 450e9
    assert ceilings_frame("Tesla P100").empty
