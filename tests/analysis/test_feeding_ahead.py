"""What running ahead gives, of planted Records: told only where it is more than repeats differ by."""

from __future__ import annotations

from typing import Any

import pytest

from multigpu.analysis.feeding import fed_on, feeding_frame, feeding_points
from multigpu.analysis.feeding_ahead import ahead_finding, ahead_table, repeats_differ
from multigpu.analysis.feeding_findings import feeding_findings, pace_findings
from multigpu.record import Record
from tests.analysis.test_feeding import fed, synthetic
from tests.factory import make_machine

OWN: dict[str, Any] = {"staging": "own_stream"}


def fed_ahead(*rates: float, **more: Any) -> list[Record]:
    """The job with none, one and two batches ahead, and one on a stream of its own, at these rates."""
    ways: list[dict[str, Any]] = [{"prefetch": 0}, {"prefetch": 1}, {"prefetch": 2}, {"prefetch": 1, **OWN}]
    return [fed(rate, **way, **more) for rate, way in zip(rates, ways, strict=False)]


@pytest.mark.parametrize(("slowest", "told"), [(950.0, True), (700.0, False)])
def test_a_gain_is_told_only_beyond_what_repeats_differ_by(slowest: float, told: bool) -> None:
    own = [synthetic(1000.0), synthetic(slowest, repeat=1, launch_id="b")]
    points = feeding_points(feeding_frame([*own, *fed_ahead(500.0, 550.0, 600.0, 580.0)]))
    said = ahead_finding(points)
    assert repeats_differ(points) == pytest.approx(1000.0 / slowest)
    assert "In 1 job fed with none, one and two batches ahead" in said and "trains 1.20 times as fast as none ahead" in said
    assert ("JPEG files (two ahead, 1.20 times)" in said) is told
    assert ("no gain can be told" in said) is not told
    assert said in feeding_findings(points)


def test_what_another_job_varies_by_is_no_noise_of_this_one() -> None:
    other = [synthetic(1000.0, batch_size=32), synthetic(100.0, batch_size=32, repeat=1)]
    points = feeding_points(feeding_frame([*other, synthetic(1000.0), *fed_ahead(500.0, 600.0)]))
    assert "(1.00 times): ResNet-50" in ahead_finding(points)


def test_pixels_that_cross_as_they_are_count_as_no_way_of_running_ahead() -> None:
    """Another type crosses as well: a column of its own, and no gain of running ahead."""
    records = [synthetic(1000.0), *fed_ahead(500.0, 510.0), fed(900.0, prefetch=2, image_dtype="uint8", **OWN)]
    points = feeding_points(feeding_frame(records))
    assert "1.02 times" in ahead_finding(points) and "1.8" not in ahead_finding(points)
    html = ahead_table(points).html
    for text in ("500 (50%)", "510 (51%)", "900 (90%)", "none ahead", "two, own stream, uint8"):
        assert text in html
    assert "two ahead" not in html, "a way that no job was fed in is no column"


def test_without_both_sides_nothing_is_said() -> None:
    points = feeding_points(feeding_frame([synthetic(1000.0), fed(500.0, prefetch=0), fed(600.0, prefetch=2, input_workers=8)]))
    assert ahead_finding(points) == "" and "the grid `inputs` does" in ahead_table(points).html.replace("<code>", "`").replace(
        "</code>", "`"
    )


def test_hosts_with_the_same_gpus_are_told_as_they_are() -> None:
    """What feeds a GPU is its own host: nothing is read under another machine's name, and other GPUs are another page's."""
    own = [fed(900.0, machine=make_machine(4)), fed(800.0, machine=make_machine(1)), fed(700.0, machine=make_machine(1, gpu="NVIDIA A100"))]
    shown = fed_on(own, ["4x-nvidia-h200"])
    assert shown == own[:2]
    both = [*shown, *(synthetic(1000.0, machine=record.machine) for record in shown)]
    said = " ".join(pace_findings(feeding_points(feeding_frame(both))))
    assert "1 GPU of 4x-nvidia-h200" in said and "1 GPU of 1x-nvidia-h200" in said


def test_copying_alone_is_told_apart_from_the_hosts_work() -> None:
    host: dict[str, Any] = {"inputs": "synthetic_host", "input_workers": None}
    captured: dict[str, Any] = {"execution": "captured"}
    records = [synthetic(1000.0, **captured), fed(980.0, **host, **captured), synthetic(1000.0), fed(600.0, **host)]
    records += [fed(500.0, 0.05), fed(700.0, 0.05, **captured)]
    (said,) = [text for text in feeding_findings(feeding_points(feeding_frame(records))) if "Copying" in text]
    graph, _, so = said.partition("), 60% where it is eager")
    assert graph.endswith("reach 98% of that rate where the step is one CUDA graph (1 job, measured once")
    cheap = "the copy is cheap, so what eager steps lose beyond that is their host's, which launches their kernels too."
    assert so == f" (1 job, measured once): {cheap}"
    dear = [synthetic(1000.0, **captured), fed(600.0, **host, **captured), synthetic(1000.0), fed(600.0, **host), fed(500.0, 0.05)]
    (said,) = [text for text in feeding_findings(feeding_points(feeding_frame(dear))) if "Copying" in text]
    assert said.endswith("the copy itself costs.")
