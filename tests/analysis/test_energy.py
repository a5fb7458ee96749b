"""Joules a unit from planted windows, told in a sentence."""

from __future__ import annotations

from typing import Any

import pytest

from multigpu.analysis.energy import NO_ENERGY, energy_finding, energy_frame, energy_on_more, energy_otherwise, energy_points, energy_table
from multigpu.record import Record
from tests.factory import make_machine, make_record


def energy(joules: float, window_s: float = 20.0, devices: int = 2, **more: Any) -> Record:
    """Each GPU takes its share of the joules, over 6,400 units in all."""
    window = {"window_s": window_s, "start_j": 1e6, "end_j": 1e6 + joules / devices, "steps": 100, "units": 6400 // devices}
    return make_record(devices=devices, energy_window_s=20, measurement={"energy": [window] * devices}, **{"workload": "cnn", **more})


def test_the_least_and_the_most_joules_an_image() -> None:
    records = [energy(960.0), energy(640.0, batch_size=256, execution="captured"), energy(800.0, batch_size=128)]
    said = energy_finding(energy_frame(records))
    assert said.startswith(
        "On 2 GPUs training takes 0.1 J (ResNet-50 v1.5, batch 256, bf16, captured) to 0.15 J (ResNet-50 v1.5, batch 64, bf16, eager) an "
        "image"
    )
    assert said.endswith("counters (± 1.0% at most; 3 jobs, each measured once); the host's energy is not in it.")


def test_repeats_are_pooled_and_short_windows_left_out() -> None:
    records = [energy(960.0), energy(640.0, repeat=1), energy(1.0, window_s=9.9, repeat=2), energy(1280.0, devices=4)]
    points = energy_points(energy_frame(records))
    assert points[["devices", "n"]].to_numpy().tolist() == [[2, 2], [4, 1]]
    assert points["joules_per_unit"].tolist() == pytest.approx([0.125, 0.2])
    said = energy_finding(energy_frame(records))
    assert "On 2 GPUs training takes 0.125 J (ResNet-50 v1.5, batch 64, bf16, eager) an image" in said
    assert "; 1 job, n = 2); the" in said and "On 4 GPUs training" not in said
    (more,) = energy_on_more(energy_frame(records))
    assert more.startswith("On 4 GPUs training takes 0.2 J"), "the answer tells the fewest GPUs, the section the others"
    words = energy_finding(energy_frame([energy(640.0, workload="nmt")]))
    assert " a word, by" in words
    for nothing in ([], [energy(1.0, window_s=9.9)]):
        assert energy_finding(energy_frame(nothing)) == NO_ENERGY


def test_a_row_pools_the_windows_of_one_machine_and_tells_their_extent() -> None:
    other = make_machine(name="another")
    html = energy_table(energy_frame([energy(960.0), energy(640.0, repeat=1), energy(320.0, machine=other)])).html
    assert "0.125 J an image (0.1 to 0.15)" in html and "0.05 J an image<" in html
    assert html.count(">another<") == 1 and ">2<" in html


def test_fewer_bits_and_other_forms_are_set_beside_the_usual_one() -> None:
    usual = {"execution": "captured", "precision": "bf16"}
    records = [energy(640.0, **usual), energy(640.0, repeat=1, **usual), energy(1280.0, execution="captured", precision="fp32")]
    records += [energy(320.0, repeat=repeat, execution="compiled_captured", precision="bf16") for repeat in (0, 1)]
    records += [energy(960.0, batch_size=256)]  # with nothing usual beside it
    (said,) = energy_otherwise(energy_frame(records))
    assert said == (
        "Beside the energy of ResNet-50 v1.5, batch 64, bf16, captured on 2 GPUs: fp32 2.00 times, once; compiled and captured 0.50 times."
    )
    assert energy_otherwise(energy_frame([])) == []
