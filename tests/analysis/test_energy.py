"""Joules a unit from planted windows."""

from __future__ import annotations

from typing import Any

import pytest

from multigpu.analysis.gpus import energy_frame, energy_points
from multigpu.record import Record
from tests.factory import make_machine, make_record


def energy(joules: float, window_s: float = 20.0, devices: int = 2, **more: Any) -> Record:
    """Each GPU takes its share of the joules, over 6,400 units in all."""
    window = {"window_s": window_s, "start_j": 1e6, "end_j": 1e6 + joules / devices, "steps": 100, "units": 6400 // devices}
    return make_record(devices=devices, energy_window_s=20, measurement={"energy": [window] * devices}, **{"workload": "cnn", **more})


def test_repeats_are_pooled_and_short_windows_left_out() -> None:
    records = [energy(960.0), energy(640.0, repeat=1), energy(1.0, window_s=9.9, repeat=2), energy(1280.0, devices=4)]
    points = energy_points(energy_frame(records))
    assert points[["devices", "n"]].to_numpy().tolist() == [[2, 2], [4, 1]]
    assert points["joules_per_unit"].tolist() == pytest.approx([0.125, 0.2])
    assert points["power_w"].tolist() == pytest.approx([40.0, 64.0]) and points["units_per_s"].tolist() == [320.0, 320.0]
    for nothing in ([], [energy(1.0, window_s=9.9)]):
        assert energy_points(energy_frame(nothing)).empty
    assert points["least"].tolist() == pytest.approx([0.1, 0.2]) and points["most"].tolist() == pytest.approx([0.15, 0.2])


def test_machines_are_told_apart_where_asked() -> None:
    frame = energy_frame([energy(960.0), energy(320.0, machine=make_machine(name="another"))])
    assert energy_points(frame)["n"].tolist() == [2]
    assert sorted(energy_points(frame, "machine")["joules_per_unit"]) == pytest.approx([0.05, 0.15])
