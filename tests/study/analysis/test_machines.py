"""Every GPU by itself and joules a unit, from planted Records; ceilings, links and crossings."""

import math
from typing import Any

import numpy as np
import pytest

from multigpu.analysis.frame import frame_of
from multigpu.analysis.limits import ceilings
from multigpu.analysis.points import points
from multigpu.records.record import Record
from multigpu.workloads import find_model
from multigpu_study.analysis.machines import ceilings_frame, energy_points, gpu_points
from multigpu_study.analysis.memory import crossing_batch, link_bounds
from tests.factory import make_machine, make_point, make_record
from tests.multigpu.analysis.test_machines import H200, with_machine
from tests.multigpu.analysis.test_machines import machine as machine
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


@with_machine
def test_ceilings_are_rows_with_their_source() -> None:
    table = ceilings_frame(H200).set_index("quantity")
    assert table.loc["device_link", "value"] == 390e9 and ceilings_frame("Tesla P100").empty
    assert (table[["source", "date"]].ne("")).all(axis=None) and (table["value"] > 0).all()


def test_splitting_sends_less_than_reducing_below_a_batch() -> None:
    model = find_model("stacks", "mlp42m")
    crossing = pytest.approx(4 * 41_777_152 / (4 * 2560 * 2 + 12))
    assert crossing_batch(model, 4) == crossing_batch(model, 8) == crossing
    refused(
        "'nmt000' does not say how its matrices are cut",
        crossing_batch,
        find_model("nmt", "nmt000"),
        4,
    )


@with_machine
def test_points_stand_beside_what_they_ask_of_links() -> None:
    records = [
        record
        for count in (1, 4)
        for record in make_point(
            [6400.0 * count] * 5, devices=count, workload="cnn", launches="abcde"
        )
    ]
    table = link_bounds(points(frame_of(records))).set_index("devices")
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

    without = link_bounds(
        points(frame_of([record for record in records if record.run.devices == 4]))
    )
    assert without["bound_exposed"].isna().all() and without["links_s"].gt(0).all()
    assert link_bounds(points(frame_of([]))).empty
