"""What the pages on document 001 say, on planted Records whose ratios are known by hand."""

from __future__ import annotations

from typing import Any

import pandas as pd
import pytest

from multigpu.analysis import cnn_advice, cnn_document, cnn_page, cnn_statements, cnn_updates, formats, ladders, superlinear
from multigpu.analysis.figures import figure_ladder, figure_models, figure_ratios
from multigpu.analysis.frame import frame_of
from multigpu.analysis.front import results
from multigpu.analysis.pairs import EQUAL, FASTER, ONCE, SLOWER, paired, verdict
from multigpu.study import verdict_table
from tests.factory import make_machine, make_point, make_record

QUIET = (1.0, 1.002, 0.998, 1.001, 0.999)
NOTHING = frame_of([])


def point(rate: float, placement: str = "ddp", devices: int = 2, n: int = 5, **more: Any) -> list[Any]:
    """The repeats of one point of an image model."""
    return make_point([rate * factor for factor in QUIET[:n]], placement=placement, devices=devices, workload="cnn", **more)


def test_an_interval_decides_and_one_measurement_does_not() -> None:
    assert [verdict(1.2, 1.1, 1.3), verdict(0.8, 0.7, 0.9), verdict(1.01, 0.99, 1.03)] == [FASTER, SLOWER, EQUAL]
    assert verdict(1.2, float("nan"), float("nan")) == ONCE and verdict(float("nan"), 1, 1) == ""


def test_each_change_stands_beside_the_same_run_without_it() -> None:
    records = point(200, "exp2") + point(300, "staged_cpu") + point(150, "exp2", batch_size=256)
    records += point(400, execution="captured") + point(440, execution="captured", wire_dtype="bf16") + point(390, wire_dtype="fp16", n=1)
    frame = frame_of(records)
    staged = paired(frame, cnn_updates.STAGED[0])
    assert len(staged) == 1 and staged["ratio"][0] == pytest.approx(1.5) and staged["verdict"][0] == FASTER
    wires = cnn_updates.changes(frame, cnn_updates.WIRES)
    assert list(wires["ratio"]) == [pytest.approx(1.1)], "fp16 has no eager counterpart"
    assert "16 bits: 1.10 times (1.10 to 1.10) the rate" in cnn_updates.change_sentence(frame, cnn_updates.WIRES[0])
    slow = frame_of([*records, *point(100), *point(30, wire_dtype="bf16", n=1)])
    said = cnn_updates.change_sentence(slow, cnn_updates.WIRES[0])
    assert "from 0.300 times to " in said and "at most" not in said, "the least ratio is no upper bound"
    assert "gradients in bf16" in cnn_updates.change_table(frame, cnn_updates.WIRES).html
    drawn = figure_ratios(wires, "Gradients in 16 bits over 32", "none")
    assert drawn.finding == "Gradients in 16 bits over 32: faster in 1 of 1 point" and len(drawn.data) == 1
    assert "Every row: batch 64 a GPU, 2 GPUs, ddp." in drawn.caption, "names hold what differs"
    for kinds in (cnn_updates.SPECS, cnn_updates.PARALLEL):
        assert "Not measured yet" in cnn_updates.change_table(frame, kinds).html
        assert cnn_updates.change_sentence(frame, kinds[0]).endswith("not measured yet.")


def test_speedups_above_n_are_listed_with_what_explains_them() -> None:
    records = point(100, devices=1) + point(230)  # far above 2 x 100, whose repeats spread by 0.4%
    records += point(100, "exp4", devices=1) + point(200.1, "exp4")  # the interval holds 2
    records += point(100, "exp2", devices=1, n=1) + point(209, "exp2", n=1)
    records += point(100, "ps_gpu0", devices=1) + point(190, "ps_gpu0")
    records += point(100, "independent", devices=1) + point(250, "independent")
    found = superlinear.superlinear(frame_of(records)).set_index("placement")
    assert dict(found["why"]) == {"ddp": superlinear.BEYOND, "exp4": superlinear.WITHIN, "exp2": superlinear.ONCE}
    assert found.loc["ddp", "excess"] == pytest.approx(0.15) and not found.loc["ddp", "borrowed"] and found.loc["exp2", "borrowed"]
    said = superlinear.superlinear_sentence(frame_of(records))
    assert said.startswith("Of 4 speedups, 3 exceed the number of GPUs: 1 by more than the baseline's spread, 1 with an interval")
    assert "No speedup exceeds" in superlinear.superlinear_table(frame_of(point(100, devices=1) + point(190))).html


