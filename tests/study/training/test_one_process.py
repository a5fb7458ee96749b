"""One process that works on all devices trains to the same end as a process a device, goes on bit
by bit, and has the same duties.
"""

import os
import signal
from pathlib import Path
from typing import Any

import pytest
import torch

from multigpu.placements import placements
from multigpu.placements.resolve import shard_sizes
from multigpu_study.training.command import train
from multigpu_study.training.experiment import TrainingItem, folder_of
from multigpu_study.training.record import TrainingStore
from multigpu_study.training.run import TrainingRun
from tests.further import asked, but
from tests.study.training import cases
from tests.study.training.cases import ADAM, Case, Results, fault_of, measured, train_one, training

pytestmark = pytest.mark.timeout(300)

ONE = [
    name
    for name, row in placements().items()
    if row.semantics.facts.is_reproducible
    and row.compute == "replica"
    and any((engine.framework, engine.processes) == ("torch", "one") for engine in row.engines)
]
JOINED = [name for name in ONE if name != "independent"]
RESUMED = ("independent", "make_parallel", "replicated_allreduce", "exp1", "exp2")
"""Copies apart, from one loss and merged; masters in host memory updated on devices and there."""


def one(placement: str, **more: Any) -> TrainingRun:
    return training(placement, processes="one", **more)


FIRST = [
    *(Case(f"fp64-{name}", one(name, precision="fp64", evaluate_every=3)) for name in ONE),
    *(Case(f"whole-{name}", one(name, **ADAM)) for name in RESUMED),
]


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Results:
    names = asked(request, "placement", "test_killed_and_resumed_is_bitwise_the_unbroken_run")
    usual = Case("fp64", training("ddp", precision="fp64", evaluate_every=3))
    return Results(
        tmp_path_factory.mktemp("one"),
        [FIRST, [usual]],
        {name: one(name, **ADAM) for name in RESUMED if name in names},
        0,
    )


@pytest.mark.parametrize("placement", JOINED)
def test_it_reaches_the_variables_that_a_process_a_device_reaches(
    results: Results, placement: str
) -> None:
    """Six steps in float64, where rounding has nothing to hide behind."""
    ours, theirs = results.of(f"fp64-{placement}"), results.of("fp64")
    assert ours.loss == pytest.approx(theirs.loss, rel=1e-12) and ours.loss[-1] < 0.9 * ours.loss[0]
    ddp = results["fp64"][0]["values"]
    for replica in results[f"fp64-{placement}"]:
        assert replica["values"].keys() == ddp.keys()
        assert all(
            torch.allclose(value, ddp[name], rtol=0, atol=1e-13)
            for name, value in replica["values"].items()
        )
    for mine, its in zip(ours.evaluations, theirs.evaluations, strict=True):
        assert mine.scores == pytest.approx(its.scores, rel=1e-6)


@pytest.mark.parametrize("placement", but(("exp2", "replicated_allreduce"), RESUMED))
def test_killed_and_resumed_is_bitwise_the_unbroken_run(results: Results, placement: str) -> None:
    results.check_resumed(placement, f"whole-{placement}")
    assert len(set(results.of(f"whole-{placement}").rate)) > 1


@pytest.mark.parametrize("placement", ONE)
def test_a_record_has_what_it_has_of_a_process_a_device(results: Results, placement: str) -> None:
    ours, theirs = results.of(f"fp64-{placement}"), results.of("fp64")
    for name in (
        "steps",
        "samples",
        "units",
        "steps_per_epoch",
        "rate",
        "epochs",
        "evaluations_by_rank",
        "files_by_rank",
        "start_hashes",
    ):
        assert getattr(ours, name) == getattr(theirs, name), name
    copies = placements()[placement].variables == "replica"
    assert ours.replicas_agree is (True if copies and placement != "independent" else None)
    assert len(ours.end_hashes) == (2 if copies else 1) and len(ours.peak_memory_gib) == 2
    assert len(set(ours.end_hashes)) == (2 if placement == "independent" else 1)
    (audit,) = ours.epochs
    assert (audit.distinct, audit.shared) == (600, 0)


