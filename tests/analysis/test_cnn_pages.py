"""What the pages on document 001 say, on planted Records whose ratios are known by hand."""

from __future__ import annotations

from typing import Any

import pandas as pd
import pytest

from multigpu import study
from multigpu.analysis import cnn_advice, cnn_document, cnn_page, cnn_scaling, cnn_statements, cnn_updates, formats, ladders, superlinear
from multigpu.analysis.figures import figure_ladder, figure_models, figure_ratios
from multigpu.analysis.frame import frame_of
from multigpu.analysis.front import results
from multigpu.analysis.metrics import POINT, summary
from multigpu.analysis.pairs import EQUAL, FASTER, ONCE, SLOWER, paired, verdict
from multigpu.same_gpus import as_one
from multigpu.study import verdict_table
from tests.factory import make_machine, make_point

QUIET = (1.0, 1.002, 0.998, 1.001, 0.999)
NOTHING = frame_of([])


def point(rate: float, placement: str = "ddp", devices: int = 2, n: int = 5, **more: Any) -> list[Any]:
    """The repeats of one point of an image model."""
    return make_point([rate * factor for factor in QUIET[:n]], placement=placement, devices=devices, workload="cnn", **more)


def test_an_interval_decides_and_one_measurement_does_not() -> None:
    assert [verdict(1.2, 1.1, 1.3), verdict(0.8, 0.7, 0.9), verdict(1.01, 0.99, 1.03)] == [FASTER, SLOWER, EQUAL]
    assert EQUAL == "not told apart", "an interval that holds 1 tells how large a difference may be, and not that there is none"
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


def test_advice_knows_what_is_not_told_apart_and_what_was_measured_once() -> None:
    records = point(300) + point(300.2, "exp4") + point(200, "exp2") + point(900, "ps_gpu0", n=1)
    records += point(90, "exp2", model="vgg16") + point(100, "replicated_allreduce", model="vgg16")
    table = cnn_advice.advice(frame_of(records)).set_index("model")
    resnet, vgg = table.loc["resnet50_v1.5"], table.loc["vgg16"]
    ((rival, share, low, high),) = resnet["rivals"]
    assert (resnet["best"], rival) == ("exp4", "ddp") and resnet["once"] == ["ps_gpu0"] and not resnet["agrees"]
    assert share == pytest.approx(300 / 300.2) and low < 1 < high
    assert (vgg["best"], vgg["rivals"], bool(vgg["agrees"]), vgg["slowest"]) == ("replicated_allreduce", [], True, "exp2")
    said = cnn_advice.advice_sentence(frame_of(records))
    assert "Exp4 for ResNet-50 v1.5, not told apart from ddp, which keeps 100% (intervals 100% to 100%) of its rate;" in said
    slower = frame_of(point(300) + point(300.2, "replicated_allreduce") + point(200, "exp2"))
    assert "all-reduce (no overlap)" in cnn_advice.advice_sentence(slower), "a comma would end the name in the list"
    assert said.startswith("The fastest variable update by model. Eager on 2 GPUs: ") and "; all-reduce (no overlap) for VGG-16." in said
    once = [point(rate, name, model=model, n=1) for model in ("vgg11", "alexnet") for rate, name in ((9, "ddp"), (5, "exp2"))]
    few = frame_of([*records, *(record for few in once for record in few)])
    assert cnn_advice.advice_sentence(few).endswith("Of 2 further jobs fewer than two updates have intervals: not told apart.")
    html = cnn_advice.advice_table(few).html
    assert html.count("not told apart; ahead: ddp (once)") == 2, "what was measured once is no advice"
    assert "No job has two" in cnn_advice.advice_sentence(frame_of([*once[0], *once[1]]))
    two = frame_of([*records, *point(80, batch_size=256), *point(90, "exp2", batch_size=256)])
    assert "Exp2 for ResNet-50 v1.5, batch 256 a GPU" in cnn_advice.advice_sentence(two), "no batch of a model is hidden behind another"
    lacking = cnn_advice.lacking_sentence(frame_of(records), ("vgg16", "alexnet"))
    assert lacking == "Not measured yet: 1 model (AlexNet)."


