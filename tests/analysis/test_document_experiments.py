"""Document 000's experiments on real lengths: which Runs stand beside which figures."""

from __future__ import annotations

import re

import pandas as pd
import pytest

from multigpu.analysis import document_experiments as page
from multigpu.analysis.frame import frame_of
from multigpu.grid.batching import rebuilt
from tests.factory import make_machine, make_point, make_record

TEXT = {"inputs": "lengths_000", "sequence_length": None, "input_label": "lengths"}
TF = {"framework": "tensorflow", "execution": "graph", "processes": "one", "precision": "tf32"}


def rows_of(html: str) -> list[list[str]]:
    """The table's rows of cells, without its style."""
    bodies = re.sub(r"<style>.*?</style>", "", html, flags=re.DOTALL)
    return [re.findall(r">([^<>]+)</t[dh]>", row) for row in re.findall(r"<tr.*?</tr>", bodies, flags=re.DOTALL)]


@pytest.fixture(scope="module")
def frame():
    records = [make_record("exp2", n, 1e5 * x, **TEXT, **TF) for n, x in ((1, 1.0), (2, 1.5), (4, 2.5))]
    for devices, speedup in ((1, 1.0), (4, 3.0)):
        rates = [2e5 * speedup * x for x in (1.0, 1.01, 0.99, 1.0, 1.0)]
        records += make_point(rates, "aabcd", placement="exp4", devices=devices, **TEXT)
    records += [make_record("exp4", n, 5e4 * n, processes="one", **TEXT) for n in (1, 4)]
    # none of these rebuilds a table: equal lengths, a shared bucket, another law, a corpus, another batch
    wrong = 9.99e6
    records += [
        make_record("exp2", 2, wrong, **TF),
        make_record("exp2", 3, wrong, **TEXT, **TF, batching="shared"),
        make_record("exp2", 3, wrong, **TEXT | {"inputs": "bucket_means_000"}, **TF),
        make_record("exp2", 3, wrong, **TEXT | {"inputs": "catalogs"}, **TF),
        make_record("exp2", 3, wrong, **TEXT, **TF, batch_size=64),
    ]
    return frame_of(records)


def test_each_count_has_the_documents_figures_and_ours(frame):
    rows = rows_of(page.experiment_table(frame, "Exp2").html)
    table = {row[0]: row[1:] for row in rows if row and row[0].isdigit()}
    assert table["1"] == ["11,174", "1.00", "100,000", "1.00"] and table["2"] == ["11,188", "1.00", "150,000", "1.50"]
    assert table["3"] == ["18,104", "1.62", "not measured", "–"] and table["4"] == ["18,908", "1.69", "250,000", "2.50"]
    assert list(table) == [str(n) for n in range(1, 9)] and table["8"] == ["21,916", "1.96", "not measured", "–"]


def test_ways_of_one_framework_stand_apart_with_their_repeats(frame):
    html = page.experiment_table(frame, "Exp4").html
    table = {row[0]: row[1:] for row in rows_of(html) if row and row[0].isdigit()}
    assert table["4"][:4] == ["22,216", "1.51", "200,000", "4.00"]  # one process
    assert table["4"][4] == "599,976"  # all words over all time: 5 / (3 + 1 / 1.01 + 1 / 0.99) of 600,000
    assert re.fullmatch(r"3\.00 \(2\.\d\d to 3\.\d\d\)", table["4"][5])
    assert "PyTorch, one process: bf16, eager, one process; n = 1 (screening)." in html
    assert "PyTorch: bf16, eager, a process a device; n = 5 over 4 launches on 1 and 4." in html


def test_what_was_not_measured_is_said(frame):
    html = page.experiment_table(frame, "Exp1").html
    assert "Not measured: TensorFlow: words/s, PyTorch, one process: words/s, PyTorch: words/s." in html.replace(";", ",")
    empty = frame_of([])
    assert "Ours is not yet measured" in page.experiment_table(empty, "Exp3").html
    assert page.experiments_finding(empty).startswith("No placement has a speedup on the document's lengths yet")
    with pytest.raises(ValueError, match="no experiment 'Exp5' on real lengths: choose one of Exp1, Exp2, Exp3, Exp4"):
        page.experiment_table(frame, "Exp5")


def test_the_finding_names_every_experiment(frame):
    text = page.experiments_finding(frame)
    assert "4 GPUs are so many times as fast as one: the document 1.76 (Exp1), 1.69 (Exp2), 1.66 (Exp3) and 1.51 (Exp4)" in text
    assert "TensorFlow 2.50 (Exp2), Exp1, Exp3 and Exp4 not measured" in text
    assert "PyTorch, one process 4.00 (Exp4)" in text


def test_the_corrected_batch_stands_beside_the_correction(frame):
    assert "6.44" in page.correction_table(frame).html and "Ours is not yet measured" in page.correction_table(frame).html
    ours = frame_of([make_record("exp4", n, 1e5 * n, batch_size=384, processes="one", **TEXT) for n in (1, 4)])
    rows = rows_of(page.correction_table(ours).html)
    assert ["PyTorch, one process", "8x-nvidia-h200", "4", "400,000", "4.00"] in rows


