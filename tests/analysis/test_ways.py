"""Ways of carrying a placement out never mix: planted points whose ratios are known."""

import pytest

from multigpu.analysis import dispatch, economy, execution, ways
from multigpu.analysis.causes import causes_frame
from multigpu.analysis.choose import bound_table
from multigpu.analysis.frame import frame_of, load_frame
from multigpu.analysis.front import batch, headline_table
from multigpu.analysis.limits import bounds, point_bound
from multigpu.analysis.metrics import summary
from multigpu.analysis.ordinary import ordinary
from multigpu.grid.overlap import updates_in_backward
from multigpu.paths import RUNS
from tests.analysis.traced import traced_record
from tests.factory import make_point, make_record

NEAR = (0.999, 1.0, 1.001, 1.0, 1.0)


def point(rate: float, placement: str = "ddp", devices: int = 4, **fields: object) -> list:
    return make_point([rate * x for x in NEAR], placement=placement, devices=devices, **fields)


@pytest.fixture(scope="module")
def frame():
    """Four GPUs: ddp eager 2 M, captured 4 M (fused loss: eager 2.2 M), independent 2.5 M and 4.4 M, Exp4 2 M and in one process 1 M."""
    fused = {"cross_entropy": "fused"}
    records = point(2e6) + point(2.5e6, "independent") + point(2e6, "exp4")
    records += (
        point(2.2e6, **fused) + point(4e6, execution="captured", **fused) + point(4.4e6, "independent", execution="captured", **fused)
    )
    records += [make_record("exp4", 4, 1e6, processes="one"), make_record("exp4", 1, 0.8e6, processes="one"), make_record("exp4", 1, 0.6e6)]
    records += [make_record("ddp", 4, 3.6e6, execution="captured", bucket_mib=400, **fused)]
    return frame_of(records)


@pytest.fixture(scope="module")
def causes():
    return causes_frame([traced_record(4, placement="exp4", processes="one")])


def test_points_of_another_job_are_left_out():
    """Equal model, batch and precision, and yet another question: labels tell placements and ways apart, and nothing else."""
    own = [make_record("ddp", 4, 2e6), make_record("exp4", 4, 1e6, processes="one")]
    others = [{"scaling": "strong"}, {"inputs": "lengths_000", "sequence_length": None}, {"wire_dtype": "bf16"}]
    found = ways.of_one_job(frame_of([*own, *(make_record("replicated_allreduce", 4, 3e6, **fields) for fields in others)]))
    assert set(found["placement"]) == {"ddp", "exp4"} and len(found) == 2


def test_no_two_rows_of_the_committed_records_have_one_name():
    frame = load_frame(RUNS)
    chosen = frame[frame["execution"].isin(["eager", "captured"]) & frame["bucket_mib"].isna() & frame["precision"].eq("bf16")]
    chosen = chosen[
        chosen["framework"].eq("torch") & chosen["machine"].eq("4x-nvidia-h200") & chosen["model"].isin(["nmt000", "resnet50_v1.5"])
    ]
    table = ways.placement_costs(ways.of_one_job(ordinary(chosen)), causes_frame([]))
    names = [(row["model"], row["batch_size"], row["placement"], ways.way_text(row)) for _, row in table.iterrows()]
    assert len(names) > 40 and len(set(names)) == len(names)


def test_every_way_is_a_row_beside_its_own_ceiling(frame, causes):
    table = ways.placement_costs(frame, causes)
    shares = {(row["placement"], ways.way_text(row)): row["of_independent"] for _, row in table.iterrows()}
    assert len(shares) == len(table) == 8 and set(table["devices"]) == {4}
    assert shares["ddp", "eager"] == pytest.approx(0.8, rel=1e-3)
    assert shares["ddp", "captured, loss in one piece"] == pytest.approx(4 / 4.4, rel=1e-3)
    assert shares["ddp", "captured, loss in one piece, buckets of 400 MiB"] == pytest.approx(3.6 / 4.4, rel=1e-3)
    assert shares["exp4", "eager, one process"] == pytest.approx(0.4, rel=1e-3), "against replicas with a process each"
    assert shares["ddp", "eager, loss in one piece"] != shares["ddp", "eager, loss in one piece"], "no ceiling with this loss: NaN"
    assert shares["independent", "eager"] == 1


