"""TensorFlow's traces beside PyTorch's: planted ones whose parts, differences and sentences are worked out by hand."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from typing import Any

import pandas as pd
import pytest

from multigpu.analysis import framework_anomaly, framework_answers, framework_tables, framework_words
from multigpu.analysis.frame import frame_of
from multigpu.analysis.framework_traces import eager_or_graph, every_trace, sound, spread_text, top_kernels, trace_summary
from multigpu.measure.trace import CopyTotals, HostTotals, KernelTotals, ReplicaTrace, StepTrace, TraceSummary
from multigpu.record import Record
from tests.analysis.beside import TENSORFLOW, tf, torch
from tests.factory import make_point, make_record

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
    assert parts is not None
    assert (parts.whole, parts.computing, parts.communicating, parts.idle) == pytest.approx((0.010, 0.005, -0.001, 0.006))
    assert parts.whole == pytest.approx(parts.computing + parts.communicating + parts.idle) and parts.apart
    said = framework_words.difference_sentence(records, "exp4", 2)
    assert "(TF32)" in said and "(bf16, a process a GPU)" in said and "different precisions" in said and "overlap" not in said
    assert "10.0 ms longer" in said and "+5.0 ms are kernels" in said and "-1.0 ms" in said and "about as many kernels" in said
    assert "not traced in both" in framework_words.difference_sentence(records[:1], "exp4", 2)
    html = framework_tables.traces_gt(records, "exp4", 2).html
    assert "TensorFlow, TF32" in html and "PyTorch, bf16" in html and "no trace yet" in framework_tables.traces_gt(records, "exp1", 2).html


def test_a_gpu_that_is_busy_longer_than_the_step_leaves_nothing_to_tell_apart() -> None:
    records = [traced(of_tensorflow(), busy=12.0, exposed=2.0), traced(of_torch(), busy=13.0, exposed=5.0)]  # PyTorch's step: 10 ms
    parts = framework_words.difference(records, "exp4", 2)
    assert parts is not None and parts.beyond == (("PyTorch, bf16", pytest.approx(0.003)),)
    said = framework_words.difference_sentence(records, "exp4", 2)
    assert "+2.0 ms are kernels that compute and +8.0 ms communication and waiting, which cannot be told apart" in said
    assert "busy 3.0 ms longer (PyTorch, bf16)" in said and "not busy" not in said
    html = framework_tables.traces_gt(records, "exp4", 2).html
    assert ">none left<" in html and ">-3.0<" not in html and "(PyTorch, bf16 by 3.0 ms)" in html


def test_a_point_traced_again_is_shown_once_by_its_median_step() -> None:
    ours = [traced(of_tensorflow(wall_s=wall, repeat=index), busy=12.0, exposed=2.0) for index, wall in enumerate((0.30, 0.20, 0.22))]
    theirs = [traced(of_torch(wall_s=wall, repeat=index), busy=8.0, exposed=3.0) for index, wall in enumerate((0.25, 0.10, 0.15))]
    records = ours + theirs
    assert [record.repeat for record in every_trace(records, "exp4", 2)] == [1, 2, 0, 1, 2, 0]
    assert [record.repeat for record in eager_or_graph(records, "exp4", 2)] == [2, 2]
    said = framework_words.difference_sentence(records, "exp4", 2)
    assert "7.0 ms longer" in said and "overlap" in said and "TensorFlow, TF32 3 times (20.0 to 30.0 ms)" in said
    assert "In brackets, what their own steps took before the profiler began" in said, "a table's steps are others"
    html = framework_tables.traces_gt(records, "exp4", 2).html
    assert ">22.0<" in html and ">15.0<" in html and ">30.0<" not in html, "the sentence and the table speak of the same Runs"
    assert framework_tables.kernels_gt(records, "exp4", 2).html.count("gemm") == 2, "a table a way"
    assert spread_text([], "exp4", 2) == "" and "once" in spread_text(ours[:1], "exp4", 2)


def test_untraced_records_decide_whether_steps_are_apart() -> None:
    """Steps before the profiler: 20 to 30 ms and 10 to 25 ms. Without it: 20 and 21 ms beside 15 and 16 ms."""
    ours = [traced(of_tensorflow(wall_s=wall, repeat=index), busy=12.0, exposed=2.0) for index, wall in enumerate((0.30, 0.20))]
    theirs = [traced(of_torch(wall_s=wall, repeat=index), busy=8.0, exposed=3.0) for index, wall in enumerate((0.25, 0.10))]

    def beside(records: list[Record], steps: dict[int, float]) -> list[Record]:
        return [r.model_copy(update={"measurement": r.measurement.model_copy(update={"untraced_step_s": steps})}) for r in records]  # type: ignore[union-attr]

    assert "overlap" in framework_words.difference_sentence(ours + theirs, "exp4", 2)
    known = beside(ours, {0: 0.020, 1: 0.021}) + beside(theirs, {0: 0.015, 1: 0.016})
    assert "overlap" not in framework_words.difference_sentence(known, "exp4", 2)
    assert "overlap" in framework_words.difference_sentence(beside(ours, {0: 0.020, 1: 0.0155}) + known[2:], "exp4", 2)


def test_copies_of_a_few_bytes_have_no_speed() -> None:
    few = traced(of_tensorflow(), busy=12.0, exposed=2.0)  # 4000 B a step over two replicas
    assert few.measurement and few.measurement.trace

    def speed(record: Record) -> str:
        return framework_tables.traces_gt([record], "exp4", 2).html.split("speed of its copies")[1].split("</tr>")[0]

    assert "–" in speed(few) and ">2<" not in speed(few)
    trace = few.measurement.trace
    copies = [trace.replicas[0].copies[0].model_copy(update={"bytes": 4 * 2**20, "total_s": 2e-3})]
    replicas = [replica.model_copy(update={"copies": copies}) for replica in trace.replicas]
    measured = few.measurement.model_copy(update={"trace": trace.model_copy(update={"replicas": replicas})})
    assert ">2<" in speed(few.model_copy(update={"measurement": measured})), "8 MiB in 4 ms are 2.1 GB/s"


def test_expectations_are_answered_from_records_and_traces() -> None:
    """Busy 12 of 20 ms in TensorFlow (60%), 4 of 10 ms in PyTorch (40%); 2 GPUs give 3 times and 1.2 times one."""
    records = [traced(of_tensorflow(), 12.0, 2.0), traced(of_torch(processes="one"), 4.0, 1.0)]
    frame = frame_of(
        [tf(1e6, devices=1), tf(3e6, devices=2), torch(1e6, devices=1, processes="one"), torch(1.2e6, devices=2, processes="one")]
    )
    one, second, alike = framework_answers.answers(frame, records)
    assert "2 GPUs give 3.00 times one with TensorFlow, TF32 (a GPU busy for 60% of a step, not as expected)" in one
    assert "2 GPUs give 1.20 times one with PyTorch, one process, bf16 (a GPU busy for 40% of a step, as expected)" in one
    assert "In the document 8 gave most, 1.76 times one." in one
    assert "not measured on both yet" in second and "not measured in both yet" in alike
    assert "not measured on one and several" in framework_answers.answers(frame_of([tf(1e6)]), [])[0]
    cnn = {"workload": "cnn", "model": "resnet50_v1.5", "sequence_length": None, "batch_size": 64}
    more = [tf(5e5, precision="fp32"), torch(1e6, precision="fp32"), tf(9e5, devices=1, precision="fp32")]
    more += [torch(1e6, devices=1, precision="fp32"), tf(3000, precision="bf16", **cnn), torch(6000, **cnn)]
    more += [record for n, rate in ((2, 1e6), (3, 3e6)) for record in make_point([rate] * 3, devices=n, **TENSORFLOW, placement="exp2")]
    _, second, alike = framework_answers.answers(frame_of(more), [])
    assert "seen under 1 of 1 placement (Exp2 longer)" in second, "0.0512 s on two, 0.0256 s on three"
    assert "TensorFlow reaches 50% to 90% on the NMT and 50% on ResNet-50." in alike


def test_pytorch_in_tensorflows_own_precision_stands_beside_it() -> None:
    records = [traced(of_tensorflow(), 12.0, 2.0), traced(of_torch(wall_s=0.05), 8.0, 3.0), traced(of_torch(precision="tf32"), 8.0, 3.0)]
    said = framework_words.difference_sentence(records, "exp4", 2)
    assert "10.0 ms longer than PyTorch's (TF32, a process a GPU)" in said and "different precisions" not in said


def test_rates_divide_in_one_precision_alone() -> None:
    records = [tf(1e6), tf(5e5, precision="fp32"), torch(3e6), torch(8e5, precision="tf32"), torch(1e6, precision="fp32")]
    said = framework_words.precision_sentence(frame_of(records))
    assert "125% in TF32 on 4 GPUs (n = 1 and 1) and 50% in fp32 on 4 GPUs" in said and "bf16" not in said
    assert "not measured in one precision" in framework_words.precision_sentence(frame_of([tf(1e6), torch(3e6)]))


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


def tails(*operations: HostTotals, batch: int = 128, **values: float) -> list[Record]:
    """Exp2 traced on so many GPUs with so many ms after backward (two=8.0 ...), the host's operations in each."""
    counts = {"one": 1, "two": 2, "three": 3, "four": 4}
    made = []
    for name, tail in values.items():
        record = traced(of_tensorflow(placement="exp2", batch_size=batch), 9.0, 0.0, tail=tail)
        assert record.measurement and record.measurement.trace
        trace = record.measurement.trace.model_copy(update={"host_operations": [o for o in operations if o.calls == counts[name]]})
        measurement = record.measurement.model_copy(update={"trace": trace})
        run = record.run.model_copy(update={"devices": counts[name]})
        made.append(record.model_copy(update={"run": run, "measurement": measurement}))
    return made


