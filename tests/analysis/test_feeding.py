"""Rates and waits of planted Records that were fed in different ways, and where workers give out."""

from __future__ import annotations

import math
from typing import Any

import pytest

from multigpu.analysis.feeding import around, feeding_frame, feeding_points, feeding_table, knee
from multigpu.analysis.feeding_findings import feeding_findings, knee_findings, pace_findings
from multigpu.analysis.feeding_missing import declared, missing_ways
from multigpu.analysis.figure_feeding import figure_workers
from multigpu.analysis.frame import frame_of
from multigpu.analysis.ordinary import ordinary
from multigpu.grid.inputs import inputs
from multigpu.record import Record
from tests.factory import make_machine, make_record

STEPS = {"warmup_steps": 4, "timed_steps": 10}


def fed(rate: float, wait_s: float = 0.0, **more: Any) -> Record:
    """A Record of ResNet-50 on one GPU at 64 images a step."""
    common: dict[str, Any] = {"workload": "cnn", "devices": 1, **STEPS, "inputs": "jpeg_folder", "input_workers": 4, "prefetch": 1}
    waits = {"input_wait_s": [[wait_s] * 14]} if "inputs" not in more else {}
    return make_record(units_per_s=rate, measurement=more.pop("measurement", waits), **(common | more))


def synthetic(rate: float, **more: Any) -> Record:
    return fed(rate, inputs="synthetic", input_workers=None, prefetch=0, **more)


@pytest.mark.parametrize(("ceiling", "bend"), [(750.0, 7.5), (300.0, 3.0)])
def test_a_planted_knee_is_found(ceiling: float, bend: float) -> None:
    workers = [16, 1, 2, 4, 8, 12]
    found = knee(workers, [min(100.0 * count, ceiling) for count in workers])
    assert found == pytest.approx((100.0, ceiling, bend), rel=1e-6)


def test_a_knee_lies_between_two_that_were_measured() -> None:
    assert around([1, 2, 4, 12], knee([1, 2, 4, 12], [100.0, 200.0, 400.0, 720.0])) == (4, 12)
    assert around([1, 2, 4], knee([1, 2, 4], [98.0, 203.0, 397.0])) is None


def test_rates_that_still_rise_have_no_knee() -> None:
    found = knee([1, 2, 4], [98.0, 203.0, 397.0])
    assert found.per_worker == pytest.approx(99.5, rel=0.01) and math.isinf(found.ceiling) and math.isinf(found.workers)
    for workers, rates in (([1], [2.0]), ([1, 2], [1.0, 0.0])):
        with pytest.raises(ValueError, match="a knee needs at least two positive points"):
            knee(workers, rates)


def test_rates_are_of_the_second_half_when_nothing_made_before_is_left() -> None:
    backlog = [0.5] * 4 + [0.02] * 5 + [0.064] * 5  # ready batches first, then as fast as workers are
    waits = [0.0] * 9 + [0.044] * 5
    record = fed(64 * 10 / 0.42, measurement={"step_time_s": [backlog], "input_wait_s": [waits]})
    row = feeding_frame([record]).iloc[0]
    assert row["sustained_per_s"] == pytest.approx(1000) and row["images_per_s"] == pytest.approx(640 / 0.42)
    assert (row["step_s"], row["wait_s"]) == pytest.approx((0.064, 0.044))


def test_ways_stand_beside_what_stays_on_the_device() -> None:
    records = [synthetic(1000.0), fed(700.0, 0.02), fed(990.0, input_workers=8), fed(500.0, execution="captured"), fed(1.0, device_ids="0")]
    points = feeding_points(feeding_frame(records))
    shares = {(row["execution"], row["inputs"], str(row["input_workers"])): row["share"] for _, row in points.iterrows()}
    assert shares["eager", "jpeg_folder", "4"] == pytest.approx(0.7) and shares["eager", "jpeg_folder", "8"] == pytest.approx(0.99)
    assert math.isnan(shares["captured", "jpeg_folder", "4"]) and len(points) == 4  # a pinned Run is another question
    longer = {str(row["input_workers"]): row["longer_s"] for _, row in points.iterrows() if row["execution"] == "eager"}
    assert longer["4"] == pytest.approx(64 / 700 - 64 / 1000) and longer["8"] == pytest.approx(64 / 990 - 64 / 1000)
    assert points["longer_s"].isna().sum() == 1  # the captured one has nothing to stand beside
    assert feeding_findings(points) == [
        "**Yes**: of 1 job fed with JPEG files all reach 95% of the rate that the same job has on images that stay on its devices."
    ]


