"""TensorFlow beside PyTorch: planted points whose tables, differences and sentences are worked out by hand."""

from __future__ import annotations

import math

import pandas as pd
import pytest

from multigpu.analysis import framework_anomaly, framework_images, framework_layers, framework_tables, framework_words
from multigpu.analysis.figure_frameworks import figure_frameworks, line_of
from multigpu.analysis.formulas import Interval
from multigpu.analysis.frame import frame_of, load_frame
from multigpu.analysis.framework_images import images
from multigpu.analysis.frameworks import (
    WAYS,
    Longer,
    document_experiments,
    experiments,
    forms,
    longer,
    step_times_by_devices,
)
from multigpu.analysis.ordinary import ordinary
from multigpu.grid.tensorflow import tensorflow_layers
from multigpu.paths import RUNS
from multigpu.reading import measured_by, study_records
from multigpu.record import Record
from multigpu.same_gpus import other_machine
from multigpu.study import of_all_machines, published
from tests.analysis.beside import TENSORFLOW, tf, torch
from tests.factory import make_point

# --- points -------------------------------------------------------------------------------------------------------------------


def test_every_way_says_its_arithmetic() -> None:
    names = [way.name for way in WAYS]
    assert len(set(names)) == len(names) and all(name.endswith((", TF32", ", bf16", ", fp32")) for name in names)


def test_experiments_hold_one_job_and_divide_a_way_by_itself() -> None:
    records = [tf(5e5, devices=1), tf(1.5e6), torch(1e6, devices=1), torch(3e6), torch(7e5, processes="one"), torch(2e6, precision="tf32")]
    records += [
        torch(9e6, execution="captured"),
        torch(9e6, sequence_length=50),
        torch(9e6, batch_size=360),
        tf(9e6, recurrence="stepwise"),
    ]
    records += [torch(9e6, placement="ddp"), tf(9e6, embedding_gradients="sparse"), torch(9e6, cross_entropy="fused")]
    table = experiments(frame_of(records))
    assert table["rate"].max() == pytest.approx(3e6), "other forms of the job are other jobs"
    speedups = table[table["devices"] == 4].set_index("way")["speedup"]
    assert speedups["TensorFlow, TF32"] == pytest.approx(3.0) and speedups["PyTorch, bf16"] == pytest.approx(3.0)
    assert math.isnan(speedups["PyTorch, one process, bf16"]) and math.isnan(speedups["PyTorch, TF32"]), "no other way's single GPU"


def test_the_documents_steps_are_its_totals_over_fifty_batches() -> None:
    table = document_experiments().set_index(["placement", "devices"])
    assert table["step_time_s"]["exp1", 2] == pytest.approx(55.923 / 50) and table["step_time_s"]["exp2", 3] == pytest.approx(51.901 / 50)
    assert table["speedup"]["exp4", 1] == 1.0 and table["speedup"]["exp4", 8] == 1.76 and len(table) == 32


def anomaly(two: list[float], three: list[float]) -> pd.DataFrame:
    """Exp2 in TensorFlow with these rates a GPU: a step's time is 25,600 words over one of them."""
    fields = TENSORFLOW | {"placement": "exp2"}
    records = make_point([2 * rate for rate in two], devices=2, launches="ab", **fields)
    return frame_of(records + make_point([3 * rate for rate in three], devices=3, launches="ab", **fields))


@pytest.mark.parametrize(
    ("two", "three", "verdict"),
    [
        ([1.0e5, 1.01e5, 1.0e5, 1.01e5], [2.0e5, 2.01e5, 2.0e5, 2.01e5], "longer"),
        ([2.0e5, 2.01e5, 2.0e5, 2.01e5], [1.0e5, 1.01e5, 1.0e5, 1.01e5], "shorter"),
        ([1.0e5, 1.2e5, 1.1e5], [1.1e5, 1.0e5, 1.2e5], "not told apart"),
        ([1.0e5], [2.0e5, 2.0e5], "once"),
    ],
)
def test_a_step_is_longer_only_where_the_interval_says_so(two: list[float], three: list[float], verdict: str) -> None:
    frame = anomaly(two, three)
    found = longer(frame, "exp2", 2, 3)
    assert found is not None and found.verdict == verdict
    assert found.document == pytest.approx(55.894 / 51.901)
    if verdict in ("longer", "shorter"):
        agrees = "as in the document" if verdict == "longer" else "the document's order is not found"
        assert agrees in framework_anomaly.anomaly_sentences(frame, [])[0]
    if verdict == "once":
        assert found.ratio == pytest.approx(2.0)
        assert "nothing is decided" in framework_anomaly.anomaly_sentences(frame, [])[0]
    assert longer(frame, "exp1", 2, 3) is None and longer(frame, "exp2", 2, 4) is None


