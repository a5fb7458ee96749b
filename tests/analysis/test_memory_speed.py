"""Two kinds of GPU that differ in memory: shares, losses and kernels from planted Records."""

from __future__ import annotations

import math
from typing import Any

import pandas as pd
import pytest

from multigpu.analysis import memory_kernels as kernels
from multigpu.analysis import memory_speed as speed
from multigpu.analysis.figure_memory_speed import figure_memory_speed
from multigpu.measure.ceilings import Ceilings
from multigpu.measure.trace import KernelTotals, ReplicaTrace, StepTrace, TraceSummary
from multigpu.record import Record
from tests.factory import make_machine, make_record

SLOW, FAST = "NVIDIA H100", "NVIDIA H200"
MACHINES = {SLOW: make_machine(1, "1x-nvidia-h100", SLOW), FAST: make_machine(1, "1x-nvidia-h200", FAST)}


def ceilings(gpu: str, memory: float, bf16: float = 800e12) -> Ceilings:
    more: dict[str, Any] = {"measured_at": "", "commit": "", "versions": {}, "host_to_device": [], "device_to_host": [], "links": []}
    return Ceilings(machine=gpu, gpu=gpu, matmul={"bf16": [bf16], "fp32": [50e12]}, memory=[memory], **more)


HALF = [ceilings(SLOW, 2e12), ceilings(FAST, 4e12)]


def step(gpu: str, rate: float, repeat: int = 0, **fields: Any) -> Record:
    fields = {"workload": "cnn", "execution": "captured", "launch_id": str(repeat)} | fields
    return make_record("ddp", 1, rate, repeat=repeat, machine=MACHINES[gpu], **fields)


def test_kinds_are_compared_whose_memories_alone_differ() -> None:
    kinds = speed.compared_kinds(HALF)
    assert kinds == speed.Kinds(SLOW, FAST, 0.5, {"bf16": 1.0, "fp32": 1.0})
    assert speed.compared_kinds([ceilings(SLOW, 2e12, 600e12), ceilings(FAST, 4e12)]) is None, "another chip"
    assert speed.compared_kinds([ceilings(SLOW, 3.9e12), ceilings(FAST, 4e12)]) is None, "the same memory"
    assert speed.compared_kinds(HALF[:1]) is None
    three = speed.compared_kinds([*HALF, ceilings("NVIDIA H300", 8e12)])
    assert three is not None and (three.slow, three.fast, three.memory) == (SLOW, "NVIDIA H300", 0.25)


def test_what_is_lost_is_told_as_a_power_of_memorys_speed() -> None:
    """Half the memory speed and half the rate: all of a step waits. 0.5^0.5 = 0.7071 of the rate: half of a percent for a percent."""
    kinds = speed.compared_kinds(HALF)
    records = [step(SLOW, 1000), step(FAST, 2000), step(SLOW, 707.1068, model="vgg16"), step(FAST, 1000, model="vgg16")]
    points = speed.memory_points(records, kinds)
    assert points["model"].tolist() == ["resnet50_v1.5", "vgg16"] and points["kept"].tolist() == pytest.approx([0.5, 0.7071068])
    assert points["per_memory"].tolist() == pytest.approx([1, 0.5]) and points["at_clock"].tolist() == pytest.approx([0.95, 0.95**0.5])
    assert points["kept_low"].isna().all() and points["at_clock_high"].isna().all(), "measured once: no interval"
    said = speed.memory_finding(points, kinds)
    assert "With 50% of the memory speed of H200" in said and "keeps 50.0% (ResNet-50 v1.5" in said and "to 70.7% (VGG-16" in said
    assert "at most 1.00% of throughput for 1% of memory speed" in said
    (document,) = speed.document_finding(points, kinds)
    assert "would leave 95.0% of the rate or more" in document
    assert "kept 84.7, 94.5 and 98.8% there; 2 of them lost more than a step that did nothing but wait" in document
    table = speed.memory_table(points, kinds).html
    assert "001: GPU 1<" in table and "3.25" in table and "1,000 images/s" in table, "ln 0.8465 / ln 0.95 = 3.25"


def test_intervals_are_of_both_sides_repeats_and_turn_over_with_the_sign() -> None:
    kinds = speed.compared_kinds(HALF)
    records = [step(gpu, rate * by, repeat) for gpu, rate in ((SLOW, 900), (FAST, 1000)) for repeat, by in enumerate((1.01, 0.99, 1.0))]
    row = speed.memory_points(records, kinds).iloc[0]
    assert (row["n_slow"], row["n_fast"]) == (3, 3) and row["kept"] == pytest.approx(0.9)
    deviation = math.sqrt(sum(math.log(by / (1.01 * 0.99) ** (1 / 3)) ** 2 for by in (1.01, 0.99, 1.0)) / 2)
    half = 2.776445 * deviation * math.sqrt(2 / 3)  # Welch: 4 degrees of freedom
    assert (row["kept_low"], row["kept_high"]) == pytest.approx((0.9 * math.exp(-half), 0.9 * math.exp(half)), rel=1e-5)
    assert row["at_clock_low"] < row["at_clock"] < row["at_clock_high"]
    assert row["at_clock_low"] == pytest.approx(0.95 ** (math.log(row["kept_low"]) / math.log(0.5)))


