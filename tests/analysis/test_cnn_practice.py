"""What to do with an image model in one paragraph: every clause follows planted Records, and is left out without them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from multigpu import study
from multigpu.analysis import cnn_page, feeding
from multigpu.analysis.cnn_practice import advised, enough, practice
from multigpu.analysis.frame import frame_of
from multigpu.analysis.sixteen_bits import sixteen_bit_points
from multigpu.reading import stored_records
from multigpu.record import Record
from tests.analysis.test_cnn_forms import form
from tests.analysis.test_cnn_pages import NOTHING, point
from tests.analysis.test_feeding import fed, synthetic
from tests.factory import make_point

NOT_FED = feeding.feeding_points(feeding.feeding_frame([]))
MOST_WORDS = 220


def said(records: list[Record], given: Sequence[Record] = ()) -> str:
    frame = frame_of(records)
    return told(advised(frame, frame, feeding.feeding_points(feeding.feeding_frame(given)), sixteen_bit_points(records)))


def told(items: dict[str, str]) -> str:
    return "".join(f" {name}: {text}" for name, text in items.items())


def test_without_records_nothing_is_advised() -> None:
    assert practice(NOTHING, NOTHING, NOT_FED, sixteen_bit_points([])) is None
    assert said(point(100)) == "", "one point compares nothing"


def test_the_update_counts_jobs_with_intervals() -> None:
    records = point(300) + point(200, "exp2") + point(90, model="vgg16") + point(100, "exp2", model="vgg16")
    records += point(9, model="lenet", n=1) + point(10, "exp2", model="lenet", n=1)
    assert said(records) == " Update: ddp; no other is faster in 1 of 2 jobs with intervals."
    shown = practice(frame_of(records), frame_of(records), NOT_FED, sixteen_bit_points([]))
    assert shown is not None and shown.html == (
        '<div class="answer"><p><strong>In short</strong>, what to do with an image model on NVIDIA H200:</p>'
        "<ul><li><strong>Update</strong>: ddp; no other is faster in 1 of 2 jobs with intervals.</li></ul></div>"
    )


def test_the_form_has_both_ends_and_the_repeated() -> None:
    records = point(100) + point(110, execution="captured") + point(100, devices=4) + point(94, devices=4, n=1, execution="captured")
    assert " Form: the step as one CUDA graph; ddp captured is 0.94 (ResNet-50 v1.5, batch 64 a GPU, on 4 GPUs, once) to 1.10 (" in said(
        records
    )
    assert "times as fast as eager in 2 points, 1.10 in the 1 repeated." in said(records)


def other_layout(rate: float, **more: Any) -> list[Record]:
    return point(rate, layout="channels_first", **more) + point(100, **more)


def test_the_layout_follows_intervals_captured_ones_first() -> None:
    """Captured NCHW has 0.8 of NHWC's rate; eager, which the host sets, 1.2; in fp32 it is another question."""
    records = other_layout(80, execution="captured") + other_layout(120) + other_layout(130, precision="fp32")
    text = said(records)
    assert " Layout: channels last (NHWC); NCHW has 0.800 times (0.79" in text
    assert "; ResNet-50 v1.5, captured, n = 5) the rate of NHWC in bf16." in text
    assert " Layout: channels first (NCHW); NCHW has 1.20 times (" in said(other_layout(120))
    mixed = other_layout(120) + other_layout(80, model="vgg16")
    assert " Layout: either layout; NCHW has 0.800 times (" in said(mixed), "models that disagree advise neither"
    assert "Layout" not in said(other_layout(120, n=1))
    apart = make_point([100, 160, 130, 110, 150], "abcde", placement="ddp", workload="cnn", layout="channels_first")
    assert "Layout" not in said(apart + point(70)), "an interval so wide is a host's"


def test_the_precision_names_the_least_and_the_most_gain() -> None:
    records = [*point(400, execution="captured"), *point(100, execution="captured", precision="fp32")]
    records += [*point(300, execution="captured", model="vgg16"), *point(100, execution="captured", model="vgg16", precision="fp32")]
    records += point(200, execution="captured", precision="tf32") + point(900) + point(100, precision="fp32")
    text = said(records)
    assert " Precision: bf16; 3.00 times (" in text and "; VGG-16, captured, n = 5) to 4.00 times (" in text and "9.00" not in text


def test_where_fp16_is_faster_than_bf16_it_is_said() -> None:
    """Its two loss scales were measured once each: no precision of its own that is repeated, and pooled a ratio with an interval."""
    form: dict[str, Any] = {"execution": "captured", "devices": 1}
    bf16 = [*point(400, **form), *point(100, precision="fp32", **form)]

    def with_fp16(*rates: float) -> str:
        scales = ({}, {"loss_scale": 128})
        return said(
            bf16 + [one for rate, more in zip(rates, scales, strict=False) for one in point(rate, n=1, precision="fp16", **form, **more)]
        )

    text = with_fp16(480, 480.5)
    assert " Precision: bf16; 4.00 times (" in text and "; fp16 trains up to 1.20 times (" in text
    assert "; ResNet-50 v1.5, n = 2) as fast as bf16." in text
    assert "fp16 trains" not in with_fp16(400, 400.5), "not told apart"
    assert "fp16 trains" not in with_fp16(480), "measured once"
    assert " Precision: fp16; 4.80 times (" in said([*bf16, *point(480, precision="fp16", **form)])


def test_the_batch_is_the_smallest_that_is_enough_with_its_repeats() -> None:
    rungs = [(64, 100.0, 1), (128, 190.0, 5), (256, 199.0, 2)]
    records = [one for batch, rate, n in rungs for one in point(rate, devices=1, n=n, execution="captured", batch_size=batch)]
    assert enough(frame_of(records)) == (
        "ResNet-50 v1.5, captured, reaches 95% of its best rate from 128 images a GPU on (n = 5; best: 199 images/s)"
    )
    assert enough(frame_of(point(100))) is None


def test_kernels_and_input_are_told_by_their_pages() -> None:
    graphs = form(50, "captured", 5, model="vgg16") + form(75, "compiled_captured", model="vgg16")
    assert " Kernels: compiling a captured step gives 1.50 times (VGG-16) its rate, compiled once." in said(graphs)
    sweep = [fed(100.0 * count, input_workers=count) for count in (1, 2, 4)]
    captured = {"execution": "captured"}
    given = [*sweep, synthetic(1000.0), synthetic(1000.0, **captured), fed(800.0, input_workers=12, **captured)]
    assert said(graphs, given).endswith(
        " Input: a worker makes 100 images/s of JPEG files (1 sweep); fed by 12 a GPU captured ResNet-50 v1.5 on 1 GPU keeps 80% of its "
        "rate (n = 1)."
    )


@pytest.fixture(scope="module")
def committed() -> str:
    frame = study.observe("none")
    ours = study.published(frame, "cnn")
    given = feeding.feeding_points(feeding.feeding_frame(feeding.fed_on(stored_records(), ours["machine"])))
    halves = sixteen_bit_points(stored_records())
    return told(advised(ours, cnn_page.as_measured(study.of_all_machines(frame, "cnn")), given, halves))


def test_the_committed_records_fill_every_clause(committed: str) -> None:
    for name in ("Update", "Form", "Layout", "Precision", "Batch", "Kernels", "Input"):
        assert f" {name}: " in committed
    assert len(committed.split()) <= MOST_WORDS
