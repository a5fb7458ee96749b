"""The page on the cost of placements: rows and bars that a reader can tell apart, on planted and on the committed Records."""

from collections import Counter

import pandas as pd

from multigpu.analysis import placement_page, ways
from multigpu.analysis.causes import causes_frame
from multigpu.analysis.execution import execution_points
from multigpu.analysis.figure_causes import bar_name
from multigpu.analysis.frame import frame_of, load_frame
from multigpu.analysis.placement_page import on_several
from multigpu.analysis.wording import describe
from multigpu.paths import RUNS
from multigpu.record import Record, RecordStore
from multigpu.same_gpus import other_machine
from multigpu.study import published
from tests.analysis.traced import traced_record
from tests.factory import make_point


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
    assert "in 3 launches. The launch of median such step is shown" in said and "before its profiler begins" in said
    assert placement_page.spread_sentence(records[:2]) == ""


def of(machine: str, placement: str, devices: int, rate: float, repeats: int = 5, **fields: object) -> list[Record]:
    """A point of the page's first job on a machine of four H200s called `machine`."""
    rates = [rate * (1 + 0.001 * repeat) for repeat in range(repeats)]
    made = make_point(rates, placement=placement, devices=devices, model="nmt000", batch_size=128, precision="bf16", **fields)
    return [record.model_copy(update={"machine": record.machine.model_copy(update={"name": machine})}) for record in made]


def test_the_other_machine_is_the_one_with_most_of_the_jobs_on_several_devices() -> None:
    host = of("host", "ddp", 4, 4e6)
    small = of("small", "exp4", 2, 2e6) + of("small", "exp2", 2, 1e6)
    single, smaller = (
        of("single", "ddp", 1, 1e6) + of("single", "exp4", 1, 1e6) + of("single", "exp2", 1, 1e6),
        of("smaller", "ddp", 2, 2e6),
    )
    assert other_machine([*host, *single, *smaller, *small], ["host"], on_several) == "small"
    assert other_machine([*host, *single], ["host"], on_several) == "" == other_machine([], [], on_several)
    renamed = [r.model_copy(update={"machine": r.machine.model_copy(update={"name": "host", "own_name": "small"})}) for r in small]
    assert other_machine([*host, *renamed], ["host"], on_several) == "small", "also where its Records count under another's name"
    foreign = [r.model_copy(update={"machine": r.machine.model_copy(update={"gpus": ["another"] * 2})}) for r in small]
    assert other_machine([*host, *foreign], ["host"], on_several) == ""


def test_tables_say_how_complete_and_how_alike_they_are() -> None:
    shares = {"ddp": 0.9, "exp4": 0.8, "exp3": 0.7, "exp2": 0.4, "exp1": 0.5}

    def costs(devices: int, shares: dict[str, float]) -> pd.DataFrame:
        records = of("host", "independent", devices, 1e6) + [
            r for name, share in shares.items() for r in of("host", name, devices, share * 1e6)
        ]
        return ways.placement_costs(placement_page.beside_bounds(placement_page.jobs_of(frame_of(records))), causes_frame([]))

    four, two = costs(4, shares), costs(2, {name: 1.1 * share for name, share in shares.items()})
    assert "On 4 GPUs, 6 of 6 rows have 5 repeats or more over several launches, and 0 have a trace;" in placement_page.completeness(four)
    alike = placement_page.likeness(four, two)
    assert "of 5 ways, 5 keep more of their ceiling on 2 GPUs than on 4 and 0 less, beyond both intervals" in alike
    assert "Rank correlation of the two orders: 1.00" in alike
    wide = two.assign(of_independent_low=0.1)
    assert "of 5 ways, 0 keep more" in placement_page.likeness(four, wide), "intervals that overlap tell nothing"
    assert "Rank correlation of the two orders: -1.00" in placement_page.likeness(
        four, costs(2, {name: 1 - v for name, v in shares.items()})
    )
    assert placement_page.likeness(four, two[two["placement"] != "ddp"]) == "", "of so few there is no order to speak of"
    assert placement_page.completeness(four.iloc[:0]) == "No Record to show."


def test_words_about_another_machine_are_there_only_with_its_rows() -> None:
    costs = ways.placement_costs(
        placement_page.beside_bounds(placement_page.jobs_of(frame_of(of("small", "ddp", 2, 1e6)))), causes_frame([])
    )
    said = placement_page.smaller_machine(costs)
    assert said is not None and "Another machine with the same GPUs, small: the same placements and ways on 2 GPUs" in said.html
    assert placement_page.smaller_machine(costs.iloc[:0]) is None


def test_a_loop_of_cells_is_no_row_beside_bounds() -> None:
    frame = frame_of(of("host", "ddp", 4, 4e6) + of("host", "ddp", 4, 1e5, recurrence="stepwise"))
    assert placement_page.beside_bounds(placement_page.jobs_of(frame))["recurrence"].isna().all()


def test_no_two_rows_or_bars_of_the_page_have_one_name() -> None:
    """Sentences of other lengths, another layout or a trace repeated would stand under the same name with other figures."""
    jobs = placement_page.jobs_of(published(load_frame(RUNS)))
    points = execution_points(jobs[(jobs["placement"] == "ddp") & jobs["bucket_mib"].isna()], causes_frame([]))
    rows = Counter((row["model"], row["devices"], describe(row, ["execution", "cross_entropy"])) for _, row in points.iterrows())
    assert len(rows) > 20 and rows.most_common(1)[0][1] == 1
    own = placement_page.records_of(RecordStore(RUNS), jobs["machine"])
    bars = Counter((row["model"], row["devices"], bar_name(row)) for _, row in causes_frame(placement_page.typical(own)).iterrows())
    assert len(bars) > 60 and bars.most_common(1)[0][1] == 1
