"""Ladders of batches from planted Records: where a model has enough, and between which batches memory ends."""

from __future__ import annotations

import math

import pandas as pd
import pytest

from multigpu.analysis import ladders
from multigpu.analysis.figure_ladder import _apart
from multigpu.analysis.figures import figure_ladder
from multigpu.analysis.frame import frame_of
from tests.factory import make_record


def ladder(memory: dict[int, float], rates: dict[int, float], full: int) -> pd.DataFrame:
    records = [
        make_record("ddp", 1, rates[batch], workload="cnn", batch_size=batch, measurement={"peak_memory_gib": [memory[batch]]})
        for batch in rates
    ]
    return frame_of([*records, make_record("ddp", 1, workload="cnn", batch_size=full, status="out_of_memory")])


def test_a_ladder_ends_at_the_batch_that_does_not_fit() -> None:
    rates = {16: 1000.0, 32: 1800.0, 64: 2800.0, 128: 2900.0}
    frame = ladder({batch: 2 + batch / 16 for batch in rates}, rates, 256)
    (row,) = [row for _, row in ladders.ladder_rows(frame).iterrows()]
    assert (row["smallest"], row["largest"], row["enough"], row["first_full"]) == (16, 128, 64, 256)
    assert (row["fixed_gib"], row["image_gib"]) == (pytest.approx(2), pytest.approx(1 / 16))
    table = ladders.ladder_table(frame).html
    assert "256: out of memory" in table and ">2.0<" in table and ">64.0<" in table
    picture = figure_ladder(frame)
    assert picture.finding.endswith("eager reaches 95% of its best rate from batch 64 on") and "256 out of memory" in picture.alt
    crooked = ladder({16: 30.0, 32: 3.0, 64: 5.0, 128: 9.0}, rates, 256)
    untold = figure_ladder(frame.assign(peak_memory_gib=math.nan)).axes
    assert [[text.get_text() for text in ax.texts if "peak" in text.get_text()] for ax in untold] == [[], ["no peak to show"]]
    assert figure_ladder(crooked).axes[1].get_ylim()[1] > 30, "every batch's memory is in the panel, not the largest batch's alone"
    assert ladders.ladder_rows(crooked)["image_gib"].isna().all(), "memory that falls with the batch follows no line"


def test_a_line_through_memory_that_begins_below_nothing_is_not_told() -> None:
    rates = {16: 1000.0, 32: 1800.0, 64: 2800.0}
    below = ladder({batch: batch / 8 - 1.3 for batch in rates}, rates, 256)
    assert ladders.ladder_rows(below)[["fixed_gib", "image_gib"]].isna().all(axis=None)
    assert "-1.3" not in ladders.ladder_table(below).html
    through = ladder({batch: batch / 8 for batch in rates}, rates, 256)
    assert list(ladders.ladder_rows(through)["fixed_gib"]) == [pytest.approx(0, abs=1e-9)] and ">0.0<" in ladders.ladder_table(through).html


def test_a_ladder_that_still_gains_is_not_said_to_have_had_enough() -> None:
    records = [make_record("ddp", 1, rate, workload="cnn", batch_size=batch) for batch, rate in ((16, 100.0), (32, 180.0), (64, 300.0))]
    frame = frame_of(records)
    still = "Eager on 1 GPU, still gaining where their ladders end, with memory left: ResNet-50 v1.5 64 (300 images/s)."
    full = frame_of([*records, make_record("ddp", 1, workload="cnn", batch_size=128, status="out_of_memory")])
    assert "still gaining at the largest batch measured that fits: ResNet-50 v1.5 64 (" in ladders.ladder_sentence(full)
    assert ladders.ladder_sentence(frame).startswith(still)
    assert "No batch measured was too large" in ladders.ladder_sentence(frame) and ">64 or more<" in ladders.ladder_table(frame).html
    assert figure_ladder(frame).finding == "At the largest batch measured, 64, no ladder has reached the end of its gain"


def test_batches_on_the_axis_have_room_for_their_names() -> None:
    assert _apart([16, 64, 256, 1024, 2048, 4096]) == [16, 64, 256, 1024, 4096] and _apart([32, 64, 128]) == [32, 64, 128]
    assert _apart([16 * 2**power for power in range(12)]) == [16 * 4**power for power in range(6)] and _apart([]) == []


def test_the_answer_names_the_batch_that_is_enough_and_the_one_that_does_not_fit() -> None:
    records = [make_record("ddp", 1, rate, workload="cnn", batch_size=batch) for batch, rate in ((16, 100.0), (32, 198.0), (64, 200.0))]
    records.append(make_record("ddp", 1, workload="cnn", batch_size=128, status="out_of_memory"))
    said = ladders.ladder_sentence(frame_of(records))
    assert said == (
        "Eager on 1 GPU, images a device for 95% of the best rate: ResNet-50 v1.5 32 (200 images/s). A GPU's memory ends between 64 "
        "and 128 images of ResNet-50 v1.5."
    )


def test_the_end_of_memory_lies_between_two_batches_that_were_measured() -> None:
    """512 images were out of memory as well as 1,024, and 256 were never tried: the end lies between 128 and 512."""
    rates = {32: 100.0, 64: 198.0, 128: 200.0}
    records = [make_record("ddp", 1, rate, workload="cnn", batch_size=batch) for batch, rate in rates.items()]
    records += [make_record("ddp", 1, workload="cnn", batch_size=batch, status="out_of_memory") for batch in (1024, 512)]
    frame = frame_of(records)
    assert ladders.ladder_sentence(frame).endswith(" A GPU's memory ends between 128 and 512 images of ResNet-50 v1.5.")
    caption = figure_ladder(frame).caption
    assert caption.startswith("A cross: a batch that was out of memory. ") and "no larger" not in caption


def test_a_page_draws_some_models_and_folds_the_others() -> None:
    runs = [("resnet50_v1.5", 1000.0), ("vgg11", 500.0)]
    records = [make_record("ddp", 1, rate, workload="cnn", model=name, batch_size=batch) for name, rate in runs for batch in (16, 32, 64)]
    drawn, others = ladders.parted(frame_of(records))
    assert set(drawn["model"]) == {"resnet50_v1.5"} and set(others["model"]) == {"vgg11"}
    assert len(figure_ladder(drawn).axes) == len(figure_ladder(others).axes) == 2
    alone, none = ladders.parted(others)
    assert set(alone["model"]) == {"vgg11"} and none.empty