def test_one_number_of_decimals_in_every_wait() -> None:
    records = [synthetic(1000.0), fed(700.0, 0.00008), fed(900.0, 0.2514, input_workers=8)]
    html = feeding_table(feeding_points(feeding_frame(records))).html
    assert ">0.1<" in html and ">251.4<" in html and "0.08" not in html and "251.40" not in html
    assert ">27.4<" in html and ">7.1<" in html  # ms longer: 64/700 - 64/1000 and 64/900 - 64/1000
    assert "which is what feeding costs" in html


def test_a_host_clock_gives_no_single_steps() -> None:
    """Marks of the host lie before the work: 10 steps in 1 s are 0.1 s each, whatever the marks say."""
    tensorflow: dict[str, Any] = {"framework": "tensorflow", "placement": "exp4", "execution": "graph", "processes": "one"}
    planted = {"step_clock": "host", "step_time_s": [[0.001] * 14]}
    row = feeding_frame([fed(640.0, measurement=planted, **tensorflow)]).iloc[0]
    assert (row["step_s"], row["sustained_per_s"]) == pytest.approx((0.1, 640.0))


def test_the_answer_begins_with_yes_no_or_in_part() -> None:
    fast, slow = [synthetic(1000.0), fed(990.0, 0.001)], [synthetic(1000.0, batch_size=32), fed(600.0, 0.001, batch_size=32)]
    slower = [synthetic(1000.0, batch_size=16), fed(400.0, 0.001, batch_size=16)]
    first = feeding_findings(feeding_points(feeding_frame([*fast, *slow])))[0]
    assert first.startswith("**In part**: of 2 jobs fed with JPEG files 1 reaches 95%") and first.endswith("; the others reach 60%.")
    first = feeding_findings(feeding_points(feeding_frame([*slow, *slower])))[0]
    assert first.startswith("**No**: of 2 jobs fed with JPEG files none reaches 95%") and first.endswith("; at best they reach 40% to 60%.")


def test_a_wait_is_not_what_feeding_adds() -> None:
    """64 images a step at 4,000 and 3,200 a second: 16 and 20 ms. The process waits for nearly all of a step, of which 4 ms are lost."""
    captured: dict[str, Any] = {"execution": "captured"}
    records = [synthetic(4000.0, **captured), fed(3200.0, 0.0194, **captured)]
    records += [synthetic(4000.0), fed(2000.0, 0.0001), synthetic(1000.0, batch_size=32), fed(800.0, 0.0001, batch_size=32)]
    late, in_time = pace_findings(feeding_points(feeding_frame(records)))
    job = "ResNet-50 v1.5, batch 64 a device, bf16, captured, 1 GPU of 8x-nvidia-h200"
    assert late.startswith(
        f"**Batches come late**. Of the rate on images that stay on the device: 80% in {job} (measured once; 4.0 ms longer)."
    )
    assert "19.4 ms a step for its batch, so workers set the pace." in late
    assert "feeding costs what the step is longer" in late and "eager" not in late
    assert in_time.startswith("**Batches are there in time, and steps are longer**.") and in_time.count("ms longer)") == 2
    assert in_time.count("something other than workers sets the pace") == 1 and "at most 0.1 ms a step" in in_time


def test_repeats_that_scatter_are_told() -> None:
    repeats = [fed(rate, 0.05, repeat=number, launch_id=str(number)) for number, rate in enumerate((600.0, 900.0))]
    (said,) = pace_findings(feeding_points(feeding_frame([synthetic(1000.0), *repeats])))
    assert "72% in ResNet-50" in said and "(n = 2, 60% to 90%; 24.9 ms longer)" in said


def test_jobs_that_differ_in_more_than_devices_are_no_scaling_line() -> None:
    captured: dict[str, Any] = {"execution": "captured"}
    one = [synthetic(1000.0, **captured), fed(500.0, 0.05, image_dtype="uint8", **captured)]
    two = [synthetic(2000.0, devices=2), fed(900.0, 0.05, devices=2)]
    (said,) = [text for text in pace_findings(feeding_points(feeding_frame([*two, *one]))) if "scaling line" in text]
    how = "how a step is executed and what crosses to the GPU"
    assert said == f"These jobs of ResNet-50 v1.5 are no scaling line: they differ in {how} too."
    alike = [synthetic(1000.0), fed(500.0, 0.05), *two]
    assert not any("scaling line" in text for text in pace_findings(feeding_points(feeding_frame(alike))))


def test_what_the_grid_declares_and_no_record_has_is_named() -> None:
    machine = make_machine(4)
    planned = [entry.run for entry in inputs([1, 2, 4])]

    def measured(number: int, **more: Any) -> Record:
        return make_record(machine=machine, **(planned[number].model_dump() | more))

    runs, absent = declared([measured(number) for number in range(3)] + [measured(3, status="failed")])
    assert runs == planned and absent == planned[3:]
    html = missing_ways([measured(0)]).html
    assert f"{len(planned) - 1} of the {len(planned)} Runs that the grid <code>inputs</code> declares for 1 and 4 GPUs" in html
    assert (
        "no batch ahead, one batch ahead, copies on the step's own stream" in html
        and "or a trace." in html
        and html.startswith("<details>")
    )
    traced = next(number for number, run in enumerate(planned) if run.traced_steps)
    assert "a trace" not in missing_ways([measured(traced)]).html.split("</summary>")[0]
    assert missing_ways([measured(number) for number in range(len(planned))]).html == ""
    assert missing_ways([make_record(machine=make_machine(0), device_type="cpu", precision="fp32")]).html == ""


