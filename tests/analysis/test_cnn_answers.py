"""The first sentences of the pages on image models, on planted Records whose shares are known by hand."""

from __future__ import annotations

import re

import pytest

from multigpu import study
from multigpu.analysis import cnn_answers, cnn_goals, cnn_page, formats, ladders, scales, scales_findings
from multigpu.analysis.figures import figure_ratios
from multigpu.analysis.frame import frame_of
from tests.analysis.test_cnn_goals import captured
from tests.analysis.test_cnn_pages import NOTHING, point
from tests.analysis.test_ladders import ladder
from tests.factory import make_machine, make_point, make_record

MOST_WORDS, NAMED = 170, {"13": 200}
"""In all sentences that a page begins with: what a reader of a minute takes in; a page whose answer names models has more."""


def test_models_are_told_by_points_that_no_host_set() -> None:
    """Of perfect scaling captured steps keep 98% (ResNet-50), 80% (VGG-16) and, once, 95% (LeNet); eager ones 97% steadily (AlexNet), 120%
    between launches that are 20% apart (ResNet-20) and, once, 62% (Inception-v3).
    """
    form = {"execution": "captured"}
    records = point(100, devices=1, **form) + point(196, **form) + point(100, devices=1) + point(100)  # eager, 50%
    records += point(100, devices=1, model="vgg16", **form) + point(160, model="vgg16", **form)
    records += point(100, devices=1, model="lenet", n=1, **form) + point(190, model="lenet", n=1, **form)
    records += point(100, devices=1, model="alexnet") + point(194, model="alexnet")
    records += point(100, devices=1, model="inception3", n=1) + point(124, model="inception3", n=1)
    noisy = {"placement": "ddp", "workload": "cnn", "model": "resnet20", "batch_size": 128}
    records += make_point([90, 110, 100, 95, 105], "abcde", devices=1, **noisy) + make_point([210, 274, 242, 222, 252], "abcde", **noisy)
    scaling = cnn_answers.answers(frame_of(records))[0]
    assert scaling == (
        "Under ddp, in steps that no host paces (captured, or repeated within 10%), ResNet-50 v1.5 and AlexNet keep 90% of perfect "
        "scaling with the whole interval; LeNet keeps 90% in one measurement; VGG-16 keeps less than 90%. The least of 3 captured points "
        "is 80% (80 to 80%) (VGG-16, batch 64 a GPU on 2 GPUs). Of the other 2 of 6 models only points that their host sets "
        "were measured: they tell no scaling."
    )
    eager = point(100, devices=1, model="lenet", n=1) + point(110, model="lenet", n=1)
    assert cnn_answers.answers(frame_of(eager))[0].startswith("Of 1 model only points that their host sets"), "and no least"
    assert "cannot be said" in cnn_answers.update_answers(frame_of(eager), frame_of(eager))[0], "no model has two updates"


def test_a_captured_point_behind_its_eager_twin_is_said_to_be() -> None:
    form = {"execution": "captured", "model": "vgg16"}
    records = point(100, devices=1, n=1, **form) + point(170, n=1, **form) + point(187, n=1, model="vgg16")
    said = cnn_answers.answers(frame_of(records))[0]
    assert "is 85% (VGG-16, batch 64 a GPU on 2 GPUs, once; the eager step was 1.10 times as fast)." in said


def test_jobs_with_intervals_tell_the_update_and_exceptions_are_named() -> None:
    """With intervals ddp is tied on two GPUs, and behind all-reduce on four at another batch; LeNet's Exp2 has ddp beside it; what was
    measured once, or beside one interval alone, tells nothing.
    """
    records = point(300) + point(300.2, "exp4") + point(200, "exp2")  # ddp is tied; the document's Exp2 is slower
    records += point(980, devices=4, batch_size=256) + point(1000, "replicated_allreduce", devices=4, batch_size=256)
    records += point(100, model="vgg16") + point(90, "exp2", model="vgg16")  # the document says ddp
    records += point(90, model="lenet") + point(100, "exp2", model="lenet", n=1)
    records += point(50, model="alexnet", n=1) + point(60, "exp2", model="alexnet", n=1)
    updates, _ = cnn_answers.update_answers(frame_of(records), frame_of(records))
    assert re.sub(r"0\.98\d \(0\.97\d to 0\.98\d\)", "SHARE", updates) == (
        "The fastest variable update is ddp, or not told apart from it, in 2 of 3 jobs with intervals (a model, batch, form of a step and "
        "number of GPUs); elsewhere it is all-reduce (no overlap) for ResNet-50 v1.5, batch 256 a GPU, eager on 4 GPUs, of whose rate ddp "
        "keeps SHARE. The document's own choice is the fastest or tied with it in 1 of the 2 where it has an interval too. Of 2 further "
        "jobs fewer than two updates have intervals: not told apart."
    )


