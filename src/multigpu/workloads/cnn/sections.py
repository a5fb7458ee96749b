"""The image models as sections, framework-free: a layer or a block each, with the activation that follows it."""

from __future__ import annotations

from math import prod

from multigpu.workloads.base import Section
from multigpu.workloads.cnn.layers import Network, Relu, Shape, steps


def sections(network: Network, image: Shape) -> tuple[Section, ...]:
    """A section for every layer of the network but a ReLU, which may write over what it follows and stays with it.

    Blocks (residual, concatenated branches) stay whole. The first section reads the images, the last computes the loss.
    """
    names: list[list[str]] = []
    traces = []
    for name, layer, before in steps(network, image):
        if names and isinstance(layer, Relu):
            names[-1].append(name)
        else:
            names.append([name])
            traces.append(layer.trace(before, name))
    found = []
    for index, (stretch, one) in enumerate(zip(names, traces, strict=True)):
        last = index == len(names) - 1
        gives = {} if last else {stretch[0]: {"rows": prod(one.output)}}
        takes = (names[index - 1][0],) if index else ()
        found.append(Section(stretch[0], tuple(v.name for v in one.variables), takes, gives, {"rows": one.flops}))
    return tuple(found)