@pytest.fixture(scope="module")
def smaller():
    """Another machine's Records: Exp1 in a process each, Exp2 in one process, the author's batch, Exp5 at 360 (on one GPU lent away)."""
    machine = make_machine(2)
    lent = machine.model_copy(update={"name": "8x-nvidia-h200", "own_name": machine.name})
    records = [make_record("exp1", n, 2e5 * x, machine=machine, **TEXT) for n, x in ((1, 1.0), (2, 2.14))]
    records += [make_record("exp2", n, 1e5 * x, machine=machine, processes="one", **TEXT) for n, x in ((1, 1.0), (2, 1.61))]
    records += [make_record("exp4", n, 6e5 * x, machine=machine, batch_size=384, processes="one", **TEXT) for n, x in ((1, 1.0), (2, 1.88))]
    return [
        *records,
        make_record("exp4", 1, 9e5, machine=lent, batch_size=360, **TF),
        make_record("exp4", 2, 1.602e6, machine=machine, batch_size=360, **TF),
    ]


def test_what_another_machine_measured_stands_beneath_under_its_name(frame, smaller):
    """Exp1 was measured on the smaller machine alone: 2.14 times its own one GPU, beside the document's 1.03."""
    everything = pd.concat([frame, frame_of(smaller)], ignore_index=True)
    html = page.experiment_tables(frame, everything).html
    main, below = html.split("On 2x-nvidia-h200: PyTorch, one process", 1)
    first = main[: main.index("Exp2, batch")]
    assert "PyTorch: on 2x-nvidia-h200, below." in first and "Not measured: PyTorch: words/s" not in first
    assert ["Exp2", "2", "161,000", "1.61", "1.00"] in rows_of(below)
    assert ["Exp1", "2", "428,000", "2.14", "1.03"] in rows_of(below)
    assert "2.14" not in page.experiment_tables(frame).html  # of one machine alone nothing changes

    text = page.experiments_finding(frame, everything=everything)
    assert "TensorFlow 2.50 (Exp2), Exp1, Exp3 and Exp4 not measured there" in text
    assert "On 2x-nvidia-h200, 2 GPUs are so many times as fast as one: the document 1.03 (Exp1)" in text
    assert "PyTorch 2.14 (Exp1), Exp2, Exp3 and Exp4 not measured." in text


def test_the_corrected_batch_of_another_machine_stands_beside_the_correction(frame, smaller):
    html = page.correction_table(frame, pd.concat([frame, frame_of(smaller)], ignore_index=True)).html
    assert "Ours is not yet measured" not in html
    assert ["PyTorch, one process", "2x-nvidia-h200", "2", "1,128,000", "1.88"] in rows_of(html)


def test_a_machines_two_gpus_are_compared_with_its_own_one_though_that_is_read_as_anothers(frame, smaller):
    """1.602 over 0.9 M words/s, both measured on the smaller machine: the document's own 1.78."""
    everything = page.in_tensorflow(frame_of(smaller))
    html = page.beside_elsewhere(everything, frame, "Exp5").html
    rows = {row[0]: row[1:] for row in rows_of(html) if row and row[0].isdigit()}
    assert rows["2"][:4] == ["69,693", "1.78", "1,602,000", "1.78"] and set(rows) == {"1", "2"}
    assert "2x-nvidia-h200: " in html and "batch 128" not in html.lower()
    assert "No other machine" in page.beside_elsewhere(everything.iloc[:0], frame, "Exp5").html


def test_the_grid_measures_every_experiment_in_both_shapes():
    runs = [entry.run for entry in rebuilt([1, 2, 4])]
    assert {(run.placement, run.devices) for run in runs if run.processes == "one" and run.batch_size == 128} == {
        (f"exp{number}", count) for number in (1, 2, 3, 4) for count in (1, 4)
    }
    assert {(run.placement, run.devices) for run in runs if run.processes == "per_device"} == {
        (f"exp{number}", count) for number in (1, 3) for count in (1, 2, 4)
    }
    assert [(run.placement, run.devices) for run in runs if run.batch_size == 384] == [("exp4", 4), ("exp4", 1)]
    assert {run.inputs for run in runs} == {"lengths_000"} and {entry.tier for entry in rebuilt([1, 2, 4])} == {"screening"}


def test_tensorflows_plain_rows_are_of_one_way():
    """A loop of cells and sparse gradients of embeddings are other ways: under one heading they would stand twice."""
    records = [make_record("exp4", 1, 1e6, **TF), make_record("exp4", 1, 2e5, **TF, recurrence="stepwise")]
    records += [make_record("exp4", 1, 9e5, **TF, embedding_gradients="sparse"), make_record("exp4", 1, 5e5, **TF | {"precision": "fp32"})]
    rows = page.in_tensorflow(frame_of([*records, make_record("exp4", 1, 2e6)]))
    assert rows["units_per_s"].round().tolist() == [1e6]
