"""Points below a roof, by hand: which of arithmetic and memory limits a model, and how much of it a Run reached."""

from __future__ import annotations

import pandas as pd
import pytest

from multigpu.analysis.frame import frame_of
from multigpu.analysis.limits import bounds, ceilings, memory_bytes_per_unit
from multigpu.analysis.roofline import MOST_NAMES, figure_roofline, named, roofline_finding, rooflines
from multigpu.workloads import find_model
from tests.analysis.test_limits import machine  # noqa: F401  (a machine of round ceilings, in every test)
from tests.factory import make_record

IMAGES = {"workload": "cnn", "model": "resnet50_v1.5"}


def frame() -> pd.DataFrame:
    records = [
        make_record("ddp", 1, 3.1e6),  # 000's model at half of its 788 TFLOP/s: 127.1 MFLOP a word
        make_record("exp4", 1, 1e6),
        make_record("ddp", 2, 9e6),
        make_record("ddp", 1, 4.3e12 / 333.7e6 / 4, **IMAGES),  # a quarter of what memory allows at 4.3 TB/s
        make_record("ddp", 1, 1e5, device_type="cpu", precision="fp32"),
    ]
    return frame_of(records)


def test_the_fastest_run_on_one_gpu_stands_below_the_lower_roof() -> None:
    points = rooflines(frame()).set_index("model")
    assert list(points.index) == ["resnet50_v1.5", "nmt000"]
    words, images = points.loc["nmt000"], points.loc["resnet50_v1.5"]
    assert (words["limit"], words["share"]) == ("arithmetic", pytest.approx(0.5, rel=0.01))
    assert words["roof"] == ceilings(words["gpu"])["bf16"].value
    assert (images["limit"], images["share"]) == ("memory", pytest.approx(0.25, rel=0.01))
    model = find_model("cnn", "resnet50_v1.5")
    assert images["intensity"] == pytest.approx(3 * model.forward_flops_per_unit / memory_bytes_per_unit(model, "bf16"))
    assert images["roof"] == pytest.approx(images["intensity"] * 4.3e12)


def test_what_fast_convolutions_spare_is_no_operation_that_a_run_reached() -> None:
    """VGG-16 in fp32 at 20% more than direct convolutions could: the roof of the tables of bounds, and no 120%."""
    model = find_model("cnn", "vgg16")
    direct = ceilings("NVIDIA H200")["fp32"].value / (3 * model.forward_flops_per_unit)
    fields = {"workload": "cnn", "model": "vgg16", "layout": "channels_first", "precision": "fp32"}
    frame = frame_of([make_record("ddp", 1, 1.2 * direct, **fields)])
    (point,) = rooflines(frame).to_dict("records")
    left = 1 - model.spared_flops_per_unit / model.forward_flops_per_unit
    assert 0.2 < left < 0.5 and point["fast"] and point["share"] == pytest.approx(1.2 * left, rel=1e-3)
    assert point["share"] == pytest.approx(bounds(frame)["share_of_bound"].iloc[0], rel=1e-6), "the table above says the same"
    assert "In fp32 operations are those that fast convolutions leave." in figure_roofline(rooflines(frame)).caption
    assert "fast convolutions" not in figure_roofline(rooflines(frame_of([make_record("ddp", 1, 1e6)]))).caption


def test_panels_stand_below_each_other_so_that_a_telephone_shows_all() -> None:
    two = [make_record("ddp", 1, 1e6), make_record("ddp", 1, 1e5, precision="fp32")]
    picture = figure_roofline(rooflines(frame_of(two)))
    upper, lower = (ax.get_position() for ax in picture.axes)
    assert upper.x0 == lower.x0 and upper.y0 > lower.y1 and picture.get_size_inches()[0] < 6.7


def test_the_title_names_the_nearest_and_the_farthest() -> None:
    points = rooflines(frame())
    said = roofline_finding(points)
    assert said.startswith("One GPU reaches 50% of what arithmetic allows on") and "25% on ResNet-50 v1.5 in bf16" in said
    picture = figure_roofline(points)
    assert picture.finding == said and len(picture.data) == 2 and "set by memory" in picture.alt
    assert roofline_finding(points.iloc[:1]) == ""


def test_a_panel_names_few_models_and_the_extremes_among_them() -> None:
    shares = {f"model{index:02d}": 0.9 - 0.04 * index for index in range(MOST_NAMES + 4)}
    points = pd.DataFrame({"model": list(shares), "precision": "bf16", "share": list(shares.values()), "records": range(len(shares))})
    points.loc[[0, len(points) - 1], "records"] = 1
    chosen = points["model"][named(points)].tolist()
    assert len(chosen) == MOST_NAMES and {"model00", "model12"} <= set(chosen), "the title speaks of the extremes"
    assert "model01" not in chosen and "model11" in chosen, "of the others those with the most Records"


def test_points_without_a_name_are_counted_in_the_caption() -> None:
    first = rooflines(frame())
    many = pd.concat([first.assign(model=f"{index}-{first['model'].iloc[0]}") for index in range(MOST_NAMES)], ignore_index=True)
    picture = figure_roofline(many)
    assert f"Grey: {len(many) - MOST_NAMES} further models" in picture.caption and len(picture.data) == len(many)
    assert len(picture.axes[0].texts) == MOST_NAMES and "Grey" not in figure_roofline(first).caption


def test_without_a_gpu_whose_limits_are_known_the_picture_says_so() -> None:
    points = rooflines(frame().query("device_type == 'cpu'"))
    assert points.empty and "Nothing to draw" in figure_roofline(points).alt