def test_step_times_stand_beside_the_documents_with_their_spread() -> None:
    table = step_times_by_devices(anomaly([1e5, 2e5], [1e5]))
    two = table[table["devices"] == 2].iloc[0]
    assert (two["n"], two["launches"]) == (2, 2)
    assert (two["fastest_s"], two["slowest_s"]) == pytest.approx((0.128 * 1.005, 0.256 * 1.005), rel=6e-3)
    assert two["step_time_s"] == pytest.approx((two["fastest_s"] + two["slowest_s"]) / 2), "all time over all steps, not a mean of rates"
    assert two["document_s"] == pytest.approx(55.894 / 50)


def test_forms_are_grouped_and_compared_with_their_own_reference() -> None:
    records = [tf(2e6), tf(1e6, "exp2"), tf(3e5, recurrence="stepwise"), tf(2.5e5, "exp2", recurrence="stepwise")]
    records += [tf(1e6, "mirrored_nccl"), tf(5e5, inputs="lengths_000", sequence_length=None), torch(9e6), tf(8e5, precision="fp32")]
    records += [tf(1.8e6, embedding_gradients="sparse"), tf(7e5, inputs="lengths_000", sequence_length=None, batching="shared")]
    table = forms(frame_of(records), 4).set_index(["group", "placement"])
    shares = table["of_reference"]
    assert shares["tf.distribute", "mirrored_nccl"] == pytest.approx(0.5)
    assert shares["loop of cells", "exp2"] == pytest.approx(0.25) and shares["loop of cells", "exp4"] == pytest.approx(0.15)
    assert math.isnan(shares["the document's lengths", "exp4"]) and len(table) == 8, "shared buckets are another page's"
    assert shares["sparse gradients of tables", "exp4"] == pytest.approx(0.9) and shares["other arithmetic", "exp4"] == pytest.approx(0.4)
    assert "Exp4, fp32" in framework_tables.forms_gt(frame_of(records), 4).html
    assert "50% of Exp4 in-graph" in framework_tables.forms_gt(frame_of(records), 4).html


