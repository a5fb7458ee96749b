"""What the page on kinds of parallelism computes from traces and step times: on planted Records, by hand."""

from __future__ import annotations

import re

import pytest

from multigpu.analysis import parallelism as page
from multigpu.analysis import parallelism_traces as traces
from multigpu.analysis import parallelism_words as words
from multigpu.analysis.figure_step import figure_step
from multigpu.analysis.frame import frame_of
from multigpu.measure.trace import ReplicaTrace, StepTrace, TraceSummary
from multigpu.record import Record
from tests.factory import make_machine, make_point, make_record

STRONG = {"scaling": "strong"}
LAYERS = {"placement": "layer_split", "processes": "one", "batch_size": 512, **STRONG}


def step(start: float, busy: float, host: float, kernels: int, waited: float = 0.0) -> StepTrace:
    """A step of 100 ms that begins at `start` ms; other times in ms."""
    return StepTrace(
        start_s=start / 1e3,
        end_s=(start + 100) / 1e3,
        host_s=host / 1e3,
        phases={"forward": (start / 1e3, (start + 40) / 1e3), "backward": ((start + 40) / 1e3, (start + 100) / 1e3)},
        kernels=kernels,
        launches=kernels,
        busy_s=busy / 1e3,
        communication_s=waited / 1e3,
        exposed_s=waited / 1e3,
        exposed_copies_s=0.0,
        communication=[],
    )


def with_trace(record: Record, lanes: list[tuple[float, float, int, float]]) -> Record:
    """The Record with two traced steps, the same for each lane (busy ms, host ms, kernels, ms in collectives)."""
    replicas = [
        ReplicaTrace(rank=rank, steps=[step(100 * index, busy, host, kernels, waited) for index in (0, 1)], copies=[])
        for rank, (busy, host, kernels, waited) in enumerate(lanes)
    ]
    assert record.measurement
    trace = TraceSummary(source="kineto", replicas=replicas, kernels=[])
    return record.model_copy(update={"measurement": record.measurement.model_copy(update={"trace": trace})})


@pytest.fixture(scope="module")
def records():
    per_step = 2 * 100 * 512  # words
    whole = make_record(devices=4, units_per_s=per_step / 0.1, traced_steps=2, **LAYERS)
    cut = make_record(devices=4, units_per_s=per_step / 0.2, traced_steps=2, micro_batches=4, **LAYERS)
    split = make_record("tensor_split", 2, 1e6, workload="stacks", batch_size=1024, traced_steps=2, **STRONG)
    return [
        with_trace(cut, [(20, 99, 400, 0), (30, 99, 400, 0), (40, 99, 400, 0), (110, 99, 400, 0)]),
        with_trace(split, [(50, 10, 9, 7), (90, 10, 9, 60)]),
        with_trace(whole, [(10, 50, 100, 0), (20, 50, 100, 0), (30, 50, 100, 0), (60, 50, 100, 0)]),
        make_record("exp4", 4, 1e6),  # another placement, and no trace
    ]


def test_idle_is_what_is_left_of_the_timed_step(records):
    own = traces.split_traces(frame_of(records), records)
    assert [(r.run.placement, r.run.micro_batches) for r in own] == [("layer_split", None), ("layer_split", 4), ("tensor_split", None)]
    first, second, third = traces.idle_sentences(own)
    assert "in one piece a step of 100 ms" in first
    assert "idle for 90% (GPU 0), 80% (GPU 1), 70% (GPU 2) and 40% (GPU 3)." in first
    assert "4 micro-batches a step of 200 ms" in second and "90% (GPU 0), 85% (GPU 1), 80% (GPU 2) and 45% (GPU 3)." in second
    assert third == "GPU 3, which has the projection, does 60% of the operations."
    assert traces.idle_title(own).endswith("idle for 70% of a step with the batch in one piece and 75% of a step with 4 micro-batches")


def test_launches_of_micro_batches_are_compared_with_the_batch_in_one_piece(records):
    text = traces.launches_sentence(records)
    assert "4 micro-batches launch 1,600 kernels a step instead of 400 (4.00 times as many)" in text
    assert "busy for 200 ms instead of 120" in text
    assert "takes it 99% of the time, and 50% without micro-batches. While it launches for one GPU, the others wait for it." in text
    assert traces.launches_sentence(records[:2]) is None, "nothing to compare with"


