"""Speedups above the number of devices, on planted Records: whose repeats explain them, and which are left."""

from __future__ import annotations

from typing import Any

import pytest

from multigpu.analysis import superlinear
from multigpu.analysis.frame import frame_of
from tests.analysis.test_cnn_pages import point
from tests.factory import make_point


def test_speedups_above_n_are_listed_with_what_explains_them() -> None:
    records = point(100, devices=1) + point(230)  # far above 2 x 100, whose repeats spread by 0.4%
    records += point(100, "exp4", devices=1) + point(200.1, "exp4")  # the interval holds 2
    records += point(100, "exp2", devices=1, n=1) + point(209, "exp2", n=1)
    records += point(100, "ps_gpu0", devices=1) + point(190, "ps_gpu0")
    records += point(100, "independent", devices=1) + point(250, "independent")
    found = superlinear.superlinear(frame_of(records)).set_index("placement")
    assert dict(found["why"]) == {"ddp": superlinear.BEYOND, "exp4": superlinear.WITHIN, "exp2": superlinear.BEYOND}
    assert found.loc["ddp", "excess"] == pytest.approx(0.15)
    assert dict(found["spread_of"]) == {"ddp": superlinear.OWN, "exp4": superlinear.OWN, "exp2": superlinear.MODEL}
    said = superlinear.superlinear_sentence(frame_of(records))
    assert said == (
        "Of 4 speedups, 3 exceed the number of GPUs. Noise in the measurement of one GPU is enough to explain 1: 1 with an interval that "
        "holds N. It leaves 2 unexplained, 1 with a side measured once: ResNet-50 v1.5, batch 64 a GPU, ddp, 2.30 on 2; ResNet-50 v1.5, "
        "batch 64 a GPU, Exp2, 2.09 on 2."
    )
    assert "No speedup exceeds" in superlinear.superlinear_table(frame_of(point(100, devices=1) + point(190))).html


def test_a_baseline_measured_once_borrows_the_spread_of_its_kind_alone() -> None:
    """Eager repeats of ResNet-20 lie 30% apart, captured ones 0.4%, those of VGG-16 eager 10%; of captured AlexNet nothing was repeated."""

    def apart(width: float, **more: Any) -> list[Any]:
        return make_point([100 * (1 + width * by) for by in (0.5, -0.5, 0, 0, 0)], placement="exp4", devices=1, workload="cnn", **more)

    def above(by: float, placement: str = "exp2", **more: Any) -> list[Any]:
        return point(100, placement, devices=1, n=1, **more) + point(200 * (1 + by), placement, n=1, **more)

    small, large = {"model": "resnet20", "batch_size": 128}, {"model": "vgg16"}
    eager = apart(0.3, **small) + apart(0.1, **large)
    records = [*eager, *point(100, "exp4", devices=1, execution="captured", **small)]
    records += above(0.2, **small) + above(0.3, model="lenet") + above(0.15, **large)
    found = superlinear.superlinear(frame_of(records)).set_index("model")
    assert dict(found["why"]) == {"resnet20": superlinear.SPREAD, "lenet": superlinear.BEYOND, "vgg16": superlinear.BEYOND}
    assert dict(found["baseline_spread"]) == pytest.approx({"resnet20": 0.3, "lenet": 0.2, "vgg16": 0.1}), (
        "of lenet's kind: both in the middle"
    )
    assert dict(found["spread_of"]) == {"resnet20": superlinear.MODEL, "lenet": superlinear.KIND, "vgg16": superlinear.MODEL}
    said = superlinear.superlinear_sentence(frame_of(records))
    assert (
        "is enough to explain 1: 1 by no more than repeats of the baseline, or of its kind, lie apart. It leaves 2 unexplained, all" in said
    )
    assert said.index("LeNet") < said.index("VGG-16") and "no repeated" not in said
    lonely = frame_of([*eager, *above(0.2, "ddp", model="alexnet", execution="captured")])
    assert list(superlinear.superlinear(lonely)["why"]) == [superlinear.NONE]
    assert "Of 1 no repeated point on one GPU is of the baseline's kind, so nothing is said: AlexNet" in superlinear.superlinear_sentence(
        lonely
    )
    html = superlinear.superlinear_table(lonely).html
    assert "no repeated point of this kind" in html and "not known" in html
