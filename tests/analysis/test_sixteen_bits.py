"""fp16 beside bf16: ratios with batch norm and without, and the share of PyTorch's own batch norm, from planted Records."""

from __future__ import annotations

from typing import Any

import pytest

from multigpu.analysis import sixteen_bits as bits
from multigpu.record import Record
from tests.analysis.test_memory_speed import trace
from tests.factory import make_machine, make_record


def step(rate: float, repeat: int = 0, **fields: Any) -> Record:
    fields = {"workload": "cnn", "execution": "captured", "launch_id": str(repeat)} | fields
    return make_record("ddp", 1, rate, repeat=repeat, machine=make_machine(1), **fields)


def both(model: str, ratio: float) -> list[Record]:
    return [step(1000, model=model), step(1000 * ratio, model=model, precision="fp16", loss_scale=128)]


def test_models_with_batch_norm_are_told_from_those_without() -> None:
    points = bits.sixteen_bit_points([*both("resnet50_v1.5", 1.2), *both("inception3", 1.07), *both("vgg16", 0.99)])
    assert points["model"].tolist() == ["resnet50_v1.5", "inception3", "vgg16"] and points["norm"].tolist() == [True, True, False]
    assert points["ratio"].tolist() == pytest.approx([1.2, 1.07, 0.99]) and points["ratio_low"].isna().all()
    said = bits.sixteen_bit_finding(points, ("resnet50_v1.5", 0.42))
    assert "1.07 (Inception-v3) to 1.20 (ResNet-50 v1.5) in models with batch norm, and 0.99 (VGG-16) in models without" in said
    assert "batch norm are 42% of what the GPU does in a captured step of ResNet-50 v1.5; no step in fp16 was traced" in said
    assert bits.sixteen_bit_finding(points, ("resnet50_v1.5", 0.42), ("resnet50_v1.5", 0.0)).endswith(", in fp16 0% (ResNet-50 v1.5).")
    assert bits.sixteen_bit_finding(points, None).endswith("No step in bf16 was traced to show its kernels.")


def test_both_loss_scales_are_pooled_and_other_runs_left_out() -> None:
    """Rates of 1,100 and 1,210 are 1,153.7 in the geometric mean; their launch is one, bf16's two repeats are of two."""
    fp16 = [step(1100, precision="fp16", loss_scale=128), step(1210, precision="fp16")]
    points = bits.sixteen_bit_points([step(1000), step(1000, 1), *fp16, step(9, batch_size=32), step(9, precision="fp32")])
    (row,) = (one for _, one in points.iterrows())
    assert row["ratio"] == pytest.approx(1.1 * 1.1**0.5) and (row["n_fp16"], row["n_bf16"]) == (2, 2) and row["ratio_low"] < row["ratio"]
    eager = [step(1, execution="eager"), step(2, execution="eager", precision="fp16")]
    assert bits.sixteen_bit_points(eager).empty, "the host sets the pace of an eager step"
    assert bits.sixteen_bit_points([step(1, layout="channels_first"), step(2, precision="fp16")]).empty, "another layout"


def test_the_share_of_own_kernels_is_of_all_that_the_gpu_did() -> None:
    summary = trace(9, 10, batch_norm_collect_statistics=(4, 3.0), batch_norm_backward=(4, 1.0), convolution=(2, 3.0))
    traced = step(1000, traced_steps=2, measurement={"trace": summary})
    assert bits.own_norm_share([traced, step(1000)]) == ("resnet50_v1.5", pytest.approx(0.4))
    assert bits.own_norm_share([traced], "fp16") is None and bits.own_norm_share([]) is None
    none = step(1000, traced_steps=2, precision="fp16", measurement={"trace": trace(9, 10, convolution=(2, 3.0))})
    assert bits.own_norm_share([none], "fp16") == ("resnet50_v1.5", 0.0), "traced, and none of them there"


def test_without_records_it_says_what_to_measure() -> None:
    nothing = bits.sixteen_bit_points([])
    assert bits.sixteen_bit_finding(nothing, None) == bits.NONE and "cnn_formats_captured" in bits.sixteen_bit_table(nothing).html
    assert "1.200" in bits.sixteen_bit_table(bits.sixteen_bit_points(both("resnet50_v1.5", 1.2))).html