def test_intervals_that_overlap_are_no_equality() -> None:
    """Two rates may be told apart though their intervals overlap; and of two that are not, one may keep far less of the other's rate."""
    apart = make_point([95, 100, 105, 98, 102], "abcde", placement="ddp", workload="cnn")
    apart += make_point([87.4, 92, 96.6, 90.2, 93.8], "abcde", placement="exp2", workload="cnn")
    ddp, exp2 = (row for _, row in summary(frame_of(apart)).iterrows())
    assert exp2["rate_high"] > ddp["rate_low"], "the planted intervals overlap"
    (row,) = [row for _, row in cnn_advice.advice(frame_of(apart)).iterrows()]
    assert (row["best"], row["rivals"]) == ("ddp", [])
    wide = make_point([100, 60, 140, 80, 120], "abcde", placement="ddp", workload="cnn")
    wide += make_point([70, 40, 100, 50, 90], "abcde", placement="exp2", workload="cnn")
    (row,) = [row for _, row in cnn_advice.advice(frame_of(wide)).iterrows()]
    ((rival, share, low, high),) = row["rivals"]
    assert rival == "exp2" and low < 0.5 < share < 0.75 and high > 1, "it may lose more than half"
    cell = f"Exp2 {100 * share:.0f}% ({100 * low:.0f} to {100 * high:.0f}%)"
    html, said = cnn_advice.advice_table(frame_of(wide)).html, cnn_advice.advice_sentence(frame_of(wide))
    assert cell in html and "no difference" not in html + said
    assert f"not told apart from Exp2, which keeps {100 * share:.0f}% (intervals {100 * low:.0f}% to {100 * high:.0f}%) of its rate" in said


def test_the_sentence_says_which_models_scale_and_what_capturing_gives() -> None:
    """Two GPUs over twice one: 98% captured, 80%, 95% in one measurement, and 96% between launches that are 20% apart."""
    records = point(100, devices=1) + point(120)  # ResNet-50 eager, 60%: a captured step speaks for the model
    records += point(100, devices=1, execution="captured") + point(196, execution="captured")
    records += point(100, devices=1, model="alexnet") + point(900, devices=1, execution="captured", model="alexnet")  # never on several
    records += point(100, devices=1, model="vgg16") + point(160, model="vgg16")
    records += point(100, devices=1, model="lenet", n=1) + point(190, model="lenet", n=1)
    noisy = {"placement": "ddp", "workload": "cnn", "model": "resnet20", "batch_size": 128}
    records += make_point([90, 110, 100, 95, 105], "abcde", devices=1, **noisy) + make_point([170, 214, 192, 182, 202], "abcde", **noisy)
    said = cnn_scaling.scaling_sentence(frame_of(records))
    assert said.startswith("Of 4 models under ddp, 1 keeps 90% of perfect scaling with the whole interval (ResNet-50 v1.5 98.0% (")
    assert "), captured on 2 GPUs), 1 keeps less than 90% (VGG-16 80.0% (" in said
    assert "and 2 have eager points alone, measured once or with an interval of more than 10% to a side, which tell no scaling" in said
    assert (
        "(LeNet and ResNet-20: 95% to 96%). The one captured point is 98% (98 to 98%) (ResNet-50 v1.5, batch 64 a GPU on 2 GPUs)." in said
    )
    assert "cannot be said" in cnn_scaling.scaling_sentence(NOTHING)
    captured = cnn_scaling.captured_sentence(frame_of(records))
    assert captured is not None and captured.startswith(
        "Captured steps beside eager ones, ddp: ResNet-50 v1.5, batch 64 a GPU, on 2 GPUs: 196 "
    )
    assert "196 against 120 images/s (1.63 times (1.63 to 1.64))." in captured
    apart = point(400, execution="captured", machine=make_machine(2)) + point(100, machine=make_machine(4))
    assert cnn_scaling.captured_sentence(frame_of(apart)) is None, "rows of two machines are never divided by one another"


def test_a_captured_step_that_is_slower_is_not_hidden_behind_another_point_of_its_model() -> None:
    records = point(120) + point(196, execution="captured") + point(30, execution="captured", model="vgg11", n=1)
    records += point(10, model="vgg11", n=1) + point(100, devices=4) + point(94, devices=4, n=1, execution="captured")
    said = str(cnn_scaling.captured_sentence(frame_of(records)))
    assert said.startswith(
        "Captured, ddp is 0.94 (ResNet-50 v1.5, batch 64 a GPU, on 4 GPUs, once) to 3.00 (VGG-11, batch 64 a GPU, on 2 GPUs, once) times "
        "as fast as eager in 3 points, 1.63 in the 1 repeated. Captured steps"
    )
    assert "30 against 10" not in said, "what was measured once is told by the extent alone"