def test_the_reason_comes_from_the_trace_of_the_same_way(frame, causes):
    table = ways.placement_costs(frame, causes)
    known = table[table["step_ms"].notna()]
    assert [(row["placement"], row["processes"]) for _, row in known.iterrows()] == [("exp4", "one")]
    html = ways.cost_table(frame, causes).html
    assert html.count(ways.NOT_TRACED) == 7 and "screening" in html and "Absent: ddp (one process)" in html
    assert "Absent: Exp4 (captured); independent (one process): not measured." in html and "M words/s" in html, "names hold commas"
    (sentence,) = ways.cost_findings(frame, causes)
    assert "Exp4 (eager, one process)" in sentence
    assert ways.cost_findings(frame, causes.iloc[:0]) == ["No placement was traced yet."]
    assert ways.cost_findings(frame.iloc[:0], causes) == ["No placement was traced yet."], "nor without any Record"
    assert ways.distance_finding(frame.iloc[:0], causes) == "No placement was traced yet."
    assert "No Record to show." in ways.cost_table(frame.iloc[:0], causes).html


def a_row(compute: float, step: float, bound: float, largest: str, wait: float) -> dict:
    """A traced point as `placement_costs` has it before it compares; ms."""
    return {"n": 3, "step_ms": step, "compute_ms": compute, "bound_ms": bound, "largest": largest, f"{largest}_ms": wait}


@pytest.mark.parametrize(
    ("row", "said"),
    [
        # 17.6 - 4.1 = 13.5 ms of kernels beyond the bound are 76% of the step, 0.2 ms of waiting 1.1%
        (a_row(17.6, 17.8, 4.1, "communication", 0.2), "kernels 76%, communication 1.1%"),
        # 25.6 - 4.1 = 21.5 ms of kernels, 23.6 ms of the host's work: 30%
        (a_row(25.6, 78.6, 4.1, "host_work", 23.6), "host updates 30%, kernels 27%"),
        (a_row(25.6, 78.6, 4.1, "host_work", 21.4), "kernels 27%, host updates 27%"),
        # links set the bound: the device computes less than it
        (a_row(3.0, 12.0, 5.0, "communication", 9.0), "communication 75%"),
        (a_row(3.0, 12.0, float("nan"), "communication", 9.0), "communication 75%"),
        (a_row(10.0, 10.0, 4.0, "", 0.0), "kernels 60%, no wait"),
        (a_row(4.0, 4.0, 4.0, "", 0.0), "no wait"),
    ],
)
def test_the_reason_begins_with_the_larger_of_slow_kernels_and_the_largest_wait(row, said):
    assert ways.reason_cells(row | ways.distance_of(row))[ways.REASON] == said


def test_the_table_names_kernels_where_they_are_most_of_the_distance(frame, causes):
    """Exp4 in one process: a bound below 25 ms, computing 60 or 25 ms of 70, waiting the rest."""
    for compute_s, said in ((0.06, "kernels"), (0.025, "launch skew")):
        parts = {f"{name}_s": 0.0 for name in ways.PARTS} | {"compute_s": compute_s, "skew_s": 0.07 - compute_s}
        changed = causes.assign(timed_step_s=0.07, largest="skew", **parts)
        (row,) = [row for _, row in ways.placement_costs(frame, changed).iterrows() if row["step_ms"] == row["step_ms"]]
        assert 0 < row["bound_ms"] < 25 and row["kernels_ms"] == pytest.approx(1e3 * compute_s - row["bound_ms"])
        assert ways.reason_cells(row)[ways.REASON].startswith(said)
        assert ways.reason_cells(row)[ways.REASON] in ways.cost_table(frame, changed).html
        ahead = int(said.startswith("kernels"))
        assert f"in {ahead} of 1 kernels take longer beyond the bound than any wait" in ways.cost_findings(frame, changed)[0]


