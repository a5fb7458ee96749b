"""Find tensors outside of a user's model that would learn: no placement merges their gradients."""

import weakref
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.graph import Node

from multigpu.spec.errors import JobError
from multigpu.workloads.own.job import Job


def nodes_of(loss: Tensor) -> Iterator[Node]:
    """Give the nodes of the graph that backward would go through."""
    met, left = set[Node](), [loss.grad_fn]
    while left:
        if (node := left.pop()) is not None and node not in met:
            met.add(node)
            yield node
            left += [following for following, _ in node.next_functions]


def shorter_type(loss: Tensor, kind: torch.dtype) -> str:
    """The shortest type of real numbers on the way from parameters to the loss, where it is shorter
    than `kind`; "": none is.
    """
    told: Any = [each for node in nodes_of(loss) for each in node._input_metadata]
    types = {each.dtype for each in told if each is not None and each.dtype.is_floating_point}
    shortest = min(types, key=lambda each: each.itemsize, default=kind)
    return "" if shortest.itemsize >= kind.itemsize else str(shortest).removeprefix("torch.")


class Outside:
    """Tell weights, which two losses in a row depend on, from what forward makes anew."""

    def __init__(self) -> None:
        self.before: dict[int, weakref.ref[Tensor]] = {}

    def notes_of(
        self, job: Job, loss: Tensor, parameters: Mapping[str, Tensor], batch: Mapping[str, Tensor]
    ) -> list[str]:
        """Say what of the loss would learn and is none of these; a JobError: some has learned."""
        if any(parameter.grad is not None for parameter in parameters.values()):
            raise JobError(
                "forward or the loss calls backward itself: what it adds to gradients is not"
                " averaged over devices as the loss is, so several train otherwise than one. Add"
                f" that part to the loss ({job.made_at})"
            )
        known = {id(each) for each in (*parameters.values(), *batch.values())}
        leaves: list[Any] = [getattr(node, "variable", None) for node in nodes_of(loss)]
        found: list[Tensor] = [one for one in leaves if one is not None and id(one) not in known]
        kept = [leaf for leaf in found if self.before.get(id(leaf), lambda: None)() is leaf]
        self.before = {id(leaf): weakref.ref(leaf) for leaf in found}
        if not kept:
            return []
        own = job.loss.named_parameters() if isinstance(job.loss, nn.Module) else ()
        names = {id(parameter): f"{name} of the loss" for name, parameter in own}
        told = [names.get(id(leaf), f"a tensor of the shape {list(leaf.shape)}") for leaf in kept]
        return [
            f"the loss depends on {', '.join(told[:2])}{' and others' * (len(told) > 2)}, which"
            " would learn and is no part of the model, so it stays as it is: make it a parameter of"
            f" the model, or say requires_grad_(False) ({job.made_at})"
        ]