def test_a_host_that_is_idle_itself_keeps_nobody_waiting(records):
    spare = with_trace(records[0], [(20, 60, 400, 0)] * 4)
    assert "wait for it" not in traces.launches_sentence([spare, records[2]])


def test_waiting_in_collectives_is_told_from_sending(records):
    (text,) = traces.waiting_sentences(records)
    assert "waits least is in collectives for 7.0 ms, the one that waits most for 60.0" in text


def test_the_picture_names_both_ways_and_takes_its_title(records):
    own = traces.layer_traces(traces.split_traces(frame_of(records), records))
    picture = figure_step(own, step=0, finding="a title")
    names = [ax.get_title(loc="left") for ax in picture.axes]
    assert "micro-batches" not in names[0] and "4 micro-batches; 200 ms timed" in names[1].replace("\n", " ")
    assert "; 100 ms timed, 100 ms traced" in names[0].replace("\n", " ") and picture.finding == "A title"


def test_without_traces_it_says_so():
    assert traces.idle_sentences([make_record()]) == [traces.NOT_TRACED] and traces.idle_title([]) is None
    assert traces.waiting_sentences([]) == [] and words.why(frame_of([]), []) == [] and words.saw(frame_of([])) == []


def planted(step_ms: dict[tuple[int, int, int | None], float]) -> list[Record]:
    """Layers over devices whose steps of (devices, batch, micro-batches) last so many ms."""
    return [
        make_record(devices=devices, units_per_s=2 * 100 * batch / (ms / 1e3), micro_batches=parts, **LAYERS | {"batch_size": batch})
        for (devices, batch, parts), ms in step_ms.items()
    ]


def test_micro_batches_that_only_cost_launches():
    steps: dict[tuple[int, int, int | None], float] = {(1, batch, None): 40.0 for batch in (128, 512)}
    for batch, ms in ((128, 40.0), (512, 50.0)):
        steps |= {(4, batch, None): ms, (4, batch, 4): 3 * ms, (4, batch, 8): 6 * ms}
    points = page.pipeline_points(frame_of(planted(steps)))
    assert "longer in 4 of 4 cases and shorter in 0, at worst 6.00 times as long (batch 128 on 4 GPUs, 8" in words.slower_sentence(points)
    text = words.scaling_sentence(points)
    assert "From 4 to 8 micro-batches a step grows to 2.00 times; 4 times the batch in 8 micro-batches takes 1.25 times as long" in text
    assert "to launch" in text
    assert "idle for longer than the stages' operations say in 4 of 4 cases" in words.layers_over_saw(points)


def test_micro_batches_that_help_are_told_too():
    steps: dict[tuple[int, int, int | None], float] = {(1, batch, None): 40.0 * batch / 128 for batch in (128, 512)}
    for batch in (128, 512):
        steps |= {(4, batch, parts): 40.0 * batch / 128 * share for parts, share in ((None, 1.0), (4, 0.5), (8, 0.4))}
    points = page.pipeline_points(frame_of(planted(steps)))
    assert "longer in 0 of 4 cases and shorter in 4" in words.slower_sentence(points)
    assert words.scaling_sentence(points).endswith("takes 4.00 times as long, so both count.")


def test_hybrids_stand_in_the_table_and_not_in_the_figure():
    steps: dict[tuple[int, int, int | None], float] = {(1, 512, None): 80.0, (4, 512, None): 80.0}
    hybrid = make_record(devices=4, units_per_s=2 * 100 * 512 / 0.1, model_parallel=2, **LAYERS)
    copied = [make_record("ddp", n, 1e6 * n**0.5, batch_size=512, **STRONG) for n in (1, 4)]
    frame = frame_of([*planted(steps), hybrid, *copied])
    assert set(page.pipeline_points(frame)["copies"]) == {1}
    row = page.pipeline_points(frame, hybrids=True).query("copies == 2").iloc[0]
    assert (row["stages"], row["speedup"], row["idle"]) == (2, pytest.approx(0.8), pytest.approx(0.8))  # 1 - 80 / (4 x 100)
    assert row["idle_equal"] == pytest.approx(0.5), "of one copy over two devices"
    html = re.sub(r"<style>.*?</style>", "", page.pipeline_table(frame).html, flags=re.DOTALL)
    assert ">2 x 2<" in html and ">1 x 4<" in html and ">4 x 1 (ddp)<" in html and "Joined batch 512" in html
    assert "2.00" in html, "data parallelism over one GPU"
    text = words.beside_data_parallel(frame)
    assert "on 4 GPUs 1.56 times as fast at a batch of 512 as layers over them" in text  # 2 M over 1.28 M words/s


