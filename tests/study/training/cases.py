"""Training without a launcher, in a process a device or in one for all: a server that has the
framework imported forks them.
"""

import dataclasses
import multiprocessing.connection
import os
import pickle
import signal
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from multigpu.engines.torch.trainer import Context, Trainer
from multigpu.runner.experiment import WorkerContext
from multigpu.spec.errors import DidNotTrain
from multigpu_study.training.build import build_training_run
from multigpu_study.training.duties import Duties
from multigpu_study.training.experiment import TrainingItem
from multigpu_study.training.history import measurement
from multigpu_study.training.record import TrainingMeasurement
from multigpu_study.training.run import TrainingRun
from multigpu_study.training.schedule import schedule_of
from multigpu_study.training.session import TrainingSession
from multigpu_study.training.state import replicas_of
from tests.forked import forking
from tests.patience import PATIENCE_S

FIELDS: dict[str, Any] = {
    "workload": "cnn",
    "model": "resnet_tiny",
    "inputs": "digits_split",
    "device_type": "cpu",
    "devices": 2,
}
FIELDS |= {"batch_size": 100, "scaling": "strong", "steps": 6, "base_rate": 0.05}
"""Fifteen steps an epoch."""
ADAM: dict[str, Any] = {
    "optimizer": "adam",
    "base_rate": 1e-3,
    "schedule": "luong10",
    "schedule_steps": 8,
    "checkpoint_every": 2,
}
"""Slots, a count of steps and a rate that changes: all of it must come back."""


def training(placement: str = "ddp", **more: Any) -> TrainingRun:
    return build_training_run(**{**FIELDS, "placement": placement, **more})


def translation(placement: str) -> TrainingRun:
    """Three steps of the smallest model that translates the committed corpus."""
    fields = {
        "workload": "nmt",
        "model": "nmt_short",
        "inputs": "pieces_short",
        "batch_size": 64,
        "shuffle": True,
        "base_rate": 1e-3,
    }
    return build_training_run(**{**FIELDS, **fields, "placement": placement, "steps": 3})


@dataclasses.dataclass(frozen=True)
class Case:
    """One run. kill: (rank, step) at which a process is killed with -9. folder: of the checkpoints,
    by name.
    """

    name: str
    training: TrainingRun
    duties: Callable[[], Duties] = Duties
    kill: tuple[int, int] | None = None
    folder: str = ""


def session_of(case: Case, rank: int, root: Path) -> TrainingSession:
    """One replica of the case."""
    steps = 0

    def stage(name: str) -> None:
        nonlocal steps
        steps += name == "step"
        if case.kill == (rank, steps - 1) and name == "step":
            os.kill(os.getpid(), signal.SIGKILL)

    shared = root / f"shared-{case.name}"
    shared.mkdir(exist_ok=True)
    item = TrainingItem.of(
        case.training, timeout_s=60.0, folder=root / (case.folder or f"run-{case.name}")
    )
    return TrainingSession(item, WorkerContext(rank, shared, 0.0, stage), 1, case.duties())


def train_one(case: Case, rank: int, root: Path) -> list[dict[str, Any]]:
    """What each replica of a process knows at the end, its variables too; or the sentence that
    refused it.
    """
    session = session_of(case, rank, root)
    try:
        session.warm_up()
        ended = zip(session.time(), session.replicas, strict=True)
        return [
            {"part": part, "values": replica.full_values(), "at": session.history.resumed_at}
            for part, replica in ended
        ]
    except (DidNotTrain, ValueError) as error:
        return [{"refused": str(error)} for _ in session.devices.each]
    finally:
        session.close()


def worker(rank: int, processes: int, cases: list[Case], root: Path) -> None:
    """One process: every case, one after the other."""
    torch.set_num_threads(1)
    store = dist.FileStore(str(root / f"store-{cases[0].name}"), processes)
    dist.init_process_group(
        "gloo", store=store, rank=rank, world_size=processes, timeout=timedelta(seconds=PATIENCE_S)
    )
    for case in cases:
        found = train_one(case, rank, root)
        (root / f"{case.name}.{rank}").write_bytes(pickle.dumps(found))
    dist.destroy_process_group()


def run_cases(cases: list[Case], root: Path) -> dict[str, list[dict[str, Any]]]:
    """What every replica of every case (of as many processes) knows, by name and rank; cases that
    were killed have no entry.
    """
    run = cases[0].training.run
    count = 1 if run.processes == "one" else run.devices
    processes = [
        forking().Process(target=worker, args=(rank, count, cases, root)) for rank in range(count)
    ]
    for process in processes:
        process.start()
    while any(process.is_alive() for process in processes):
        multiprocessing.connection.wait(
            [process.sentinel for process in processes if process.is_alive()]
        )
        if any(process.exitcode for process in processes):  # the others wait for one that is gone
            for process in processes:
                process.kill()
    found = {}
    for case in cases:
        files = [root / f"{case.name}.{rank}" for rank in range(count)]
        if all(file.exists() for file in files):
            found[case.name] = [
                replica for file in files for replica in pickle.loads(file.read_bytes())
            ]
    return found


def measured(case: Case, found: list[dict[str, Any]]) -> TrainingMeasurement:
    """The Record's measurement."""
    return measurement(case.training, [each["part"] for each in found], 1.0)


