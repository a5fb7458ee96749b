"""Image models in both frameworks on one GPU, on planted Records whose ratios are known by hand."""

from __future__ import annotations

from typing import Any

import pandas as pd
import pytest

from multigpu.analysis import framework_models
from multigpu.analysis.cnn_page import as_measured
from multigpu.analysis.figure_framework_models import figure_framework_models, steps
from multigpu.analysis.frame import frame_of
from multigpu.record import Record
from tests.analysis.beside import TENSORFLOW
from tests.factory import make_machine, make_point

QUIET = (1.0, 1.002, 0.998, 1.001, 0.999)
NOTHING = frame_of([])

ONE, TWO = make_machine(1), make_machine(2)
RESNET, VGG = {"model": "resnet20", "batch_size": 128}, {"model": "vgg16", "batch_size": 64}
GRAPH = TENSORFLOW | {"precision": "bf16"}


def point(rate: float, placement: str = "ddp", devices: int = 2, n: int = 5, **more: Any) -> list[Any]:
    """The repeats of one point of an image model."""
    return make_point([rate * factor for factor in QUIET[:n]], placement=placement, devices=devices, workload="cnn", **more)


def tf(rate: float, placement: str = "exp4", n: int = 1, **more: Any) -> list[Record]:
    return point(rate, placement, 1, n, **GRAPH | {"machine": ONE} | more)


def torch(rate: float, execution: str, n: int = 5, **more: Any) -> list[Record]:
    return point(rate, devices=1, n=n, execution=execution, **{"machine": ONE} | more)


def planted() -> list[Record]:
    """ResNet-20, whose eager steps are another host's; VGG-16 with all on the other machine, which repeated it, and a lone Record here."""
    records = tf(1000, **RESNET) + tf(800, "exp2", **RESNET) + tf(1100, "ps_gpu0", **RESNET)
    records += torch(4000, "captured", **RESNET) + torch(900, "eager", machine=TWO, **RESNET)
    records += tf(100, n=5, machine=TWO, **VGG) + tf(25, "exp2", 5, machine=TWO, **VGG) + tf(50, **VGG)
    return records + torch(200, "captured", machine=TWO, **VGG) + torch(125, "eager", machine=TWO, **VGG)


def measured(records: list[Record]) -> pd.DataFrame:
    return as_measured(frame_of(records))


def test_each_model_stands_beside_pytorch_on_one_machine() -> None:
    table = framework_models.models(measured(planted())).set_index("model")
    assert list(table.index) == ["vgg16", "resnet20"], "in the order of every table"
    small, large = table.loc["resnet20"], table.loc["vgg16"]
    assert (small["machine"], small["captured_on"], small["eager_on"], bool(small["lent"])) == (ONE.name, ONE.name, TWO.name, False)
    assert small["over_captured"] == pytest.approx(0.25, rel=1e-3) and pd.isna(small["over_captured_low"])
    assert pd.isna(small["over_eager"]) and small["eager_s"] == pytest.approx(128 / 900, rel=1e-3), "two hosts are not divided"
    assert (large["machine"], large["tensorflow_n"]) == (TWO.name, 5), "the machine that repeated it"
    assert (large["over_captured"], large["over_eager"]) == (pytest.approx(0.5, rel=1e-3), pytest.approx(0.8, rel=1e-3))
    assert large["over_captured_low"] < 0.5 < large["over_captured_high"]


def test_other_jobs_and_ways_do_not_count() -> None:
    other = tf(9e4, precision="fp32", **RESNET) + tf(9e4, batch_norm="persistent", **RESNET) + tf(9e4, execution="xla", **RESNET)
    other += tf(9e4, layout="channels_first", **RESNET) + tf(9e4, **RESNET | {"batch_size": 32}) + tf(9e4, "independent", **RESNET)
    other += tf(9e4, model="lenet") + point(9e4, "exp4", 2, 1, machine=TWO, **GRAPH | RESNET)
    other += torch(9e4, "compiled", **RESNET) + torch(9e4, "captured", bucket_send="grouped", **RESNET)
    frame, all_of = measured(planted()), measured(planted() + other)
    assert framework_models.models(all_of).equals(framework_models.models(frame)) and len(steps(all_of)) == 2
    assert framework_models.updates(all_of).equals(framework_models.updates(frame))


