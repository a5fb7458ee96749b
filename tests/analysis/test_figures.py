"""Figures: drawn from any frame, titled by what the data support, saved byte for byte the same."""

import re
from itertools import pairwise

import pandas as pd
import pytest
from matplotlib.markers import CARETRIGHT

from multigpu.analysis.documents import experiment_of
from multigpu.analysis.figures import figure_bytes, figure_models, figure_scaling, figure_steps, figure_throughput, save, shown
from multigpu.analysis.findings import settled_step, warmup_finding
from multigpu.analysis.frame import frame_of, step_times
from multigpu.analysis.layout import LEFT, MOST_WIDTH, RIGHT, grid_of_axes, spread_labels
from multigpu.analysis.style import look
from multigpu.record import RecordStore
from tests.analysis.planted import SHARES, screening, study
from tests.factory import make_point, make_record, plant


def by_model(**fields: object) -> pd.DataFrame:
    """ddp on two devices at 90% of perfect scaling, Exp2 at 150% in launches so far apart that its interval goes beyond 160%."""
    rates = {("ddp", 1): [100.0] * 5, ("ddp", 2): [180.0] * 5, ("exp2", 1): [100.0] * 5, ("exp2", 2): [250.0, 300.0, 350.0, 340.0, 260.0]}
    return frame_of([record for (name, count), of in rates.items() for record in make_point(of, placement=name, devices=count, **fields)])


def test_an_interval_that_the_axis_cuts_ends_in_an_arrow_that_the_caption_explains():
    picture = figure_models(by_model())
    (ax,) = picture.axes
    edge = ax.get_xlim()[1]
    (row,) = [row for _, row in picture.data.iterrows() if row["placement"] == "exp2"]
    assert 100 * row["efficiency_high"] > edge > 100 * row["efficiency"]
    arrows = [line for line in ax.lines if line.get_marker() == CARETRIGHT]
    assert [tuple(line.get_xdata()) for line in arrows] == [(edge,)] and arrows[0].get_color() == look("exp2").colour
    assert "Arrows: the interval goes on beyond the edge." in picture.caption
    whole = figure_models(by_model().query("placement == 'ddp'"))
    assert "Arrows" not in whole.caption and not [line for line in whole.axes[0].lines if line.get_marker() == CARETRIGHT]


def test_a_picture_of_many_models_fits_a_telephone_and_its_names_stand_above_their_marks():
    picture = figure_models(pd.concat([by_model(), by_model(batch_size=360, sequence_length=55)], ignore_index=True))
    (ax,) = picture.axes
    picture.draw_without_rendering()
    assert "min-width:307px" in shown(picture, "models").html, "5.2 inches of 72 points, at 82%"
    assert ax.get_position().width > 0.9, "no margin of names beside the axis"
    heads = [label.get_window_extent() for label in ax.get_yticklabels()]
    assert len(heads) == 2 and all(box.x0 > ax.get_window_extent().x0 for box in heads)
    marks = sorted(ax.transData.transform(line.get_xydata()[0])[1] for line in ax.lines if line.get_marker() in ("o", "^"))
    assert heads[0].y0 > marks[3] > marks[2] > heads[1].y1 > heads[1].y0 > marks[1], "name, marks, name, marks"
    inside = picture.get_window_extent()
    keys = picture.legends[0].get_window_extent()
    assert keys.y0 > ax.get_window_extent().y1 and keys.x1 < inside.x1


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    return plant(RecordStore(tmp_path_factory.mktemp("runs")), study())


@pytest.fixture(scope="module")
def frame(store):
    return frame_of(store)


PUBLISHED = pd.DataFrame(
    {
        "experiment": ["Exp5", "Exp5"],
        "batch_size": [128, 128],
        "gpus": [1, 4],
        "total_time_s": [44.5, 92.6],
        "words_per_s": [28_895.5, 55_550.5],
        "speedup": [None, 1.92],
    }
)


def every_figure(frame, steps):
    return {
        "scaling": figure_scaling(frame),
        "speedup": figure_scaling(frame, "speedup", "best"),
        "throughput": figure_throughput(frame, PUBLISHED),
        "steps": figure_steps(frame, steps),
        "bytes": figure_bytes(frame),
    }


