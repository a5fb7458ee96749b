"""Planted traces of fed steps: what is longer than with images of the device's own is found and named."""

from __future__ import annotations

from typing import Any

import pytest

from multigpu.analysis.feeding_traces import fed_parts, fed_parts_findings, fed_parts_table
from multigpu.record import Record
from tests.analysis.test_causes import planted_trace
from tests.analysis.traced import step_of
from tests.factory import make_record


def traced(step_ms: float, **more: Any) -> Record:
    """One GPU that computes for 10 ms of a step (`step_of`), traced and timed alike."""
    steps = [step_of(100.0 * number, forward=(0.0, step_ms / 2), backward=(step_ms / 2, step_ms)) for number in range(3)]
    common: dict[str, Any] = {"workload": "cnn", "model": "resnet50_v1.5", "batch_size": 64, "devices": 1, "traced_steps": 3}
    return make_record(units_per_s=64_000 / step_ms, measurement={"trace": planted_trace([steps])}, **(common | more))


FILES = {"inputs": "jpeg_folder", "input_workers": 12, "prefetch": 2, "staging": "own_stream"}


def test_the_part_that_grew_is_named() -> None:
    records = [traced(12.0), traced(20.0, **FILES), traced(13.0, image_dtype="uint8", **FILES), traced(9.0, execution="captured", **FILES)]
    parts = fed_parts(records)
    assert len(parts) == 3  # the captured one has nothing to stand beside
    more = {str(row["image_dtype"]): (row["launching_more_s"], row["compute_more_s"]) for _, row in parts.iterrows() if row["prefetch"]}
    assert more["<NA>"] == pytest.approx((0.008, 0.0), abs=1e-6) and more["uint8"] == pytest.approx((0.001, 0.0), abs=1e-6)
    (said,) = fed_parts_findings(parts)
    assert (
        'JPEG files: of the 8.0 ms that the step is longer than on the device\'s own images (20.0 and 12.0 ms), 8.0 ms are "host launches"'
        in said
    )
    html = fed_parts_table(parts).html
    assert "uint8" in html and "float32" in html and html.count("<tr>") == 3


def test_without_a_trace_on_both_sides_nothing_is_said() -> None:
    for records in ([], [traced(12.0)], [traced(20.0, **FILES)], [traced(12.0), traced(20.0, device_ids="0", **FILES)]):
        parts = fed_parts(records)
        assert parts.empty and fed_parts_findings(parts) == []
    assert "the grid <code>inputs</code> does" in fed_parts_table(parts).html


def test_a_step_that_feeding_does_not_lengthen_is_no_finding() -> None:
    assert fed_parts_findings(fed_parts([traced(12.0), traced(11.9, **FILES)])) == []