def test_a_shape_that_does_not_exist_is_named_with_what_prevents_it():
    """make_parallel has one process alone, ddp a process a device alone: each lacks what the other has."""
    group = frame_of([make_record("make_parallel", 4, 1e6, processes="one", workload="cnn", model="resnet50_v1.5", sequence_length=None)])
    said = ways.absent(group, ["ddp"])
    assert "Absent: make_parallel (captured); make_parallel (eager): the loss is one over all replicas' predictions" in said
    assert "Absent: ddp (one process): gradients merge while backward runs, in a process for each replica." in said
    assert "a process a device by" not in said and "make_parallel (one process)" not in said


def test_a_way_that_was_traced_alone_is_named_under_its_table(frame, causes):
    """The page's figure has its bar, so its table says why there is no row; one on fewer GPUs is another table's."""
    more = causes_frame([traced_record(4, placement="replicated_ring"), traced_record(2, placement="ps_gpu0")])
    group = ways.placement_costs(frame, more)
    assert ways.traced_alone(group, more) == [("replicated_ring", "per_device", "eager")]
    html = ways.cost_table(frame, more).html
    assert "Absent: replicated, ring (eager): traced alone, never timed without the profiler." in html
    assert "traced alone" not in ways.cost_table(frame, causes).html, "Exp4 in one process has its row"
    assert ways.traced_alone(group, more.assign(untraced=1)) == []
    assert html.count("<details>") == 1 and html.index("<details>") < html.index("Absent:") < html.index("</details>")


def test_the_share_of_the_ceiling_stands_with_its_interval_and_the_table_with_its_machine(frame, causes):
    table = ways.placement_costs(frame, causes).set_index(["placement", "processes", "execution"])
    row = table.loc[("exp4", "per_device", "eager")]
    shown = f"80% ({100 * row['of_independent_low']:.0f}–{100 * row['of_independent_high']:.0f})"
    html = ways.cost_table(frame, causes).html
    assert shown in html and ">40%<" in html, "one process was measured once: no interval"
    name = frame["machine"].iloc[0]
    tables = (html, execution.execution_table(frame[frame["placement"] == "ddp"], causes).html, execution.bucket_table(frame).html)
    assert all(f", {name}<" in one for one in (*tables, dispatch.dispatch_table(frame, causes).html))
    assert "In 1 of 1 traced way (independent replicas aside)" in ways.cost_findings(frame, causes)[0]


def test_a_bound_is_of_its_own_records_alone(frame):
    limits = bounds(frame)
    shares = {}
    for _, row in summary(frame).iterrows():
        bound, binding, share = point_bound(limits, row)
        shares[row["placement"], row["processes"], row["execution"], row["devices"]] = (share * bound, row["rate"])
        assert binding
    for reached, rate in shares.values():
        assert reached == pytest.approx(rate, rel=1e-3), "eager and captured, one process and several were pooled before"


def test_the_bound_table_has_a_row_a_way(frame):
    html = bound_table(frame).html
    assert "M words/s" in html
    for rate in ("2.00", "2.20", "4.00", "4.40", "2.50"):
        assert f">{rate}<" in html


def test_a_larger_batch_is_compared_in_the_same_way_only():
    """Batch 360 in one process scales far better than 128 with a process a device: no finding, since both differ."""
    records = []
    for size, processes, share in ((128, "per_device", 0.5), (360, "one", 1.0)):
        fields = {"batch_size": size, "processes": processes}
        records += point(1e6, "exp4", 1, **fields) + point(4e6 * share, "exp4", 4, **fields)
    assert batch(headline_table(frame_of(records))) is None
    same = [
        record
        for size, share in ((128, 0.5), (360, 1.0))
        for n, rate in ((1, 1e6), (4, 4e6 * share))
        for record in point(rate, "exp4", n, batch_size=size)
    ]
    assert "at batch 128 a GPU and 100%" in (batch(headline_table(frame_of(same))) or "")


