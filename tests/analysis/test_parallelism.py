"""The page on kinds of parallelism: on planted Records, and without any."""

from __future__ import annotations

import re
from pathlib import Path

import pandas as pd
import pytest
from matplotlib.figure import Figure

from multigpu import claims
from multigpu.analysis import figure_parallelism as figures
from multigpu.analysis import parallelism as page
from multigpu.analysis.frame import frame_of, load_frame
from multigpu.analysis.partition_bytes import crossing_batch, cut_bytes_per_row, data_parallel_bytes, expected_idle, sent_share
from multigpu.record import RecordStore
from multigpu.workloads import find_model
from tests.factory import make_machine, make_point, make_record, plant

RATES = (1.0, 1.01, 0.99, 1.0, 1.005)


def planted(folder: Path, two: float = 1.6, four: float = 2.4):
    """The fully connected model and the translation model's layers with these speedups, and layer types measured once."""
    records = []
    for devices, speedup in ((1, 1.0), (2, two), (4, four)):
        rates, shared = [1e6 * speedup * x for x in RATES], {"devices": devices, "scaling": "strong"}
        records += make_point(rates, workload="stacks", placement="tensor_split", **shared)
        records += make_point([x / 10 for x in rates], placement="layer_split", processes="one", **shared)
        if devices == 4:
            records.append(make_record(placement="layer_split", processes="one", micro_batches=4, units_per_s=3e5, **shared))
        for batch, ahead in ((16, 2.0), (8192, 0.5)):
            for placement, factor in (("tensor_split", ahead), ("ddp", 1.0)):
                more = {"workload": "stacks", "model": "stack_dense", "batch_size": batch, "placement": placement, **shared}
                records.append(make_record(units_per_s=1e5 * factor, **more))
    return load_frame(plant(RecordStore(folder), records))


@pytest.fixture(scope="module")
def frame(tmp_path_factory):
    return planted(tmp_path_factory.mktemp("records"))


def test_what_each_device_sends_by_hand():
    # of 4 devices: each sends 3/2 of its gradients in a ring all-reduce; an all-gather passes 3/4 of the whole through each
    assert [4 * sent_share("all_reduce", 4), 4 * sent_share("reduce_scatter", 4), sent_share("all_gather", 4)] == [1.5, 0.75, 0.75]
    model = find_model("stacks", "mlp42m")
    assert data_parallel_bytes(model, 4) == 1.5 * 4 * 41_777_152
    assert cut_bytes_per_row(model, 4) == 1.5 * (4 * 2560 * 2 + 3 * 4)
    assert crossing_batch(model, 4) == crossing_batch(model, 8) == pytest.approx(4 * 41_777_152 / (4 * 2560 * 2 + 12))
    with pytest.raises(ValueError, match="'nmt000' does not say how its matrices are cut"):
        cut_bytes_per_row(find_model("nmt", "nmt000"), 4)


def test_the_projection_keeps_a_pipeline_idle():
    equal, by_work = expected_idle(find_model("nmt", "nmt000"), 4, 8)
    assert equal == pytest.approx(3 / 11) and by_work > 0.6


def test_the_answer_comes_from_records(frame):
    text = str(page.answer(frame))
    assert "dense at a batch of 16" in text and "name the faster kind in 2 of 2 cases" in text
    assert "matrices over devices 2.40" in text
    assert "speedup 2.40" in text and "at best 3.00, with 4" in text
    assert page.ABSENT not in text


def test_the_answer_is_of_what_is_shown_and_names_other_machines(frame):
    """Layers of 2 GPUs are shown; those of another machine's 4 GPUs, whose one GPU was not measured, stand apart under its name."""
    other, layers = make_machine(4), {"workload": "stacks", "model": "stack_dense", "scaling": "strong", "devices": 4}
    shown = frame[frame["devices"] <= 2]
    rates = ((16, "ddp", 1e5), (16, "tensor_split", 1e4), (8192, "ddp", 1e5), (8192, "tensor_split", 1e4))
    theirs = [make_record(units_per_s=rate, batch_size=b, placement=p, machine=other, **layers) for b, p, rate in rates]
    everything = pd.concat([shown, frame_of(theirs)], ignore_index=True)
    text = page.answer(shown, everything).html
    assert "Measured on 2 GPUs (screening), cutting matrices beats data parallelism by more than 5% for dense at a batch of 16" in text
    assert "Measured on 4 GPUs of 4x-nvidia-h200 (screening), cutting matrices beats data parallelism by more than 5% for no kind" in text
    table = page.further_layers_table(everything, shown).html
    # 16 rows at 1e5 rows a second and at 1e4
    assert (
        "Dense layers, 4 GPUs of 4x-nvidia-h200" in table and "0.16" in table and "1.60" in table and "one device was not measured" in table
    )
    assert "No other machine" in page.further_layers_table(shown, shown).html

    alike = [
        make_record(units_per_s=r, batch_size=b, placement=p, machine=other, **layers)
        for b, p, r in ((16, "ddp", 1e5), (16, "tensor_split", 2e5), (8192, "ddp", 1e5), (8192, "tensor_split", 5e4))
    ]
    again = page.answer(shown, pd.concat([shown, frame_of(alike)], ignore_index=True)).html
    assert "The same on 4 GPUs of 4x-nvidia-h200." in again


