"""Image models of whose layers torch.compile had the blocks alone: no page compares them with what is compiled today."""

from __future__ import annotations

import re
from typing import Any

import pytest

from multigpu.analysis import cnn_forms, cnn_statements, limits, scales, superlinear
from multigpu.analysis.choose import advice
from multigpu.analysis.cnn_page import as_measured
from multigpu.analysis.frame import frame_of
from multigpu.analysis.ordinary import of_today
from multigpu.analysis.roofline import rooflines
from multigpu.older_programs import WHOLE_SINCE, compiled_in_blocks
from multigpu.record import Record
from tests.analysis.test_cnn_pages import NOTHING, point
from tests.factory import make_machine, make_record

OLD, NEW = "2026-11-21T07:00:00+00:00", WHOLE_SINCE


def compiled(rate: float, devices: int = 1, at: str = OLD, n: int = 1, **more: Any) -> list[Record]:
    fields = {"execution": "compiled_captured", "machine": make_machine(4), **more}
    return [one.model_copy(update={"measured_at": at}) for one in point(rate, devices=devices, n=n, **fields)]


def scaled(at: str) -> list[Record]:
    """Compiled at 500 and 1,100 images/s on one and two GPUs, of one time; captured at 400 and 700."""
    captured = {"execution": "captured", "machine": make_machine(4)}
    return [*compiled(500, at=at), *compiled(1100, 2, at=at), *point(400, devices=1, **captured), *point(700, **captured)]


def test_rows_and_records_are_of_an_older_program_alike() -> None:
    """Compiled image models before the day, and neither other forms nor other workloads."""
    records = [*scaled(OLD), *compiled(510, at=NEW, batch_size=256), make_record("ddp", 1, execution="compiled")]
    frame, kept = frame_of(records), {record.key for record in records if not compiled_in_blocks(record)}
    assert len(frame) > len(of_today(frame)) and set(of_today(frame)["key"]) == kept


@pytest.mark.parametrize(("at", "fastest", "ratio"), [(OLD, "captured", 1.75), (NEW, "compiled and captured", 2.2)])
def test_the_fastest_way_is_sought_among_todays_programs(at: str, fastest: str, ratio: float) -> None:
    best = advice(frame_of(scaled(at))).query("best").iloc[0]
    assert best["way"] == f"ddp, {fastest}" and best["over_own"] == pytest.approx(ratio, rel=1e-3)


def test_scaling_is_that_of_todays_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("multigpu.analysis.scales.ceilings", lambda gpu: {})
    for at, expected in ((OLD, {"captured"}), (NEW, {"captured", "compiled_captured"})):
        frame = frame_of(scaled(at))
        assert set(scales.scale_points(frame)["execution"]) == expected
        above = superlinear.superlinear(frame)
        assert len(above) == len(expected) - 1, "1,100 over 500 is 2.2 on 2 GPUs"
        assert superlinear.superlinear_sentence(frame).startswith(f"Of {len(expected)} speedup")


def test_one_gpus_best_is_todays_on_any_machine_with_these_gpus() -> None:
    """620 images/s of an older program here; 480 of today's here, 680 on another machine with these GPUs, 900 with other GPUs."""
    here = [*compiled(620), *point(480, devices=1, execution="captured", machine=make_machine(4))]
    there = compiled(680, at=NEW, machine=make_machine(1)) + compiled(900, at=NEW, machine=make_machine(1, "h100", "NVIDIA H100"))
    said = cnn_statements.statements_twin(frame_of(here), measured=as_measured(frame_of([*here, *there]))).html
    (cell,) = re.findall(r"at best [^<]*", said)
    assert cell == "at best 680 images/s (bf16, batch 64 a GPU, compiled and captured, ddp, 1x-nvidia-h200, once)"
    alone = re.findall(r"at best [^<]*", cnn_statements.statements_twin(frame_of(here)).html)
    assert len(alone) == 1 and alone[0].startswith("at best 480 images/s (") and "nvidia" not in alone[0]


def test_no_roofline_of_an_older_program(monkeypatch: pytest.MonkeyPatch) -> None:
    known = {name: limits.Ceiling(name, 1e15, "1/s", "measured", "planted", "") for name in ("bf16", "memory")}
    monkeypatch.setattr("multigpu.analysis.roofline.ceilings", lambda gpu: known)
    assert [list(rooflines(frame_of(scaled(at)))["execution"]) for at in (OLD, NEW)] == [["captured"], ["compiled_captured"]]


def test_a_page_says_what_becomes_of_them() -> None:
    frame = as_measured(frame_of(scaled(OLD)))
    assert str(cnn_forms.blocks_sentence(frame)).endswith("ran eagerly. These steps are left out of this page.")
    assert str(cnn_forms.blocks_sentence(frame, left_out=False)).endswith("ran eagerly. Tables name these steps “blocks alone”.")
    assert cnn_forms.blocks_sentence(NOTHING) is None