def test_what_a_host_or_a_second_gpu_may_have_set_the_pace_of_is_left_out() -> None:
    kinds = speed.compared_kinds(HALF)
    apart: list[dict[str, Any]] = [{"execution": "eager"}, {"placement": "exp2", "execution": "eager"}, {"energy_window_s": 12}]
    for fields in apart:
        records = [step(gpu, rate, **{k: v for k, v in fields.items() if k != "placement"}) for gpu, rate in ((SLOW, 1), (FAST, 2))]
        assert speed.memory_points(records, kinds).empty, fields
    assert speed.memory_points([step(SLOW, 1), step(FAST, 2, batch_size=32)], kinds).empty, "two Runs"
    both = [step(SLOW, 1), step(FAST, 2)]
    assert len(speed.memory_points(both, kinds)) == 1 and speed.memory_points(both, None).empty


def test_without_two_kinds_the_page_says_what_to_measure() -> None:
    nothing = speed.memory_points([], None)
    for text in (speed.memory_finding(nothing, None), speed.memory_table(nothing, None).html, figure_memory_speed(nothing, None).alt):
        assert "measure --grid memory_speed" in text
    none = kernels.kernel_points([], None)
    assert kernels.kernel_finding(none, None) == kernels.NO_TRACES and "memory_speed" in kernels.kernel_table(none, None).html


def test_records_of_a_changed_tree_are_named() -> None:
    kinds = speed.compared_kinds(HALF)
    assert speed.unclean([step(SLOW, 1), step(FAST, 2)], kinds) == ""
    said = speed.unclean([step(SLOW, 1, clean_tree=False), step(FAST, 2)], kinds)
    assert said == "1 Record of 1x-nvidia-h100 names a tree with changes over commit 0123456."


def test_the_figure_draws_every_job_and_the_documents_gpus() -> None:
    kinds = speed.compared_kinds(HALF)
    points = speed.memory_points([step(SLOW, 1900, repeat) for repeat in (0, 1)] + [step(FAST, 2000, repeat) for repeat in (0, 1)], kinds)
    picture = figure_memory_speed(points, kinds)
    assert picture.finding == f"At 95% of memory's speed every step keeps {100 * 0.95 ** math.log(0.95, 0.5):.1f}% or more; " + (
        "document 001's slowest GPU kept 84.7%"
    )
    assert picture.data["source"].tolist() == ["here", "001", "001", "001"] and "N = 2 to 2 a side." in picture.caption


def trace(busy_ms: float, device_ms: float, **kernel_ms: tuple[int, float]) -> TraceSummary:
    """Two traced steps of one replica; kernel -> calls and milliseconds a step."""
    one = StepTrace(
        start_s=0, end_s=1, host_s=0, phases={}, kernels=1, launches=1, busy_s=busy_ms / 1000, communication_s=0, exposed_s=0,
        exposed_copies_s=0, communication=[],
    )  # fmt: skip
    replica = ReplicaTrace(rank=0, steps=[one, one], copies=[], device_time_s=2 * device_ms / 1000)
    totals = [KernelTotals(name=name, calls=2 * calls, total_s=2 * ms / 1000) for name, (calls, ms) in kernel_ms.items()]
    return TraceSummary(source="kineto", replicas=[replica], kernels=totals)


def traced(gpu: str, summary: TraceSummary) -> Record:
    return step(gpu, 1000, traced_steps=2, measurement={"trace": summary})


def test_kernels_of_both_are_set_side_by_side_and_the_rest_is_one_row() -> None:
    """`copy` waits for memory, `product` does not; `chosen` is called otherwise on the other GPU and counts as the rest."""
    kinds = speed.compared_kinds(HALF)
    slow = traced(SLOW, trace(9, 10, copy=(4, 4.0), product=(2, 3.0), chosen=(7, 2.0)))
    fast = traced(FAST, trace(7, 8, copy=(4, 2.0), product=(2, 3.0), chosen=(8, 1.0)))
    points = kernels.kernel_points([slow, fast], kinds)
    table = {row["kernel"]: (row["slow_ms"], row["fast_ms"]) for _, row in points.iterrows()}
    assert table == {"copy": pytest.approx((4, 2)), "product": pytest.approx((3, 3)), kernels.REST: pytest.approx((3, 3))}
    said = kernels.kernel_finding(points, kinds)
    assert "would take 2.00 times as long on H100" in said and "takes 2.00 times as long (`copy`" in said and "1.00 (`product`" in said
    assert "takes less time" not in said
    html = kernels.kernel_table(points, kinds).html
    assert html.index("copy") < html.index("product"), "what loses most stands first"


def test_a_step_that_is_shorter_on_the_slower_memory_is_explained() -> None:
    kinds = speed.compared_kinds(HALF)
    slow = traced(SLOW, trace(6, 10, product=(2, 3.0), wide=(7, 2.0)))
    fast = traced(FAST, trace(7, 9, product=(2, 3.0), narrow=(7, 3.0)))
    said = kernels.kernel_finding(kernels.kernel_points([slow, fast], kinds), kinds)
    assert "6.0 ms a step against 7.0, though its kernels sum to 10.0 against 9.0 ms: more of them run side by side" in said
    assert "(`wide`, 7 calls, in place of `narrow`, 7 calls)" in said


def test_only_traced_jobs_of_both_are_compared() -> None:
    kinds = speed.compared_kinds(HALF)
    one = traced(SLOW, trace(1, 1, copy=(1, 1.0)))
    assert kernels.kernel_points([one, step(FAST, 2)], kinds).empty
    assert isinstance(kernels.kernel_points([], kinds), pd.DataFrame)