def test_captured_against_eager_with_the_same_loss(frame, causes):
    table = execution.execution_points(frame[frame["placement"] == "ddp"], causes)
    fused = table[table["cross_entropy"].notna()].fillna({"bucket_mib": "25"})
    times = {(row["execution"], row["bucket_mib"]): row["times_eager"] for _, row in fused.iterrows()}
    assert times == pytest.approx({("eager", "25"): 1, ("captured", "25"): 4 / 2.2, ("captured", "400"): 3.6 / 2.2}, rel=1e-3)
    ddp = frame[frame["placement"] == "ddp"]
    assert "captured trains 1.82 times (1.8" in execution.execution_finding(ddp, causes)
    assert "Not measured: compiled, compiled and captured." in execution.execution_table(ddp, causes).html
    buckets = execution.bucket_table(ddp).html
    assert "0.900" in buckets and "25 (the library&#x27;s)" in buckets.replace("'", "&#x27;")
    assert "No other size" in execution.bucket_table(ddp[ddp["bucket_mib"].isna()]).html


def test_each_way_of_sending_buckets_is_told_by_itself():
    fields = {"execution": "captured", "devices": 4, "cross_entropy": "fused", "launches": "aabbc"}
    records = make_point([4.00e6, 4.01e6, 4.02e6, 4.01e6, 4.00e6], placement="ddp", **fields)
    records += make_point([4.10e6, 4.11e6, 4.12e6, 4.11e6, 4.10e6], placement="ddp", bucket_send="grouped", **fields)
    records += make_point([4.20e6, 4.21e6, 4.22e6, 4.21e6, 4.20e6], placement="ddp", bucket_send="grouped_small_last", **fields)
    said = execution.bucket_finding(frame_of(records))
    assert said.startswith("Sending gradients unpacked: on 4 GPUs it changed the rate by +2.5% to +2.5%")
    assert "Sending them unpacked with a small last bucket: on 4 GPUs it changed the rate by +5.0% to +5.0%" in said
    assert "gradients sent unpacked, the last bucket small" in execution.bucket_way_table(frame_of(records)).html


def test_updates_in_backward_stand_beside_those_after_it_and_independent_replicas():
    fields = {"execution": "captured", "devices": 4, "cross_entropy": "fused", "launches": "aabbc"}
    records = make_point([4.00e6, 4.01e6, 4.02e6, 4.01e6, 4.00e6], placement="ddp", **fields)
    records += make_point([4.20e6, 4.21e6, 4.22e6, 4.21e6, 4.20e6], placement="ddp", bucket_update="in_backward", **fields)
    records += make_point([4.30e6] * 5, placement="independent", **fields)
    html = execution.bucket_way_table(frame_of(records)).html
    assert "1.050 (1.0" in html and "0.979 (0.97" in html
    assert "--grid updates_in_backward" in execution.bucket_way_table(frame_of(records[:5])).html
    said = execution.bucket_finding(frame_of(records))
    assert "on 4 GPUs it changed the rate by +5.0% to +5.0% (1 of 1 point faster, 0 slower" in said
    assert execution.bucket_finding(frame_of(records[:5])) == ""
    # another day both were faster: only the launches that measured both sides are compared
    elsewhere = make_point([8.0e6] * 3, placement="ddp", **(fields | {"launches": "xyz"}))
    for number, record in enumerate(elsewhere):
        records.append(record.model_copy(update={"repeat": 5 + number, "key": f"elsewhere{number}"}))
    assert execution.bucket_points(frame_of(records))["over_usual"].iloc[0] == pytest.approx(1.05, rel=1e-3)
    planned = updates_in_backward([1, 2, 4])
    assert {entry.run.devices for entry in planned} == {1, 4}
    for job in {(entry.run.model, entry.run.batch_size, entry.run.devices) for entry in planned}:
        own = [entry for entry in planned if (entry.run.model, entry.run.batch_size, entry.run.devices) == job and not entry.run.bucket_mib]
        early = [point.launch for entry in own if entry.run.bucket_update for point in entry.points()]
        others = [[point.launch for point in entry.points()] for entry in own if not entry.run.bucket_update]
        assert len(others) == 2 and all(set(early) <= set(launches[5:]) for launches in others), "compared within a launch"


def test_launches_that_differ_are_told():
    apart = make_point([1e6, 1e6, 1.1e6, 1.1e6], launches="aabb")
    alike = make_point([1e6] * 4, launches="aabb", execution="captured")
    text = execution.steadiness(frame_of(apart + alike))
    assert "captured 0% (1 point)" in text and "eager 9.5% (1 point)" in text
    assert execution.steadiness(frame_of(make_point([1e6]))) == ""