def test_without_records_the_page_says_so_and_shows_the_bytes(frame):
    nothing = frame.iloc[:0]
    said = re.sub("</?code>", "", page.answer(nothing).html)
    assert page.ABSENT.replace("`", "") in said and "4,113 rows (dense)" in said
    for table in (page.speedup_table, page.pipeline_table):
        assert "No Record of GPUs yet: <code>python -m multigpu measure" in str(table(nothing))
        assert page.NONE_HERE in str(table(nothing, nothing=page.NONE_HERE))
    for figure in (figures.figure_layer_steps, figures.figure_speedup, figures.figure_pipeline):
        assert page.ABSENT in figure(nothing).alt
    assert len(figures.figure_layer_bytes().data) and "MiB" in str(page.bytes_html())


def test_tables_and_figures_of_planted_records(frame):
    table = page.pipeline_points(frame)
    micro = table[(table["devices"] == 4) & (table["parts"] == 4)].iloc[0]
    assert micro["idle"] == pytest.approx(1 - 3 / 4, abs=0.01)
    assert "2.2" not in str(page.speedup_table(frame)).replace("2.40 (2.2", "")  # the document's figure is for 8
    drawn = figures.figure_pipeline(frame), figures.figure_speedup(frame), figures.figure_layer_steps(frame)
    assert all(len(picture.data) and picture.alt and picture.caption for picture in drawn)


@pytest.mark.parametrize(
    ("two", "four", "c31", "c40"),
    [
        (1.6, 2.4, "holds", "does not hold"),
        (0.9, 0.8, "does not hold", "holds"),
        (1.98, 3.96, "does not hold", "does not hold"),
        (1.5, 1.8, "holds", "holds"),
    ],
)
def test_claims_on_planted_speedups(tmp_path, two, four, c31, c40):
    frame = planted(tmp_path, two, four)
    assert claims.evaluate(claims.find_claim("C31"), frame).verdict == c31
    assert claims.evaluate(claims.find_claim("C40"), frame).verdict == c40


def test_a_panel_of_one_point_is_left_out_and_named(tmp_path):
    once = {"workload": "stacks", "devices": 4, "scaling": "strong", "placement": "ddp"}
    records = [make_record(model="stack_dense", batch_size=batch, units_per_s=1e5, **once) for batch in (16, 128)]
    records.append(make_record(model="stack_recurrent", batch_size=16, units_per_s=1e5, **once))
    drawn = figures.figure_layer_steps(load_frame(plant(RecordStore(tmp_path), records)))
    assert "Not drawn, as too little was measured: convolution (none) and recurrent (1 point)." in drawn.caption
    assert [ax.get_title(loc="left") for ax in drawn.axes] == ["dense"] and drawn.finding == ""
    alone = figures.figure_layer_steps(load_frame(plant(RecordStore(tmp_path / "alone"), records[2:])))
    assert alone.alt == "Step times to compare are missing: dense (none), convolution (none) and recurrent (1 point)."


def test_the_figure_of_steps_says_how_often_cutting_is_faster(frame):
    finding = figures.figure_layer_steps(frame).finding
    assert finding == "On 4 GPUs cutting matrices is faster in 1 of 2 cases in which both ways were measured (screening)"


@pytest.mark.parametrize(("low", "high", "ticks"), [(3.8, 7.1, ["4", "5", "6", "7"]), (0.9, 120, ["1", "2", "5", "10", "20", "50", "100"])])
def test_ticks_of_times_are_plain_numbers(low, high, ticks):
    ax = Figure().add_subplot()
    ax.set_ylim(low, high)
    figures.times_axis(ax)
    shown = [text.get_text() for text, at in zip(ax.get_yticklabels(), ax.get_yticks(), strict=True) if low <= at <= high]
    assert shown == ticks