def test_a_captured_step_of_another_machine_is_marked() -> None:
    lent = planted()[:3] + torch(4000, "captured", machine=TWO, **RESNET)
    (row,) = [row for _, row in framework_models.models(measured(lent)).iterrows()]
    assert row["lent"] and row["over_captured"] == pytest.approx(0.25, rel=1e-3) and row["eager_n"] == 0
    html = framework_models.models_table(measured(lent)).html
    assert ">0.25†<" in html and "†: of another machine with these GPUs." in html
    assert "†" not in framework_models.models_table(measured(planted())).html
    other = make_machine(1, gpu="NVIDIA H100", name="1x-nvidia-h100")
    (alone,) = [
        row for _, row in framework_models.models(measured([*planted()[:3], *torch(1, "captured", machine=other, **RESNET)])).iterrows()
    ]
    assert pd.isna(alone["over_captured"]), "another kind of GPU is no twin"


def test_the_sentence_names_the_ends_and_what_was_measured_once() -> None:
    said = framework_models.models_sentence(measured(planted()))
    assert said == (
        "Of the rate of PyTorch's captured step TensorFlow's graph reaches 50% with VGG-16, and 25% (ResNet-20) with 1 other (1 measured "
        "once in TensorFlow: screening). Beside 2 eager steps TensorFlow's are shorter with ResNet-20; 1 of these is of another host, "
        "which launches at its own pace."
    )


def test_updates_are_of_one_machine_and_told_by_the_million() -> None:
    table = framework_models.updates(measured(planted())).set_index("model")
    large, small = table.loc["vgg16"], table.loc["resnet20"]
    assert (large["machine"], large["exp4_n"], large["exp2_n"], large["ps_gpu0_n"]) == (TWO.name, 5, 5, 0)
    assert (large["longer"], small["longer"]) == (pytest.approx(4.0), pytest.approx(1.25))
    assert large["longer_low"] < 4.0 < large["longer_high"] and pd.isna(small["longer_low"])
    assert large["host_s"] == pytest.approx(64 / 25 - 64 / 100, rel=1e-3) and large["parameters"] == 138_361_641
    said = framework_models.updates_sentence(measured(planted()))
    each = 1e3 * (64 / 25 - 64 / 100) / 138.361641
    assert "takes 1.25 times (ResNet-20) to 4.00 times (VGG-16) as long as with variables on the GPU (Exp4)" in said
    assert f"{each:.2f} ms more a million parameters" in said and "+32.0 ms with 1 smaller one" in said
    assert "(1 measured once in TensorFlow: screening)" in said and said.endswith("take 0.91 times as long with smaller ones.")
    html = framework_models.updates_table(measured(planted())).html
    assert ">138.4<" in html and ">4.00 (" in html and "1/1/0/0/1" in html and f"{TWO.name}; ResNet-20: {ONE.name}." in html


def test_figure_and_table_hold_every_model() -> None:
    frame = measured(planted())
    html = framework_models.models_table(frame).html
    assert "ResNet-20, 128" in html and "1/5/5" in html and ">0.50 (" in html and "eager steps: 2x-nvidia-h200" in html
    picture = figure_framework_models(frame)
    assert picture.finding == "TensorFlow's graph reaches 25% to 50% of the rate of PyTorch's captured step"
    assert "TensorFlow, variables on the CPU 160.00 ms" in picture.alt
    assert [label.get_text() for label in picture.axes[0].get_yticklabels()] == ["ResNet-20, 128", "VGG-16, 64"]
    assert list(picture.data["model"]) == ["vgg16", "resnet20"]


def test_without_records_the_command_is_named() -> None:
    for said in (
        framework_models.models_sentence(NOTHING),
        framework_models.models_table(NOTHING).html,
        figure_framework_models(NOTHING).alt,
    ):
        assert "measure --grid tensorflow_models,tensorflow_cnn,cnn_captured,cnn_models does" in said
    assert "measure --grid tensorflow_models,tensorflow_cnn --devices 1 does" in framework_models.updates_table(NOTHING).html
    assert "not measured yet" in framework_models.updates_sentence(NOTHING)
    alone = measured(torch(1, "captured", **RESNET))
    assert framework_models.models(alone).empty and framework_models.updates(alone).empty


# --- layouts ------------------------------------------------------------------------------------------------------------------