def test_what_resnet_keeps_stands_beside_its_goals() -> None:
    records = captured(400, "independent") + captured(380) + captured(800, "independent", batch_size=256) + captured(796, batch_size=256)
    said = cnn_goals.goal_answer(frame_of(records))
    assert said and said.startswith("Of independent replicas' rate ResNet-50 v1.5 keeps, captured, 0.9500 (")
    assert "at 64 images a GPU on 4 GPUs (goal on 8: 0.97) and 0.9950 (" in said
    assert "tried on 1 GPU alone" not in said
    one = captured(100, "independent", devices=1) + captured(99, devices=1, bucket_send="grouped_small_last")
    unpacked = captured(392, bucket_send="grouped")
    told = str(cnn_goals.goal_answer(frame_of(records + one + unpacked)))
    assert " With gradients sent unpacked, the last bucket small, tried on 1 GPU alone, it keeps 0.9900 (" in told, "the way is named"
    assert cnn_goals.goal_answer(NOTHING) is None and len(cnn_answers.answers(NOTHING)) == 1


def test_what_one_batch_for_all_loses_is_told_by_the_worst_point() -> None:
    """Of perfect scaling 72% is kept and the smaller share takes 20%; with larger batches 90%, of which merging takes 8 of 10."""
    records = captured(100, devices=1, batch_size=256) + captured(80, devices=1) + captured(288, devices=4)
    records += captured(102, devices=1, batch_size=1024) + captured(367.2, devices=4, batch_size=256)
    said = cnn_answers.answers(frame_of(records))[1]
    assert said == (
        "One batch on more devices loses more to smaller shares than to merging in 1 of 2 points: at worst 72% of perfect scaling is kept "
        "(ResNet-50 v1.5, 256 images on 4 GPUs)."
    )


def test_what_further_ways_of_updating_change_is_told_by_points_that_no_host_set() -> None:
    """Staging 1.10 and 0.90 in eager steps that repeat, and once 2.00; an all-reduce of two kinds once, eager; 16 bits captured 1.04."""
    records = point(100, "exp2") + point(110, "staged_cpu") + point(100, "ps_gpu0", model="vgg16") + point(90, "staged_gpu0", model="vgg16")
    records += point(100, "exp2", n=1, model="lenet") + point(200, "staged_cpu", n=1, model="lenet")
    records += captured(100) + captured(104, wire_dtype="bf16") + point(10, "exp2", devices=1) + point(1, "staged_cpu", devices=1)
    records += point(100, "replicated_allreduce") + point(50, "replicated_allreduce", n=1, all_reduce_spec="library")
    base = point(100, "replicated_allreduce", n=1, all_reduce_spec="library", model="vgg16")
    _, said = cnn_answers.update_answers(frame_of(records + base), frame_of(records + base))
    assert said == (
        "What the document's further ways do to the rate on several devices, in the median of steps that no host paces (captured, or "
        "repeated within 10%): staging 1.00 times (0.90 to 1.10 in 2 points), an all-reduce a range of sizes not told, gradients in 16 "
        "bits 1.04 times (one point) and concatenated predictions not measured yet. Left out: 2 points that hosts set."
    )


def test_how_far_layouts_and_precisions_reach() -> None:
    records = point(80, precision="fp32", layout="channels_first") + point(100, precision="fp32") + point(400)
    records += point(90, precision="fp16", n=1) + point(240, layout="channels_first")
    layout, precision = formats.answer(frame_of(records))
    assert layout == (
        "The rate with NCHW over that with NHWC is in fp32, the precision of the document, 0.80 in PyTorch (1 of 1 point repeated); in "
        "bf16 0.60 in PyTorch (1 of 1 point repeated)."
    )
    assert precision.startswith("The most that fewer bits give over fp32: bf16 4.00 times (3.99 to 4.01) (ResNet-50 v1.5 on 2 GPUs); fp16 ")
    assert "0.900 times, once (" in precision and precision.endswith("1 of 3 eager points are slower than fp32.")
    assert formats.answer(NOTHING) == ["Neither another layout nor another precision has been measured yet."]


def test_a_layout_that_is_not_told_apart_has_no_ratio_in_a_sentence() -> None:
    """NCHW at 116 beside 100, between launches that are 60% apart: the interval holds 1 and much else."""
    fields = {"placement": "ddp", "workload": "cnn", "devices": 2, "precision": "fp32", "model": "alexnet_cifar", "batch_size": 128}
    records = make_point([80, 130, 100, 90, 120], "abcde", **fields)
    records += make_point([93, 151, 116, 104, 139], "abcde", layout="channels_first", **fields)
    records += point(101.5, precision="fp32", layout="channels_first") + point(100, precision="fp32")
    (said,) = formats.answer(frame_of(records))
    assert "1.02 in PyTorch (2 of 2 points repeated, 1 of them not told apart from 1)." in said
    longer = formats.layout_sentence(frame_of(records))
    assert longer.endswith("(faster); not told apart from 1 for AlexNet (CIFAR) on 2 GPUs.") and "1.16" not in longer


