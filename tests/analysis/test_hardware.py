"""GPUs, pairs and energy from planted Records."""

from __future__ import annotations

import math
import re
from typing import Any

import pandas as pd
import pytest

from multigpu.analysis import hardware, memory_speed, startup
from multigpu.analysis.energy import energy_finding, energy_frame, energy_table
from multigpu.analysis.figure_pairs import figure_pairs
from multigpu.measure.ceilings import Ceilings
from multigpu.record import Record
from multigpu.workloads import find_model
from tests.factory import make_machine, make_record

ALEXNET: dict[str, Any] = {"workload": "cnn", "model": "alexnet", "batch_size": 512}


def state(memory_clock_mhz: int = 3201) -> dict[str, float | int]:
    return {"sm_clock_mhz": 1980, "memory_clock_mhz": memory_clock_mhz, "power_w": 400.0, "temperature_c": 50}


def alone(gpu: int, rate: float, clock: int = 3201, repeat: int = 0) -> Record:
    seconds = 512 * 30 / rate
    planted = {"device_states": [state(clock)], "event_time_s": [seconds]}
    return make_record("ddp", 1, rate, repeat=repeat, device_ids=str(gpu), measurement=planted, **ALEXNET)


def test_a_slower_gpu_stands_beside_its_clock() -> None:
    gpus = ((0, 1000, 3201), (1, 850, 3041))
    records = [alone(gpu, rate * (1 + 0.001 * repeat), clock, repeat) for gpu, rate, clock in gpus for repeat in (0, 1)]
    points = hardware.gpu_points(hardware.gpu_frame(records))
    assert list(points["gpu"]) == [0, 1] and list(points["n"]) == [2, 2]
    assert points["share"].tolist() == pytest.approx([1.0, 0.85]) and points["memory_clock_mhz"].tolist() == [3201, 3041]
    said = hardware.gpu_finding(points)
    assert (
        "2 GPUs alone, eager, are at most 17.6% apart (AlexNet, batch 512, n = 2; 1 job)" in said
        and "memory clocks of 3,041 to 3,201 MHz" in said
    )
    html = hardware.gpu_table(points).html
    assert "at 3,201 MHz" in html and re.search(r">85\.00 ± \d\.\d\d at 3,041 MHz<", html), "clocks differ, so each share says its own"
    alike = hardware.gpu_table(points.assign(memory_clock_mhz=3201.0)).html
    assert re.search(r">85\.00 ± \d\.\d\d<", alike) and "Every GPU: a memory clock of 3,201 MHz." in alike


def test_the_intervals_of_shares_are_students() -> None:
    """Rates of e^0.01 and e^-0.01 times their mean: each mean's variance is 1e-4. Alone two such means differ (2 degrees of freedom)."""
    apart = (math.exp(0.01), math.exp(-0.01))
    records = [alone(gpu, rate * by, repeat=repeat) for gpu, rate in ((0, 1000), (1, 850)) for repeat, by in enumerate(apart)]
    points = hardware.gpu_points(hardware.gpu_frame(records))
    assert points["half"].tolist() == pytest.approx([0, 0.85 * math.sinh(4.302653 * math.sqrt(2e-4))], rel=1e-5)
    assert re.search(r">85\.00 ± 5\.18<", hardware.gpu_table(points).html)
    assert "half the width of the 95% interval" in hardware.gpu_table(points).html
    once = hardware.gpu_points(hardware.gpu_frame([*records[:2], records[2]]))
    assert math.isnan(once["half"].iloc[1]), "the second GPU was measured once"


@pytest.mark.parametrize(("launches", "t", "variance"), [("aaaa", 3.182446, 1e-4 / 3), ("aabb", 12.706205, 1e-4)])
def test_launches_that_differ_are_the_units_of_shares(launches: str, t: float, variance: float) -> None:
    """Shares of 0.8 e^0.01 twice, then of 0.8 e^-0.01, each within a Record: one launch of four repeats, or two launches that disagree."""
    records = []
    for repeat, launch in enumerate(launches):
        by = 0.01 if repeat < 2 else -0.01
        planted = {"device_states": [state()] * 2, "event_time_s": [1.0, 1.25 * math.exp(-by)]}
        records.append(make_record("independent", 2, 1000.0, repeat=repeat, launch_id=launch, measurement=planted, **ALEXNET))
    points = hardware.gpu_points(hardware.gpu_frame(records))
    share = points["share"].iloc[1]
    assert share == pytest.approx(0.8, rel=0.01)
    assert points["half"].tolist() == pytest.approx([0, share * math.sinh(t * math.sqrt(variance))], rel=1e-5)