@pytest.mark.parametrize("duty", cases.NOT_DONE)
def test_a_duty_that_is_not_done_is_found(duty: Any, tmp_path: Path) -> None:
    copies = {cases.NotBroadcast: "replicated_copy", cases.NotSynchronised: "replicated_allreduce"}
    case = Case("broken", one(copies.get(duty, "make_parallel"), **duty.fields), duty)
    assert duty.said in fault_of(train_one(case, 0, tmp_path))


def test_the_broadcast_makes_different_starts_one(tmp_path: Path, results: Results) -> None:
    case = Case(
        "own-start", one("replicated_copy", precision="fp64", evaluate_every=3), cases.OwnStart
    )
    m = measured(case, train_one(case, 0, tmp_path))
    assert len(set(m.start_hashes)) == 1 and m.loss == results.of("fp64-replicated_copy").loss


def kill_once(stage: str, run: Any, rank: int) -> None:
    """A hook: the first step after a checkpoint stands is the process's last, once."""
    struck = Path(os.environ["STRUCK"])
    if stage == "step" and Path(os.environ["CHECKPOINT"]).exists() and not struck.exists():
        struck.touch()
        os.kill(os.getpid(), signal.SIGKILL)


def test_the_launcher_trains_both_shapes_and_starts_a_killed_process_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One call of `train`: two launches, whose Records lie together; the run that is killed goes on
    from its checkpoint.
    """
    killed, usual = one("make_parallel", checkpoint_every=2), training("ddp")
    monkeypatch.setenv(
        "PYTHONPATH",
        os.pathsep.join([str(Path(__file__).parents[3]), os.environ.get("PYTHONPATH", "")]),
    )
    monkeypatch.setenv("CHECKPOINT", str(folder_of(tmp_path, killed, 0) / "checkpoint.pt"))
    monkeypatch.setenv("STRUCK", str(tmp_path / "struck"))
    store = TrainingStore(tmp_path / "records")
    points = [TrainingItem.of(killed), TrainingItem.of(usual)]
    hook = "tests.study.training.test_one_process:kill_once"
    summary = train(points, store, tmp_path, progress=False, hook=hook)
    assert dict(summary.statuses) == {"ok": 2} and (tmp_path / "struck").exists(), summary
    found = {record.training.run.placement: record.measurement for record in store}
    ours, theirs = found["make_parallel"], found["ddp"]
    assert ours and theirs and ours.resumed_at == [2] and ours.steps == 6
    assert ours.loss == pytest.approx(theirs.loss, rel=1e-5)
    assert train(points, store, tmp_path, progress=False).reused == 2, (
        "what has a Record is not trained again"
    )


@pytest.mark.parametrize("placement", ["make_parallel", "make_parallel_cpu", "ps_gpu0", "exp1"])
def test_three_towers_of_unequal_slices_are_one_device_on_the_global_batch(
    placement: str, tmp_path: Path
) -> None:
    """Of 100 images make_parallel's last tower takes 34, a server's first."""
    fields = {"model": "alexnet_cifar_tiny", "precision": "fp64", "steps": 4}
    towers = Case("towers", one(placement, devices=3, **fields))
    alone = Case("alone", training("replicated_allreduce", devices=1, **fields))
    assert sorted(shard_sizes(towers.training.run)) == [33, 33, 34]
    ours, theirs = train_one(towers, 0, tmp_path), train_one(alone, 0, tmp_path)
    assert measured(towers, ours).loss == pytest.approx(measured(alone, theirs).loss, rel=1e-12)
    assert all(
        torch.allclose(value, ours[0]["values"][name], rtol=0, atol=1e-13)
        for name, value in theirs[0]["values"].items()
    )
