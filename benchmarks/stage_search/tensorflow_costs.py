"""Measure the cost of each stage of a model on one device, and of a copy between two: what each
further pass adds to one graph, as calls cost more.
"""

import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import tensorflow as tf

from multigpu.engines.tensorflow import rules
from multigpu.engines.tensorflow.devices import Devices, prepare
from multigpu.engines.tensorflow.feed import is_even
from multigpu.engines.tensorflow.trainer import Context
from multigpu.spec.run import Run
from multigpu.spec.stage_graph import Stage
from multigpu.workloads.sources import open_source
from multigpu_study.stages.costs import CopyCost, Costs, HostModel, StageCost, StagePass
from multigpu_study.stages.tensorflow_engine import StageFeed, StagesTrainer

MORE = 4  # further passes in the longer of two graphs, whose difference is their cost


def measure_costs(run: Run, sizes: Sequence[int], repeats: int) -> Costs:
    """Costs of the stages of a Run under placement "single", and of copies of `sizes` bytes. On a
    GPU the host's part of a pass is what it takes on one row, the device's what it takes on all:
    the longer hides the other. Op by op, and on CPUs, one thread does everything. Which threads of
    a graph start work on several devices is told by measured steps (`pricing.host_model_errors`);
    until there are any, one for each.
    """
    prepare(run.device_type, 2)
    source = open_source(run)
    devices = Devices(run)
    trainer = StagesTrainer(Context(run, devices, is_even(source, run.devices), dynamic=False))
    feed = StageFeed(source, devices)
    (shard,) = feed.shards(0)
    feed.close()
    outputs: dict[str, tf.Tensor] = {}
    stages = []
    with as_written():
        clock = PassClock(devices, run.execution == "graph", repeats)
        for stage in trainer.graph.stages:
            if stage.host:
                words = shard.tensors[stage.arrays[0]]
                outputs[stage.name] = trainer.words.lookup(words)  # type: ignore[union-attr]
                continue
            cost, outputs[stage.name] = _stage(
                trainer, stage, [outputs[name] for name in stage.inputs], shard.tensors, clock
            )
            stages.append(cost)
        copies = tuple(_copy(devices, size, clock) for size in sorted(set(sizes)))
    threads: HostModel = "per_device" if clock.graph and devices.cuda else "one"
    return Costs(stages=tuple(stages), copies=copies, threads=threads, call_s=clock.call_s)


@contextmanager
def as_written() -> Iterator[None]:
    """Nothing is left out of a graph for having no reader: a pass that is only waited for would not
    run.
    """
    before = tf.config.optimizer.get_experimental_options().get("dependency_optimization", True)
    tf.config.optimizer.set_experimental_options({"dependency_optimization": False})
    try:
        yield
    finally:
        tf.config.optimizer.set_experimental_options({"dependency_optimization": before})


class PassClock:
    """Times passes within a graph (`graph`) or op by op. call_s: what calling a graph costs,
    whatever runs in it.
    """

    def __init__(self, devices: Devices, graph: bool, repeats: int) -> None:
        self.devices, self.graph, self.repeats = devices, graph, repeats
        with devices.at(0):
            self.number = tf.identity(tf.constant(1.0))
        self.call_s = (
            self.each(tf.function(lambda: tf.identity(self.number), autograph=False))
            if graph
            else 0.0
        )

    def seconds(self, action: Callable[..., Any], *arguments: Any) -> float:
        """One pass, until the device has finished."""
        if not self.graph:
            return self.each(lambda: action(*arguments))
        return self.difference_s(
            self.passes(action, 1, arguments), self.passes(action, 1 + MORE, arguments)
        )

    def difference_s(self, short: Callable[[], Any], long: Callable[[], Any]) -> float:
        """Return the seconds of each further pass of `long`; called in turn, so that a busy moment
        of the host meets both.
        """
        found = sorted(self.each(long) - self.each(short) for _ in range(3))
        return max(0.0, found[1]) / MORE

    def passes(
        self, action: Callable[..., Any], count: int, arguments: Sequence[Any]
    ) -> Callable[[], Any]:
        """A graph in which so many passes start one after another."""

        def repeated(*arguments: Any) -> tf.Tensor:
            before: list[Any] = []
            for _ in range(count):
                with tf.control_dependencies(before):
                    done = tf.nest.flatten(action(*arguments))
                before = [one for one in done if one is not None]
            with tf.control_dependencies(before), self.devices.at(0):
                return tf.identity(self.number)

        call = tf.function(repeated, autograph=False)
        return lambda: call(*arguments)

    def each(self, call: Callable[[], Any]) -> float:
        for _ in range(3):
            call()
        self.devices.synchronise()
        began = time.perf_counter()
        for _ in range(self.repeats):
            call()
        self.devices.synchronise()
        return (time.perf_counter() - began) / self.repeats

    def part(self, seconds: float, host_s: float) -> StagePass:
        """Whose time it is: the device's where others may work beside it."""
        if self.graph and self.devices.cuda:
            return StagePass(device_s=seconds, host_s=min(seconds, host_s))
        return StagePass(device_s=0.0, host_s=seconds)


