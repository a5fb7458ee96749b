"""What makes a model scale: the family's formula, the bounds by hand, and findings from planted Records."""

from __future__ import annotations

import math
from typing import Any

import pytest

from multigpu.analysis import limits
from multigpu.analysis.figure_scales import figure_family, figure_ratio
from multigpu.analysis.frame import frame_of
from multigpu.analysis.limits import Ceiling
from multigpu.analysis.scales import (
    bound_exposed,
    bound_hidden,
    exchange_ratio,
    own_bound,
    scale_findings,
    scale_points,
    scale_table,
    smallest_that_scales,
    sweep_rows,
)
from multigpu.record import Record
from multigpu.workloads import find_model
from multigpu.workloads.cnn.family import CENTRE, MEMBERS, SWEEPS, Member, dense_share
from tests.factory import make_record


@pytest.fixture(autouse=True)
def ceilings(monkeypatch: pytest.MonkeyPatch) -> None:
    """1 TFLOP/s and links of 10 GB/s."""
    known = {name: Ceiling(name, value, "B/s", "measured", "planted", "") for name, value in (("bf16", 1e12), ("device_link", 1e10))}
    for module in ("multigpu.analysis.scales", "multigpu.analysis.figure_scales"):
        monkeypatch.setattr(f"{module}.ceilings", lambda gpu: known)


@pytest.mark.parametrize("member", MEMBERS, ids=lambda member: member.name)
def test_members_keep_their_formula(member: Member) -> None:
    model = find_model("cnn", member.name)
    convolutions = [v for v in model.variables if v.kind == "convolution"]
    assert len(convolutions) == member.depth and convolutions[0].shape == (member.width, 3, 3, 3)
    assert convolutions[-1].shape[0] == 8 * member.width and model.config.image_shape == (3, member.image_size, member.image_size)
    if member.dense_percent:
        assert dense_share(model.variables) == pytest.approx(member.dense_percent / 100, abs=0.02)


def test_sweeps_change_one_number_and_pull_bytes_and_operations_apart() -> None:
    for axis, members in SWEEPS.items():
        assert CENTRE in members and len({getattr(member, axis) for member in members}) == len(members)
        fixed = [name for name in ("depth", "width", "image_size", "dense_percent") if name != axis]
        assert all(getattr(member, name) == getattr(CENTRE, name) for member in members for name in fixed)
    models = {axis: [find_model("cnn", member.name) for member in members] for axis, members in SWEEPS.items()}
    assert len({model.parameters for model in models["image_size"]}) == 1
    assert models["image_size"][-1].forward_flops_per_unit == pytest.approx(49 * models["image_size"][0].forward_flops_per_unit, rel=0.01)
    small, large = models["dense_percent"][0], models["dense_percent"][-1]
    assert large.parameters > 40 * small.parameters and large.forward_flops_per_unit < 1.5 * small.forward_flops_per_unit
    assert models["width"][0].parameters < 100_000 < 70_000_000 < models["width"][-1].parameters


@pytest.mark.parametrize(
    ("numbers", "sentence"),
    [((6, 8, 32, 0), "depth 6 does not fill 4 stages"), ((4, 8, 4, 0), "cannot be halved 3 times"), ((4, 8, 32, 100), "dense_percent 100")],
)
def test_members_that_cannot_be_are_refused(numbers: tuple[int, int, int, int], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        Member(*numbers)


def test_bounds_by_hand() -> None:
    # 2 devices: 1e9 bytes at 1e10 bytes/s take 0.1 s; 1e11 operations at 1e12 a second as long
    assert exchange_ratio(1e9, 1e11, 2, 1e12, 1e10) == pytest.approx(1.0)
    assert exchange_ratio(1e9, 1e11, 4, 1e12, 1e10) == pytest.approx(1.5) and exchange_ratio(1e9, 1e11, 1, 1e12, 1e10) == 0
    assert (bound_hidden(0.5), bound_hidden(2.0), bound_exposed(1.0)) == (1.0, 0.5, 0.5)
    assert own_bound(1e9, 0.05, 2, 1e10) == pytest.approx(0.5) and own_bound(1e9, 0.3, 2, 1e10) == 1.0 and own_bound(1e9, 1, 1, 1e10) == 1


def planted(member: Member, efficiency: float, single: float = 100.0) -> list[Record]:
    fields: dict[str, Any] = {"workload": "cnn", "model": member.name, "execution": "captured"}
    return [make_record("ddp", 1, single, **fields), make_record("ddp", 2, 2 * single * efficiency, **fields)]


def test_the_smallest_model_that_scales_is_the_one_from_which_on_all_do() -> None:
    kept = (0.5, 0.92, 0.7, 0.91, 0.95, 0.99)  # the second is an exception, and no beginning
    records = [record for member, share in zip(SWEEPS["width"], kept, strict=True) for record in planted(member, share)]
    points = scale_points(frame_of(records))
    assert len(points) == 6 and points["efficiency"].tolist() == pytest.approx(sorted(kept, key=list(points["efficiency"]).index))
    found = smallest_that_scales(points, 2, "captured")
    assert found is not None and found["model"] == "family_d8_w64_s64_f0"
    assert any("4,738,596 parameters" in said for said in scale_findings(points))
    assert list(sweep_rows(points, "width")["at"]) == [8, 16, 32, 64, 128, 256]
    row = points[points["model"] == CENTRE.name].iloc[0]
    model = find_model("cnn", CENTRE.name)
    flops = 3 * 64 * model.forward_flops_per_unit
    assert row["bytes_per_flop"] == pytest.approx(4 * model.parameters / flops)
    assert row["ratio"] == pytest.approx((4 * model.parameters / 1e10) / (flops / 1e12))
    assert "depth 8, width 64, 64 pixels" in scale_table(points).html.replace("\u00a0", " ")
    picture = figure_ratio(points)
    assert "Bound by links" in scale_table(points).html and "efficiency is" in str(picture.finding)
    assert len(picture.data) == 6 and set(figure_family(points).data["axis"]) == {"width"}
    assert "width " in figure_family(points).alt and "object at" not in figure_family(points).alt


def test_without_records_the_page_says_what_is_missing() -> None:
    points = scale_points(frame_of([]))
    assert "No Record on several devices yet" in scale_findings(points)[0]
    assert "Nothing to draw" in figure_ratio(points).alt and "--grid family" in figure_family(points).alt
    lonely = scale_points(frame_of([make_record("ddp", 2, 10.0, workload="cnn")]))
    assert lonely.empty and "efficiency" in lonely


def test_a_machine_without_ceilings_has_no_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("multigpu.analysis.scales.ceilings", lambda gpu: {})
    points = scale_points(frame_of(planted(CENTRE, 0.9)))
    assert math.isnan(points["ratio"].iloc[0]) and points["efficiency"].iloc[0] == pytest.approx(0.9)
    assert limits.TRAINING_PASSES == 3