def test_captured_steps_answer_what_fewer_bits_give() -> None:
    """An eager point of 6 times and one slower than fp32 are its host's; two captured and repeated ones answer."""
    records = captured(100, devices=1, precision="fp32") + captured(400, devices=1) + captured(250, devices=1, precision="tf32")
    records += point(100, precision="fp32") + point(600) + point(90, precision="fp16", n=1)
    (said,) = formats.answer(frame_of(records))
    assert said == (
        "One CUDA graph a step, channels last (NHWC), fewer bits give over fp32: tf32 2.50 and bf16 4.00 times (ResNet-50 v1.5; 2 of 2 "
        "points repeated). Eager steps, which their host launches, give 0.90 to 6.00 times in 2 points; fp16 was measured in those alone."
    )
    longer = formats.precision_sentence(frame_of(records))
    assert longer.index("Captured, against fp32: bf16 4.00 times") < longer.index("Eager, against fp32: ")
    once = [one for one in captured(450, devices=1, precision="fp16") if one.repeat == 0]
    (said, _) = reversed(formats.answer(frame_of([*records, *once, *captured(50, devices=1, layout="channels_first")])))
    assert "tf32 2.50, bf16 4.00 and fp16 4.50 times (ResNet-50 v1.5; 2 of 3 points repeated)" in said and "alone" not in said


def test_captured_steps_answer_what_a_layout_gives_and_eager_ones_stand_below() -> None:
    """Eager NCHW gains 20%, captured NCHW loses 10%."""
    both = point(120, layout="channels_first", precision="fp32") + point(100, precision="fp32")
    both += captured(90, devices=1, layout="channels_first", precision="fp32") + captured(100, devices=1, precision="fp32")
    (said, *_) = formats.answer(frame_of(both))
    assert "0.90 in PyTorch, captured (1 of 1 point repeated)" in said and "1.20" not in said
    longer = formats.layout_sentence(frame_of(both))
    assert longer.index("PyTorch, captured: in fp32") < longer.index("PyTorch, eager: in fp32") and "1.20 (" in longer


def test_a_page_on_one_kind_of_gpu_leaves_other_kinds_out() -> None:
    """Two GPUs lead; one of the same kind joins them, one of another kind is another subject."""
    other = make_machine(1, "1x-nvidia-h100", "NVIDIA H100")
    records = [make_record(devices=count, workload="cnn", machine=make_machine(2)) for count in (1, 2)]
    records += [make_record(devices=1, workload="cnn", machine=machine, repeat=1) for machine in (make_machine(1), other)]
    assert set(study.of_all_machines(frame_of(records), "cnn")["gpu"]) == {"NVIDIA H200"}
    assert set(study.of_all_machines(frame_of(records[3:]), "cnn")["gpu"]) == {"NVIDIA H100"}, "nothing else was measured"


def test_between_which_batches_models_have_enough() -> None:
    def rungs(model: str, rates: dict[int, float]) -> list:
        return [make_record("ddp", 1, rate, workload="cnn", model=model, batch_size=batch) for batch, rate in rates.items()]

    records = rungs("resnet50_v1.5", {16: 100, 32: 198, 64: 200}) + rungs("vgg16", {16: 100, 32: 102, 64: 103})
    still = rungs("lenet", {16: 100, 32: 180, 64: 300})
    assert ladders.answer(frame_of(records + still)) == (
        "95% of its best rate a model reaches at 16 (VGG-16) to 32 images (ResNet-50 v1.5) a device; of 3 models 1 still gained at the "
        "largest batch measured."
    )
    full = make_record("ddp", 1, workload="cnn", model="lenet", batch_size=128, status="out_of_memory")
    ended = str(ladders.answer(frame_of([*records, *still, full])))
    assert ended.endswith("1 still gained at the largest batch measured, 1 of them next to the end of memory.")
    assert ladders.answer(frame_of(still)) is None and ladders.answer(NOTHING) is None
    assert ladders.answer(ladder({16: 1.0, 32: 2.0, 64: 4.0}, {16: 100.0, 32: 101.0, 64: 102.0}, 128)) is not None


@pytest.fixture(scope="module")
def committed() -> dict[str, list[str]]:
    """What the pages say first of the committed Records."""
    frame = study.observe("none")
    ours = study.published(frame, "cnn")
    measured = cnn_page.as_measured(study.of_all_machines(frame, "cnn"))
    return {
        "13": cnn_answers.answers(ours),
        "24": cnn_answers.update_answers(ours, measured),
        "14": [*formats.answer(measured), ladders.answer(ours) or ""],
        "16": scales_findings.scale_answers(scales.scale_points(study.published_whole(frame))),
    }


@pytest.mark.parametrize("page", ["13", "14", "16", "24"])
def test_a_page_begins_shortly(committed: dict[str, list[str]], page: str) -> None:
    assert 20 < sum(len(text.split()) for text in committed[page]) <= NAMED.get(page, MOST_WORDS)


def test_a_title_counts_each_precision_by_itself() -> None:
    records = point(120, precision="fp32", layout="channels_first") + point(100, precision="fp32")
    records += point(60, layout="channels_first") + point(100)
    drawn = figure_ratios(formats.layouts(frame_of(records)), "NCHW over NHWC", "none")
    assert drawn.finding == "NCHW over NHWC: in fp32 faster in 1 of 1 point; in bf16 slower in 1 of 1 point"