def test_images_are_divided_in_one_precision_alone() -> None:
    cnn = {"workload": "cnn"}
    records = [tf(6000, precision="bf16", **cnn), torch(12000, **cnn), torch(8000, processes="one", **cnn)]
    records.append(torch(1000, "exp2", precision="fp32", **cnn))
    records += [tf(9000, precision="bf16", **cnn | {"execution": "xla"}), tf(5000, "mirrored_nccl", precision="bf16", **cnn)]
    records += [torch(2.0, optimizer="sgd", **cnn), tf(3.0, precision="bf16", batch_size=32, **cnn)]
    table = images(frame_of(records), 4).set_index("placement")
    row = table.loc["exp4"]
    assert (row["tensorflow"] / row["torch"], row["tensorflow"] / row["torch_one"]) == pytest.approx((0.5, 0.75))
    assert set(table.index) == {"exp4", "mirrored_nccl"}, "every placement that TensorFlow trained, no other"
    assert math.isnan(table.loc["mirrored_nccl", "torch"]) and row["xla"] == pytest.approx(9000)
    said = framework_images.images_sentence(frame_of(records))
    assert "50% of PyTorch's rate" in said and "75% of that with one process" in said and "1.50 times as fast as its graph" in said
    html = framework_images.images_gt(frame_of(records), 4).html
    assert "6,000 (1)" in html and "0.75" in html and "9,000 (1)" in html
    assert "persistent" not in said and framework_images.WAYS["persistent"].name == "TensorFlow, persistent batch norm, bf16"
    records += [tf(9600, precision="bf16", batch_norm="persistent", **cnn)]
    row = images(frame_of(records), 4).set_index("placement").loc["exp4"]
    assert (row["tensorflow"], row["persistent"], row["persistent_n"]) == pytest.approx((6000, 9600, 1))
    assert "cuDNN's persistent batch norm makes its graph 1.60 times as fast (n = 1)" in framework_images.images_sentence(frame_of(records))
    records += [tf(7000, "multi_worker", precision="bf16", processes="per_device", **cnn)]
    assert images(frame_of(records), 4).set_index("placement").loc["multi_worker", "tensorflow"] == pytest.approx(7000)
    html = framework_images.images_gt(frame_of(records), 4).html
    assert "7,000 (1)" in html and "one process for all GPUs, but a process a GPU for multi-worker." in html
    assert framework_images.on_several(records[0]) and not framework_images.on_several(records[1])
    assert "not measured in both" in framework_images.images_sentence(frame_of([torch(1.0, **cnn)]))
    assert "not measured in TensorFlow" in framework_images.images_gt(frame_of([torch(1.0, **cnn)]), 4).html


def planted_layers(repeats: int, torch_rate: float = 1000.0) -> list[Record]:
    """What the grid measures: both frameworks alike, but PyTorch twice and 1.25 times as fast on the first two jobs."""
    records, faster = [], iter((2.0, 1.25))
    for entry in tensorflow_layers([1]):
        fields = entry.run.model_dump(exclude={"warmup_steps", "timed_steps"}, exclude_defaults=True)
        rate = torch_rate * (1.0 if entry.run.framework == "tensorflow" else next(faster, 1.0))
        records += make_point([rate * (1 + 0.001 * index) for index in range(repeats)], launches="ab", devices=1, **fields)
    return records


def test_stacks_stand_beside_each_other_job_by_job() -> None:
    frame = frame_of([*planted_layers(1), torch(9e6, "ddp", 1, workload="stacks"), tf(9e6, "independent", 1, workload="stacks")])
    table = framework_layers.layers(frame)
    assert list(table["ratio"]) == pytest.approx([2.0, 1.25, 1, 1, 1, 1]) and table["low"].isna().all() and set(table["n"]) == {1}
    assert list(dict.fromkeys(table["model"])) == ["stack_dense", "stack_convolution", "stack_recurrent"]
    first = table.iloc[0]
    assert (first["batch_size"], first["tensorflow_s"], first["torch_s"]) == (128, pytest.approx(0.128), pytest.approx(0.064))
    said = framework_layers.layers_sentence(frame)
    assert "2.00 times as long in TensorFlow as in PyTorch with dense layers at 128 rows (TF32)" in said and "decides nothing" in said
    assert "Of 6 such steps, 5 are within the document's factor of 1.5" in said
    assert len(framework_layers.stack_records(frame)) == 13 and "2.00 times" in framework_layers.layers_gt(frame).html


def test_repeated_stacks_have_intervals_and_missing_ones_a_reason() -> None:
    records = planted_layers(4)
    table = framework_layers.layers(frame_of(records))
    assert ((table["low"] < table["ratio"]) & (table["ratio"] < table["high"])).all() and set(table["n"]) == {4}
    assert "decides nothing" not in framework_layers.layers_sentence(frame_of(records))
    alone = frame_of([record for record in records if record.run.framework == "torch"])
    assert framework_layers.layers(alone).empty and framework_layers.layers_sentence(alone) == "", "the table says it, and once is enough"
    assert "--grid tensorflow_layers" in framework_layers.layers_gt(frame_of([torch(1.0)])).html


