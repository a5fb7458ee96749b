"""Stacks of one kind of layer, framework-free: document 002's fully connected model, and a made-up
family of dense, convolutional and recurrent ones of like size, by which data and model parallelism
are compared. Cut over devices, layers of a dense or convolutional body go in pairs: the first is
cut by its outputs, the second by its inputs, so that only the second one's sums are joined, once
forward and once backward. A recurrent layer is cut by its hidden units (all four gates of one stay
together), and its hidden state is gathered position by position. The head is cut by its classes,
and its loss needs three numbers a row from every device.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from math import sqrt
from pathlib import Path
from typing import Literal

from multigpu.spec.model import LSTM_PASSES, Exchange, Init, Model, Optimizer, Splitting, Variable
from multigpu.spec.stage_graph import Stage
from multigpu.workloads.base import models_in

Kind = Literal["dense", "convolution", "recurrent"]
WINDOW = 3
"""Side of a convolution's window, whose stride is one and whose padding keeps the image's size."""


@dataclass(frozen=True)
class StackConfig:
    """Sizes of one stack; a recurrent layer is an LSTM. inputs: features or channels. positions:
    pixels a side, positions, or 1.
    """

    kind: Kind
    inputs: int
    width: int
    layers: int
    classes: int
    positions: int = 1
    activation: Literal["sigmoid", "relu"] = "relu"

    @property
    def row_shape(self) -> tuple[int, ...]:
        """Of one input: (features,), (channels, height, width) or (positions, features)."""
        if self.kind == "convolution":
            return self.inputs, self.positions, self.positions
        return (self.inputs,) if self.kind == "dense" else (self.positions, self.inputs)

    @property
    def places(self) -> int:
        """At how many places of a row each layer computes: pixels, positions, or one."""
        return self.positions**2 if self.kind == "convolution" else self.positions

    def inputs_of(self, layer: int) -> int:
        return self.width if layer else self.inputs


def layer_variables(config: StackConfig, layer: int) -> tuple[Variable, ...]:
    """One layer's variables; LSTM gates in the order i, f, g, o. Glorot's uniform law; ReLU layers
    start sqrt(2) as wide; biases at 0.
    """
    before, after = config.inputs_of(layer), config.width
    gain = sqrt(2) if config.activation == "relu" and config.kind != "recurrent" else 1.0

    def uniform(fan_in: int, fan_out: int) -> Init:
        return Init("uniform", gain * sqrt(6 / (fan_in + fan_out)))

    name, zero = f"{config.kind}_{layer}", Init("constant", 0.0)
    if config.kind == "recurrent":
        return (
            Variable(f"{name}_input", (4, after, before), "kernel", uniform(before, 4 * after)),
            Variable(f"{name}_hidden", (4, after, after), "kernel", uniform(after, 4 * after)),
            Variable(f"{name}_bias", (4, after), "bias", zero),
        )
    if config.kind == "convolution":
        area = WINDOW * WINDOW
        kernel = Variable(
            f"{name}_kernel",
            (after, before, WINDOW, WINDOW),
            "convolution",
            uniform(area * before, area * after),
        )
        return kernel, Variable(f"{name}_bias", (after,), "bias", zero)
    return Variable(f"{name}_kernel", (after, before), "dense", uniform(before, after)), Variable(
        f"{name}_bias", (after,), "bias", zero
    )


def head_variables(config: StackConfig) -> tuple[Variable, ...]:
    """The dense head, [classes, width], and its bias."""
    start = Init("uniform", sqrt(6 / (config.width + config.classes)))
    kernel = Variable("head_kernel", (config.classes, config.width), "dense", start)
    return kernel, Variable("head_bias", (config.classes,), "bias", Init("constant", 0.0))


def layer_flops(config: StackConfig, layer: int) -> int:
    """Operations of one layer for one row, forward, a multiply-add counted as two."""
    kernels = [v for v in layer_variables(config, layer) if v.kind != "bias"]
    return 2 * config.places * sum(v.elements for v in kernels)


def memory_passes(config: StackConfig) -> float:
    """Numbers read or written for one row at least (`Model.memory_passes_per_unit`)."""
    ends = [
        config.places * (config.inputs_of(layer) + config.width) for layer in range(config.layers)
    ]
    if config.kind == "recurrent":
        body = LSTM_PASSES * config.layers * config.places * config.width
    else:
        body = 3 * sum(ends) - ends[0]
    return float(body + 3 * (config.width + config.classes))


def splitting(config: StackConfig) -> Splitting:
    """How the stack is cut, and what a step joins, elements a row."""
    axes = {"head_kernel": 0, "head_bias": 0}
    for layer in range(config.layers):
        for variable in layer_variables(config, layer):
            if config.kind == "recurrent":
                axes[variable.name] = 1
            elif layer % 2 == 0:
                axes[variable.name] = 0
            # what is cut by its inputs adds its bias to the joined sum
            elif variable.kind != "bias":
                axes[variable.name] = 1
    size = config.places * config.width
    statistics = (Exchange("all_reduce", 3, exact=True),)
    if config.kind == "recurrent":
        steps = config.layers * size
        return Splitting(
            axes,
            (Exchange("all_gather", steps), Exchange("reduce_scatter", steps), *statistics),
            equal=config.width,
        )
    pairs = config.layers // 2
    return Splitting(
        axes,
        (
            Exchange("all_reduce", pairs * size),
            Exchange("all_reduce", (pairs - 1) * size + config.width),
            *statistics,
        ),
    )


def sections(config: StackConfig) -> tuple[Stage, ...]:
    """A section a layer, each handing its activations on; last the head with the loss."""
    found: list[Stage] = []
    for layer in range(config.layers):
        name, below = f"{config.kind}_{layer}", tuple(section.name for section in found[-1:])
        own = tuple(v.name for v in layer_variables(config, layer))
        gives = {name: {"rows": config.places * config.width}}
        work = {"rows": layer_flops(config, layer)}
        found.append(Stage(name, below, gives=gives, variables=own, work=work))
    names = tuple(v.name for v in head_variables(config))
    work = {"rows": 2 * config.width * config.classes}
    return (*found, Stage("head", (found[-1].name,), variables=names, work=work))


def describe(name: str, config: StackConfig, optimizer: Optimizer) -> Model:
    """The description of one stack; a ValueError where layers cut in pairs are odd."""
    if config.kind != "recurrent" and config.layers % 2:
        raise ValueError(
            f"{name} has {config.layers} layers of kind {config.kind!r}: they are cut in pairs, so"
            " their number must be even"
        )
    body = [v for layer in range(config.layers) for v in layer_variables(config, layer)]
    return Model(
        name=name,
        workload="stacks",
        unit="samples",
        variables=(*body, *head_variables(config)),
        optimizer=optimizer,
        forward_flops_per_unit=float(
            sum(layer_flops(config, layer) for layer in range(config.layers))
            + 2 * config.width * config.classes
        ),
        memory_passes_per_unit=memory_passes(config),
        config=config,
        declare_sections=lambda: sections(config),
        splitting=splitting(config),
    )


MODELS: Mapping[str, Model] = models_in(Path(__file__).parent, StackConfig, describe)
"""By name. Document 002's "42M parameters" (`mlp42m`) come from DistBelief (Dean and others, Large
Scale Distributed Deep Networks, 2012, section 5): 11 frames of 40 energies in, four hidden layers
of 2,560 sigmoids, a softmax over 8,192 states: 41,777,152 parameters.
"""
