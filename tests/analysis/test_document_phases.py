"""Document 000's profile: steps worked out by hand, its own tables as Records, and Records that flip each of its claims."""

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import pytest

from multigpu.analysis import step_traces as phases
from multigpu.analysis.step_traces import trace_table
from multigpu.claims import Result, find_claim
from multigpu.measure.trace import ReplicaTrace, StepTrace, TraceSummary
from multigpu.published import load_published
from multigpu.record import Record
from tests.analysis.planted import ms, step_of
from tests.claims.planted import evaluate
from tests.factory import make_record


def record_of(steps: Sequence[Sequence[StepTrace]], repeat: int = 0, **fields: Any) -> Record:
    """A traced Record of [step][replica]."""
    replicas = [ReplicaTrace(rank=rank, steps=list(mine), copies=[]) for rank, mine in enumerate(zip(*steps, strict=True))]
    trace = TraceSummary(source="kineto", replicas=replicas, kernels=[])
    usual = {"placement": "exp4", "devices": len(replicas), "warmup_steps": 10, "timed_steps": 10, "traced_steps": len(steps)}
    return make_record(repeat=repeat, launch_id="aaabb"[repeat], measurement={"trace": trace}, **(usual | fields))


def profile_step(forward: Sequence[float], backward: Sequence[float], computation: float, merge: float, update: float) -> list[StepTrace]:
    """A step with these times in ms on each replica, whose passes span `computation`: the slowest one's backward ends last."""
    slowest, alone = max(range(len(forward)), key=lambda rank: forward[rank] + backward[rank]), len(forward) == 1
    later = {"merge": (computation, computation + merge)} if merge else {}
    later["update"] = computation + merge, computation + merge + update
    made = []
    for rank, (ahead, back) in enumerate(zip(forward, backward, strict=True)):
        start = computation - ahead - back if rank == slowest and not alone else 0.0
        ends = computation if alone else start + ahead + back
        made.append(step_of(forward=(start, start + ahead), backward=(ends - back, ends), **later))
    return made


@cache
def document(**fields: Any) -> tuple[Record, ...]:
    """The document's own tables of 1 to 8 GPUs as Records: five repeats over two launches, which differ by up to 0.4%."""
    replicas, whole = phases.document_replicas(), phases.document_whole().fillna(0.0).set_index("devices")
    found = []
    for count, rows in replicas.groupby("devices"):
        for repeat, factor in enumerate((1.0, 1.004, 0.996, 1.003, 0.997)):
            forward, backward = ([1000 * factor * time for time in rows[name]] for name in ("forward_s", "backward_s"))
            rest = (1000 * factor * whole.loc[count, name] for name in ("computation_s", "merge_s", "update_s"))
            found.append(record_of([profile_step(forward, backward, *rest)], repeat, **fields))
    return tuple(found)


Change = Callable[[int, StepTrace, float], dict[str, tuple[float, float]]]
"""Of devices, one replica's step and when the last backward ends: the phases that it has instead."""


def changed(records: Sequence[Record], change: Change) -> list[Record]:
    """The Records with every step changed."""
    made = []
    for record in records:
        trace = record.measurement.trace  # type: ignore[union-attr]
        steps = list(zip(*(replica.steps for replica in trace.replicas), strict=True))  # type: ignore[union-attr]
        for at, step in enumerate(steps):
            ends = max(mine.phases["backward"][1] for mine in step)
            new = [mine.phases | change(record.run.devices, mine, ends) for mine in step]
            steps[at] = tuple(mine.model_copy(update={"phases": own}) for mine, own in zip(step, new, strict=True))
        made.append(record_of(steps, record.repeat))
    return made


def verdict(number: str, records: Sequence[Record]) -> Result:
    return evaluate(find_claim(number), trace_table(records))


def test_a_whole_step_by_hand() -> None:
    """Passes 0 to 10, merge 8 to 11, update 11 to 13: 10 + 3 + 2 ms; the longest of one replica is 8."""
    first = step_of(forward=(0, 3), backward=(3, 8), merge=(8, 11), update=(11, 12))
    second = step_of(forward=(2, 3), backward=(5, 10), merge=(10, 11), update=(11, 13))
    found = phases.step_quantities([first, second])
    assert [found[name] for name in ("computation_s", "merge_s", "update_s", "total_s")] == pytest.approx([ms(10), ms(3), ms(2), ms(15)])
    assert found["launch_skew_s"] == pytest.approx(ms(2))
    assert found["computation_share"] == pytest.approx(10 / 15) and found["merge_share"] == pytest.approx(0.2)
    assert found["forward_imbalance"] == pytest.approx(1.5)
    assert found["forward_s"] == pytest.approx(ms(2)) and found["backward_over_forward"] == pytest.approx(2.5)
    assert phases.step_quantities([first, step_of(forward=(0, 3))]) == phases.step_quantities([step_of(forward_backward=(0, 8))]) == {}


def test_the_document_read_back_from_records_of_its_own_figures() -> None:
    """What its tables say and what our functions make of a trace with its times is the same, to the microsecond it prints."""
    records = [record for record in document() if record.repeat == 0]
    ours, theirs = phases.whole_frame(records).set_index("devices"), phases.document_whole().set_index("devices")
    for name in ("computation_s", "total_s", "launch_skew_s", "forward_imbalance", "computation_share"):
        assert (ours[name] - theirs[name]).abs().max() < 6e-5, name
    last = theirs.iloc[-1]
    assert (last["forward_imbalance"], last["launch_skew_s"]) == (pytest.approx(1.80, abs=0.005), pytest.approx(3.943, abs=1e-3))
    assert len(phases.document_replicas()) == (load_published("000_phases_per_gpu")["gpu"] != "average").sum() / 2 == 36


def even_forward(times: float) -> Change:
    """Every forward 0.75 s long, `times` as long on one GPU."""
    return lambda count, mine, _: {"forward": (0.0, 0.75 * (times if count == 1 else 1))}


def backward_of(on_one: float, on_more: float) -> Change:
    """Every backward this long in s, from where forward ends."""
    return lambda count, mine, _: {"backward": (end := mine.phases["forward"][1], end + (on_one if count == 1 else on_more))}


@pytest.mark.parametrize(
    ("number", "change"),
    [
        pytest.param("C6", even_forward(1.0), id="equal"),
        pytest.param("C6", even_forward(1.5), id="shorter"),
        pytest.param("C7", backward_of(1.5, 1.5), id="equal"),
        pytest.param("C7", backward_of(1.5, 6.0), id="more than forward"),
        pytest.param(
            "C8",
            lambda count, mine, _: {"forward": ((end := mine.phases["backward"][0]) - 1.0, end)} if count == 5 else {},
            id="forwards of 5 GPUs are equally long",
        ),
        pytest.param("C9", lambda count, mine, ends: {"merge": (ends, ends + count)} if count > 1 else {}, id="a second a GPU"),
    ],
)
def test_records_that_say_otherwise_refute_each_claim(number: str, change: Change) -> None:
    result = verdict(number, changed(document(), change))
    assert result.verdict == "does not hold", (result.figure, result.why)
