"""TensorFlow beside PyTorch: planted points and traces whose tables, differences and sentences are worked out by hand."""

from __future__ import annotations

import math
from typing import Any

import pandas as pd
import pytest

from multigpu.analysis import framework_layers, framework_tables, framework_words
from multigpu.analysis.figure_frameworks import figure_frameworks, line_of
from multigpu.analysis.formulas import Interval
from multigpu.analysis.frame import frame_of
from multigpu.analysis.framework_traces import eager_or_graph, sound, top_kernels, trace_summary
from multigpu.analysis.frameworks import (
    WAYS,
    Longer,
    document_experiments,
    experiments,
    forms,
    images,
    longer,
    step_times_by_devices,
)
from multigpu.grid.tensorflow import tensorflow_layers
from multigpu.measure.trace import CopyTotals, KernelTotals, ReplicaTrace, StepTrace, TraceSummary
from multigpu.record import Record
from tests.factory import make_point, make_record

TENSORFLOW: dict[str, Any] = {"framework": "tensorflow", "processes": "one", "execution": "graph", "precision": "tf32"}


def tf(rate: float, placement: str = "exp4", devices: int = 4, **more: Any) -> Record:
    return make_record(placement, devices, rate, **(TENSORFLOW | more))


def torch(rate: float, placement: str = "exp4", devices: int = 4, **more: Any) -> Record:
    return make_record(placement, devices, rate, **more)


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
        assert agrees in framework_words.anomaly_sentences(frame, [])[0]
    if verdict == "once":
        assert found.ratio == pytest.approx(2.0)
        assert "nothing is decided" in framework_words.anomaly_sentences(frame, [])[0]
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
    records += [tf(1e6, "mirrored_nccl"), tf(5e5, inputs="lengths_000", sequence_length=None), torch(9e6), tf(9e6, precision="fp32")]
    table = forms(frame_of(records), 4).set_index(["group", "placement"])
    shares = table["of_reference"]
    assert shares["tf.distribute", "mirrored_nccl"] == pytest.approx(0.5)
    assert shares["loop of cells", "exp2"] == pytest.approx(0.25) and shares["loop of cells", "exp4"] == pytest.approx(0.15)
    assert math.isnan(shares["the document's lengths", "exp4"]) and len(table) == 6
    assert "50% of Exp4 in-graph" in framework_tables.forms_gt(frame_of(records), 4).html


def test_images_are_divided_in_one_precision_alone() -> None:
    cnn = {"workload": "cnn"}
    records = [tf(6000, precision="bf16", **cnn), torch(12000, **cnn), torch(8000, processes="one", **cnn)]
    records.append(torch(1000, "exp2", precision="fp32", **cnn))
    row = images(frame_of(records), 4).set_index("placement").loc["exp4"]
    assert (row["tensorflow"] / row["torch"], row["tensorflow"] / row["torch_one"]) == pytest.approx((0.5, 0.75))
    assert images(frame_of(records), 4).set_index("placement").loc["exp2"].isna()["torch"]
    said = framework_words.images_sentence(frame_of(records))
    assert "50% of PyTorch's rate" in said and "75% of that with one process" in said


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
    assert framework_layers.layers(alone).empty and "were not measured in both" in framework_layers.layers_sentence(alone)
    assert "--grid tensorflow_layers" in framework_layers.layers_gt(frame_of([torch(1.0)])).html


def test_tables_say_why_a_cell_is_empty() -> None:
    html = framework_tables.documents_gt(frame_of([tf(5e5, devices=1), tf(1.5e6), torch(3e6)])).html
    assert (
        "PyTorch, bf16 1 on 4" in html
        and "1,500,000" in html
        and "not measured" in html
        and "No baseline: PyTorch, bf16: speedup." in html
        and "beyond the 4 GPUs" in html
    )
    assert "no Record of this model yet" in framework_tables.documents_gt(frame_of([torch(1.0, workload="cnn")])).html
    assert "Not traced: traced: down" in framework_tables.anomaly_gt(anomaly([1e5, 2e5], [1e5]), []).html
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
    theirs = speedup.data[speedup.data["way"] == "document"]
    assert list(theirs["devices"]) == [1, 2, 3, 4] and theirs["speedup"].iloc[-1] == 1.51
    assert "TF32" in rate.alt and "screening" in rate.caption
    assert "not measured in both frameworks" in figure_frameworks(frame_of([tf(1e6)])).alt


