"""What takes most of a step of a user's job on two CPU processes is named before anything else."""

import math
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from multigpu.grids import traced
from multigpu.records.record import RecordStore
from multigpu.runner.point import Point
from multigpu.user_model.budget import Budget
from multigpu.user_model.candidates import candidate_runs
from multigpu.user_model.compare import TRACED_STEPS
from multigpu.user_model.describe import describe
from multigpu.user_model.kept import keep
from multigpu.user_model.launches import measured_within
from multigpu.user_model.parts import INPUT, SIX_NAMES, traced_of
from multigpu.user_model.placed import ONE
from multigpu.user_model.result import Result, compared
from multigpu.user_model.verdict import answer
from multigpu.workloads.own.description import FOLDERS, know
from multigpu.workloads.own.job import load_job
from tests.further import asked, but
from tests.multigpu.user_model.causes import BATCH_S, LAYER_S, LINK_S, RANK_S

CAUSES = Path(__file__).parent / "causes.py"
FIRST_LINES = {
    "slow_batch": r"Your batch\(\) costs",
    "slow_rank": r"Rank 1 is slow: the others wait",
    "slow_link": r"Merging takes",
    "tiny_kernels": r"Launching kernels takes .*: [\d,]+ operations",
    "huge_table": r"(Merging|Computing) takes .* words \(Embedding\)",
    "slow_layer": r"The host does something else .*, most of it in culprit \(Pausing\)",
    "large_layer": r"Computing takes .*, most of it in large \(Linear\)",
    "plain": r"(?!Your|Rank)",
}
UNTRACED = {
    "slow_batch": FIRST_LINES["slow_batch"],
    "slow_rank": FIRST_LINES["slow_rank"],
    "slow_link": FIRST_LINES["slow_link"],
    "huge_table": r"(Merging|Computing) takes",
    "slow_layer": r"Computing takes .*, as long as on one device",
    "large_layer": r"Computing takes",
}
"""What differences of measured steps tell by themselves, in one of the first two lines."""
OVER = {"slow_link": "replicated_allreduce"}
"""Whose collectives the job's own code can slow: those of the library's C++ it does not reach."""

OFTEN = ("slow_batch",)
"""What `make test` plants."""
PLANTED = {
    "slow_rank": ("waiting", RANK_S),
    "slow_link": ("merging", LINK_S),
    "slow_layer": ("rest", LAYER_S),
}
"""In which part so many seconds of a step are found."""

pytestmark = [pytest.mark.alone, pytest.mark.slow, pytest.mark.timeout(240)]


@pytest.fixture(scope="module")
def results(
    tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Iterator[dict[str, Result]]:
    """Each job that is asked for on one device and on two, timed and traced by the same
    processes.
    """
    names = [name for name in FIRST_LINES if name in {*asked(request, "name"), "slow_batch"}]
    root, bar = tmp_path_factory.mktemp("causes"), Budget(99, False)
    bar.ends_s = math.inf
    store, points = RecordStore(root / "records"), list[Point]()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(FOLDERS, "")
        know(root / "jobs")
        for name in names:
            (folder := root / name).mkdir()
            for shared in ("jobs", "records"):
                (folder / shared).symlink_to(root / shared)
            job = load_job(f"{CAUSES}:{name}")
            described = describe(job, root / "jobs", 2, f"{CAUSES}:{name}")
            over = OVER.get(name, "ddp")
            runs, refused = candidate_runs(job, described, folder, [over], 2, "cpu", a_repeat_s=0)
            beside = {over, *(["independent"] if name == "slow_rank" else [])}
            runs = [run for run in runs if run.devices == 1 or run.placement in beside]
            keep(folder, described, runs, refused, 60)
            points += [Point(run) for run in runs]
            points += [Point(traced(run, TRACED_STEPS)) for run in runs]
        store.check_writable()
        measured_within(points, store, bar)
        yield {name: compared(root / name) for name in names}


@pytest.mark.parametrize("name", but(OFTEN, [*FIRST_LINES]))
def test_the_largest_cause_is_named_first_and_parts_add_up(
    results: dict[str, Result], name: str
) -> None:
    result = results[name]
    assert re.match(FIRST_LINES[name], answer(result)[0]), answer(result)[0]
    for placed in (ONE, OVER.get(name, "ddp")):
        causes = result.why_not_scaling(placed).set_index("cause")["ms"]
        step_ms = 1e3 * result[placed].row["fed_step_s"]
        assert causes.sum() == pytest.approx(step_ms, rel=0.02) and set(causes.index) <= {
            *SIX_NAMES.values()
        }


@pytest.mark.parametrize("name", but(OFTEN, [*UNTRACED]))
def test_the_largest_cause_is_named_where_nothing_was_traced(
    results: dict[str, Result], name: str
) -> None:
    own = results[name]
    timed = [record for record in own.records if not record.run.traced_steps]
    result = Result.of(own.described, own.runs, own.refused, timed, own.folder, own.budget_s)
    assert any(re.match(UNTRACED[name], line) for line in answer(result)[:2]), answer(result)


@pytest.mark.parametrize("name", but(OFTEN, [*PLANTED]))
def test_planted_seconds_are_found_in_their_part(results: dict[str, Result], name: str) -> None:
    part, seconds = PLANTED[name]
    found = traced_of(results[name], results[name][OVER.get(name, "ddp")])
    assert found is not None and found.largest == part
    assert found.parts[part] == pytest.approx(seconds, rel=0.5)
    if name == "slow_rank":
        assert found.last == 1


def test_a_slow_batch_is_no_computing(results: dict[str, Result]) -> None:
    result = results["slow_batch"]
    assert result.described.batch_s == pytest.approx(BATCH_S, rel=0.3)
    for name in (ONE, "ddp"):
        causes = result.why_not_scaling(name).set_index("cause")["ms"]
        step_ms = 1e3 * result[name].row["fed_step_s"]
        assert step_ms > 0.9e3 * BATCH_S
        # what batch() takes by itself is what the step is said to wait for it
        assert causes[INPUT] / step_ms == pytest.approx(
            min(1.0, 1e3 * result.described.batch_s / step_ms), abs=0.2
        )
    # two processes make twice as many batches, which is not said to be the placement's doing
    assert result["ddp"].row["fed_speedup"] > 1.5
    assert result["ddp"].row["fed_rate"] < 0.7 * result["ddp"].row["rate"]
