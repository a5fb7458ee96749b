"""Pictures of a step and of where the rate went: drawn from Records, titled by what they support."""

from __future__ import annotations

from multigpu.analysis.figure_step import figure_step
from multigpu.analysis.picture import shown
from multigpu.measure.trace import TraceSummary
from multigpu.record import Record
from tests.analysis.traced import step_of, traced_record


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