def test_the_words_beside_c31_name_batch_devices_and_machine():
    """1,024 rows lose on the small machine and 8,192 gain on both: the verdict's one ratio is of the first."""
    cut = {"workload": "stacks", "placement": "tensor_split", **STRONG}
    noise = (0.99, 1.0, 1.01, 1.0, 1.0)
    records = []
    for machine, speedups in ((make_machine(2), {2: (0.68, 1.25)}), (make_machine(4), {2: (0.8, 1.35), 4: (0.7, 1.15)})):
        for place, batch in enumerate((1024, 8192)):
            for devices, ratio in ((1, 1.0), *((n, pair[place]) for n, pair in speedups.items())):
                rates = [1e5 * ratio * x for x in noise]
                records += make_point(rates, devices=devices, batch_size=batch, machine=machine, **cut)
    text = words.cut_claim_sentence(frame_of(records))
    small, large = text.split("; at 8,192 rows")
    assert re.search(r"at 1,024 rows 0\.68 \([^)]*\) on 2 GPUs of 2x-nvidia-h200, 0\.80 [^;]* 0\.70 \([^)]*\) on 4 GPUs of 4x", small)
    assert "1.25" in large and "1.35" in large and "1.15" in large and "It is the smaller batch that does not gain" in large
    gains = frame_of([record for record in records if record.run.batch_size == 8192])
    assert "smaller batch" not in words.cut_claim_sentence(gains) and words.cut_claim_sentence(gains.iloc[:0]) is None


def test_the_words_beside_c40_say_where_its_bound_lies():
    """No gain on 2 is an efficiency of 50%, the bound itself; on 4 it is 25%, told with how often one GPU was measured."""
    machine, rates = make_machine(4), (1e5, 1.001e5, 0.999e5, 1e5, 1e5)
    records = [
        record
        for devices in (1, 2, 4)
        for record in make_point(rates[: 2 if devices == 1 else 5], devices=devices, machine=machine, **LAYERS)
    ]
    text = words.layers_claim_sentence(frame_of(records))
    assert "On two devices that is a speedup of exactly 1" in text
    assert re.search(r"On 4 GPUs of 4x-nvidia-h200 it is 25% \(.*\) at batch 512, of which one device was measured 2 times, too few", text)
    two = frame_of([record for record in records if record.run.devices < 4])
    assert words.layers_claim_sentence(two).endswith("no number of repeats decides it.")


def test_a_cut_that_loses_is_told_kind_by_kind():
    stacks = {"workload": "stacks", "devices": 4, **STRONG}
    records = []
    for batch, cut_ms in ((16, 6.0), (8192, 8.0)):
        for model, ms in (("stack_dense", 4.0), ("stack_recurrent", 2.0)):
            for placement, length, more in (("ddp", ms, {}), ("tensor_split", cut_ms, {}), ("ddp", 4.0, {"recurrence": "stepwise"})):
                if more and model == "stack_dense":
                    continue
                records.append(make_record(placement, units_per_s=batch / (length / 1e3), model=model, batch_size=batch, **stacks, **more))
    failed = make_record("tensor_split", status="failed", reason="the loss is nan", model="stack_convolution", batch_size=16, **stacks)
    frame = frame_of([*records, failed])
    text = words.layers_saw(frame)
    assert text.startswith("With its matrices cut over 4 GPUs, a step takes")
    assert "1.50 to 2.00 times (dense, 2 batches) and 3.00 to 4.00 times (recurrent, 2 batches) as long as with data parallelism" in text
    assert "1.50 to 2.00 times as long as the same loop" in text
    assert text.endswith("Without a figure: matrices over devices, convolution layers, batch 16: the loss is nan.")
    flat = words.flat_sentence(frame)
    assert "512 times as large or more" in flat and "only to 1.33 times its length; with data parallelism 1.00 times" in flat
    html = page.speedup_table(frame, tuple(page.LAYER_TYPES), most_only=True).html
    assert "Dense layers" in html and "Recurrent layers" in html and "ddp, loop" in html