def test_stacks_are_of_the_machine_that_has_both_frameworks() -> None:
    elsewhere = [
        r.model_copy(update={"machine": r.machine.model_copy(update={"name": "a-larger-one"})})
        for r in planted_layers(2)
        if r.run.framework == "tensorflow"
    ]
    chosen = framework_layers.both_frameworks(frame_of([*elsewhere, *planted_layers(1)]))
    assert "a-larger-one" not in set(chosen["machine"]) and len(framework_layers.layers(chosen)) == 6
    assert framework_layers.both_frameworks(frame_of([])).empty
    assert chosen["machine"].iloc[0] in framework_layers.layers_gt(chosen).html, "another machine than the page's"


def test_the_committed_records_fill_what_the_page_says_of_them() -> None:
    """ResNet-50 leads on another machine than other models do: named together, they leave no other one to show."""
    frame = load_frame(RUNS)
    table = framework_layers.layers(framework_layers.both_frameworks(of_all_machines(frame, "stacks")))
    assert len(table) >= 6 and table["ratio"].between(0.3, 2).all()
    ours = published(frame)
    leading = ours.loc[ours["model"].eq("resnet50_v1.5"), "machine"]
    other = other_machine(study_records(RUNS), leading, framework_images.on_several)
    assert other and other not in set(leading)
    section = framework_tables.smaller_section(ordinary(frame_of(measured_by(other, RUNS))))
    assert section is not None and other in section.html and "Exp4" in section.html and "multi-worker" in section.html
    assert "not measured" not in section.html.split("PyTorch too")[1].split("<table")[0]


def test_a_section_without_records_is_not_there() -> None:
    assert framework_tables.smaller_section(frame_of([])) is None
    assert framework_tables.smaller_section(frame_of([torch(1.0), tf(1.0, devices=1)])) is None, "one GPU is no placement"
    cnn = {"workload": "cnn", "model": "resnet50_v1.5", "sequence_length": None, "batch_size": 64}
    section = framework_tables.smaller_section(frame_of([tf(3000, devices=2, precision="bf16", **cnn), torch(6000, devices=2, **cnn)]))
    assert section is not None and "ResNet-50 under 1 placement in TensorFlow, 1 of them in PyTorch too, on 2 GPUs" in section.html
    assert framework_tables.section_here(frame_of([torch(1.0)])) is None
    here = framework_tables.section_here(frame_of([torch(1.0), tf(1e6)]))
    assert here is not None and "<h2>On this computer</h2>" in here.html and "<table" in here.html


def test_tables_say_why_a_cell_is_empty() -> None:
    html = framework_tables.documents_gt(frame_of([tf(5e5, devices=1), tf(1.5e6), torch(2e6, devices=2), torch(3e6)])).html
    assert "PyTorch, bf16 1 on 2, 1 on 4" in html and "1,500.0 (3.00)" in html and "not measured" in html
    assert "3,000.0 (no baseline)" in html and "beyond the 4 GPUs" in html and "Not measured: PyTorch, TF32" in html
    once = framework_tables.documents_gt(frame_of([tf(5e5, devices=1), tf(1.5e6), torch(3e6)])).html
    assert "On one number of GPUs alone: PyTorch, bf16 3,000.0 on 4 (1 repeat)." in once and "no baseline" not in once
    assert "no Record of this model yet" in framework_tables.documents_gt(frame_of([torch(1.0, workload="cnn")])).html
    assert ">passes<" not in framework_anomaly.anomaly_gt(anomaly([1e5, 2e5], [1e5]), []).html
    rebuild = framework_tables.rebuild_gt([1, 4]).html
    assert "python -m multigpu measure --grid tensorflow_nmt --devices 1,4" in rebuild


