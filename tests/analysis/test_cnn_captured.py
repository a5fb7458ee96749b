"""What captured `ddp` keeps of independent replicas with two kinds of buckets, on planted Records whose shares are known by hand."""

from __future__ import annotations

from typing import Any

import pytest

from multigpu.analysis import cnn_captured
from multigpu.analysis.cnn_page import as_measured
from multigpu.analysis.figure_ratios import figure_ratios
from multigpu.analysis.frame import frame_of
from multigpu.record import Record
from tests.analysis.test_cnn_goals import captured
from tests.analysis.test_cnn_pages import NOTHING
from tests.factory import make_record


def small_last(rate: float, devices: int = 2, **more: Any) -> list[Record]:
    return captured(rate, devices=devices, bucket_send=cnn_captured.FORM, **more)


def planted() -> list[Record]:
    """ResNet-50 on one GPU and two, VGG-16 on one alone."""
    records = captured(100, "independent", devices=1) + captured(97, devices=1) + small_last(100, 1)
    records += captured(200, "independent", devices=2) + captured(190, devices=2) + small_last(196)
    return records + captured(50, "independent", devices=1, model="vgg16") + small_last(45, 1, model="vgg16")


def test_shares_of_replicas_and_of_perfect_scaling() -> None:
    table = cnn_captured.kept(as_measured(frame_of(planted()))).set_index(["model", "devices"])
    assert list(table.index) == [("resnet50_v1.5", 1), ("resnet50_v1.5", 2), ("vgg16", 1)]
    two = table.loc[("resnet50_v1.5", 2)]
    assert (two["ratio"], two["packed"], two["scaled"]) == (pytest.approx(0.98), pytest.approx(0.95), pytest.approx(0.98))
    assert two["ratio_low"] < 0.98 < two["ratio_high"] < 1 and two["scaled_low"] < 0.98 < two["scaled_high"] < 1
    vgg = table.loc[("vgg16", 1)]
    assert vgg["ratio"] == pytest.approx(0.9) and vgg[["packed", "scaled"]].isna().all(), "neither packed nor on several"


def test_launches_that_measured_one_form_alone_do_not_count() -> None:
    """A host that is slower in another hour slows replicas that have nothing to do with it."""
    common: dict[str, Any] = {"workload": "cnn", "execution": "captured", "launch_id": "c", "repeat": 5}
    later = [make_record(name, 1, 50.0, **common) for name in ("independent", "ddp")]
    (row,) = cnn_captured.kept(as_measured(frame_of(planted()[:15] + later))).to_dict("records")
    assert row["ratio"] == pytest.approx(1.0) and row["packed"] == pytest.approx(0.97) and row["base_n"] == 5
    eager = frame_of([record for record in planted() if record.run.bucket_send is None])
    assert cnn_captured.kept(eager).empty


def test_the_finding_counts_what_nothing_tells_from_replicas() -> None:
    said = cnn_captured.captured_finding(as_measured(frame_of(planted())))
    assert said and said.startswith(
        "Captured, with gradients sent unpacked and the small bucket last: on 1 GPU nothing tells 1 of 2 points"
    )
    assert "the least keeps 0.900 (" in said and "VGG-16, batch 64 a GPU); packed buckets lose 3.0% more and on 2 GPUs" in said
    assert "on 2 GPUs nothing tells 0 of 1 point from" in said and said.endswith("lose 3.1% more."), "190 over 196"
    alone = [record for record in planted() if record.run.devices == 1]
    assert str(cnn_captured.captured_finding(frame_of(alone))).endswith("On more GPUs it was not measured yet.")
    assert cnn_captured.captured_finding(NOTHING) is None


def test_table_and_figure_hold_every_row() -> None:
    frame = as_measured(frame_of(planted()))
    html = cnn_captured.captured_table(frame).html
    assert html.count("ResNet-50 v1.5, batch 64 a GPU") == 2 and "0.950 (" in html and "0.980 (" in html and "5/2" in html
    assert "cnn_captured,small_last" in cnn_captured.captured_table(NOTHING).html
    assert len(figure_ratios(cnn_captured.kept(frame), "ddp over replicas", "nothing").data) == 3
