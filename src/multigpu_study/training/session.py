"""One TrainingRun in one process, on its replica or on all: build, begin or resume, train to the
end of the budget.
"""

import json
import time
from itertools import chain
from typing import Any

import torch

from multigpu.engines.common.session import Opening
from multigpu.engines.common.timing import TimedWindow, run_window
from multigpu.engines.torch import object_collectives
from multigpu.engines.torch.captured import CapturedTrainer
from multigpu.engines.torch.session import Session
from multigpu.engines.torch.variables import distances
from multigpu.engines.torch.wire import barrier
from multigpu.machine.machine import total_energy_j
from multigpu.runner.experiment import WorkerContext
from multigpu.spec.errors import DidNotTrain
from multigpu_study.training.checkpoint import checkpoint_path, read_checkpoint, write_checkpoint
from multigpu_study.training.duties import Duties, Evidence, files_written, start_fault
from multigpu_study.training.evaluation import Scorer
from multigpu_study.training.experiment import TrainingItem
from multigpu_study.training.history import History, SegmentNumbers, TrainedNumbers
from multigpu_study.training.record import Evaluation
from multigpu_study.training.schedule import global_batch
from multigpu_study.training.state import Tower, checksum, replicas_of, weights_hash

LONGEST_SEGMENT = 200
"""Steps between two stops at which replicas compare what they hold."""