def test_the_figure_sets_both_frameworks_in_one_panel() -> None:
    records = [tf(5e5, devices=1), tf(1.5e6), torch(1e6, devices=1), torch(3e6)]
    records += [torch(8e5, devices=1, processes="one"), torch(9e5, processes="one")]
    frame = frame_of(records)
    rate, speedup = figure_frameworks(frame), figure_frameworks(frame, "speedup")
    assert len(rate.axes) == 1 and rate.axes[0].get_title("left") == "Exp4"
    assert set(rate.data["way"]) == {"TensorFlow, TF32", "PyTorch, bf16", "PyTorch, one process, bf16"}
    assert len({str(line_of(way)) for way in WAYS}) == 3, "framework and processes differ by line"
    lone = figure_frameworks(frame_of([*records, torch(9e5, devices=1, precision="tf32")]))
    assert set(lone.data["way"]) == set(rate.data["way"]), "a way of one count is no line"
    theirs = speedup.data[speedup.data["way"] == "document"]
    assert list(theirs["devices"]) == [1, 2, 3, 4] and theirs["speedup"].iloc[-1] == 1.51
    assert "TF32" in rate.alt and "screening" in rate.caption
    assert "not measured in both frameworks" in figure_frameworks(frame_of([tf(1e6)])).alt


def test_an_interval_beyond_the_axis_ends_in_an_arrow() -> None:
    """Three launches of one GPU at 0.2 to 1 M words/s beside a steady 3 M on four: the speedup's interval is far wider than the axis."""
    one = make_point([0.2e6, 1.0e6, 0.9e6], devices=1, placement="exp4", launches="abc", **TENSORFLOW)
    four = make_point([3.00e6, 3.01e6, 3.02e6], devices=4, placement="exp4", launches="abc", **TENSORFLOW)
    others = [torch(1e6, devices=1), torch(3e6)]
    picture = figure_frameworks(frame_of([*one, *four, *others]), "speedup")
    top = picture.axes[0].get_ylim()[1]
    assert picture.data["speedup_high"].max() > top
    arrows = [line for line in picture.axes[0].lines if line.get_marker() == "^" and len(line.get_xdata())]
    assert [list(line.get_xdata()) for line in arrows if line.get_ydata()[0] == top] == [[4.0]] and "An arrow" in picture.caption
    ends = [segment[:, 1].max() for lines in picture.axes[0].collections for segment in lines.get_segments() if len(segment)]  # type: ignore[attr-defined]
    assert max(ends) == pytest.approx(top)
    steady = make_point([1.00e6, 1.01e6, 1.02e6], devices=1, placement="exp4", launches="abc", **TENSORFLOW)
    assert "An arrow" not in figure_frameworks(frame_of([*steady, *four, *others]), "speedup").caption


def test_titles_rest_on_intervals_that_are_apart() -> None:
    def points(placement: str, devices: int, rate: float) -> list[Record]:
        fields = TENSORFLOW | {"placement": placement, "devices": devices}
        return make_point([rate, 1.001 * rate, 1.002 * rate], launches="abc", **fields)

    own = points("exp4", 1, 1e6) + points("exp4", 4, 3e6) + points("exp2", 1, 0.5e6) + points("exp2", 4, 1.5e6)
    frame = frame_of([*own, torch(1e6, devices=1), torch(3e6)])
    assert figure_frameworks(frame).finding == "TensorFlow, TF32 on 4 GPUs: Exp4 trains 2.00 times what Exp2 does"
    said = figure_frameworks(frame, "speedup").finding
    assert said == "TensorFlow, TF32 on 4 GPUs: 3.00 to 3.00 times one GPU; in the document 1.51 to 1.69 times"
    once = frame_of([tf(1e6, devices=1), tf(3e6), tf(1e6, "exp2", 1), tf(1e6, "exp2"), torch(1e6, devices=1), torch(3e6)])
    assert figure_frameworks(once).finding == figure_frameworks(once, "speedup").finding == ""


def test_rates_name_what_was_measured_once() -> None:
    frame = frame_of([tf(2e6), *make_point([3e6, 3.1e6, 2.9e6], placement="exp4", devices=4)])
    said = framework_words.rates_sentence(frame)
    assert (
        "TensorFlow, TF32 2.00 M words/s (once)" in said
        and "not the framework's alone" in said
        and "PyTorch, bf16 3.00 M words/s (" in said
    )
    assert framework_words.rates_sentence(frame_of([torch(1e6)])) == framework_words.NOTHING


def test_a_ratio_without_interval_decides_nothing() -> None:
    assert Longer("exp2", 2, 3, 2.0, Interval(math.nan, math.nan), 1.1).verdict == "once"