def test_gpus_beside_others_are_compared_within_a_record() -> None:
    records = []
    for repeat, host in enumerate((1.0, 2.0)):  # the host halves everybody's rate in the second
        planted = {"device_states": [state()] * 4, "event_time_s": [host, host, host * 1.25, host]}
        records.append(make_record("independent", 4, 1000.0, repeat=repeat, measurement=planted, **ALEXNET))
    points = hardware.gpu_points(hardware.gpu_frame(records))
    assert points["share"].tolist() == pytest.approx([1, 1, 0.8, 1]) and points["half"].max() == pytest.approx(0, abs=1e-12)
    assert set(points["how"]) == {"beside others"}
    assert hardware.gpu_frame([make_record("ddp", 4, 1000.0, measurement={"device_states": [state()] * 4}, **ALEXNET)]).empty
    assert "No Record" in hardware.gpu_finding(hardware.gpu_points(hardware.gpu_frame([])))


def test_gpus_are_told_apart_by_steps_that_wait_for_no_host() -> None:
    """One eager Record, in which the host served the third GPU late, is no finding about GPUs."""
    records = []
    for execution, third in (("captured", 1.005), ("eager", 1.42)):
        planted = {"device_states": [state()] * 4, "event_time_s": [1.0, 1.0, third, 1.0]}
        repeats = 2 if execution == "captured" else 1
        fields = {**ALEXNET, "execution": execution}
        records += [make_record("independent", 4, 1000.0, repeat=repeat, measurement=planted, **fields) for repeat in range(repeats)]
    points = hardware.gpu_points(hardware.gpu_frame(records))
    assert hardware.gpu_finding(points) == (
        "By steps that wait for no host, 4 GPUs beside others, captured, are at most 0.5% apart (AlexNet, batch 512, n = 2; 1 job): all at "
        "a memory clock of 3,201 MHz."
    )
    assert hardware.host_bound_finding(points) == (
        "Steps that wait for their host say more of the host than of GPUs: 4 GPUs beside others, eager, are at most 42.0% apart (AlexNet, "
        "batch 512, once; 1 job)."
    )
    eager = hardware.gpu_points(hardware.gpu_frame(records[2:]))
    assert hardware.gpu_finding(eager).endswith("All these steps wait for their host, so what they differ by need not be the GPUs'.")
    assert hardware.host_bound_finding(eager) == hardware.host_bound_finding(points.iloc[:0]) == ""


def test_the_documents_gpus_stand_in_the_section_about_memory() -> None:
    kinds = memory_speed.Kinds("NVIDIA H100", "NVIDIA H200", 0.7, {"bf16": 1.0})
    common = {"model": "alexnet", "batch_size": 512, "precision": "bf16", "kept_low": 0.8, "kept_high": 0.8}
    points = pd.DataFrame([common | {"kept": 0.8, "per_memory": 0.626, "at_clock": 0.968}])
    answer, (section,) = memory_speed.memory_finding(points, kinds), memory_speed.document_finding(points, kinds)
    assert answer.endswith("That is at most 0.63% of throughput for 1% of memory speed.") and "ocument" not in answer
    assert section.startswith(
        "At 95% of the memory clock such losses would leave 96.8% of the rate or more; document 001's GPUs kept 84.7, 94.5 and"
    )
    assert memory_speed.document_finding(points, None) == memory_speed.document_finding(points.iloc[:0], kinds) == []


def test_pairs_with_and_without_peer_access() -> None:
    records = [make_record("ddp", 2, rate, device_ids=ids, **ALEXNET) for ids, rate in (("0,1", 2000.0), ("0,3", 1900.0))]
    records += [make_record("ddp", 2, 1600.0, device_ids="0,1", peer_access="off", repeat=n, **ALEXNET) for n in range(2)]
    points = hardware.pair_points([*records, make_record("ddp", 2, 5.0, **ALEXNET)])
    assert len(points) == 3 and points[points["peer"] == "off"]["n"].tolist() == [2]
    assert "1.25x" in hardware.peer_table(points).html and "through the host" in hardware.peer_table(points).html
    links = [[0.0, 4e11, 3e11, 4e11]] + [[4e11] * 4] * 3
    nothing: dict[str, Any] = {"matmul": {}, "memory": [], "host_to_device": [], "device_to_host": [], "versions": {}}
    ceilings = Ceilings(machine="4x", gpu="g", measured_at="", commit="", links=links, **nothing)
    said = hardware.pair_finding(points, ceilings)
    assert said.startswith("One-way bandwidth between pairs is 300 to 400 GB/s") and "5.3% apart between pairs" in said
    picture = figure_pairs(ceilings, points)
    assert len(picture.data) == 12 + 4 and "33.3%" in picture.finding
    assert "no pair" in figure_pairs(None, points.iloc[:0]).alt.lower()
    one = points[points["pair"] == points["pair"].iloc[0]]
    assert hardware.pair_finding(one, None) == "Training was measured on one pair alone."
    direct = points[points["peer"] == "on"]
    apart = pd.concat([direct[direct["pair"] == "0,1"], direct[direct["pair"] == "0,3"].assign(placement="other")])
    assert hardware.pair_finding(apart, None) == "No placement has been measured on two pairs."
    assert "not been measured" in hardware.pair_finding(points.iloc[:0], None)


