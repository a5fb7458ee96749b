"""Document 000's experiments on real lengths: which Runs stand beside which figures."""

from __future__ import annotations

import re

import pytest

from multigpu.analysis import document_experiments as page
from multigpu.analysis.frame import frame_of
from multigpu.grid.batching import rebuilt
from tests.factory import make_point, make_record

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
    assert ["PyTorch, one process", "4", "400,000", "4.00"] in rows


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