def test_every_figure_says_what_it_shows(frame, store):
    for name, picture in every_figure(frame, step_times(store, frame["key"])).items():
        assert picture.finding, name
        assert "eak scaling" in picture.caption and "8x-nvidia-h200" in picture.caption, name
        assert picture.alt and len(picture.data), name
        labels = [ax.get_xlabel() for ax in picture.axes]
        assert len(labels) == 3 and all("weak scaling" in label for label in labels), name
        assert all(len(ax.get_lines()) <= 40 for ax in picture.axes), name


def test_a_line_that_never_leaves_one_device_is_not_drawn() -> None:
    """It would lie on the others' labels and say nothing of scaling."""
    records = [
        record
        for name, counts in (("ddp", (1, 4)), ("independent", (1, 4)), ("exp4", (1,)))
        for count in counts
        for record in make_point([1e6 * count] * 3, placement=name, devices=count)
    ]
    assert set(figure_scaling(frame_of(records)).data["placement"]) == {"ddp", "independent"}


@pytest.mark.parametrize("draw", [figure_scaling, figure_throughput, figure_bytes, lambda f: figure_steps(f, step_times("nowhere", []))])
def test_without_records_a_figure_says_so(draw):
    picture = draw(frame_of([]))
    assert picture.finding == "" and "no Record" in picture.alt
    assert "<svg" in shown(picture, "nothing", picture.data).html


def test_titles_follow_the_data(frame):
    assert figure_scaling(frame).finding == "NMT of 000: on 8 GPUs ddp reaches 72% of perfect scaling, Exp2 16%"
    turned = {**SHARES, "exp2": SHARES["ddp"], "ddp": SHARES["exp2"]}
    finding = figure_scaling(frame_of(study(shares=turned))).finding
    assert "Exp2 reaches" in finding and finding.endswith("ddp 16%")


def test_data_that_support_no_finding_get_no_title():
    frame = frame_of(screening())
    assert figure_scaling(frame).finding == ""
    assert figure_throughput(frame).finding == ""
    assert "screening" in figure_scaling(frame).caption


def test_overlapping_intervals_are_no_difference():
    same = dict.fromkeys(("ddp", "exp4", "exp2"), SHARES["ddp"])
    assert "do not tell the placements apart" in figure_scaling(frame_of(study(shares=same))).finding


def test_a_missing_point_is_explained(frame):
    for picture in (figure_scaling(frame), figure_throughput(frame), figure_bytes(frame)):
        assert "Missing: Exp2 on 8 GPUs" in picture.caption and "out of memory: 150 GiB wanted, 128 there" in picture.caption


def test_lengths_start_at_zero(frame):
    for picture in (figure_bytes(frame), figure_scaling(frame, "speedup")):
        assert all(ax.get_xlim()[0] == 0 for ax in picture.axes)
    assert all(ax.get_ylim()[0] == 0 for ax in figure_scaling(frame).axes)


def test_at_most_seven_lines_a_panel():
    frame = frame_of([make_record(name, count) for name in ("ddp", "independent", "exp2", "exp4") for count in (1, 2)])
    twin = frame.assign(framework="tensorflow", key=frame["key"] + "t").astype({"framework": "string"})
    picture = figure_scaling(pd.concat([frame, twin], ignore_index=True))
    assert len(picture.data[["placement", "framework"]].drop_duplicates()) == 8
    assert picture.caption.split("No room for: ")[1].count("(NMT of 000") == 1


def test_a_job_on_one_gpu_alone_has_no_panel_and_the_front_compares_placements():
    """Seventeen panels stood on the front page, most of one line or of one point on one GPU."""
    records = [make_record(name, count) for name in ("ddp", "exp2", "independent") for count in (1, 2)]
    records += [make_record(name, count, batch_size=256) for name in ("ddp", "independent") for count in (1, 2)]
    records += [make_record("ddp", 1, batch_size=512)]
    frame = frame_of(records)
    every, compared = figure_scaling(frame, "efficiency", "best"), figure_scaling(frame, "efficiency", "best", compared=True)
    assert set(every.data["batch_size"]) == {128, 256} and len(every.axes) == 2 and "Left out" not in every.caption
    assert set(compared.data["batch_size"]) == {128} and "Left out: 1 job with one placement alone." in compared.caption
    alone = figure_scaling(frame[frame["batch_size"] == 256], compared=True)
    assert len(alone.axes) == 1 and "Left out" not in alone.caption, "a picture of one placement is better than none"


