"""What slows a step of a user's job on two CPU processes is named before anything else."""

import math
from pathlib import Path

import pytest

from multigpu.records.record import RecordStore
from multigpu.runner.point import Point
from multigpu.user_model.compare import Budget, candidate_runs, measured_within
from multigpu.user_model.examine import describe
from multigpu.user_model.placed import ONE
from multigpu.user_model.result import Result, compared, keep
from multigpu.workloads.own.description import FOLDERS, know
from multigpu.workloads.own.job import load_job
from tests.multigpu.user_model.causes import BATCH_S, RANK_S

CAUSES = Path(__file__).parent / "causes.py"
JOBS = ("slow_batch", "slow_rank", "plain")

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Result]:
    """Each job on one device and on two, measured twice by the same processes."""
    root, bar = tmp_path_factory.mktemp("causes"), Budget(99, False)
    bar.ends_s = math.inf
    store, points = RecordStore(root / "records"), list[Point]()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(FOLDERS, "")
        know(root / "jobs")
        for name in JOBS:
            (folder := root / name).mkdir()
            for shared in ("jobs", "records"):
                (folder / shared).symlink_to(root / shared)
            job = load_job(f"{CAUSES}:{name}")
            described = describe(job, root / "jobs", 2, f"{CAUSES}:{name}")
            runs, refused = candidate_runs(job, described, folder, ["ddp"], 2, "cpu", a_repeat_s=0)
            keep(folder, described, runs, refused, 60)
            points += [Point(run, repeat) for run in runs for repeat in range(2)]
        store.check_writable()
        measured_within(points, store, bar)
        return {name: compared(root / name) for name in JOBS}


def test_a_slow_batch_is_named_first_and_is_no_computing(results: dict[str, Result]) -> None:
    result = results["slow_batch"]
    assert result.described.batch_s == pytest.approx(BATCH_S, rel=0.3)
    assert result.verdict.startswith("Your batch() costs")
    for name in (ONE, "ddp"):
        causes = result.why_not_scaling(name).set_index("cause")["ms"]
        step_ms = 1e3 * result[name].row["fed_step_s"]
        assert causes.sum() == pytest.approx(step_ms) and step_ms > 0.9e3 * BATCH_S
        # what batch() takes by itself is what the step is said to wait for it
        assert causes["waiting for its batch"] / step_ms == pytest.approx(
            min(1.0, 1e3 * result.described.batch_s / step_ms), abs=0.2
        )
    # two processes make twice as many batches, which is not said to be the placement's doing
    assert result["ddp"].row["fed_speedup"] > 1.5
    assert result["ddp"].row["fed_rate"] < 0.7 * result["ddp"].row["rate"]


def test_a_slow_rank_is_named_first(results: dict[str, Result]) -> None:
    result = results["slow_rank"]
    assert result.verdict.startswith("Rank 1 is slow")
    causes = result.why_not_scaling("ddp").set_index("cause")["ms"]
    assert causes["waiting for rank 1, which is slower"] == pytest.approx(1e3 * RANK_S, rel=0.3)
    assert not [
        cause for cause in result.why_not_scaling("independent")["cause"] if "are reduced" in cause
    ]


def test_neither_is_named_where_there_is_none(results: dict[str, Result]) -> None:
    result = results["plain"]
    assert not result.verdict.startswith(("Your", "Rank"))
    assert not [cause for cause in result.why_not_scaling("ddp")["cause"] if "rank" in cause]