def test_what_follows_backward_is_named_where_it_falls_most() -> None:
    said = framework_anomaly.tail_sentence(tails(one=28.0, two=38.0, three=73.0, four=21.0))
    assert "traced on 1, 2, 3 and 4 GPUs" in said and "takes 28, 38, 73 and 21 ms" in said
    assert "on 3 and 4 GPUs and not its operations" in said, "the steepest fall, not the ends"
    assert "38,400 over 50,000 are 0" in said and "51,200 are 1" in said
    rising = framework_anomaly.tail_sentence(tails(one=10.0, two=20.0))
    assert "takes 10 and 20 ms" in rising and "operations" not in rising
    assert "UnsortedSegmentSum" not in framework_anomaly.tail_sentence(tails(one=20.0, two=10.0)), "12,800 and 25,600 rows are alike"
    assert "not traced on two numbers" in framework_anomaly.tail_sentence(tails(two=8.0))


def test_a_trace_that_names_the_hosts_operations_says_which_differs() -> None:
    def total(name: str, devices: int, busy_ms: float) -> HostTotals:  # of two traced steps
        return HostTotals(name=name, phase="merge", calls=devices, total_s=3e-3 * busy_ms, busy_s=2e-3 * busy_ms)

    operations = [total("UnsortedSegmentSum", 3, 60.0), total("UnsortedSegmentSum", 4, 9.0), total("AddN", 3, 8.0), total("AddN", 4, 7.0)]
    records = tails(*operations, three=73.0, four=21.0)
    assert "UnsortedSegmentSum (merge) differs most: at least one runs for 60.0 and 9.0 ms a step" in framework_anomaly.tail_sentence(
        records
    )
    html = framework_anomaly.host_gt(records).html
    assert "60.0" in html and "1.5" in html and "AddN" in html
    assert "names the host's operations yet" in framework_anomaly.host_gt(tails(three=73.0)).html