def test_many_models_are_rows_of_one_figure() -> None:
    two, four = make_machine(2), make_machine(4)
    records = point(100, devices=1, machine=four) + point(360, devices=4, machine=four)
    records += point(100, devices=1, machine=two) + point(190, machine=two)
    records += point(100, "exp2", devices=1, machine=two) + point(150, "exp2", machine=two)
    records += point(50, devices=1, n=1, model="trivial", machine=two) + point(200, n=1, model="trivial", machine=two)
    picture = figure_models(frame_of(records))
    assert (
        picture.finding == "On 2 to 4 GPUs, jobs repeated within 10% that keep 90% of perfect scaling: ddp in 1 of 2 and Exp2 in 0 of 1"
    ), "what was measured once is not counted, nor an interval that goes below"
    filled = {line.get_xdata()[0]: line.get_fillstyle() for line in picture.axes[0].lines if line.get_marker() in ("o", "^")}
    assert set(filled.values()) == {"full"}, "the one that was measured once stands at the edge"
    ax = picture.axes[0]
    names = [label.get_text().replace("\u00a0", " ") for label in ax.get_yticklabels()]
    assert names == ["ResNet-50 v1.5 (2)", "ResNet-50 v1.5 (4)", "trivial network (2)"], (
        "a row a machine, by devices, and no machine's name"
    )
    assert [text.get_text() for text in ax.texts] == ["▸ 200%"], "what would flatten the rest stands at the edge"
    assert ax.get_xlim()[1] == 160 and len(picture.data) == 4 and "Exp2 75%" in picture.alt
    assert "No scaling" in figure_models(frame_of(point(100))).alt
    assert cnn_page.on_many(frame_of(records)).equals(frame_of(records)), "none has three numbers of devices"
    further = [*records, *point(200, devices=2, machine=four)]
    assert set(cnn_page.on_many(frame_of(further))["model"]) == {"resnet50_v1.5"}


def test_kinds_of_models_are_blocks_with_axes_on_both_sides_and_half_marks_for_one_measurement() -> None:
    """ResNet-50 above its replicas by 10%, ResNet-20 below, once each."""
    records = point(100, devices=1, n=1) + point(190, n=1) + point(100, "independent", devices=1, n=1) + point(170, "independent", n=1)
    small = {"model": "resnet20", "batch_size": 128}
    records += point(100, devices=1, **small) + point(180, **small)
    records += point(100, "independent", devices=1, **small) + point(190, "independent", **small)
    picture = figure_models(frame_of(records))
    assert len(picture.axes) == len(picture.legends) == 2
    assert [text.get_text() for text in picture.texts][1:] == ["Models for ImageNet's images", "Models for CIFAR-10's small images"]
    first, second = picture.axes
    assert first.get_position().y0 > second.get_position().y1 and first.get_xlim() == second.get_xlim()
    assert all(ax.xaxis.get_tick_params()["labeltop"] and ax.xaxis.get_tick_params()["labelbottom"] for ax in picture.axes)
    styles = [{line.get_fillstyle() for line in ax.lines if line.get_marker() in ("o", "D")} for ax in picture.axes]
    assert styles == [{"left"}, {"full"}]
    assert "half marks, without: they or their baseline were measured once." in picture.caption
    assert "1 of 2 eager marks beside independent replicas lies above them, though these send nothing: eager" in picture.caption
    alone = figure_models(frame_of(point(100, devices=1, **small) + point(180, **small)))
    assert len(alone.axes) == 1 and "beside independent" not in alone.caption and len(alone.texts) == 1, "one block has no heading"


def test_what_was_measured_once_is_compared_within_a_launch() -> None:
    """Another launch may have met another host, and one measurement cannot tell its speed from the update's."""
    records = point(300, n=1, launches=["fast"])
    records += [*point(100, "exp2", n=1, launches=["slow"]), *point(110, "exp4", n=1, launches=["slow"])]
    (row,) = [row for _, row in cnn_advice.advice(frame_of(records)).iterrows()]
    assert (row["best"], row["candidates"]) == ("exp4", 2)