def test_one_process_beside_one_a_device(frame, causes):
    table = dispatch.dispatch_points(frame, causes)
    row = table[table["devices"] == 4].iloc[0]
    assert row["one_over_per_device"] == pytest.approx(0.5, rel=1e-3)
    assert row["one_speedup"] == pytest.approx(1.25) and row["per_device_speedup"] == pytest.approx(2 / 0.6, rel=1e-3)
    # 128 x 200 words a GPU: 32 ms alone, 102.4 ms on four
    assert row["one_further_ms"] == pytest.approx((102.4 - 32) / 3, rel=1e-3)
    assert row["one_skew_ms"] == pytest.approx(6), "three replicas begin 2 ms after each other"
    said = dispatch.dispatch_finding(frame, causes)
    assert "4 GPUs give 1.25 to 1.25 times" in said and "by 23.5 to 23.5 ms." in said, "two counts make no line"
    assert "not measured on several" in dispatch.dispatch_finding(frame[frame["processes"] != "one"], causes)


@pytest.mark.parametrize(
    ("two_ms", "said"),
    [
        # 40, then 60 and 100 ms: 20 ms each, and a rate of 4 x 40 / 100; for ever: 40 ms of work in 20 ms a GPU, less the first 20 ms
        (60.0, "no number of GPUs could give more than 2.0 to 2.0 times one (an extrapolation from 1, 2 and 4)"),
        (95.0, "not alike: with Exp4 up to 2 GPUs each adds 55.0 ms, from there to 4 GPUs they add +5.0 ms together"),
        (None, "by 20.0 to 20.0 ms."),
    ],
)
def test_a_limit_is_drawn_only_through_counts_on_one_line(two_ms, said):
    steps = {1: 40.0, 2: two_ms, 4: 100.0}
    words = 128 * 200 * 1e3  # of a GPU in a step, over ms
    records = [make_record("exp4", n, n * words / ms, processes="one") for n, ms in steps.items() if ms]
    records += [make_record("exp4", n, n * 1e6) for n in (1, 4)]
    found = dispatch.dispatch_finding(frame_of(records), causes_frame([]))
    assert said in found and ("no number of GPUs" in found) == (two_ms == 60.0)


def test_overhead_leaves_out_the_runs_own_steps():
    cheap = make_record(units_per_s=1e6)
    own = cheap.measurement
    slow = make_record(units_per_s=1e6, repeat=1, measurement={"total_s": own.warmup_s + own.wall_s + 5.0})
    frame = frame_of([cheap, slow, make_record(status="failed", repeat=2)])
    row = economy.economy(frame).iloc[0]
    assert row["n"] == 2 and row["overhead_s"] == pytest.approx(3.5) and row["largest_s"] == pytest.approx(5.0)
    assert row["within_goal"] == 0.5 and row["build_s"] == 1.0 and row["rest_s"] == pytest.approx(2.5)
    # the planted first step takes 30 timed ones and the next two 3 each: 33 more than their number
    assert row["first_steps_s"] == pytest.approx(33 * own.wall_s / cheap.run.timed_steps, rel=1e-6)
    assert "1 Record took longer" in economy.economy_finding(frame) and "shared out, adds 1.25 s a Run" in economy.economy_finding(frame)


def test_minutes_of_a_grid_are_its_records_own():
    run = economy.find_grid("dispatch", [1])[0].run
    record = make_record(**{name: value for name, value in run.model_dump().items() if value is not None})
    assert record.run == run
    rows = economy.grid_minutes([record, make_record("ddp", 2)], ["dispatch"], [1, 2])
    assert list(rows["runs"]) == [1, 0] and rows["minutes"].isna().tolist() == [False, True]
    assert rows["minutes"][0] == pytest.approx((record.measurement.total_s + 2.5) / 60)
    assert "--grid dispatch --devices 1,2" in economy.rebuild_table([record], ["dispatch"], [1, 2]).html
    with pytest.raises(ValueError, match="unknown grid"):
        economy.grid_minutes([], ["nothing"], [1])
