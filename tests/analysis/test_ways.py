"""Ways of carrying a placement out never mix: planted points whose ratios are known."""

import pytest

from multigpu.analysis import ways
from multigpu.analysis.causes import causes_frame
from multigpu.analysis.choose import bound_table
from multigpu.analysis.frame import frame_of, load_frame
from multigpu.analysis.front import batch, headline_table
from multigpu.analysis.limits import bounds, point_bound
from multigpu.analysis.metrics import summary
from multigpu.analysis.ordinary import ordinary
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