def lent_layouts() -> pd.DataFrame:
    """What `as_one` makes of two machines: NCHW of the smaller one under the larger one's name, whose own NHWC, 10% faster, keeps the
    smaller one's NHWC where it was measured.
    """
    two, four = make_machine(2), make_machine(4)
    captured = {"devices": 1, "execution": "captured", "precision": "fp32"}
    records = point(101, layout="channels_first", machine=two, **captured) + point(100, machine=two, **captured)
    records += point(110, n=1, machine=four, **captured) + point(900, devices=4, machine=four)
    return frame_of(as_one(records))


def test_a_table_that_names_machines_divides_rows_of_one_alone() -> None:
    lent = lent_layouts()
    (read,) = [row for _, row in formats.layouts(lent).iterrows()]
    assert (read["machine"], read["ratio"], read["base_n"]) == ("4x-nvidia-h200", pytest.approx(101 / 110, rel=1e-4), 1)
    (row,) = [row for _, row in formats.layouts(cnn_page.as_measured(lent)).iterrows()]
    assert (row["machine"], row["ratio"], row["n"], row["base_n"]) == ("2x-nvidia-h200", pytest.approx(1.01), 5, 5)
    assert row["verdict"] == FASTER and len(row["base_keys"].split(", ")) == 5
    html = formats.layout_table(cnn_page.as_measured(lent)).html
    assert "2x-nvidia-h200" in html and "5/2 (5/2)" in html and "4x-nvidia-h200" not in html
    both = figure_ratios(formats.layouts(pd.concat([lent, cnn_page.as_measured(lent)])), "NCHW over NHWC", "none")
    names = [label.get_text() for label in both.axes[0].get_yticklabels()]
    assert names == ["4x-nvidia-h200", "2x-nvidia-h200"], "rows that differ in their machine alone are told apart, the repeated one on top"
    apart = point(101, layout="channels_first", machine=make_machine(2), precision="fp32") + point(
        100, machine=make_machine(2), precision="fp32"
    )
    apart += point(400, devices=4, layout="channels_first", machine=make_machine(4)) + point(404, devices=4, machine=make_machine(4))
    drawn = figure_ratios(formats.layouts(frame_of(apart)), "NCHW over NHWC", "none")
    assert not any("nvidia" in label.get_text() for label in drawn.axes[0].get_yticklabels()), "GPUs tell the rows apart"
    assert "2x-nvidia-h200" in drawn.caption and "4x-nvidia-h200" in drawn.caption
    graph = {"framework": "tensorflow", "execution": "graph", "processes": "one", "precision": "fp32", "n": 1}
    apart += point(90, "exp4", layout="channels_first", **graph) + point(100, "exp4", **graph)
    drawn = figure_ratios(formats.layouts(frame_of(apart)), "NCHW over NHWC", "none")
    assert "PyTorch: ddp, eager; TensorFlow: Exp4, graph." in drawn.caption
    assert not any("ddp" in label.get_text() or "eager" in label.get_text() for label in drawn.axes[0].get_yticklabels())


def test_every_machines_points_are_shown_the_repeated_ones_first() -> None:
    two, four = make_machine(2), make_machine(4)
    records = point(200, "exp2", machine=two) + point(140, "staged_cpu", n=1, machine=two)
    records += point(400, "exp2", 4, machine=four) + point(408, "staged_cpu", 4, machine=four)
    records += point(100, precision="fp32", machine=two, n=1) + point(400, machine=two, n=1)
    records += point(300, devices=4, precision="fp32", machine=four) + point(600, devices=4, machine=four)
    frame = frame_of(records)
    staged = cnn_updates.changes(frame, cnn_updates.STAGED)
    assert [(row["machine"], row["verdict"], row["base_n"]) for _, row in staged.iterrows()] == [
        ("4x-nvidia-h200", FASTER, 5),
        ("2x-nvidia-h200", ONCE, 5),
    ]
    html = cnn_updates.change_table(frame, cnn_updates.STAGED).html
    assert html.index("4x-nvidia-h200") < html.index("2x-nvidia-h200") and "5/2 (5/2)" in html and "once (5/2)" in html
    said = cnn_updates.change_sentence(frame, cnn_updates.STAGED[0])
    assert "in 2 points: faster in 1 and measured once in 1" in said and "0.700 times" in said and "1.02 times (" in said
    table = formats.precisions(frame)
    assert [(row["machine"], row["ratio"]) for _, row in table.iterrows()] == [
        ("4x-nvidia-h200", pytest.approx(2)),
        ("2x-nvidia-h200", pytest.approx(4)),
    ]
    html = formats.precision_table(frame).html
    assert "ResNet-50 v1.5, batch 64 a GPU, on 2x-nvidia-h200" in html and "on 4x-nvidia-h200" in html


