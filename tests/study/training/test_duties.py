"""The five duties of document 004: done, they make replicas one model; each one not done is found
out. Killed runs go on bit by bit.

Staged variables, one step old, train as the reference says, unlike the placement that does not
stage. And checkpoints that are damaged, foreign or half written.
"""

import os
import re
from pathlib import Path
from typing import Any

import pytest
import torch

from multigpu.engines.torch.checked import train_reference
from multigpu.spec.errors import DidNotTrain
from multigpu_study.training.checkpoint import checkpoint_path, read_checkpoint, write_checkpoint
from multigpu_study.training.command import train
from multigpu_study.training.experiment import TrainingItem, folder_of
from multigpu_study.training.grid import joined_placements, placed, staged_twins
from multigpu_study.training.record import TrainingStore
from tests.further import asked, but
from tests.multigpu.equivalence.cases import make_context
from tests.refusals import refused
from tests.study.training import cases
from tests.study.training.cases import (
    ADAM,
    Case,
    Results,
    fault_of,
    session_of,
    train_one,
    training,
    translation,
)

pytestmark = pytest.mark.timeout(300)

CHECKPOINTED = {"checkpoint_every": 2}
STATE = {"replicas": [{"variables": {"w": torch.arange(5.0)}}], "history": "{}"}
CLIP = 0.1
"""Far below the norm of the first step's gradients."""
RESUMED = ("ddp", "zero1", "fsdp2", "local_sgd", "exp1", "exp2")
"""Copies of all; copies with a stretch of optimizer states each; pieces of all; copies that differ
until the fifth step; masters in host memory updated on devices; masters in host memory updated
there.
"""
TRANSLATED = ("ddp", "exp3")
"""Of the model with tables: copies of all, and tables in host memory whose rows travel."""
PER_DEVICE = [name for name in joined_placements() if "processes" not in placed(name)]
"""Those with one process for all devices are trained in `test_one_process`."""
TWINS = staged_twins()
STEPS = 5
DOUBLE: dict[str, Any] = {
    "precision": "fp64",
    "steps": STEPS,
    "base_rate": None,
    "evaluate_every": 1,
}
"""At the rule's own rate, which the reference takes."""
INTERRUPTED = {name: training(name, **CHECKPOINTED) for name in RESUMED} | {
    name: training(name, **ADAM) for name in TWINS
}

DONE = {"epochs": 1, "steps": None, "checkpoint_every": 7, "evaluate_every": 15}
CASES = [
    *(
        Case(f"clipped-{name}", training(name, steps=1, clip_norm=CLIP, optimizer="sgd"))
        for name in ("ddp", "replicated_allreduce")
    ),
    *(
        Case(f"curve-{name}", INTERRUPTED.get(name, training(name)))
        for name in (*PER_DEVICE, "local_sgd", *TWINS)
    ),
    Case("done", training("replicated_allreduce", **DONE)),
    Case("own-start", training("replicated_allreduce"), cases.OwnStart),
    *(
        Case(duty.__name__, training("replicated_allreduce", **duty.fields), duty)
        for duty in cases.NOT_DONE
    ),
    Case("adjusted", training("replicated_allreduce", **cases.ADJUSTED)),
    Case(
        "not-adjusted", training("replicated_allreduce", **cases.ADJUSTED, adjust_to_devices=False)
    ),
    *(Case(f"translation-{name}", translation(name)) for name in TRANSLATED),
    *(Case(f"double-{name}", training(name, **DOUBLE)) for name in (*TWINS, *TWINS.values())),
    Case("fetched-apart", training("staged_cpu"), cases.FetchedApart),
]


OFTEN = ("ddp", "exp2")
"""Of those that are interrupted, what `make test` kills."""


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Results:
    names = asked(request, "placement", "test_killed_and_resumed_is_bitwise_the_unbroken_run")
    interrupted = {name: run for name, run in INTERRUPTED.items() if name in names}
    return Results(tmp_path_factory.mktemp("training"), [CASES], interrupted, 1)


def test_all_duties_done(results: Results):
    m = results.of("done")
    assert m.replicas_agree is True and len(m.start_hashes) == len(m.end_hashes) == 2
    assert (
        len(set(m.start_hashes)) == len(set(m.end_hashes)) == 1
        and m.start_hashes[0] != m.end_hashes[0]
    )
    (audit,) = m.epochs
    assert (audit.complete, audit.items, audit.distinct, audit.shared) == (True, 1500, 1500, 0)
    assert (
        m.evaluations_by_rank == [2, 0]
        and m.files_by_rank[1] == []
        and "log.jsonl" in m.files_by_rank[0]
    )
    assert [e.step for e in m.evaluations] == [0, 15] and m.evaluations[
        1
    ].samples == 1500 == m.samples
    assert (
        m.loss[-1] < m.loss[0]
        and m.evaluations[1].scores["accuracy"] > m.evaluations[0].scores["accuracy"]
    )


def test_the_broadcast_makes_different_starts_one(results: Results):
    m = results.of("own-start")
    assert len(set(m.start_hashes)) == 1
    assert m.loss == results.of("curve-replicated_allreduce").loss