class TrainingSession(Session):
    """A process's side of one TrainingRun: its replica's, or where one thread works on all devices,
    that of all replicas, by rank. The seat's `stage` is told "build", "start" (variables stand,
    nothing is broadcast), "step" and "checkpoint".
    """

    def __init__(
        self, item: TrainingItem, seat: WorkerContext, threads: int, duties: Duties
    ) -> None:
        self.training, self.duties, self.folder = item.training, duties, item.folder
        opening = Opening(
            item.run, seat.rank, threads, seat.shared, item.timeout_s, seat.startup_s, seat.stage
        )
        super().__init__(opening)

    def shard_of(self, rank: int) -> int:
        return self.duties.shard(rank)

    def _trainer(self) -> Any:
        training, duties, ranks = self.training, self.duties, self.devices.ranks
        self.trainer = duties.build(self.context)
        if training.clip_norm:
            for replica in self.replicas:
                replica.clip_updates(training.clip_norm)
        if self.context.captured:
            self.trainer = CapturedTrainer(self.trainer)
        self.per_epoch = self.source.steps_per_epoch
        self.total = training.budget(self.per_epoch)
        self.rate_of = duties.rates(training, self.per_epoch)
        leading = [place for place, rank in enumerate(ranks) if duties.leads(rank)]
        self.leads = bool(leading)
        self.written = self.context.closing.enter_context(files_written(self.folder))
        scored = leading if training.evaluate_every else []
        self.scorers = {
            place: Scorer(self.run, self.source, self.devices.each[place]) for place in scored
        }
        self.units, self.evaluations = [0 for _ in ranks], [0 for _ in ranks]
        return self.trainer

    @property
    def replicas(self) -> list[Tower]:
        return replicas_of(self.trainer)

    def _hashes(self) -> list[str]:
        """Of all variables, as each replica has them or, where they have one master, finds them."""
        return [weights_hash(replica.full_values()) for replica in self.replicas]

    def _energy(self) -> list[float | None]:
        return [
            total_energy_j(device.index) if device.cuda else None for device in self.devices.each
        ]

    def warm_up(self) -> None:
        """Take up the checkpoint, if there is one (unusable: a ValueError), or begin with equal
        weights (else DidNotTrain).
        """
        self.stage("start")
        held = self._checkpoint_of_all()
        self.at, self.history = 0, History()
        if held:
            self.at, saved = held
            for replica in self.replicas:
                replica.put_back(saved["replicas"])
            self.history = History.model_validate_json(saved["history"])
            self.history.resumed_at.append(self.at)
        elif self.run.devices > 1:
            self.duties.start(self.trainer)
        if isinstance(self.trainer, CapturedTrainer):
            for replica in self.replicas:
                replica.make_rates_tensors()
        barrier()  # masters in shared memory stand before anyone pulls them
        hashes = list(chain.from_iterable(object_collectives.all_gather(self._hashes())))
        self.evidence = Evidence(self.training, self.source, self.history.audits)
        if not held:
            self.history.start_hashes = hashes
            if fault := start_fault(hashes, self.replicas[0].replicated):
                raise DidNotTrain(fault)
            self._evaluate()
        self.energy_before = self._energy()

    def _checkpoint_of_all(self) -> tuple[int, dict[str, Any]] | None:
        """Return, in every process, the checkpoint that the first process finds in the folder."""
        found: Any = None
        if self.context.rank == 0 and checkpoint_path(self.folder).exists():
            try:
                found = read_checkpoint(checkpoint_path(self.folder), self.training)
            except ValueError as error:
                found = str(error)
        found = object_collectives.broadcast(found)
        if isinstance(found, str):
            raise ValueError(found)
        return found

    def step(self, index: int) -> list[torch.Tensor]:
        self.stage("step")
        self.duties.apply_rate(self.trainer, self.rate_of(index))
        self.applied.append([replica.rate_mark() for replica in self.replicas])
        if self.source.count:
            for read, rank in zip(self.read, self.devices.ranks, strict=True):
                read.append(self.source.items(index, self.shard_of(rank)).tolist())
        shards = [feed.shard(index) for feed in self.feeds]
        self.units = [
            units + shard.batch.units for units, shard in zip(self.units, shards, strict=True)
        ]
        return self.trainer.step(shards)

    def _next_stop(self) -> int:
        every = [
            each for each in (self.training.evaluate_every, self.training.checkpoint_every) if each
        ]
        return min(
            self.total, self.at + LONGEST_SEGMENT, *((self.at // each + 1) * each for each in every)
        )

    def _due(self, every: int | None) -> bool:
        return bool(every) and self.at % (every or 1) == 0

    def time(self) -> list[TrainedNumbers]:
        """Train to the end of the budget; all that each replica knows, as plain numbers."""
        fault: str | None = None
        while self.at < self.total and not fault and not self.history.diverged:
            stop = self._next_stop()
            self.units = [0 for _ in self.devices.ranks]
            self.applied: list[list[Any]] = []
            self.read: list[list[list[int]]] = [[] for _ in self.devices.ranks]
            window = run_window(self.step, self.at, stop - self.at, self.devices, barrier)
            fault = self._account(window, stop)
            if fault or self.history.diverged:
                break
            if self._due(self.training.evaluate_every) or self.at == self.total:
                self._evaluate()
            if self._due(self.training.checkpoint_every) and self.at < self.total:
                self._checkpoint()
        if self.history.diverged and not fault:
            self._evaluate()
        self.history.audits = self.evidence.audits()
        hashes, energy = self._hashes(), self._energy()
        return [
            self._part(place, fault, hashes[place], energy[place]) for place in range(len(hashes))
        ]

    def _account(self, window: TimedWindow, stop: int) -> str | None:
        """Join what replicas know of the steps up to `stop`; why they were no training, or None."""
        mine: list[SegmentNumbers] = [
            {
                "losses": torch.stack([step[place] for step in window.results])
                .double()
                .cpu()
                .tolist(),
                "steps": window.step_time_s,
                "wall_s": window.wall_s,
                "rates": [float(step[place]) for step in self.applied if step[place] is not None],
                "units": self.units[place],
                "checksum": checksum(replica.weights()),
                "read": self.read[place],
                "files": [] if place else self.written,  # a process's first replica answers for it
                "evaluations": self.evaluations[place],
            }
            for place, replica in enumerate(self.replicas)
        ]
        parts = list(chain.from_iterable(object_collectives.all_gather(mine)))
        first, self.at = self.at, stop
        self.history.add(self.training, parts, stop)
        return self.evidence.fault(parts, first, stop)

    def _evaluate(self) -> None:
        """Score the model on the leading replica; every replica gives what it holds of it."""
        if not self.training.evaluate_every:
            return
        began = time.perf_counter()
        every = [replica.full_values() for replica in self.replicas]
        loss = self.history.loss[-1] if self.history.loss else None
        for place, scorer in self.scorers.items():
            self.evaluations[place] += 1
            scores = scorer.score(every[place], dict(self.replicas[place].module.named_buffers()))
            samples, seconds = self.at * global_batch(self.training), self.history.train_s
            self.history.scored.append(
                Evaluation(step=self.at, samples=samples, seconds=seconds, scores=scores)
            )
            self._log({"step": self.at, "seconds": seconds, "loss": loss, **scores})
        self.history.evaluation_s += time.perf_counter() - began

    def _checkpoint(self) -> None:
        """One process writes what all replicas need to go on."""
        began = time.perf_counter()
        self.stage("checkpoint")
        mine = [replica.take() for replica in self.replicas]
        every = object_collectives.gather(mine)
        self.history.audits = self.evidence.audits()
        if self.leads:
            held = {
                "replicas": list(chain.from_iterable(every or [mine])),
                "history": self.history.model_dump_json(),
            }
            write_checkpoint(self.folder, self.training, self.at, held)
            self._log({"step": self.at, "checkpoint": True})
        barrier()
        self.history.checkpoint_s += time.perf_counter() - began

    def _log(self, line: dict[str, Any]) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        with open(self.folder / "log.jsonl", "a") as file:
            file.write(json.dumps(line) + "\n")

    def _part(
        self, place: int, fault: str | None, end_hash: str, after: float | None
    ) -> TrainedNumbers:
        replica = self.replicas[place]
        device = self.devices.each[place]
        before = self.energy_before[place]
        found = device.state()
        return {
            "fault": fault,
            "history": self.history.model_dump_json() if device.rank == 0 else None,
            "steps": self.at,
            "per_epoch": self.per_epoch,
            "agree": self.evidence.agree if replica.keeps_copies else None,
            "end_hash": end_hash,
            "evaluations": self.evaluations[place],
            "files": [] if place else self.written,
            "peak_memory_gib": device.peak_memory_gib(),
            "energy_j": after - before if after is not None and before is not None else None,
            "state": found.model_dump() if found else None,
            "threads": self.opening.threads,
            "startup_s": self.opening.startup_s,
            "build_s": self.build_s,
            **distances(
                self.run, dict(replica.owned()), device.torch, device.dtype, self.trainer.piece
            ),
        }