def test_a_ratio_of_pairs_is_of_one_machine() -> None:
    other = make_machine(name="another")
    records = [make_record("ddp", 2, 2000.0, device_ids="0,1", **ALEXNET)]
    records += [make_record("ddp", 2, 1000.0, device_ids="0,1", peer_access="off", machine=other, **ALEXNET)]
    html = hardware.peer_table(hardware.pair_points(records)).html
    assert "2.00x" not in html and "another" in html and html.count(">2,000<") == html.count(">1,000<") == 1
    records += [make_record("ddp", 2, 1600.0, device_ids="0,1", machine=other, **ALEXNET)]
    assert "1.60x" in hardware.peer_table(hardware.pair_points(records)).html


def energy(window_s: float, **more: Any) -> Record:
    windows = [{"window_s": window_s, "start_j": 1e6, "end_j": 1e6 + 500 * window_s, "steps": 100, "units": 6400} for _ in range(2)]
    return make_record(workload="cnn", energy_window_s=20, devices=2, measurement={"energy": windows}, **more)


def test_joules_an_image_and_windows_that_are_too_short() -> None:
    row = energy_frame([energy(20.0), make_record()]).iloc[0]
    assert (row["joules"], row["power_w"], row["uncertain"]) == pytest.approx((20000.0, 1000.0, 0.01))
    assert row["joules_per_unit"] == pytest.approx(20000 / 12800)
    assert "1.56 J an image" in energy_table(energy_frame([energy(20.0)])).html
    long, short = energy(20.0), energy(9.9, repeat=1)
    frame = energy_frame([long, short])
    assert frame["joules"].tolist() == pytest.approx([20000.0, math.nan], nan_ok=True) and frame["window_s"].tolist() == [20.0, 9.9]
    html = energy_table(frame).html
    assert f"Left out, for their windows are shorter than 10 s: Record {short.key} (9.9 s)." in html and long.key not in html
    assert html.count("1.56 J an image") == 1
    alone_short = energy_table(energy_frame([short])).html
    assert "--grid hardware" in alone_short and f"Record {short.key} (9.9 s)" in alone_short
    assert "--grid hardware" in energy_table(energy_frame([])).html


def test_gpus_stand_in_order_under_their_machine() -> None:
    records = []
    for machine, gpus in ((make_machine(2, "two"), 2), (make_machine(4, "four"), 4)):
        planted = {"device_states": [state()] * gpus, "event_time_s": [1.0] * gpus}
        records.append(make_record("independent", gpus, 1000.0, machine=machine, measurement=planted, **ALEXNET))
    html = hardware.gpu_table(hardware.gpu_points(hardware.gpu_frame(records))).html
    heads = [html.index(f"GPU {gpu} (") for gpu in range(4)]
    assert heads == sorted(heads) and html.index("temperature") > heads[-1] and ">two<" in html and ">four<" in html


def test_an_image_on_two_gpus_is_set_beside_one() -> None:
    one = energy(12.0)
    alone = one.measurement.energy[:1] if one.measurement else []
    records = [one, make_record(workload="cnn", energy_window_s=20, devices=1, measurement={"energy": [w.model_dump() for w in alone]})]
    said = energy_finding(energy_frame(records))
    assert said.endswith("On 2 GPUs an image takes 1.00 times as much as on one (1 job, each measured once).")
    assert "times as much" not in energy_finding(energy_frame(records[:1]))


def test_an_epoch_is_of_the_classes_that_a_model_tells_apart() -> None:
    names = {name: startup.epoch_images(find_model("cnn", name))[0] for name in ("lenet", "resnet50_v1.5", "resnet20", "resnet_small")}
    assert names == {"lenet": "ImageNet", "resnet50_v1.5": "ImageNet", "resnet20": "CIFAR-10", "resnet_small": "CIFAR-10"}
