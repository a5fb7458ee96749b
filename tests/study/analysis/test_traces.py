"""Document 000's profile as Records, and the claims that rest on traces."""

from collections.abc import Sequence
from functools import cache
from typing import Any

import pytest

from multigpu.analysis.step_traces import trace_table
from multigpu.records.record import Record
from multigpu.records.trace import ReplicaTrace, StepTrace, TraceSummary
from multigpu_study.analysis.step_traces import document_replicas, document_whole, whole_frame
from multigpu_study.claims import find_claim
from multigpu_study.published import load_published
from tests.factory import make_record
from tests.multigpu.analysis.planted import step_of, trace_of, traced
from tests.study.claims.planted import evaluate


def two_towers(placement: str, step_ms: float, trace: TraceSummary) -> list[Record]:
    return traced(placement, step_ms, trace, workload="deepconn")


def test_c36_holds_if_copies_make_the_difference_and_c51_if_kernels_lead() -> None:
    one = two_towers("single", 2.0, trace_of(1, 0, 0, sparse_ms=2.0))
    for copies_ms, sparse_ms, verdict in ((0.5, 2.0, "holds"), (0.05, 0.5, "does not hold")):
        two = two_towers("tower_per_gpu", 2.5, trace_of(2, copies_ms, copies_ms, sparse_ms=0.5))
        here = " here" * (verdict == "does not hold")  # a sentence about other links
        found = evaluate(find_claim("C36"), trace_table([*one, *two])).verdict
        assert found == verdict + here
        assert (
            evaluate(
                find_claim("C51"),
                trace_table(two_towers("single", 2.0, trace_of(1, 0, 0, sparse_ms))),
            ).verdict
            == verdict
        )
    assert evaluate(find_claim("C36"), trace_table([])).verdict == "not yet measured"


def profile_step(
    forward: Sequence[float],
    backward: Sequence[float],
    computation: float,
    merge: float,
    update: float,
) -> list[StepTrace]:
    """A step with these times in ms on each replica, whose passes span `computation`: the slowest
    one's backward ends last.
    """
    slowest = max(range(len(forward)), key=lambda rank: forward[rank] + backward[rank])
    alone = len(forward) == 1
    later = {"merge": (computation, computation + merge)} if merge else {}
    later["update"] = computation + merge, computation + merge + update
    made = []
    for rank, (ahead, back) in enumerate(zip(forward, backward, strict=True)):
        start = computation - ahead - back if rank == slowest and not alone else 0.0
        ends = computation if alone else start + ahead + back
        made.append(step_of(forward=(start, start + ahead), backward=(ends - back, ends), **later))
    return made


@cache
def document() -> tuple[Record, ...]:
    """The document's own tables of 1 to 8 GPUs as Records: five repeats over two launches, which
    differ by up to 0.4%.
    """
    replicas, whole = (document_replicas(), document_whole().fillna(0.0).set_index("devices"))
    found = []
    for count, rows in replicas.groupby("devices"):
        for repeat, factor in enumerate((1.0, 1.004, 0.996, 1.003, 0.997)):
            forward, backward = (
                [1000 * factor * time for time in rows[name]]
                for name in ("forward_s", "backward_s")
            )
            rest = (
                1000 * factor * whole.loc[count, name]
                for name in ("computation_s", "merge_s", "update_s")
            )
            steps = enumerate(profile_step(forward, backward, *rest))
            trace = TraceSummary(
                source="kineto",
                replicas=[ReplicaTrace(rank=r, steps=[one], copies=[]) for r, one in steps],
                kernels=[],
            )
            fields = {
                "placement": "exp4",
                "devices": count,
                "warmup_steps": 10,
                "timed_steps": 10,
                "traced_steps": 1,
            }
            found.append(
                make_record(
                    repeat=repeat, launch_id="aaabb"[repeat], measurement={"trace": trace}, **fields
                )
            )
    return tuple(found)


def test_the_document_read_back_from_records_of_its_own_figures() -> None:
    """What its tables say and what our functions make of a trace with its times is the same, to the
    microsecond it prints.
    """
    records = [record for record in document() if record.repeat == 0]
    ours = whole_frame(records).set_index("devices")
    theirs = document_whole().set_index("devices")
    for name in (
        "computation_s",
        "total_s",
        "launch_skew_s",
        "forward_imbalance",
        "computation_share",
    ):
        assert (ours[name] - theirs[name]).abs().max() < 6e-5, name
    last = theirs.iloc[-1]
    assert (last["forward_imbalance"], last["launch_skew_s"]) == (
        pytest.approx(1.80, abs=0.005),
        pytest.approx(3.943, abs=1e-3),
    )
    assert (
        len(document_replicas())
        == (load_published("000_phases_per_gpu")["gpu"] != "average").sum() / 2
        == 36
    )


@pytest.mark.parametrize(
    ("number", "quantity", "on"),
    [
        ("C6", "forward_s", lambda devices: 0.75),
        ("C6", "forward_s", lambda devices: 1.125 if devices == 1 else 0.75),
        ("C7", "backward_s", lambda devices: 1.5 if devices == 1 else 1.4),
        # it grows by more than forward
        ("C7", "backward_over_forward", lambda devices: 2.0 if devices == 1 else 4.0),
        ("C8", "forward_imbalance", lambda devices: 1.0 if devices == 5 else 1.8),
        ("C9", "merge_share", lambda devices: devices / 20),
    ],
)
def test_the_document_bears_out_its_claims_and_figures_that_say_otherwise_refute_each(
    number: str, quantity: str, on: Any
) -> None:
    table = trace_table(document())
    noise = table[quantity] / table.groupby("devices")[quantity].transform("mean")
    assert evaluate(find_claim(number), table).verdict == "holds"
    result = evaluate(
        find_claim(number), table.assign(**{quantity: noise.fillna(1.0) * table["devices"].map(on)})
    )
    assert result.verdict == "does not hold", (result.figure, result.why)
