"""Pictures of a step and of where the rate went: drawn from Records, titled by what they support."""

from __future__ import annotations

import pytest

from multigpu.analysis.causes import causes_frame
from multigpu.analysis.figure_step import figure_step
from multigpu.analysis.figure_waterfall import CAUSES, fastest_alone, figure_waterfall, waterfall, waterfalls
from multigpu.analysis.picture import shown
from multigpu.measure.trace import TraceSummary
from multigpu.record import Record
from tests.analysis.traced import step_of, traced_record
from tests.factory import make_record


def together(record: Record) -> Record:
    """The same Record with all replicas doing what the first does: no skew."""
    measured = record.measurement
    assert measured and measured.trace
    first = measured.trace.replicas[0]
    replicas = [first.model_copy(update={"rank": replica.rank}) for replica in measured.trace.replicas]
    trace = TraceSummary(source="kineto", replicas=replicas, kernels=[])
    return record.model_copy(update={"measurement": measured.model_copy(update={"trace": trace})})


def test_a_step_is_drawn_lane_by_lane_on_one_axis() -> None:
    picture = figure_step([traced_record(8, placement="exp4"), together(traced_record(8, placement="ddp", execution="captured"))])
    assert picture.finding == "Launch skew takes 58% of a step under Exp4, 0% of a step under ddp"
    assert len(picture.axes) == 2 and len({ax.get_xlim() for ax in picture.axes}) == 1 and picture.axes[0].get_xlim()[0] == 0
    assert [label.get_text() for label in picture.axes[0].get_yticklabels()][-1] == "GPU 0", "the first device on top"
    assert len(picture.data) == 2 * 8 * 4 and set(picture.data["phase"]) == {"forward", "backward", "merge", "update"}
    assert picture.data["start_s"].min() == 0
    assert "weak scaling" in picture.axes[-1].get_xlabel() and "screening" in picture.caption and "8x-nvidia-h200" in picture.caption
    assert "captured" in picture.alt and "<svg" in shown(picture, "step").html


def test_panels_of_one_placement_tell_a_loop_of_cells_from_the_librarys() -> None:
    picture = figure_step([traced_record(2, placement="exp4"), traced_record(2, placement="exp4", recurrence="stepwise")])
    titles = [ax.get_title("left") for ax in picture.axes]
    assert len(set(titles)) == 2 and "a loop of cells" in titles[1].replace("\n", " ") and "loop" not in titles[0]


def test_equal_steps_support_no_title() -> None:
    assert figure_step([traced_record(2, placement="exp4"), traced_record(2, placement="ddp")]).finding == ""


def test_a_missing_phase_is_explained() -> None:
    record = traced_record(1, execution="captured")
    measured = record.measurement
    assert measured and measured.trace
    steps = [step_of(forward_backward=(0, 8), update=(8, 9))]
    replica = measured.trace.replicas[0].model_copy(update={"steps": steps})
    trace = TraceSummary(source="kineto", replicas=[replica], kernels=[], missing={"forward": "one captured graph"})
    picture = figure_step([record.model_copy(update={"measurement": measured.model_copy(update={"trace": trace})})])
    assert "Not known: ddp: one captured graph" in picture.caption and set(picture.data["phase"]) == {"forward_backward", "update"}


def test_without_traces_the_pictures_say_so() -> None:
    for draw in (figure_step, figure_waterfall):
        picture = draw([make_record(devices=2)])
        assert picture.finding == "" and "No" in picture.alt and picture.data.empty
    with pytest.raises(ValueError, match="step 7 was not traced: choose one of 0 to 2"):
        figure_step([traced_record()], step=7)


def test_a_waterfall_adds_up() -> None:
    """100 units in 10 ms alone, in 20 ms together, of which skew takes 4, communication 1 and the host's work 4 ms; 1 ms is left."""
    fall = waterfall(100, 0.010, 0.020, {"skew": 0.004, "communication": 0.001, "host_copies": 0.0, "host_work": 0.004})
    assert fall.ideal == pytest.approx(10_000) and fall.measured == pytest.approx(5_000)
    assert fall.seconds["rest"] == pytest.approx(0.001)
    # 10 of 20 ms are 5,000 units/s: 500 a millisecond, whichever cause comes first
    losses = {"skew": 2_000, "communication": 500, "host_copies": 0, "host_work": 2_000, "rest": 500}
    assert fall.losses == pytest.approx(losses) and list(fall.losses) == list(CAUSES)
    assert fall.ideal - sum(fall.losses.values()) == pytest.approx(fall.measured)


def test_shares_of_a_waterfall_are_those_of_the_steps_parts() -> None:
    """What skew takes of N times one device is its share of the step, as where steps are taken apart."""
    many = traced_record(8, placement="exp4", units_per_s=6e6)
    ((_, _, fall),) = waterfalls([make_record("independent", 1, units_per_s=2e6), many])
    row = causes_frame([many]).iloc[0]
    assert row["skew_s"] > 0
    assert fall.losses["skew"] / fall.ideal == pytest.approx(row["skew_s"] / row["timed_step_s"])


def test_one_device_is_the_fastest_run_by_its_median_and_no_lucky_repeat() -> None:
    often = [make_record("independent", 1, units_per_s=rate, repeat=index) for index, rate in enumerate((1.0e6, 1.1e6, 3e6))]
    steady = [make_record("ddp", 1, units_per_s=rate, repeat=index) for index, rate in enumerate((1.2e6, 1.2e6))]
    (one,) = fastest_alone([*often, *steady]).values()
    assert one.run.placement == "ddp"
    (one,) = fastest_alone(often).values()
    assert one.key == often[1].key, "of 1, 1.1 and 3 M the one in the middle"


def test_waterfalls_compare_with_the_fastest_device_of_the_same_job() -> None:
    one, slow = make_record("independent", 1, units_per_s=2e6), make_record("ddp", 1, units_per_s=1e6)
    other = make_record("ddp", 1, units_per_s=9e6, batch_size=64)
    many = traced_record(8, placement="exp4", units_per_s=6e6)
    ((record, alone, fall),) = waterfalls([slow, other, many, one])
    assert (record.key, alone.key) == (many.key, one.key) and fall.ideal == pytest.approx(16e6) and fall.measured == pytest.approx(6e6)
    picture = figure_waterfall([one, many])
    assert picture.finding == "", "skew alone is more than all that is lost: 24 ms of a step, and one device takes 13 of its 34"
    faster = figure_waterfall(
        [one.model_copy(update={"measurement": one.measurement.model_copy(update={"wall_s": one.measurement.wall_s / 2})}), many]
    )  # type: ignore[union-attr]
    assert faster.finding == "Exp4 on 8 GPUs loses 81% of perfect scaling, 71% to launch skew"
    assert picture.data["ideal"].iloc[0] - sum(picture.data[f"lost_{cause}"].iloc[0] for cause in CAUSES) == pytest.approx(6e6)
    assert waterfalls([other, many]) == [], "another batch is another job"