@pytest.mark.parametrize("duty", cases.NOT_DONE)
def test_a_duty_that_is_not_done_is_found(results: Results, duty: Any):
    assert duty.said in fault_of(results[duty.__name__])
    if "part" in results[duty.__name__][0]:  # it was trained to its end
        refused(re.escape(duty.said), results.of, duty.__name__, error=DidNotTrain)


def test_a_schedule_is_that_of_all_replicas_unless_asked_for_by_name(results: Results):
    """12 steps of one device are 6 of two: halvings begin after 3. The unaware one has not even
    begun to decay.
    """
    assert results.of("adjusted").rate == pytest.approx(
        [0.05] * 3 + [0.05 / 2**k for k in (0, 2, 4)]
    )
    assert results.of("not-adjusted").rate == [0.05] * 6


@pytest.mark.parametrize("placement", but(OFTEN, [*INTERRUPTED]))
def test_killed_and_resumed_is_bitwise_the_unbroken_run(results: Results, placement: str):
    results.check_resumed(placement, f"curve-{placement}")


@pytest.mark.parametrize(
    "placement", [name for name in PER_DEVICE if name not in ("ddp", "independent")]
)
def test_every_joined_placement_follows_the_same_curve(results: Results, placement: str):
    """Six steps: rounding alone tells them apart, 1e-5 of the loss at most. Independent replicas do
    not.
    """
    usual, apart = results.of("curve-ddp").loss, results.of("curve-independent")
    assert results.of(f"curve-{placement}").loss == pytest.approx(usual, rel=1e-5) and apart.loss[
        -1
    ] != pytest.approx(usual[-1], rel=1e-3)
    assert apart.replicas_agree is None and len(set(apart.end_hashes)) == 2


def test_translation_follows_one_curve_and_its_shards_cover_the_corpus(results: Results):
    """Three steps of real sentences; replicas agree, and what each read is disjoint."""
    ddp, exp3 = (results.of(f"translation-{name}") for name in TRANSLATED)
    assert exp3.loss == pytest.approx(ddp.loss, rel=1e-5) and ddp.loss[-1] < ddp.loss[0]
    assert (
        ddp.replicas_agree is True
        and exp3.start_hashes[0] == ddp.start_hashes[0] == ddp.start_hashes[1]
    )
    for run in (ddp, exp3):
        (audit,) = run.epochs
        assert audit.distinct == 3 * 64 and audit.shared == 0 and not audit.complete


@pytest.mark.parametrize("placement", ["ddp", "replicated_allreduce"])
def test_the_norm_of_all_merged_gradients_is_clipped(results: Results, placement: str):
    """Document 004 clips at 5. The first step of plain SGD moves all variables together by the rate
    times the norm that was let through.
    """
    parts = results[f"clipped-{placement}"]
    assert all(
        torch.equal(value, parts[1]["values"][name]) for name, value in parts[0]["values"].items()
    )
    run = results.of(f"clipped-{placement}")
    moved = sum(distance**2 for distance in parts[0]["part"]["distance"].values()) ** 0.5
    assert run.start_hashes and moved == pytest.approx(0.05 * CLIP, rel=1e-3)


def reference(run: Any, stale: int) -> tuple[dict[str, torch.Tensor], list[float]]:
    """The repository's own: one process on both shards, with gradients so many steps old."""
    context, source = make_context(run.run.model_copy(update={"placement": ""}), 0, Path())
    return train_reference(context, source, STEPS, [0, 1], stale)


@pytest.mark.parametrize("placement", sorted(TWINS))
def test_it_is_the_reference_with_gradients_one_step_old(results: Results, placement: str) -> None:
    """Five steps in float64, on two processes: no further from it than another order of summing
    leads.
    """
    values, losses = reference(results.cases[f"double-{placement}"].training, stale=1)
    ours = results.of(f"double-{placement}")
    # a Record keeps seven digits
    assert ours.loss == pytest.approx(losses, rel=1e-6) and len(losses) == STEPS
    found = results[f"double-{placement}"][0]["values"]
    assert found.keys() == values.keys()
    assert all(
        torch.allclose(value, values[name], rtol=0, atol=1e-13) for name, value in found.items()
    )
    fresh, _ = reference(results.cases[f"double-{placement}"].training, stale=0)
    assert not all(
        torch.allclose(value, fresh[name], rtol=0, atol=1e-6) for name, value in found.items()
    )


@pytest.mark.parametrize(("placement", "twin"), sorted(TWINS.items()))
def test_it_leaves_its_twin_after_the_first_step(
    results: Results, placement: str, twin: str
) -> None:
    """Both take the first step at the initial variables; the second is taken there again where they
    are staged. What is scored are the
    newest variables: after one step those of both are the same, and no longer the first.
    """
    staged, plain = results.of(f"double-{placement}"), results.of(f"double-{twin}")
    assert staged.start_hashes == plain.start_hashes and len(set(staged.start_hashes)) == 1
    assert staged.loss[0] == plain.loss[0]
    assert all(abs(a / b - 1) > 1e-4 for a, b in zip(staged.loss[1:], plain.loss[1:], strict=True))
    scores = [
        [evaluation.scores["loss"] for evaluation in run.evaluations] for run in (staged, plain)
    ]
    assert (
        scores[0][:2] == pytest.approx(scores[1][:2], rel=1e-6)
        and abs(scores[0][1] / scores[0][0] - 1) > 1e-4
    )
    assert abs(scores[0][2] / scores[1][2] - 1) > 1e-4


