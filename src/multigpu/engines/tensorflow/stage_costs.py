"""What each stage of a model costs on one device, and a copy between two, measured in TensorFlow."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from multigpu.engines.tensorflow import rules
from multigpu.engines.tensorflow.devices import Devices, prepare
from multigpu.engines.tensorflow.feed import is_even
from multigpu.engines.tensorflow.row_feed import StageFeed
from multigpu.engines.tensorflow.stages import StagesTrainer
from multigpu.engines.tensorflow.trainer import Context
from multigpu.run import Run
from multigpu.stages.cost import CopyCost, Costs, Part, StageCost
from multigpu.stages.graph import Stage
from multigpu.workloads import workloads


def measure_costs(run: Run, sizes: Sequence[int], repeats: int) -> Costs:
    """Costs of the stages of a Run under placement "single", and of copies of `sizes` bytes.

    Each pass is a function of its own, timed until the device has finished; what calling an empty function takes is left out. Op
    by op, and on CPUs, one thread starts everything and that is all the time there is; a graph starts each device's work from a
    thread of its own.
    """
    prepare(run.device_type, 2)
    source = workloads()[run.workload].inputs[run.inputs](run, run.description)
    devices = Devices(run)
    trainer = StagesTrainer(Context(run, devices, is_even(source, run.devices), dynamic=False))
    feed = StageFeed(source, devices)
    (shard,) = feed.shards(0)
    feed.close()
    clock = _Clock(devices, run.execution == "graph", repeats)
    outputs: dict[str, tf.Tensor] = {}
    stages = []
    for stage in trainer.graph.stages:
        if stage.host:
            outputs[stage.name] = trainer.words.lookup(shard.tensors[stage.arrays[0]])  # type: ignore[union-attr]
            continue
        cost, outputs[stage.name] = _stage(trainer, stage, [outputs[name] for name in stage.inputs], shard.tensors, clock)
        stages.append(cost)
    copies = tuple(_copy(devices, size, clock) for size in sorted(set(sizes)))
    return Costs(stages=tuple(stages), copies=copies, threads="per_device" if clock.graph and devices.cuda else "one")


class _Clock:
    """Times calls as functions of their own (`graph`) or op by op."""

    def __init__(self, devices: Devices, graph: bool, repeats: int) -> None:
        self.devices, self.graph, self.repeats = devices, graph, repeats
        with devices.at(0):
            self.number = tf.identity(tf.constant(1.0))
        self.empty_s = 0.0
        self.empty_s = self.seconds(lambda x: x, self.number) if graph else 0.0

    def seconds(self, action: Callable[..., Any], *arguments: Any) -> float:
        """One call, until the device has finished, without what an empty one takes."""
        call = tf.function(action, autograph=False) if self.graph else action
        return max(0.0, self.each(lambda: call(*arguments)) - self.empty_s)

    def each(self, call: Callable[[], Any]) -> float:
        """One call, until the device has finished."""
        for _ in range(3):
            call()
        self.devices.synchronise()
        began = time.perf_counter()
        for _ in range(self.repeats):
            call()
        self.devices.synchronise()
        return (time.perf_counter() - began) / self.repeats

    def part(self, seconds: float) -> Part:
        """Whose time it is: the device's where others may work beside it."""
        if self.graph and self.devices.cuda:
            return Part(device_s=seconds, host_s=0.0)
        return Part(device_s=0.0, host_s=seconds)


def _stage(trainer: StagesTrainer, stage: Stage, inputs: list[tf.Tensor], tensors: Any, clock: _Clock) -> tuple[StageCost, tf.Tensor]:
    arrays = [tensors[name] for name in stage.arrays]
    function, rule = trainer.functions[stage.name], trainer.context.rule

    def values() -> dict[str, Any]:
        return {name: trainer.values[name] if name in trainer.tables else trainer.values[name].read_value() for name in stage.variables}

    def forward(inputs: list[tf.Tensor], arrays: list[tf.Tensor]) -> tf.Tensor:
        with trainer.devices.at(0):
            return function(values(), inputs, arrays)

    def passes(inputs: list[tf.Tensor], arrays: list[tf.Tensor]) -> Any:
        with trainer.devices.at(0), tf.GradientTape(watch_accessed_variables=False) as tape:
            held = values()
            flowing = [one for one in inputs if one.dtype.is_floating]
            tape.watch([*held.values(), *flowing])
            output = function(held, inputs, arrays)
        with trainer.devices.at(0):
            found = tape.gradient(output, (held, flowing))
            return [output, *(one.values if isinstance(one, tf.IndexedSlices) else one for one in tf.nest.flatten(found))]

    output = forward(inputs, arrays)
    ahead = clock.seconds(forward, inputs, arrays)
    whole = clock.seconds(passes, inputs, arrays)
    own = [name for name, home in trainer.graph.variables.items() if home == stage.name]
    update_s = 0.0
    if own:
        numbers = tf.constant(rules.hyper(rule, 0, [1], trainer.devices.dtype))

        def update(numbers: tf.Tensor) -> None:
            with trainer.devices.at(0):
                for name in own:
                    rules.apply(rule, trainer.values[name], trainer.slots[name], tf.zeros_like(trainer.values[name]), tf.identity(numbers))

        update_s = clock.seconds(update, numbers)
    cost = StageCost(name=stage.name, forward=clock.part(ahead), backward=clock.part(max(0.0, whole - ahead)), update=clock.part(update_s))
    return cost, output


def _copy(devices: Devices, size: int, clock: _Clock) -> CopyCost:
    with devices.at(0):
        source = tf.identity(tf.ones([max(1, size // 4)]))

    def at(place: int) -> float:
        """Op by op, since what a function returns passes through the first device."""

        def identity() -> tf.Tensor:
            with devices.at(place):
                return tf.identity(source)

        return clock.each(identity)

    part = clock.part(max(0.0, at(1) - at(0)))  # without a copy, the same call
    return CopyCost(bytes=size, device_s=part.device_s, host_s=part.host_s)
