"""The tidy table of all-reduces and its figure, from planted Records with times worked out by hand."""

from __future__ import annotations

import pandas as pd
import pytest

from multigpu.analysis.collectives import COLUMNS, collectives_frame, collectives_summary
from multigpu.analysis.figure_collectives import figure_collectives, method_look, seconds_text
from multigpu.analysis.picture import save
from multigpu.analysis.style import INK, PALETTE
from multigpu.collectives import algorithms
from multigpu.collectives.run import LIBRARIES
from tests.collectives.planted import make_record, plant, study


@pytest.fixture(scope="module")
def frame() -> pd.DataFrame:
    return collectives_frame(study())


def test_a_row_a_record(frame, tmp_path) -> None:  # type: ignore[no-untyped-def]
    assert list(frame.columns) == list(COLUMNS) and len(frame) == 11 * 15
    pd.testing.assert_frame_equal(
        collectives_frame(plant(tmp_path)).sort_values("key", ignore_index=True), frame.sort_values("key", ignore_index=True)
    )
    row = frame[(frame["method"] == "ring") & (frame["bytes"] == 2**30)].iloc[0]
    # planted: 14 x 2 us + 2 x 7/8 GiB at 400 GB/s
    assert row["time_s"] == pytest.approx(28e-6 + 1.75 * 2**30 / 400e9)
    assert row["bus_bytes_per_s"] == pytest.approx(1.75 * 2**30 / row["time_s"])
    assert (row["busiest_link_bytes"], row["total_bytes"], row["latency_terms"]) == (1.75 * 2**30, 14 * 2**30, 14)
    assert row["kind"] == "algorithm" and set(frame[frame["kind"] == "library"]["method"]) == {"nccl", "two_shot"}
    assert collectives_frame([]).empty and collectives_summary(collectives_frame([])).empty


def test_repeats_make_one_point() -> None:
    records = [make_record(repeat=repeat, time_s=seconds) for repeat, seconds in enumerate((1.0, 2.0, 4.0))]
    records.append(make_record(repeat=3, status="failed"))
    (point,) = collectives_summary(collectives_frame(records)).to_dict("records")
    assert (point["n"], point["samples"], point["launches"], point["time_s"]) == (3, 9, 3, 2.0)
    assert (point["time_low_s"], point["time_high_s"]) == (pytest.approx(0.98), pytest.approx(4.12))
    assert point["algorithm_bytes_per_s"] == 2**20 / 2.0 and point["bus_bytes_per_s"] == 1.75 * 2**20 / 2.0


def test_the_figure_draws_every_method_and_the_link(frame, tmp_path) -> None:  # type: ignore[no-untyped-def]
    picture = figure_collectives(frame)
    times, bandwidths = picture.axes
    assert len(times.get_lines()) == 11 and len(bandwidths.get_lines()) == 12
    assert picture.finding == "At 1 GiB on 8 GPUs the best bus bandwidth is 399 GB/s (halving, doubling): 89% of the link"
    assert "450 GB/s one way" in picture.alt and "median of 3 samples" in picture.caption and "8x-nvidia-h200" in picture.caption
    assert "Missing" not in picture.caption and len(picture.data) == 165
    assert "<svg" in save(picture, "collectives", folder=tmp_path).html


def test_what_failed_is_named_and_nothing_is_drawn_of_nothing(frame) -> None:  # type: ignore[no-untyped-def]
    with_gap = pd.concat([frame, collectives_frame([make_record("torus", 12, status="out_of_memory")])], ignore_index=True)
    assert "Missing: 2-D torus at 12 B (out_of_memory)." in figure_collectives(with_gap).caption
    for empty in (
        figure_collectives(frame, devices=4),
        figure_collectives(collectives_frame([])),
        figure_collectives(frame, execution="eager"),
    ):
        assert empty.finding == "" and "no Record" in empty.alt


def test_on_cpus_an_order_needs_samples_apart() -> None:
    def cpu(**seconds: float) -> pd.DataFrame:
        return collectives_frame([make_record(name, execution="eager", devices=2, gpus=0, time_s=t) for name, t in seconds.items()])

    assert figure_collectives(cpu(gloo=1.0, ring=2.0)).finding == "At 1 MiB on 2 CPU processes, gloo is fastest: 2.00 times as fast as ring"
    assert figure_collectives(cpu(gloo=1.0, ring=1.02)).finding == ""
    assert figure_collectives(cpu(ring=1.0)).finding == ""


def test_methods_look_different_and_stand_out() -> None:
    looks = [method_look(name) for name in (*LIBRARIES, *algorithms())]
    assert all(look.colour in (*PALETTE, INK) for look in looks)
    assert len({(look.colour, look.marker, look.label) for look in looks}) == len(looks)
    assert method_look("star").label == "star"
    assert [seconds_text(s) for s in (4e-6, 1.5e-3, 2.0)] == ["4 µs", "1.5 ms", "2 s"]