def test_throughput_of_one_placement_alone_has_no_panel_where_placements_are_compared():
    records = [make_record(name, count) for name in ("ddp", "exp2", "independent") for count in (1, 2)]
    records += [make_record(name, count, batch_size=256) for name in ("ddp", "independent") for count in (1, 2)]
    frame = frame_of(records)
    every, compared = figure_throughput(frame), figure_throughput(frame, compared=True)
    assert set(every.data["panel"].str.extract(r"batch (\d+)")[0]) == {"128", "256"} and "Left out" not in every.caption
    assert len(compared.axes) == 1 and "256" not in " ".join(compared.data["panel"])
    assert "Left out: 1 job with one placement alone." in compared.caption and "256" not in compared.alt
    alone = figure_throughput(frame[frame["batch_size"] == 256], compared=True)
    assert len(alone.axes) == 1 and "Left out" not in alone.caption, "a picture of one placement is better than none"


def test_repeated_points_come_before_those_measured_once():
    """Nine lines for seven places: the ceiling and the repeated one stay although they are the fastest, the fastest of the others go."""
    slow_to_fast = ("exp1", "exp2", "exp3", "exp4", "ps_gpu0", "replicated_copy", "replicated_allreduce", "independent")
    records = [
        make_record(name, count, units_per_s=1000.0 * count * (0.5 + 0.05 * place) if count > 1 else 1000.0)
        for place, name in enumerate(slow_to_fast)
        for count in (1, 2)
    ]
    records += [*make_point([1000.0, 1001.0, 1002.0, 1003.0, 1004.0], placement="ddp", devices=1)]
    records += [*make_point([1990.0, 1991.0, 1992.0, 1993.0, 1994.0], placement="ddp", devices=2)]
    left_out = figure_scaling(frame_of(records)).caption.split("No room for: ")[1]
    assert left_out.startswith("replicated, copies, all-reduce, no overlap (")


def test_the_documents_figure_is_drawn_where_one_exists(frame):
    picture = figure_throughput(frame, PUBLISHED)
    theirs = picture.data[picture.data["source"] != "Records"]
    assert theirs[["placement", "devices", "units_per_s"]].values.tolist() == [["exp4", 1, 28_895.5], ["exp4", 4, 55_550.5]]
    assert "Hollow" in picture.caption
    assert "Hollow" not in figure_throughput(frame).caption


def test_which_experiment_a_point_rebuilds():
    rows = [
        ({"placement": "exp4"}, "Exp5"),
        ({"placement": "exp2"}, ""),
        ({"placement": "exp4", "sequence_length": 50}, ""),
        ({"placement": "exp2", "sequence_length": None, "inputs": "lengths_000"}, "Exp2"),
        ({"placement": "ddp", "sequence_length": None, "inputs": "lengths_000"}, ""),
        ({"placement": "exp4", "scaling": "strong"}, ""),
        ({"placement": "exp4", "workload": "cnn"}, ""),
    ]
    for fields, experiment in rows:
        assert experiment_of(frame_of([make_record(**fields)]).iloc[0]) == experiment, fields


def test_bytes_compare_copies_only():
    # an all-reduce counts what is handed in, a copy what travels: no ratio of the two
    finding = figure_bytes(frame_of([make_record("ddp", 4), make_record("exp2", 4)])).finding
    assert "Exp2 copies" in finding and "ddp" not in finding


def test_warm_up_is_measured_shaded_and_settles(frame, store):
    picture = figure_steps(frame, step_times(store, frame["key"]))
    assert picture.finding == "The slowest first step takes 30 times as long as a timed one; all times settle after 3 steps"


def test_saving_twice_gives_the_same_bytes(frame, tmp_path):
    for folder in ("a", "b"):
        save(figure_scaling(frame), "scaling", folder=tmp_path / folder)
    for suffix in ("svg", "csv"):
        assert (tmp_path / f"a/scaling.{suffix}").read_bytes() == (tmp_path / f"b/scaling.{suffix}").read_bytes()
    svg = (tmp_path / "a/scaling.svg").read_text()
    assert "currentColor" in svg and "#1a1b1c" not in svg and "<metadata" not in svg and "prefers-color-scheme:dark" in svg
    assert pd.read_csv(tmp_path / "a/scaling.csv")["efficiency"].max() == pytest.approx(1)