def test_of_the_committed_records_none_that_decides_c16_is_hidden() -> None:
    """And none of a point with a twin on its machine: the page kept one machine a model, and fp16 of all large models fell out."""
    everywhere = study.of_all_machines(study.observe("none"), "cnn")
    measured = cnn_page.as_measured(everywhere)
    table = formats.layouts(measured)
    shown = {key for column in ("keys", "base_keys") for keys in table[column] for key in keys.split(", ")}
    (c16,) = [result for result in results() if result.claim.number == "C16"]
    assert c16.record_keys and set(c16.record_keys) <= shown
    html = formats.layout_table(measured).html
    assert len(set(table["machine"])) >= 2 and all(name in html for name in set(table["machine"]))
    ok = measured[measured["status"] == "ok"]
    twins = [name for name in POINT if name not in ("precision", "loss_scale")]
    in_fp32 = ok.loc[ok["precision"] == "fp32", twins].drop_duplicates()
    lower = ok[ok["precision"].isin(formats.PRECISIONS)].merge(in_fp32, on=twins)
    assert {"fp16", "bf16"} <= set(lower.loc[lower["model"] == "resnet50_v1.5", "precision"])
    assert set(lower["key"]) == {key for keys in formats.precisions(measured)["keys"] for key in keys.split(", ")}


def test_each_part_says_what_it_was_measured_of() -> None:
    records = point(400) + point(440, wire_dtype="bf16", n=1) + point(430, devices=4, wire_dtype="fp16", n=1)
    said = cnn_updates.measured_sentence(frame_of(records), cnn_updates.WIRES)
    assert said.startswith("Measured of ResNet-50 v1.5 on 2 and 4 GPUs, once each. Not measured of VGG-16 and AlexNet, which the grid ")
    more = [*records, *point(90, model="vgg16", wire_dtype="bf16"), *point(80, model="alexnet", wire_dtype="bf16", n=1)]
    said = cnn_updates.measured_sentence(frame_of(more), cnn_updates.WIRES)
    assert said.startswith("Measured of ResNet-50 v1.5 on 2 and 4 GPUs, once each; of VGG-16 on 2 GPUs, 1 of 1 point repeatedly;")
    assert said.endswith("of AlexNet on 2 GPUs, once each."), "none is lacking"
    assert cnn_updates.measured_sentence(frame_of(point(400)), cnn_updates.SPECS).startswith("Measured of no model. Not measured of ")


def test_ratios_of_steps_that_wait_for_the_host_are_said_to_be() -> None:
    """A small model captured is 3 times as fast as eager: fp32 and bf16 take equally long there."""
    small = {"model": "resnet20", "batch_size": 128}
    records = point(100, precision="fp32", **small) + point(100, **small) + point(300, execution="captured", **small)
    records += point(100, precision="fp32") + point(400) + point(421, execution="captured")
    table = formats.precisions(frame_of(records)).set_index("model")
    assert dict(table["of_captured"]) == {"resnet20": pytest.approx(1 / 3), "resnet50_v1.5": pytest.approx(400 / 421)}
    said = formats.host_bound_sentence(frame_of(records))
    assert said == (
        "All 2 points are of eager steps, whose kernels the host launches one by one. Of the rate of the same step captured (bf16 alone) "
        "they reach 33% with ResNet-20: the host sets their pace, and a ratio over fp32 says little; 95% with ResNet-50 v1.5."
    )
    assert ">33%<" in formats.precision_table(frame_of(records)).html
    alone = formats.host_bound_sentence(frame_of(point(100, precision="fp32") + point(400)))
    assert alone is not None and alone.endswith(
        "none of them was captured too, so whether the host or the arithmetic sets their rates is not known."
    )
    assert formats.host_bound_sentence(NOTHING) is None


