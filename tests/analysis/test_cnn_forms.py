"""Image models eager, captured and compiled, on planted Records whose ratios are known by hand."""

from __future__ import annotations

from typing import Any

import pytest

from multigpu.analysis import cnn_forms
from multigpu.analysis.cnn_page import as_measured
from multigpu.analysis.figure_forms import figure_forms
from multigpu.analysis.frame import frame_of
from multigpu.record import Record
from tests.analysis.test_cnn_pages import NOTHING, point
from tests.factory import make_machine, make_point, make_record

ONE, TWO = make_machine(1), make_machine(2)
LATER, EARLIER = "2026-11-24T01:00:00+00:00", "2026-11-21T07:00:00+00:00"
RESNET, VGG = {"model": "resnet20", "batch_size": 128}, {"model": "vgg16", "batch_size": 64}


def form(rate: float, execution: str, n: int = 1, at: str = LATER, warmup_s: float | None = None, **more: Any) -> list[Record]:
    records = point(rate, devices=1, n=n, execution=execution, **{"machine": ONE} | more)
    spent = {} if warmup_s is None else {"warmup_s": warmup_s}
    return [
        one.model_copy(update={"measured_at": at, "measurement": one.measurement and one.measurement.model_copy(update=spent)})
        for one in records
    ]


def planted() -> list[Record]:
    """ResNet-20, whose eager steps and one of two captured points are another host's; VGG-16, all of whose forms one host has."""
    records = form(100, "captured", 5, **RESNET) + form(130, "compiled_captured", **RESNET) + form(20, "compiled", **RESNET)
    records += form(40, "eager", 5, machine=TWO, **RESNET) + form(120, "captured", machine=TWO, **RESNET)
    records += form(50, "eager", 5, **VGG) + form(50.5, "captured", 5, **VGG)
    return records + form(60, "compiled", 2, **VGG) + form(70, "compiled_captured", 2, **VGG)


def test_each_ratio_is_of_one_machine_and_changes_one_thing() -> None:
    table = cnn_forms.forms(as_measured(frame_of(planted()))).set_index("model")
    assert list(table.index) == ["vgg16", "resnet20"]
    small, large = table.loc["resnet20"], table.loc["vgg16"]
    assert (small["machine"], small["host"]) == (ONE.name, TWO.name) and (large["machine"], large["host"]) == (ONE.name, ONE.name)
    assert small["capturing"] == pytest.approx(3.0, rel=1e-3), "120 over 40 of the eager steps' host, and not 100 over 40"
    assert (small["compiling"], small["capturing_compiled"]) == (pytest.approx(1.3, rel=1e-3), pytest.approx(6.5))
    assert small[["compiling_eager", "compiling_low"]].isna().all(), "eager and compiled are of two hosts; compiled once"
    assert not table["borrowed"].any() and list(small[[f"{form}_n" for form in cnn_forms.FORMS]]) == [5, 5, 1, 1]
    assert small["captured_s"] == pytest.approx(1.28, rel=1e-3) and small["eager_s"] == pytest.approx(3.2, rel=1e-3)
    assert (large["capturing"], large["compiling"]) == (pytest.approx(1.01), pytest.approx(70 / 50.5, rel=2e-3))
    assert large["compiling_eager"] == pytest.approx(1.2, rel=2e-3) and large["compiling_low"] < 1.39 < large["compiling_high"]


def test_a_captured_step_is_lent_where_the_eager_steps_host_captured_none() -> None:
    records = [one for one in planted() if not (one.machine.name == TWO.name and one.run.execution == "captured")]
    frame = as_measured(frame_of(records))
    row = cnn_forms.forms(frame).set_index("model").loc["resnet20"]
    assert row["borrowed"] and row["capturing"] == pytest.approx(2.5, rel=1e-3) and row["capturing_low"] < 2.5 < row["capturing_high"]
    html = cnn_forms.form_table(frame).html
    assert ")†" in html and "†: of both" in html and "†" not in cnn_forms.form_table(as_measured(frame_of(planted()))).html
    assert "Hollow" in figure_forms(frame).caption and "Hollow" not in figure_forms(as_measured(frame_of(planted()))).caption


def test_other_jobs_and_blocks_compiled_alone_do_not_count() -> None:
    old = form(500, "compiled_captured", at=EARLIER, **VGG | {"model": "resnet50_v1.5"}) + form(400, "captured", model="resnet50_v1.5")
    other = form(900, "compiled_captured", placement="exp4", **RESNET) + form(900, "compiled_captured", precision="fp32", **RESNET)
    other += form(900, "compiled_captured", layout="channels_first", **RESNET) + form(
        900, "compiled_captured", **RESNET | {"batch_size": 32}
    )
    other += form(900, "captured", bucket_send="grouped_small_last", **RESNET) + form(900, "captured", model="lenet")
    table = cnn_forms.forms(as_measured(frame_of([*planted(), *old, *other])))
    assert list(table["model"]) == ["vgg16", "resnet20"] and table["compiling"].max() < 1.4


def test_compiling_is_what_the_first_form_of_a_launch_took_beyond_steady_steps() -> None:
    """10 warm-up steps of 1 s each: 30 s of 40 are compiling; the second form of the launch found the kernels."""
    first = form(64, "compiled", at="2026-11-24T01:00:00+00:00", warmup_s=40.0, **VGG)
    second = form(64, "compiled_captured", at="2026-11-24T01:05:00+00:00", warmup_s=10.5, **VGG)
    frame = as_measured(frame_of(second + first))
    assert cnn_forms.compiling_s(frame) == pytest.approx(30.0)
    assert cnn_forms.compiling_s(frame[frame["execution"].eq("compiled_captured")]) == pytest.approx(0.5)
    assert ">30<" in cnn_forms.form_table(frame).html
    served = form(64, "compiled", warmup_s=10.2, **VGG) + form(64, "captured", 5, **VGG)
    assert ">found<" in cnn_forms.form_table(as_measured(frame_of(served))).html