# --- traces -------------------------------------------------------------------------------------------------------------------


def traced(record: dict[str, Any], busy: float, exposed: float, late: float = 0.0, tail: float = 2.0, unlinked: int = 0) -> Record:
    """Two replicas, two steps, ms: pull 0 to 1, forward 1 to 5, backward 4 to 9, then `tail`; replica 1 begins `late` later."""
    replicas = []
    for rank in range(2):
        steps = []
        for step in range(2):
            zero = 100.0 * step + late * rank
            ends = 100.0 * step + late + 9 + tail
            phases = {
                "pull": (zero, zero + 1),
                "forward": (zero + 1, zero + 5),
                "backward": (zero + 4, zero + 9),
                "merge": (zero + 9, ends),
            }
            steps.append(
                StepTrace(
                    start_s=zero / 1e3,
                    end_s=ends / 1e3,
                    host_s=0.001,
                    phases={name: (a / 1e3, b / 1e3) for name, (a, b) in phases.items()},
                    kernels=100,
                    launches=120,
                    busy_s=busy / 1e3,
                    communication_s=exposed / 1e3,
                    exposed_s=exposed / 1e3,
                    exposed_copies_s=exposed / 1e3,
                    communication=[],
                )
            )
        copies = [CopyTotals(kind="device_to_host", calls=2, bytes=4000, total_s=2e-6, min_s=1e-6, max_s=1e-6)]
        replicas.append(ReplicaTrace(rank=rank, steps=steps, copies=copies, unlinked=unlinked, launch_lead_s=3e-6 + rank * 1e-6))
    source = "xplane" if record.get("framework") == "tensorflow" else "kineto"
    trace = TraceSummary(source=source, replicas=replicas, kernels=[KernelTotals(name="gemm", calls=40, total_s=0.008)])
    return make_record(traced_steps=2, timed_steps=10, measurement={"trace": trace, "wall_s": record.pop("wall_s")}, **record)


def of_tensorflow(**more: Any) -> dict[str, Any]:
    return TENSORFLOW | {"placement": "exp4", "devices": 2, "wall_s": 0.2} | more


def of_torch(**more: Any) -> dict[str, Any]:
    return {"placement": "exp4", "devices": 2, "wall_s": 0.1} | more


def test_a_trace_is_summed_up_a_step() -> None:
    (row,) = trace_summary([traced(of_tensorflow(), busy=12.0, exposed=2.0, late=1.0)]).to_dict("records")
    assert row["timed_s"] == pytest.approx(0.020) and row["computing_s"] == pytest.approx(0.010) and row["idle_s"] == pytest.approx(0.008)
    assert row["passes_s"] == pytest.approx(0.008), "from forward's start to backward's end, overlap once"
    assert row["late_s"] == pytest.approx(0.001) and row["tail_s"] == pytest.approx(0.002)
    assert row["traced_s"] == pytest.approx(0.012) and row["kernels"] == 100 and row["launches"] == 120
    assert row["copied_bytes"] == 4000 and row["copy_bytes_per_s"] == pytest.approx(2e9)


def test_the_difference_of_two_frameworks_adds_up() -> None:
    records = [traced(of_tensorflow(), busy=12.0, exposed=2.0), traced(of_torch(), busy=8.0, exposed=3.0)]
    parts = framework_words.difference(records, "exp4", 2)
    assert parts == pytest.approx({"whole": 0.010, "computing": 0.005, "communicating": -0.001, "idle": 0.006})
    assert parts["whole"] == pytest.approx(sum(parts[name] for name in ("computing", "communicating", "idle")))
    said = framework_words.difference_sentence(records, "exp4", 2)
    assert "10.0 ms longer" in said and "+5.0 ms are kernels" in said and "-1.0 ms" in said and "about as many kernels" in said
    assert "not traced in both" in framework_words.difference_sentence(records[:1], "exp4", 2)
    html = framework_tables.traces_gt(records, "exp4", 2).html
    assert "TensorFlow, TF32" in html and "PyTorch, bf16" in html and "no trace yet" in framework_tables.traces_gt(records, "exp1", 2).html