def test_layout_and_precision_stand_beside_their_twins() -> None:
    records = point(80, precision="fp32", layout="channels_first") + point(100, precision="fp32") + point(400)
    records += point(390, precision="fp16", measurement={"flags": ["2 of 40 steps left out: a gradient overflowed"]})
    frame = frame_of(records)
    assert list(formats.layouts(frame)["ratio"]) == [pytest.approx(0.8)]
    assert "over that with NHWC is 0.80 (0.80 to 0.80) for ResNet-50 v1.5 on 2 GPUs (slower)." in formats.layout_sentence(frame)
    more = point(240, layout="channels_first") + point(120, precision="fp32", model="vgg16")
    two = frame_of([*records, *more, *point(150, precision="fp32", model="vgg16", layout="channels_first")])
    said = formats.layout_sentence(two)
    assert "(slower) and 1.25 (1.25 to 1.25) for VGG-16 on 2 GPUs (faster); in bf16 0.60." in said
    once = point(66, precision="fp32", model="lenet", n=1) + point(60, precision="fp32", model="lenet", layout="channels_first", n=1)
    assert "; measured once, 0.91 for LeNet on 2 GPUs;" in formats.layout_sentence(pd.concat([two, frame_of(once)]))
    assert dict(formats.precisions(frame).set_index("precision")["ratio"]) == {"bf16": pytest.approx(4), "fp16": pytest.approx(3.9)}
    table = formats.precision_table(frame).html
    assert ">2 of 40 steps<" in table and "fp16 (scale found)" in table
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
    assert torch.startswith("PyTorch: in fp32 the rate with NCHW over that with NHWC is 1.01 (") and "1.1" not in torch
    assert tensorflow == "TensorFlow: NCHW against NHWC was not measured in fp32; in tf32 1.11 to 1.13 times the rate with NHWC."
    table = formats.layout_table(frame).html
    assert table.count(">tf32, graph, TensorFlow<") == 2 and table.count(">fp32, eager<") == 1


@pytest.mark.parametrize("model", ["resnet101_v1", "resnet152_v1.5", "inception4"])
def test_the_documents_advice_is_for_every_inception_and_resnet(model: str) -> None:
    (row,) = [row for _, row in cnn_advice.advice(frame_of(point(90, "exp2", model=model) + point(100, model=model))).iterrows()]
    assert row["says"] == ("exp2",) and row["agrees"] is False


def test_without_records_every_part_says_so() -> None:
    said = [
        *(twin(NOTHING).html for twin in (cnn_document.scaling_twin, cnn_document.cifar_twin, cnn_statements.statements_twin)),
        formats.layout_sentence(NOTHING),
    ]
    assert (
        "Not measured: ours repeated, speedup." in said[0]
        and "Not measured: ours, Exp2; ours, all-reduce, no overlap; ours, ddp." in said[1]
    )
    assert "not measured" in said[2].lower()
    assert "not been measured" in said[3]
    assert figure_ladder(NOTHING).alt.startswith("No ladder") and "No model" in ladders.ladder_table(NOTHING).html
    assert "cannot be said" in cnn_advice.advice_sentence(NOTHING) and "none exceeds" in superlinear.superlinear_sentence(NOTHING)


def test_the_commands_that_measure_a_page_have_a_price() -> None:
    grids = {*cnn_page.SCALING_GRIDS, *cnn_page.UPDATE_GRIDS, *cnn_page.FORMAT_GRIDS}
    html = cnn_page.rebuild_table(sorted(grids), [1, 2]).html
    assert all(f"--grid {name} --devices 1,2" in html for name in grids)


def test_a_pages_verdicts_are_those_of_the_list_of_claims() -> None:
    """Also of claims that two machines, or training, decide: a page that showed its own part of the Records said something else."""
    listed = {result.claim.number: result for result in results()}
    for number in ("C16", "C23", "C44", "C46"):
        html = verdict_table([number]).html
        assert f"{listed[number].verdict}" in html and all(key in html for key in listed[number].record_keys)
    with pytest.raises(ValueError, match="unknown claim 'C99'"):
        verdict_table(["C99"])