def test_the_finding_parts_the_host_from_the_kernels() -> None:
    frame = as_measured(frame_of(planted()))
    kernels, host, together = cnn_forms.form_finding(frame)
    assert (
        "1.30 times (ResNet-20) to 1.39 times (VGG-16) the rate, median 1.34; 2 of 2 models gain (screening: 1 compiled once)." in kernels
    )
    assert kernels.endswith("once).") and "Not compiled" not in kernels and "slower" not in kernels
    assert host == (
        "Host: capturing gives 1.01 times (VGG-16) the rate of the eager step (1 of 2 models and batches; the others were not repeated or "
        "scatter), less for VGG-16."
    )
    assert "1.17 times (VGG-16) to 6.50 times (ResNet-20) as fast;" in together
    assert "eager step is 0.832 times (VGG-16) as fast" in together
    one = frame_of(form(50, "eager", 5, **VGG) + form(25, "compiled", **VGG) + form(60, "compiled_captured", **VGG))
    assert cnn_forms.form_finding(as_measured(one))[-1] == (
        "Together: capturing a compiled step makes it 2.40 times (VGG-16) as fast, all compiled once."
    ), "one compiled Record is no finding about eager steps"
    assert cnn_forms.form_answer(frame) == "Compiling a captured step gives 1.30 times (ResNet-20) to 1.39 times (VGG-16) its rate."
    lost = frame_of(
        form(50, "captured", 5, **VGG) + form(40, "compiled_captured", **VGG) + form(9, "captured", **RESNET) + form(3, "eager", **RESNET)
    )
    said = cnn_forms.form_finding(as_measured(lost))[0]
    assert "0 of 1 model gain; slower: VGG-16 (screening: all compiled once). Not compiled and captured: ResNet-20." in said
    assert str(cnn_forms.form_answer(as_measured(lost))).endswith("its rate, compiled once.")


def test_an_interval_that_tells_nothing_stays_in_the_table() -> None:
    """Eager rates of 20 and 80 from two launches: the ratio may be anything, and is told in the table alone."""
    fields = {"placement": "ddp", "workload": "cnn", "devices": 1, "machine": ONE, **VGG}
    eager = make_point([20.0, 80.0], "ab", execution="eager", **fields)
    table = cnn_forms.forms(as_measured(frame_of([*eager, *form(50, "captured", 5, **VGG)])))
    row = table.set_index("model").loc["vgg16"]
    assert row["capturing_high"] > cnn_forms.TELLS * row["capturing_low"]
    steady = form(50, "eager", 5, **RESNET) + form(150, "captured", 5, **RESNET)
    said = cnn_forms.form_finding(as_measured(frame_of([*eager, *form(50, "captured", 5, **VGG), *steady])))
    assert "Host: capturing gives 3.00 times (ResNet-20) the rate of the eager step (1 of 2 models and batches;" in " ".join(said)


def test_table_and_figure_hold_every_row() -> None:
    frame = as_measured(frame_of(planted()))
    html = cnn_forms.form_table(frame).html
    assert "ResNet-20, 128" in html and ">3.00<" in html and ">1.30<" in html and "5/5/1/1" in html and TWO.name in html
    picture = figure_forms(frame)
    assert picture.finding == "Capturing an eager step gives more than compiling a captured one in 1 of 2 models"
    assert len(picture.data) == 2 and "ResNet-20, 128: captured over eager 3.00 times" in picture.alt
    assert [label.get_text() for label in picture.axes[0].get_yticklabels()] == ["ResNet-20, 128", "VGG-16, 64"], "the first on top"


def test_without_records_the_command_is_named() -> None:
    assert "measure --grid cnn_compiled,cnn_captured,cnn_models does" in cnn_forms.form_table(NOTHING).html
    assert cnn_forms.form_finding(NOTHING) == ["No image model was measured in two forms of execution yet."]
    assert cnn_forms.form_answer(NOTHING) is None and cnn_forms.blocks_sentence(NOTHING) is None
    assert "measure --grid cnn_compiled does" in figure_forms(NOTHING).alt
    assert cnn_forms.forms(frame_of([make_record("ddp", 1, workload="cnn", execution="captured")])).empty, "one form is no comparison"


def test_what_was_compiled_in_blocks_is_told_with_what_was_compiled_whole_since() -> None:
    old = form(5, "compiled", at=EARLIER, machine=make_machine(4)) + form(
        5, "compiled", at=EARLIER, machine=make_machine(4), batch_size=256
    )
    said = cnn_forms.blocks_sentence(as_measured(frame_of(old + form(5, "compiled_captured") + form(5, "eager", at=EARLIER))))
    assert said and said.startswith(
        "ResNet-50 v1.5's compiled steps on 4x-nvidia-h200 were measured when its blocks alone were compiled; the whole model was "
        "compiled on 1x-nvidia-h200 at batch 64 since. "
    )
    assert "since" not in str(cnn_forms.blocks_sentence(as_measured(frame_of(old))))
    assert cnn_forms.blocks_sentence(as_measured(frame_of(form(5, "compiled")))) is None