def test_replicas_that_fetch_something_else_are_found(results: Results) -> None:
    assert "after step 6: they did not fetch the same for their next step" in fault_of(
        results["fetched-apart"]
    )


def test_one_that_is_not_finished_leaves_the_old_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    write_checkpoint(tmp_path, training(), 3, STATE)

    def full(handle: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    refused("No space", write_checkpoint, tmp_path, training(), 4, STATE, error=OSError)
    step, state = read_checkpoint(checkpoint_path(tmp_path), training())
    assert step == 3 and torch.equal(state["replicas"][0]["variables"]["w"], torch.arange(5.0))
    assert [file.name for file in tmp_path.iterdir()] == ["checkpoint.pt"]


@pytest.mark.parametrize(
    ("damage", "sentence"),
    [
        (lambda data: data[:-7], "is damaged"),
        (lambda data: data[:-7] + b"x" + data[-6:], "is damaged"),
        (lambda data: b"", "is no checkpoint of this program"),
        (lambda data: os.urandom(300), "is no checkpoint of this program"),
        (lambda data: data.replace(b"checkpoint 2", b"checkpoint 9", 1), "this version reads"),
    ],
    ids=["short", "flipped", "empty", "noise", "newer"],
)
def test_broken_ones_are_one_sentence(tmp_path: Path, damage, sentence: str):
    path = write_checkpoint(tmp_path, training(), 3, STATE)
    path.write_bytes(damage(path.read_bytes()))
    assert str(path) in refused(sentence, read_checkpoint, path, training())


def test_a_foreign_one_is_one_sentence_before_anything_starts(tmp_path: Path):
    path = write_checkpoint(folder_of(tmp_path, training(), 0), training(seed=5), 3, STATE)
    told = "belongs to another training run"
    said = refused(
        told, train, [TrainingItem.of(training())], TrainingStore(tmp_path / "records"), tmp_path
    )
    assert str(path) in said and "seed 5" in said and not (tmp_path / "records").exists()
    case = Case("one", training("replicated_allreduce", devices=1))
    write_checkpoint(tmp_path / "run-one", training(seed=5), 3, STATE)
    assert told in fault_of(train_one(case, 0, tmp_path))


@pytest.mark.parametrize("precision", ["fp32", "fp64"])
def test_slots_schedule_data_and_random_numbers_come_back(tmp_path: Path, precision: str):
    """Adam's slots and step count, a rate that changes every step, the order of images, and random
    numbers drawn as dropout does.
    """
    fields = {
        "optimizer": "adam",
        "base_rate": 1e-3,
        "schedule": "luong10",
        "schedule_steps": 8,
        "precision": precision,
    }
    run = training(
        "replicated_allreduce", devices=1, steps=6, checkpoint_every=3, batch_size=20, **fields
    )

    def noise(module: torch.nn.Module, inputs: tuple[dict[str, torch.Tensor], None]) -> None:
        inputs[0]["images"].mul_(1 + 0.1 * torch.rand(1).item())

    ended = []
    # "half" ends one step after its checkpoint
    for name, steps in (("whole", 6), ("half", 4), ("again", 6)):
        session = session_of(
            Case(name, run, folder="run-half" if name == "again" else ""), 0, tmp_path
        )
        session.trainer.module.register_forward_pre_hook(noise)
        session.warm_up()
        assert session.at == (3 if name == "again" else 0)
        session.total = steps
        session.time()
        ended.append((session.history.loss, session.trainer.full_values()))
        session.close()
    (losses, values), _, again = ended
    assert losses == again[0] and all(
        torch.equal(value, again[1][name]) for name, value in values.items()
    )


def test_rates_kept_on_the_device_train_as_plain_ones(tmp_path: Path):
    """What a captured step needs: the optimizers read the rate from a tensor. Here on the CPU,
    uncaptured.
    """
    run, found = (
        training(
            "replicated_allreduce",
            devices=1,
            steps=4,
            schedule="luong10",
            schedule_steps=4,
            batch_size=20,
        ),
        [],
    )
    for name in ("plain", "tensors"):
        session = session_of(Case(name, run), 0, tmp_path)
        session.warm_up()
        if name == "tensors":
            session.replicas[0].make_rates_tensors()
        assert session.time()[0]["fault"] is None
        found.append((session.history.rate, session.trainer.full_values()))
        session.close()
    (rates, values), (others, changed) = found
    assert rates == pytest.approx(others, rel=1e-6) and len(set(rates)) > 1
    assert all(
        torch.allclose(value, changed[name], rtol=1e-5, atol=1e-7) for name, value in values.items()
    )