def test_advice_knows_no_difference_and_what_was_measured_once() -> None:
    records = point(300) + point(300.2, "exp4") + point(200, "exp2") + point(900, "ps_gpu0", n=1)
    records += point(90, "exp2", model="vgg16") + point(100, "replicated_allreduce", model="vgg16")
    table = cnn_advice.advice(frame_of(records)).set_index("model")
    resnet, vgg = table.loc["resnet50_v1.5"], table.loc["vgg16"]
    assert {resnet["best"], *resnet["equals"]} == {"ddp", "exp4"} and resnet["once"] == ["ps_gpu0"] and not resnet["agrees"]
    assert (vgg["best"], vgg["equals"], bool(vgg["agrees"]), vgg["slowest"]) == ("replicated_allreduce", [], True, "exp2")
    said = cnn_advice.advice_sentence(frame_of(records))
    assert "between ddp and Exp4 for ResNet-50 v1.5;" in said or "between Exp4 and ddp for ResNet-50 v1.5;" in said
    slower = frame_of(point(300) + point(300.2, "replicated_allreduce") + point(200, "exp2"))
    assert "all-reduce (no overlap)" in cnn_advice.advice_sentence(slower), "a comma would end the name in the list"
    assert said.startswith("The fastest variable update by model. Eager on 2 GPUs: ") and "; all-reduce (no overlap) for VGG-16." in said
    once = [
        point(rate, name, model=model, n=1) for model in ("vgg11", "vgg19", "alexnet", "lenet") for rate, name in ((9, "ddp"), (5, "exp2"))
    ]
    many = cnn_advice.advice_sentence(frame_of([*records, *(record for few in once for record in few)]))
    assert many.endswith("; ddp (measured once) for 4 models."), "what was measured once is counted, last"
    few = cnn_advice.advice_sentence(frame_of([*records, *once[0], *once[1]]))
    assert few.endswith("; ddp (measured once) for VGG-11.")
    lacking = cnn_advice.lacking_sentence(frame_of(records), ("vgg16", "alexnet"))
    assert lacking == "Not measured yet: 1 model (AlexNet)."


def test_many_models_are_rows_of_one_figure() -> None:
    two, four = make_machine(2), make_machine(4)
    records = point(100, devices=1, machine=four) + point(360, devices=4, machine=four)
    records += point(100, devices=1, machine=two) + point(190, machine=two)
    records += point(100, "exp2", devices=1, machine=two) + point(150, "exp2", machine=two)
    records += point(50, devices=1, n=1, model="trivial", machine=two) + point(200, n=1, model="trivial", machine=two)
    picture = figure_models(frame_of(records))
    assert picture.finding == "On 2 to 4 GPUs, jobs that reach 90% of perfect scaling: ddp in 3 of 3 and Exp2 in 0 of 1"
    ax = picture.axes[0]
    names = [label.get_text().replace("\u00a0", " ") for label in ax.get_yticklabels()]
    assert names == ["trivial network (2)", "ResNet-50 v1.5 (4)", "ResNet-50 v1.5 (2)"], (
        "a row a machine, by devices, and no machine's name"
    )
    assert [text.get_text() for text in ax.texts] == ["▸ 200%"], "what would flatten the rest stands at the edge"
    assert ax.get_xlim()[1] == 160 and len(picture.data) == 4 and "Exp2 75%" in picture.alt
    assert "No scaling" in figure_models(frame_of(point(100))).alt
    assert cnn_page.on_many(frame_of(records)).equals(frame_of(records)), "none has three numbers of devices"
    further = [*records, *point(200, devices=2, machine=four)]
    assert set(cnn_page.on_many(frame_of(further))["model"]) == {"resnet50_v1.5"}


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
    assert figure_ladder(crooked).axes[1].get_ylim()[1] > 30, "every batch's memory is in the panel, not the largest batch's alone"
    assert ladders.ladder_rows(crooked)["image_gib"].isna().all(), "memory that falls with the batch follows no line"


def test_a_ladder_that_still_gains_is_not_said_to_have_had_enough() -> None:
    records = [make_record("ddp", 1, rate, workload="cnn", batch_size=batch) for batch, rate in ((16, 100.0), (32, 180.0), (64, 300.0))]
    frame = frame_of(records)
    assert "still gains at batch 64, the largest measured" in ladders.ladder_sentence(frame)
    assert "No batch measured was too large" in ladders.ladder_sentence(frame) and ">64 or more<" in ladders.ladder_table(frame).html
    assert figure_ladder(frame).finding == "At the largest batch measured, 64, no ladder has reached the end of its gain"


def test_what_was_measured_once_is_compared_within_a_launch() -> None:
    """Another launch may have met another host, and one measurement cannot tell its speed from the update's."""
    records = point(300, n=1, launches=["fast"])
    records += [*point(100, "exp2", n=1, launches=["slow"]), *point(110, "exp4", n=1, launches=["slow"])]
    (row,) = [row for _, row in cnn_advice.advice(frame_of(records)).iterrows()]
    assert (row["best"], row["candidates"]) == ("exp4", 2)


