"""The study's grids beside its claims and its pages: repeats that are enough."""

from collections import Counter
from collections.abc import Iterable
from itertools import pairwise

import pandas as pd
import pytest

from multigpu.cli.main import main
from multigpu.grids import find_grid
from multigpu.grids.planned import Planned
from multigpu.placements import placements
from multigpu.placements.resolve import shard_sizes
from multigpu.spec.rules.engines import refusal
from multigpu.spec.run import Run
from multigpu_study.claims import find_claim
from multigpu_study.claims.core import Predicate
from multigpu_study.claims.pairs import paired
from multigpu_study.claims.results import models_of
from multigpu_study.claims.rows import admitted, rows

WAYS = (("per_device", "eager"), ("one", "eager"), ("per_device", "captured"))


def untimed(run: Run) -> str:
    """What is left of a Run without its numbers of steps."""
    return run.model_copy(update={"warmup_steps": 1, "timed_steps": 1, "traced_steps": 0}).digest


def planned_rows(entries: Iterable[Planned]) -> pd.DataFrame:
    """The entries as what their Records would be: all of one machine and version."""
    here = {"machine": "here", "gpu": "here", "timing_version": 0, "launch_id": "", "status": "ok"}
    own = [
        dict(entry.run)
        | {**here, "framework_version": entry.run.framework, "key": entry.run.digest}
        for entry in entries
    ]
    return rows(pd.DataFrame(own))


RESTS = {
    "C13": "inputs",
    "C15": "equal_batches",
    "C16": "cnn_formats",
    "C17": "cnn_pairs",
    "C18": "cnn_pairs",
    "C46": "cnn_batches",
}
RESTS["C30"] = "cnn_formats,headline"


@pytest.mark.parametrize("number", RESTS)
@pytest.mark.parametrize("devices", [(1, 2, 4), (1, 2, 4, 8)])
def test_a_grid_repeats_enough_for_the_claim_that_rests_on_it(
    number: str, devices: tuple[int, ...]
) -> None:
    predicate = find_claim(number).predicate
    assert isinstance(predicate, Predicate)
    planned = [
        e
        for e in find_grid(RESTS[number], devices)
        if len(e.points()) >= predicate.min_n and not e.run.traced_steps
    ]
    records = planned_rows(
        entry for entry in planned if len(set(entry.launches)) >= predicate.min_launches
    )
    for contrast in predicate.contrasts:
        own = admitted(records, predicate, contrast, ("torch",))
        models = models_of(paired(contrast, own.assign(**{contrast.quantity: 1.0})).fields)
        assert len(models) >= contrast.models_at_least, contrast.label


def test_the_table_of_placements_holds_all_that_can_run_repeated_and_traced() -> None:
    entries = find_grid("placement_table", [1, 2])
    timed = {untimed(entry.run) for entry in entries if len(entry.points()) >= 5}
    assert timed == {untimed(entry.run) for entry in entries if entry.run.traced_steps} and {
        e.run.devices for e in entries
    } == {2}
    held = {
        (e.run.placement, e.run.processes, e.run.execution)
        for e in entries
        if e.run.model == "resnet50_v1.5"
    }
    able = {
        (name, processes, execution)
        for name, row in placements().items()
        for processes, execution in WAYS
        if row.compute == "replica" and refusal(row, "torch", processes, execution) is None
    }
    assert held == able
    assert {e.run.placement for e in find_grid("dispatch", [1, 2]) if e.run.devices == 2} == {
        name for name, processes, _ in able if processes == "one" and "make_parallel" not in name
    }


def test_a_chain_from_2018_changes_one_thing_at_a_time() -> None:
    """Both frameworks' chains begin with a loop of cells on two cores, and no two steps differ in
    more than one field.
    """
    planned = [entry.run for entry in find_grid("causes", [8]) if len(entry.points()) > 1]
    for framework in ("torch", "tensorflow"):
        ceiling, *chain = sorted(
            (run for run in planned if run.framework == framework),
            key=lambda run: run.placement != "independent",
        )
        assert (
            chain[-1].recurrence,
            chain[-1].host_cores,
            chain[-1].placement,
            chain[-1].processes,
        ) == ("stepwise", 2, "exp4", "one")
        for after, before in pairwise(chain):
            one, other = after.model_dump(), before.model_dump()
            assert (
                len(
                    {name for name in one if one[name] != other[name]}
                    - {"warmup_steps", "timed_steps"}
                )
                == 1
            ), after.label()
        assert ceiling == chain[0].model_copy(update={"placement": "independent"})


def test_a_grid_is_repeated_as_often_as_the_command_line_asks(
    capsys: pytest.CaptureFixture[str],
) -> None:
    for times in (1, 3, 9):
        words = f"measure --grid deepconn --devices 1 --repeats {times} --dry-run"
        assert main(words.split()) == 0
        told = Counter(line.partition("  ")[2] for line in capsys.readouterr().out.splitlines()[1:])
        assert len(told) > 5 and {*told.values()} == {times}


def test_a_strong_point_has_a_step_of_one_gpu_to_be_compared_with() -> None:
    runs = [entry.run for entry in find_grid("cnn_strong", (1, 2, 4, 8))]
    ladder = {entry.run.digest for entry in find_grid("cnn_ladders", (1,))}
    joined = {(run.model, sum(shard_sizes(run))) for run in runs if run.devices == 1}
    assert all((run.model, sum(shard_sizes(run))) in joined for run in runs)
    assert all(run.digest in ladder for run in runs if run.devices == 1)


def test_a_trace_has_its_step_without_a_profiler() -> None:
    planned = [entry.run for entry in find_grid("memory_speed", [1, 2])]
    timed = {untimed(run) for run in planned if not run.traced_steps}
    assert {untimed(run) for run in planned if run.traced_steps} <= timed
    phases = {entry.run.digest for entry in find_grid("phases", [1, 2, 4, 8])}
    assert phases <= {
        entry.run.digest for entry in find_grid("traces,tensorflow_traces", [1, 2, 4, 8])
    }, "one Run, one Record"


def test_what_is_compared_is_measured_in_the_same_launches() -> None:
    for name in (
        "updates_in_backward",
        "sent_unpacked",
        "small_last",
        "cnn_captured",
        "persistent",
        "memory_speed",
    ):
        for entry in find_grid(name, (1, 2, 4)):
            if len(entry.points()) > 1:
                assert {point.launch for point in entry.points()} >= {0, 1, 2}, entry.run.label()