def test_one_process_is_compared_with_one_process() -> None:
    records = [traced(of_tensorflow(), 12.0, 2.0, late=0.5), traced(of_torch(processes="one", wall_s=0.4), 10.0, 1.0, late=7.0)]
    said = framework_words.one_process_sentence(records, "exp4", 2)
    assert "30.0 of a step's 40.0 ms in PyTorch" in said and "7.0 ms after the first" in said and "8.0 of 20.0 ms in TensorFlow" in said


def test_captured_and_stepwise_traces_are_no_part_of_the_comparison() -> None:
    fused = traced(of_tensorflow(), 12.0, 2.0)
    loop = traced(of_tensorflow(recurrence="stepwise"), 12.0, 2.0)
    captured = traced(of_torch(execution="captured"), 12.0, 2.0)
    assert eager_or_graph([captured, loop, fused], "exp4") == [fused]
    assert eager_or_graph([captured, loop, fused], "exp4", 2, "stepwise") == [loop]


def test_what_follows_backward_is_named_for_both_counts() -> None:
    few, many = (traced(of_tensorflow(placement="exp2"), 9.0, 0.0, tail=tail) for tail in (8.0, 3.0))
    more = many.model_copy(update={"run": many.run.model_copy(update={"devices": 4})})
    said = framework_words.anomaly_sentences(anomaly([1e5], [1e5]), [few, more])[-1]
    assert "on 2 and 4 GPUs" in said and "what follows the last backward 8 and 3 ms" in said and "no Record says" in said
    assert "not traced on two numbers" in framework_words.anomaly_sentences(anomaly([1e5], [1e5]), [few])[-1]


def test_kernels_are_of_one_gpu_and_step() -> None:
    record = traced(of_tensorflow(), busy=8.0, exposed=0.0)
    (row,) = top_kernels(record).to_dict("records")
    assert row == {"kernel": "gemm", "calls": 10, "time_s": pytest.approx(0.002), "share": pytest.approx(0.25)}
    html = framework_tables.kernels_gt([record, traced(of_torch(), 8.0, 0.0)], "exp4", 2).html
    assert html.count("gemm") == 2 and "TensorFlow, TF32" in html and "2.00" in html and "25.0" in html
    assert "No trace yet" in framework_tables.kernels_gt([], "exp4", 2).html
    with pytest.raises(ValueError, match="holds no trace"):
        top_kernels(tf(1e6))


def test_a_trace_is_checked_before_it_is_believed() -> None:
    good, bad = traced(of_tensorflow(), 9.0, 0.0), traced(of_tensorflow(placement="exp2"), 9.0, 0.0, unlinked=240)
    table = sound([good, bad, traced(of_torch(), 9.0, 0.0)]).set_index("placement")
    assert list(table.index) == ["exp4", "exp2"] and table["lead_s"]["exp4"] == pytest.approx(3e-6)
    assert (table["unlinked"]["exp4"], table["unlinked"]["exp2"]) == (0.0, pytest.approx(0.5))
    assert table["forward_late_s"]["exp4"] == pytest.approx(0.001)
    assert "3.0 µs" in framework_words.soundness_sentence([good]) and "50.0%" in framework_words.soundness_sentence([bad])
    assert "no TensorFlow trace" in framework_words.soundness_sentence([])


def test_the_loop_of_cells_is_said_with_its_kernels_or_without() -> None:
    frame = frame_of([tf(2e6, devices=2), tf(2e5, devices=2, recurrence="stepwise")])
    fused, loop = traced(of_tensorflow(), 9.0, 0.0), traced(of_tensorflow(recurrence="stepwise"), 9.0, 0.0)
    said = framework_words.loop_sentence(frame, [fused], devices=2)
    assert "10.0 times" in said and "100 with cuDNN; the loop is not traced yet" in said and "37,644" in said
    assert "100 in the loop" in framework_words.loop_sentence(frame, [fused, loop], devices=2)
    assert "not measured both ways" in framework_words.loop_sentence(frame_of([tf(2e6)]), [])


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