def test_layout_and_precision_stand_beside_their_twins() -> None:
    records = point(80, precision="fp32", layout="channels_first") + point(100, precision="fp32") + point(400)
    records += point(390, precision="fp16", measurement={"flags": ["2 of 40 steps left out: a gradient overflowed"]})
    frame = frame_of(records)
    assert list(formats.layouts(frame)["ratio"]) == [pytest.approx(0.8)]
    assert "measured at one point: 0.800 times (" in formats.layout_sentence(frame)
    more = point(240, layout="channels_first") + point(120, precision="fp32", model="vgg16")
    two = frame_of([*records, *more, *point(150, precision="fp32", model="vgg16", layout="channels_first")])
    said = formats.layout_sentence(two)
    assert "faster than NHWC in 1 of 2 points" in said and said.endswith("; in bf16 0.60 times.")
    assert dict(formats.precisions(frame).set_index("precision")["ratio"]) == {"bf16": pytest.approx(4), "fp16": pytest.approx(3.9)}
    table = formats.precision_table(frame).html
    assert "2 of 40 steps left out" in table and "fp16 (scale found)" in table
    said = formats.precision_sentence(frame)
    assert "bf16 4.00 times" in said and "; fp16 (scale found) 3.90 times" in said and said.endswith("Not measured: tf32.")
    assert (formats.published_gain(), formats.published_gain("cifar10")) == (1.25, 1.5)


def test_each_framework_has_its_own_sentence_on_layouts() -> None:
    """TensorFlow chooses kernels of its own, so its gain is none of PyTorch's."""
    records = point(101, precision="fp32", layout="channels_first") + point(100, precision="fp32")
    own = {"framework": "tensorflow", "processes": "one", "execution": "graph", "precision": "tf32"}
    records += point(111, "exp4", layout="channels_first", **own) + point(100, "exp4", **own)
    records += point(226, "exp4", 4, layout="channels_first", **own) + point(200, "exp4", 4, **own)
    frame = frame_of(records)
    torch, tensorflow = formats.layout_sentence(frame).split(". ")
    assert torch.startswith("PyTorch: in fp32 NCHW was measured at one point: 1.01 times") and "1.1" not in torch
    assert tensorflow == "TensorFlow: NCHW against NHWC was not measured in fp32; in tf32 1.11 to 1.13 times the rate with NHWC."
    table = formats.layout_table(frame).html
    assert table.count(">TensorFlow<") == 2 and table.count(">PyTorch<") == 1


@pytest.mark.parametrize("model", ["resnet101_v1", "resnet152_v1.5", "inception4"])
def test_the_documents_advice_is_for_every_inception_and_resnet(model: str) -> None:
    (row,) = [row for _, row in cnn_advice.advice(frame_of(point(90, "exp2", model=model) + point(100, model=model))).iterrows()]
    assert row["says"] == ("exp2",) and row["agrees"] is False


def test_without_records_every_part_says_so() -> None:
    said = [
        *(twin(NOTHING).html for twin in (cnn_document.scaling_twin, cnn_document.cifar_twin, cnn_statements.statements_twin)),
        formats.layout_sentence(NOTHING),
    ]
    assert "Not measured: ours, speedup." in said[0] and "Not measured: ours, Exp2; ours, all-reduce, no overlap; ours, ddp." in said[1]
    assert "not measured" in said[2].lower()
    assert "not been measured" in said[3]
    assert figure_ladder(NOTHING).alt.startswith("No ladder") and "No model" in ladders.ladder_table(NOTHING).html
    assert "cannot be said" in cnn_advice.advice_sentence(NOTHING) and "none exceeds" in superlinear.superlinear_sentence(NOTHING)


def test_the_commands_that_measure_a_page_have_a_price() -> None:
    html = cnn_page.rebuild_table([*cnn_page.SCALING_GRIDS, *cnn_page.FORMAT_GRIDS], [1, 2]).html
    assert all(f"--grid {name} --devices 1,2" in html for name in (*cnn_page.SCALING_GRIDS, *cnn_page.FORMAT_GRIDS))


def test_a_pages_verdicts_are_those_of_the_list_of_claims() -> None:
    """Also of claims that two machines, or training, decide: a page that showed its own part of the Records said something else."""
    listed = {result.claim.number: result for result in results()}
    for number in ("C16", "C23", "C44", "C46"):
        html = verdict_table([number]).html
        assert f"{listed[number].verdict}" in html and all(key in html for key in listed[number].record_keys)
    with pytest.raises(ValueError, match="unknown claim 'C99'"):
        verdict_table(["C99"])
