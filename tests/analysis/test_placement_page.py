"""The page on the cost of placements: rows and bars that a reader can tell apart, on planted and on the committed Records."""

from collections import Counter

from multigpu.analysis import placement_page
from multigpu.analysis.causes import causes_frame
from multigpu.analysis.execution import execution_points
from multigpu.analysis.figure_causes import bar_name
from multigpu.analysis.frame import load_frame
from multigpu.analysis.wording import describe
from multigpu.paths import RUNS
from multigpu.record import Record, RecordStore
from multigpu.study import published
from tests.analysis.traced import traced_record


def slower(record: Record, times: float, repeat: int) -> Record:
    own = record.measurement
    assert own
    return record.model_copy(update={"repeat": repeat, "measurement": own.model_copy(update={"wall_s": times * own.wall_s})})


def test_of_a_point_traced_again_the_median_launch_is_shown() -> None:
    first = traced_record(2, model="nmt000", batch_size=128, precision="bf16")
    records = [slower(first, times, repeat) for repeat, times in enumerate((1.0, 9.0, 2.0))]
    assert [record.repeat for record in placement_page.typical(records)] == [2]
    assert [record.repeat for record in placement_page.typical([*records[:2]])] == [0], "of two the faster"
    said = placement_page.spread_sentence(records)
    assert "in 3 launches. The launch of median step is shown." in said and placement_page.spread_sentence(records[:2]) == ""


def test_no_two_rows_or_bars_of_the_page_have_one_name() -> None:
    """Sentences of other lengths, another layout or a trace repeated would stand under the same name with other figures."""
    jobs = placement_page.jobs_of(published(load_frame(RUNS)))
    points = execution_points(jobs[(jobs["placement"] == "ddp") & jobs["bucket_mib"].isna()], causes_frame([]))
    rows = Counter((row["model"], row["devices"], describe(row, ["execution", "cross_entropy"])) for _, row in points.iterrows())
    assert len(rows) > 20 and rows.most_common(1)[0][1] == 1
    own = placement_page.records_of(RecordStore(RUNS), jobs["machine"])
    bars = Counter((row["model"], row["devices"], bar_name(row)) for _, row in causes_frame(placement_page.typical(own)).iterrows())
    assert len(bars) > 60 and bars.most_common(1)[0][1] == 1
