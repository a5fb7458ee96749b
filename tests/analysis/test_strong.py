"""What strong scaling keeps and loses, on planted Records whose shares are known by hand, measured as weak points and as strong ones."""

from __future__ import annotations

from typing import Any

import pytest

from multigpu.analysis import strong
from multigpu.analysis.figure_strong import PARTS, figure_strong
from multigpu.analysis.frame import frame_of
from multigpu.record import Record
from tests.analysis.test_cnn_goals import captured
from tests.analysis.test_cnn_pages import NOTHING


def planted(**more: Any) -> list[Record]:
    """One GPU takes 256 images at 100 a second and 64 at 80; four take 64 each at 288: 72% of perfect, 20% and 8% lost."""
    return (
        captured(100, devices=1, batch_size=256) + captured(80, devices=1, batch_size=64) + captured(288, devices=4, batch_size=64, **more)
    )


def test_perfect_scaling_is_what_is_kept_and_what_is_lost_to_each() -> None:
    (row,) = strong.strong_points(frame_of(planted())).to_dict("records")
    assert (row["joined"], row["own"], row["devices"], row["weak"]) == (256, 64, 4, True)
    assert row["speedup"] == pytest.approx(2.88) and row["speedup_low"] < 2.88 < row["speedup_high"]
    assert row["of_batch"] == pytest.approx(0.8) and row["of_merging"] == pytest.approx(0.9)
    assert row["speedup"] == pytest.approx(row["devices"] * row["of_batch"] * row["of_merging"])
    assert (row["lost_batch"], row["lost_merging"]) == (pytest.approx(0.2), pytest.approx(0.08))
    assert sum(row[name] for name in PARTS) == pytest.approx(1)


def test_a_strong_run_tells_the_same_and_the_better_known_of_two_is_shown() -> None:
    alone = [record for record in planted() if record.run.devices == 1]
    said = captured(288, devices=4, batch_size=256, scaling="strong")
    (row,) = strong.strong_points(frame_of(alone + said)).to_dict("records")
    assert (row["joined"], row["own"], row["weak"]) == (256, 64, False) and row["speedup"] == pytest.approx(2.88)
    (row,) = strong.strong_points(frame_of(planted() + said[:2])).to_dict("records")
    assert row["weak"] and row["n"] == 5
    (row,) = strong.strong_points(frame_of(planted() + said)).to_dict("records")
    assert not row["weak"], "of equals the one that says so"


def test_what_cannot_be_told_is_left_open_or_left_out() -> None:
    without_share = [record for record in planted() if record.run.batch_size != 64 or record.run.devices > 1]
    (row,) = strong.strong_points(frame_of(without_share)).to_dict("records")
    assert row["speedup"] == pytest.approx(2.88) and row["of_batch"] != row["of_batch"] and row["lost_merging"] != row["lost_merging"]
    assert strong.strong_points(frame_of([record for record in planted() if record.run.batch_size == 64])).empty, "nothing takes it whole"
    replicas = captured(100, "independent", 1, batch_size=256) + captured(390, "independent", 4, batch_size=64)
    assert strong.strong_points(frame_of(replicas)).empty, "replicas share no batch"
    uneven = captured(100, devices=1, batch_size=256) + captured(200, devices=3, batch_size=256, scaling="strong")
    assert strong.strong_points(frame_of(uneven)).empty
    assert strong.strong_points(NOTHING).empty


def test_only_captured_ddp_with_buckets_worth_comparing_is_shown() -> None:
    four: dict[str, Any] = {"devices": 4, "batch_size": 64}
    others = [captured(288, **four, **more) for more in ({"bucket_send": "grouped"}, {"bucket_mib": 50}, {"wire_dtype": "bf16"})]
    frame = frame_of([*planted(), *(record for own in others for record in own), *captured(288, "exp4", **four)])
    shown = strong.captured_ddp(frame)
    assert set(shown["key"]) == {row.key for row in frame_of(planted()).itertuples()}
    small_last = captured(290, bucket_send="grouped_small_last", **four)
    assert len(strong.captured_ddp(frame_of(planted() + small_last))) == len(shown) + len(small_last)
    assert strong.captured_ddp(NOTHING).empty


def test_words_name_speedup_and_both_losses() -> None:
    frame = frame_of(planted())
    said = strong.strong_finding(frame)
    assert said and "4 GPUs train 256 images 2.88 times as fast as one (" in said
    assert "20% of perfect scaling is lost to 64 images a GPU, 8.0% to merging" in said
    html = strong.strong_table(frame).html
    assert "2.88 times (" in html and "72%" in html and "20%" in html and "8.0%" in html and "5/" in html
    assert strong.strong_finding(NOTHING) is None and "--grid cnn_strong,cnn_ladders" in strong.strong_table(NOTHING).html


def test_the_figure_shares_every_row_out() -> None:
    picture = figure_strong(strong.strong_points(frame_of(planted())))
    (axes,) = picture.axes
    widths = [patch.get_width() for patch in axes.patches]
    assert widths == [pytest.approx(0.72), pytest.approx(0.2), pytest.approx(0.08)]
    assert picture.alt and "kept 72%, lost to a smaller batch 20%, lost to merging 8.0%" in picture.alt
    assert "in 1 of 1 points" in str(picture.finding)
    assert not figure_strong(strong.strong_points(NOTHING)).axes