def fault_of(found: list[dict[str, Any]]) -> str:
    """The sentence with which all replicas of a case failed."""
    (text,) = {each.get("refused") or each["part"]["fault"] for each in found}
    return str(text)


class Results(dict[str, list[dict[str, Any]]]):
    """What every replica of every case knows, by name and rank.

    launches: cases that are trained by the same processes, one after the other.
    interrupted: name -> a run whose process `killer` is killed in its fourth step, in processes of
        its own, and which then goes on from its checkpoint as the case "resumed-NAME".
    """

    def __init__(
        self,
        root: Path,
        launches: list[list[Case]],
        interrupted: dict[str, TrainingRun],
        killer: int,
    ) -> None:
        resuming = [
            Case(f"resumed-{name}", run, folder=f"folder-{name}")
            for name, run in interrupted.items()
        ]
        self.cases = {case.name: case for cases in (*launches, resuming) for case in cases}
        for name, run in interrupted.items():
            assert not run_cases(
                [Case(f"killed-{name}", run, kill=(killer, 3), folder=f"folder-{name}")], root
            ), "nobody was killed"
            assert (root / f"folder-{name}" / "checkpoint.pt").exists()
        for cases in (*launches, resuming):
            self |= run_cases(cases, root)

    def of(self, name: str) -> TrainingMeasurement:
        """The measurement of a case."""
        return measured(self.cases[name], self[name])

    def check_resumed(self, name: str, whole: str) -> None:
        """A resumed run ended, bit by bit, as one that was never interrupted."""
        resumed = self[f"resumed-{name}"]
        assert [part["at"] for part in resumed] == [[2], [2]], (
            "it did not begin at the checkpoint before the kill"
        )
        for a, b in zip(self[whole], resumed, strict=True):
            assert a["values"].keys() == b["values"].keys()
            assert all(torch.equal(value, b["values"][key]) for key, value in a["values"].items())
        one, two = self.of(whole), self.of(f"resumed-{name}")
        assert one.loss == two.loss and one.rate == two.rate and one.end_hashes == two.end_hashes
        assert two.resumed_at == [2] and two.start_hashes == one.start_hashes


# Duties of which one is not done: `said` is how it is found, `fields` are those of a run that shows
# it; and one that counts.


class OwnStart(Duties):
    """Every replica draws its own initial weights, as programs do that seed nothing; the broadcast
    must make them one.
    """

    def build(self, context: Context) -> Trainer:
        trainer = super().build(context)
        for replica in replicas_of(trainer):
            with torch.no_grad():
                for _, value in replica.owned():
                    value.add_(0.01 * replica.rank)
        return trainer


class NotBroadcast(OwnStart):
    """1 is not done."""

    said, fields = "replicas [1] start from other weights than replica 0", {}

    def start(self, trainer: Trainer) -> None:
        pass


class NotSynchronised(Duties):
    """2 is not done: the all-reduce does nothing."""

    said, fields = "their gradients were not synchronised", {}

    def build(self, context: Context) -> Trainer:
        trainer = super().build(context)
        trainer.wire.all_reduce = lambda tensor: None  # type: ignore
        return trainer


class FetchedApart(Duties):
    """2 is not done where variables are staged: the last replica computes its next step with
    something else than the others.
    """

    def build(self, context: Context) -> Trainer:
        trainer = super().build(context)
        if trainer.context.rank:  # type: ignore
            for store in trainer.stores:  # type: ignore
                bring = store.bring

                def apart(rank: int, ids: Any, store: Any = store, bring: Any = bring) -> Any:
                    rows = bring(rank, ids)
                    store.fetched += 1e-3
                    return rows

                store.bring = apart
        return trainer


class SameShard(Duties):
    """3 is not done: all replicas read the first shard."""

    said, fields = "shards are not disjoint: 300 of 1500 items of epoch 0", {}

    def shard(self, rank: int) -> int:
        return 0


ADJUSTED: dict[str, Any] = {
    "schedule": "luong10",
    "schedule_steps": 12,
    "scaling": "weak",
    "batch_size": 50,
}


class UnawareOfReplicas(Duties):
    """4 is not done: the schedule of one device, although the run asks for that of N."""

    said, fields = "the schedule of this run asks for", ADJUSTED

    def rates(self, training: TrainingRun, steps_per_epoch: int | None) -> Callable[[int], float]:
        unaware = training.model_copy(update={"adjust_to_devices": False})
        return schedule_of(unaware, steps_per_epoch).rate


class RateNotApplied(Duties):
    """4 is not done: the optimizer keeps the rate that it was made with."""

    said = "took step 0 at the rate 0.1, and the schedule of this run asks for 0.2"
    fields = {"rate_scaling": "linear", "reference_batch": 25}

    def apply_rate(self, trainer: Trainer, rate: float) -> None:
        pass


class EveryoneLeads(Duties):
    """5 is not done: every rank evaluates, checkpoints and logs."""

    said, fields = "ranks [0, 1] evaluated or wrote files (log.jsonl)", {"evaluate_every": 3}

    def leads(self, rank: int) -> bool:
        return True


NOT_DONE: tuple[Any, ...] = (
    NotBroadcast,
    NotSynchronised,
    SameShard,
    UnawareOfReplicas,
    RateNotApplied,
    EveryoneLeads,
)
