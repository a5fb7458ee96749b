"""The coordinator of an asynchronous parameter server, which schedules one function for every shard
and waits for no worker. The library chooses who computes what: a shard's arrays travel with its
function. Variables, losses and statistics stand on the server.
"""

from collections import deque
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from multigpu.engines.common.session import Opening, Stage
from multigpu.engines.tensorflow import rules
from multigpu.engines.tensorflow.devices import Devices
from multigpu.engines.tensorflow.feed import Shard, drawn, seed_of
from multigpu.engines.tensorflow.session import Session
from multigpu.engines.tensorflow.strategies import StrategyTrainer
from multigpu.engines.tensorflow.trainer import Context, spec_of
from multigpu.inputs.batch import Batch, Draw, Source
from multigpu.placements.traffic import HOST
from multigpu.spec.errors import DidNotTrain
from multigpu.spec.run import Run
from multigpu.workloads.tensorflow_module import Tensors

SERVER = "/job:ps/replica:0/task:0/device:CPU:0"

# steps scheduled before the results of the first are there: enough that no worker ever waits for
# the coordinator
AHEAD = 8


class ClusterDevices(Devices):
    """The server's memory as the host; place 0 is the device of the worker that computes."""

    def __init__(self, run: Run, coordinator: Any) -> None:
        self._set_up(run, tuple(range(run.devices)))
        self.coordinator, self.count = coordinator, 1

    def name(self, place: int) -> str:
        if place == HOST:
            return SERVER
        return "/device:GPU:0" if self.cuda else "/device:CPU:0"

    def synchronise(self) -> None:
        self.coordinator.join()

    def peak_memory_gib(self, index: int) -> float:
        return 0.0  # the worker tells it

    def state(self, index: int) -> None:
        return None


class ShardFeed:
    """Shards in the coordinator's memory, seeds in place of draws. What repeats is kept."""

    def __init__(self, source: Source, replicas: int) -> None:
        self.source, self.replicas = source, replicas
        self.kept: dict[int, list[Shard]] = {}
        self.waits: dict[int, float] = {}

    def shards(self, step: int) -> list[Shard]:
        index = step % self.source.period if self.source.period else step
        found = self.kept.get(index) or [
            self._shard(self.source.batch(index, rank)) for rank in range(self.replicas)
        ]
        if self.source.period:
            self.kept[index] = found
        return found

    @staticmethod
    def _shard(batch: Batch) -> Shard:
        arrays = {
            name: seed_of(array) if isinstance(array, Draw) else array
            for name, array in batch.arrays.items()
        }
        return Shard(batch, {name: tf.constant(array) for name, array in arrays.items()})

    def close(self) -> None:
        """Nothing runs ahead."""


class CoordinatedTrainer(StrategyTrainer):
    """One scheduled function a shard, whose gradients the server applies as they arrive."""

    locking = True
    uncounted = (
        "processes exchange them over gRPC, and the server's and the workers' graphs are not handed"
        " to the coordinator"
    )

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        assert isinstance(context.devices, ClusterDevices)
        self.coordinator = context.devices.coordinator
        with self.devices.at(HOST):
            steps = context.run.warmup_steps + context.run.timed_steps
            self.losses = [
                tf.Variable(
                    tf.zeros((steps * context.run.devices,), self.devices.dtype), trainable=False
                )
            ]
            self.applied = tf.Variable(tf.zeros([], tf.int64), trainable=False)
        self.programs: dict[Any, Any] = {}
        self.pending: deque[list[Any]] = deque()

    def kept_at(self, rank: int) -> str:
        return self.devices.name(HOST)

    def _program_for(self, shard: Shard) -> Any:
        """The function of shards like this one, which draws from the seeds among its arrays."""
        laws = {
            name: array for name, array in shard.batch.arrays.items() if isinstance(array, Draw)
        }
        specs = {
            name: spec_of(name, tensor, self.context.dynamic)
            for name, tensor in shard.tensors.items()
        }
        key = (*specs.values(), *((law.shape, law.law, law.classes) for law in laws.values()))
        if key not in self.programs:

            def program(arrays: Tensors, hyper: tf.Tensor) -> tf.Tensor:
                tensors: Tensors = {}
                for name, array in arrays.items():
                    with self.devices.at(0):
                        if name in laws:
                            tensors[name] = drawn(laws[name], array, self.devices.dtype)
                        else:
                            tensors[name] = (
                                tf.cast(array, self.devices.dtype)
                                if array.dtype.is_floating
                                else tf.identity(array)
                            )
                    if array.dtype.is_integer and name not in laws:
                        with tf.device("/device:CPU:0"):
                            tensors[f"{name}_host"] = (
                                tf.cast(array, tf.int32) if name.endswith("_length") else array
                            )
                self._program([tensors], hyper)
                return self.applied.assign_add(1)

            numbers = tf.TensorSpec([rules.TERMS + 1], self.devices.dtype)
            self.programs[key] = tf.function(
                program, input_signature=[specs, numbers], autograph=False
            )
        return self.programs[key]

    def step(self, shards: list[Shard]) -> None:
        scheduled = []
        for rank, shard in enumerate(shards):
            number = self.steps_done * len(shards) + rank
            numbers = rules.hyper(
                self.context.rule, number, [shard.batch.loss_terms[rank]], self.devices.dtype
            )
            scheduled.append(
                self.coordinator.schedule(
                    self._program_for(shard), args=(dict(shard.tensors), tf.constant(numbers))
                )
            )
        self.pending.append(scheduled)
        if len(self.pending) > AHEAD:
            for result in self.pending.popleft():
                result.fetch()
        self.steps_done += 1

    def counted_step(self, shards: list[Shard]) -> dict[str, int]:
        self.step(shards)
        return {}

    def loss_shares(self) -> list[list[float]]:
        """[rank][step]: each shard's mean loss. DidNotTrain: updates are not one a shard."""
        replicas = self.context.run.devices
        expected, applied = self.steps_done * replicas, int(self.applied.numpy())
        if applied != expected:
            raise DidNotTrain(f"the server applied {applied} updates and {expected} were scheduled")
        losses = np.reshape(self.losses[0].numpy()[:expected], (self.steps_done, replicas))
        return [[float(loss) for loss in column] for column in losses.T]


def alone(run: Run, rank: int, threads: int, startup_s: float, stage: Stage) -> Opening:
    """How a member's session is opened, which shares no memory and waits by its own means."""
    return Opening(run, rank, threads, Path(), 0.0, startup_s, stage)


class CoordinatorSession(Session):
    """The session of the coordinator, for all replicas."""

    def __init__(self, run: Run, order: dict[str, Any], startup_s: float, stage: Stage) -> None:
        super().__init__(alone(run, -1, order["threads"], startup_s, stage))

    def _set_up(self, rank: int) -> tuple[Any, Devices]:
        strategy = tf.distribute.ParameterServerStrategy(
            tf.distribute.cluster_resolver.TFConfigClusterResolver()
        )
        coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
        return strategy, ClusterDevices(self.run, coordinator)

    def _feed(self) -> Any:
        return ShardFeed(self.source, self.run.devices)

    def _trainer(self) -> CoordinatedTrainer:
        return CoordinatedTrainer(self.context)

    def time(self) -> list[dict[str, Any]]:
        """Return the coordinator's figures of each replica; the workers tell the rest."""
        return [
            {name: value for name, value in part.items() if name != "peak_memory_gib"}
            for part in super().time()
        ]