def test_the_same_cliff_on_one_gpu() -> None:
    below, above = tails(batch=496, one=80.0)[0], tails(batch=512, one=20.0)[0]
    said = framework_anomaly.cliff_sentence([below, above, *tails(one=28.0)])
    assert "496 sentences (49,600 rows) leave 80 ms" in said and "512 (51,200) 20 ms" in said
    assert framework_anomaly.cliff_sentence(tails(one=28.0)) == ""


def test_a_slow_single_gpu_is_explained_by_its_link() -> None:
    fields = TENSORFLOW | {"placement": "exp1"}
    one = make_point([1.0e5, 1.01e5, 1.0e5], devices=1, launches="abc", **fields)
    two = make_point([3.0e5, 3.01e5, 3.0e5], devices=2, launches="abc", **fields)
    said = framework_anomaly.beyond_sentence(frame_of(one + two))
    assert "Exp1 takes 1.50 times as long on one GPU as on two" in said and "no trace says yet" in said
    assert framework_anomaly.beyond_sentence(frame_of(one)) == ""


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="one core has one thread")
@pytest.mark.skipif(importlib.util.find_spec("tensorflow") is None, reason="TensorFlow is not installed")
@pytest.mark.slow
def test_tensorflows_sum_of_rows_uses_one_thread_below_one_row_a_table_row() -> None:
    """What `framework_anomaly` says of the library, by the busiest thread's share of all threads' processor time.

    Zeros are written by both threads before rows are added, so one thread alone never has it all.
    """
    out = subprocess.run([sys.executable, "-c", ROWS], capture_output=True, text=True, timeout=100, check=True).stdout
    below, above = (float(line) for line in out.split()[-2:])
    assert below > 0.6 > above


ROWS = """
import os, tensorflow as tf
def spent():
    ticks = {}
    for thread in os.listdir("/proc/self/task"):
        fields = open(f"/proc/self/task/{thread}/stat").read().rsplit(")", 1)[1].split()
        ticks[thread] = int(fields[11]) + int(fields[12])
    return ticks
tf.config.threading.set_inter_op_parallelism_threads(1)
tf.config.threading.set_intra_op_parallelism_threads(2)
for rows in (9_900, 10_100):
    ids, values = tf.range(rows) % 10_000, tf.ones((rows, 512))
    total = tf.function(lambda values, ids: tf.math.unsorted_segment_sum(values, ids, 10_000))
    total(values, ids)
    before = spent()
    for _ in range(150):
        total(values, ids)
    after = spent()
    used = [after[thread] - before.get(thread, 0) for thread in after]
    print(max(used) / sum(used))
"""


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
    frame = frame_of(
        [tf(rate, devices=2, **more) for rate, more in ((2e6, {}), (2e5, {"recurrence": "stepwise"}), (1.0, {"precision": "fp32"}))]
    )
    frame = pd.concat([frame, frame_of([tf(1.0, devices=2, precision="bf16")])], ignore_index=True)
    fused, loop = traced(of_tensorflow(), 9.0, 0.0), traced(of_tensorflow(recurrence="stepwise"), 9.0, 0.0)
    said = framework_words.loop_sentence(frame, [fused], devices=2)
    assert "10.0 times" in said and "100 with cuDNN; the loop is not traced yet" in said and "37,644" in said
    assert "100 in the loop" in framework_words.loop_sentence(frame, [fused, loop], devices=2)
    assert "not measured both ways" in framework_words.loop_sentence(frame_of([tf(2e6)]), [])