def test_a_sweep_says_where_the_host_gives_out() -> None:
    records = [synthetic(1000.0)] + [fed(min(150.0 * count, 600.0), input_workers=count) for count in (1, 2, 4, 8)]
    points = feeding_points(feeding_frame(records))
    (said,) = knee_findings(points)
    assert "a worker makes 150 images/s; beyond about 4.0 a device more of them bring nothing. That bend is a fit to 4 points" in said
    assert said.endswith("each measured once: it lies between the measured 4 and 8.")
    picture = figure_workers(points)
    assert picture.finding.endswith("more than about 4.0 a device bring nothing, by a fit between the measured 4 and 8")
    assert picture.axes[0].get_xscale() == "linear" and "each point was measured once" in picture.caption
    assert "a bend at 4.0 workers" in picture.alt and set(picture.data["input_workers"]) == {1, 2, 4, 8}
    assert set(picture.data["synthetic_per_s"].round()) == {1000.0}
    rising = feeding_points(feeding_frame([fed(150.0 * count, input_workers=count) for count in (1, 2, 4)]))
    assert any("rates still rise at 4 a device: the host does not give out before" in said for said in knee_findings(rising))


def test_without_such_records_the_page_says_so() -> None:
    points = feeding_points(feeding_frame([synthetic(1000.0)]))
    assert "has not been measured" in feeding_findings(points)[0] and "--grid inputs" in feeding_table(points).html
    assert "--grid inputs" in figure_workers(points).alt
    assert feeding_points(feeding_frame([])).empty


def test_other_pages_leave_these_records_out() -> None:
    special: list[dict[str, Any]] = [{"device_ids": "1"}, {"energy_window_s": 10}, {"model": "family_d8_w64_s64_f0"}]
    records = [synthetic(1000.0), fed(900.0), *(make_record(workload="cnn", devices=1, **fields) for fields in special)]
    records.append(make_record(workload="cnn", peer_access="off"))
    frame = frame_of(records)
    assert list(ordinary(frame)["key"]) == [records[0].key] and len(frame) == len(records)


def test_steps_that_wait_for_no_host_lead_the_answer() -> None:
    """One eager way of feeding trains 110% of a rate that wanders: noise, and no answer beside captured steps."""
    captured: dict[str, Any] = {"execution": "captured"}
    records = [synthetic(4000.0, **captured), fed(3200.0, 0.05, **captured), synthetic(900.0), synthetic(1500.0, repeat=1, launch_id="b")]
    records += [fed(1237.5), synthetic(1000.0, batch_size=32), fed(500.0, batch_size=32)]
    first = feeding_findings(feeding_points(feeding_frame(records)))[0]
    assert first.startswith("**No**: of 1 job fed with JPEG files, each step one CUDA graph, none reaches 95%")
    assert "at best they reach 80%. 2 further jobs, whose steps the host launches too, reach 50% to 110%, 2 of them measured once." in first
    assert first.endswith("without feeding, repeats of one job differ by up to 1.67 times.")


def test_the_answer_says_where_the_host_gives_out() -> None:
    """A worker makes 150 images/s and four are enough for eager steps; a graph's 1,000 images/s a GPU would take seven."""
    swept = [fed(min(150.0 * count, 600.0), input_workers=count) for count in (1, 2, 4, 8)]
    captured = [synthetic(2000.0, execution="captured", devices=2), synthetic(9000.0, execution="captured", batch_size=1024)]
    records = [synthetic(1000.0), *swept, *captured]
    (said,) = [text for text in feeding_findings(feeding_points(feeding_frame(records))) if "gives out" in text]
    assert said == (
        "**Where the host gives out**: beyond 4.0 workers a GPU more bring nothing in 1 of 1 sweep, all of eager steps. The 1,000 images/s "
        "of a GPU whose step is one CUDA graph (ResNet-50 v1.5, batch 64) take 7 workers, each of which makes 150."
    )
    rising = [synthetic(1000.0), *(fed(150.0 * count, input_workers=count) for count in (1, 2, 4))]
    (said,) = [text for text in feeding_findings(feeding_points(feeding_frame(rising))) if "gives out" in text]
    assert said == "**Where the host gives out** lies beyond the workers that were tried, in 1 sweep."