def test_what_a_page_shows_is_self_contained(frame, tmp_path):
    html = save(figure_scaling(frame), "scaling", folder=tmp_path).html
    assert 'role="img" aria-label="Lines of efficiency' in html
    assert "<figcaption>Efficiency: units/s" in html and 'download="scaling.csv"' in html
    links = [link for link in re.findall(r'(?:href|src)="([^"]*)"', html) if not link.startswith(("#", "data:"))]
    assert links == []
    assert "\n\n" not in html
    ids = re.findall(r'\bid="([^"]*)"', html)
    assert all(name.startswith("scaling") for name in ids)
    # a style inside an SVG that stands in a page would reach the whole page
    (sheet,) = re.findall(r"<style[^>]*>(.*?)</style>", html, flags=re.DOTALL)
    rules = sheet.splitlines()
    assert rules[0] == "#scaling-figure_1 *{stroke-linejoin: round; stroke-linecap: butt}" and len(rules) > 2
    assert all(rule.startswith("#scaling-figure_1 ") and "," not in rule.split("{")[0] for rule in rules)


@pytest.mark.parametrize("name", ["../escape", "", "a b", "1st"])
def test_a_figure_needs_a_plain_name(frame, tmp_path, name):
    with pytest.raises(ValueError, match="is no name for a figure"):
        save(figure_bytes(frame), name, folder=tmp_path)


def test_a_folder_that_cannot_be_written_is_one_sentence(frame, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ValueError, match="cannot be written"):
        save(figure_bytes(frame), "bytes", folder=tmp_path / "file")


def test_labels_move_apart_and_stay_inside():
    assert spread_labels([0.5, 0.5], 0.1, 0, 1) == pytest.approx([0.45, 0.55])
    assert spread_labels([0.9, 0.1], 0.1, 0, 1) == [0.9, 0.1]
    placed = spread_labels([0.98, 0.99, 1.0], 0.1, 0, 1)
    assert max(placed) <= 1 and min(b - a for a, b in pairwise(placed)) == pytest.approx(0.1, abs=0.01)


def test_when_steps_settle():
    assert settled_step([9.0, 1.3, 1.1, 1.02], [1.0, 1.0, 1.2]) == 2
    assert settled_step([1.0, 1.0, 9.0], [1.0, 1.0]) == 3
    assert settled_step([1.04], [1.0, 1.0]) == 0
    assert warmup_finding([2.0], [3], 3) == "The first step takes 2.0 times as long as a timed one; some have not settled after 3 steps"
    assert warmup_finding([1.0], [0], 3) == "Steps are steady from the first"
    assert warmup_finding([], [], 3) is None


def test_no_picture_is_so_wide_that_its_letters_become_tiny():
    wide, axes = grid_of_axes(4, None, 4.2, 3.0, 2, 2.0)
    inches = wide.get_size_inches()[0]
    assert inches == pytest.approx(MOST_WIDTH) and axes[0].get_position().width * inches == pytest.approx(
        MOST_WIDTH / 2 - LEFT - 2.0 - RIGHT
    )
    stacked, axes = grid_of_axes(2, None, 4.2, 3.0, 2, 6.0)  # no room for two of them: one under the other
    assert axes[0].get_position().x0 == axes[1].get_position().x0 and stacked.get_size_inches()[0] <= MOST_WIDTH
    narrow, axes = grid_of_axes(2, None, 3.0, 2.0, 2, 1.0)
    assert axes[0].get_position().width * narrow.get_size_inches()[0] == pytest.approx(3.0)


def test_names_of_lines_that_stop_early_lie_on_no_other_name() -> None:
    """Six placements on 2 devices, and four of them on 4 too, all nearly as fast."""
    rates = {"independent": 1.0, "ddp": 0.98, "exp4": 0.97, "replicated_allreduce": 0.97, "ps_gpu0": 0.96, "replicated_copy": 0.96}
    records = [make_record(name, 1, 1e6) for name in rates]
    records += [make_record(name, 2, 2e6 * share) for name, share in rates.items()]
    records += [make_record(name, 4, 4e6 * share) for name, share in list(rates.items())[:4]]
    picture = figure_scaling(frame_of(records))
    picture.draw_without_rendering()
    (ax,) = picture.axes
    boxes = {text.get_text(): text.get_window_extent() for text in ax.texts}
    assert {"server on GPU 0", "replicated, copies", "ddp"} <= set(boxes)
    names = [name for name in boxes if boxes[name].width > 0]
    assert not [(one, other) for one in names for other in names if one < other and boxes[one].overlaps(boxes[other])]