def _stage(
    trainer: StagesTrainer, stage: Stage, inputs: list[tf.Tensor], tensors: Any, clock: PassClock
) -> tuple[StageCost, tf.Tensor]:
    arrays = [tensors[name] for name in stage.arrays]
    one_row = [[whole[:1] for whole in these] for these in (inputs, arrays)]
    function = trainer.functions[stage.name]

    def values() -> dict[str, Any]:
        return {
            name: trainer.values[name]
            if name in trainer.tables
            else trainer.values[name].read_value()
            for name in stage.variables
        }

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
            return [
                output,
                *(
                    one.values if isinstance(one, tf.IndexedSlices) else one
                    for one in tf.nest.flatten(found)
                ),
            ]

    ahead_s, whole_s = (clock.seconds(action, inputs, arrays) for action in (forward, passes))
    ahead_host_s, whole_host_s = (clock.seconds(action, *one_row) for action in (forward, passes))
    backward = clock.part(max(0.0, whole_s - ahead_s), max(0.0, whole_host_s - ahead_host_s))
    update = StagePass(device_s=0.0, host_s=0.0)
    if own := [name for name, home in trainer.graph.variables.items() if home == stage.name]:
        looked_up = next((one.shape for one in (*inputs, *arrays) if one.dtype.is_integer), ())
        whole, small = (_update(trainer, own, looked_up, every) for every in (True, False))
        update = clock.part(clock.seconds(whole), clock.seconds(small))
    return StageCost(
        name=stage.name, forward=clock.part(ahead_s, ahead_host_s), backward=backward, update=update
    ), forward(inputs, arrays)


def _update(
    trainer: StagesTrainer, names: Sequence[str], looked_up: Sequence[int], every: bool
) -> Callable[[], tf.Tensor]:
    """Updates variables that live together, as the trainer does. every: all elements; else one,
    which costs the host as much.
    """
    dtype = trainer.devices.dtype
    numbers = tf.constant(rules.hyper(trainer.context.rule, 0, [1], dtype))
    known: list[tuple[str, tf.Variable, list[tf.Variable], list[Any]]] = []
    with trainer.devices.at(0):
        for name in names:
            variable, slots = trainer.values[name], trainer.slots[name]
            if not every:
                variable, *slots = (
                    tf.Variable(tf.ones([1] * len(variable.shape), dtype))
                    for _ in range(1 + len(slots))
                )
            gradients: list[Any] = [tf.zeros(variable.shape, dtype)]
            if name in trainer.tables:
                ids = math.prod(looked_up) if every else 1
                rows = tf.IndexedSlices(
                    tf.zeros([ids, variable.shape[1]], dtype),
                    tf.range(ids) % variable.shape[0],
                    variable.shape,
                )
                gradients = [rows for stage in trainer.graph.stages if name in stage.variables]
            known.append((name, variable, slots, gradients))

    def update() -> tf.Tensor:
        with trainer.devices.at(0):
            for name, variable, slots, gradients in known:
                trainer.apply(name, variable, slots, gradients, tf.identity(numbers))
            return tf.identity(numbers)  # an update returns nothing that the next could wait for

    return update


def _copy(devices: Devices, size: int, clock: PassClock) -> CopyCost:
    """A copy between two devices, over the same on one: back and forth for how long it takes,
    several at once for what starting costs.
    """
    with devices.at(0):
        source = tf.identity(tf.ones([max(1, size // 4)]))

    def there_and_back(other: int, count: int) -> tf.Tensor:
        tensor = source
        for turn in range(count):
            with devices.at(other if turn % 2 == 0 else 0):
                tensor = -tensor
        with devices.at(0):
            return -tensor

    def apart(other: int, count: int) -> tf.Tensor:
        heads = []
        for number in range(count):
            with devices.at(0):
                own = source + float(number + 1)
            with devices.at(other):
                heads.append(own[:1] + 1.0)
        with tf.control_dependencies(heads), devices.at(0):
            return source[:1] + 1.0

    def added_s(form: Callable[[int, int], tf.Tensor], count: int) -> float:
        """Return the seconds that one crossing adds."""
        calls: list[Callable[[], Any]] = [partial(form, other, count) for other in (1, 0)]
        far, near = (tf.function(call, autograph=False) if clock.graph else call for call in calls)
        found = sorted(clock.each(far) - clock.each(near) for _ in range(3))
        return max(0.0, found[1]) / count

    one_s, host_s = added_s(there_and_back, 2 * MORE), added_s(apart, MORE)
    if clock.graph and devices.cuda:
        return CopyCost(bytes=size, device_s=one_s, host_s=min(one_s, host_s))
    return CopyCost(bytes=size, device_s=0.0, host_s=one_s)
