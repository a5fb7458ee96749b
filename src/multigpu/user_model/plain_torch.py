"""The user's own module trained in plain PyTorch beside what engines would train of it: on whole
batches, step after step.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from multigpu.engines.torch.own_update import own_optimizer, settle
from multigpu.engines.torch.stores import leaf
from multigpu.engines.torch.variables import materialise
from multigpu.spec.errors import JobError
from multigpu.user_model.examined import largest
from multigpu.workloads.own.description import PREFIX, Described
from multigpu.workloads.own.job import Job, telling
from multigpu.workloads.own.structure import put_together
from multigpu.workloads.own.torch import (
    OwnStep,
    comparable,
    loss_of,
    owner_of,
    switched,
    variables_of,
)

MOVED = 0.05
"""Of a parameter's largest number, how far a step of the comparison moves it: far enough that a
second copy that stays behind shows, in fp32 too, where `APART` is 1e-3.
"""

LEAST = 1e-9
"""Of the largest gradient of all: one that is smaller moves nothing, since it may be rounding."""

APART = {torch.float64: 1e-7, torch.float32: 1e-3}
"""How far gradients (and losses) of one computation may be apart, relative to their largest."""


@dataclass
class Passed:
    """One step: its loss and each trained variable's gradient, dense; None: it has none."""

    loss: float
    gradients: dict[str, Tensor | None]

    def relative(self, name: str) -> float:
        """How large a variable's gradient is beside the largest of all."""
        most = max(map(largest, self.gradients.values()))
        return largest(self.gradients[name]) / max(most, 1e-300)


def dense(gradient: Tensor | None) -> Tensor | None:
    """A gradient as an array of its own."""
    if gradient is None:
        return None
    return (gradient.to_dense() if gradient.is_sparse else gradient).detach().clone()


def in_type(kind: torch.dtype, step: Callable[[], Tensor]) -> Tensor:
    """A forward pass in this type, with random numbers as in every other; backward included."""
    with comparable(kind), torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        return step()


class PlainStep:
    """The user's module and loss, and nothing else."""

    def __init__(self, job: Job, module: nn.Module, structure: Any, kind: torch.dtype) -> None:
        self.job, self.module, self.structure, self.kind = job, module, structure, kind
        self.parameters, _ = variables_of(module)
        self.trained = {name: each.requires_grad for name, each in self.parameters.items()}

    def passed(self, batch: dict[str, Tensor]) -> Passed:
        """Forward and backward; a JobError with the user's own line where one fails, or where the
        job changes which parameters are trained.
        """

        def step() -> Tensor:
            loss = loss_of(self.job, self.module, put_together(self.structure, batch))
            if not loss.requires_grad:
                return loss
            with telling("backward", self.job.made_at):
                loss.backward()
            return loss.detach()

        loss = in_type(self.kind, step)
        for name, each in self.parameters.items():
            if each.requires_grad != self.trained[name]:
                switched(name, each.requires_grad, self.job.made_at)
        gradients = {name: dense(p.grad) for name, p in self.parameters.items() if p.requires_grad}
        self.module.zero_grad()
        return Passed(float(loss), gradients)

    def changed(self, values: dict[str, Tensor]) -> str | None:
        """The name of a parameter that is another object, or is trained and has other values."""
        now, _ = variables_of(self.module)
        for name, before in self.parameters.items():
            if now.get(name) is not before:
                return name
            if self.trained[name] and not torch.equal(before.detach(), values[name].to(before)):
                return name
        return None

    def update(self, passed: Passed, trained: list[str]) -> list[str]:
        """Make a step of what of the update is the job's own, and name the parameters that its
        optimizer leaves out; a JobError says what fails.
        """
        left_out: list[str] = []
        if self.job.own_update:
            parameters = [self.parameters[name] for name in trained]
            for name, parameter in zip(trained, parameters, strict=True):
                parameter.grad = passed.gradients[name]
            own = own_optimizer(self.job, parameters) or torch.optim.SGD(parameters)
            settle(own, self.job, False)
            with self.job.telling("optimizer"):
                own.step()
            updated = {id(each) for group in own.param_groups for each in group["params"]}
            left_out = [name for name in trained if id(self.parameters[name]) not in updated]
        return left_out

    @torch.no_grad()
    def move(self, updates: dict[str, Tensor]) -> None:
        for name, update in updates.items():
            self.parameters[name].sub_(update)


class PlacedStep:
    """The same as the engines have it: parameters in memory of their own under the user's module,
    rows of tables looked up beforehand. What a table holds is not in its layer.
    """

    def __init__(
        self,
        job: Job,
        described: Described,
        values: dict[str, Tensor],
        kind: torch.dtype,
        device: torch.device,
    ) -> None:
        self.described, self.kind = described, kind
        memory = {name: values[name].to(device, kind, copy=True) for name, _ in described.variables}
        self.tables = {name: memory.pop(name) for name in described.tables}
        with comparable(kind), torch.device("cpu"):
            self.module = OwnStep(job, described, values).to(device)
            self.parameters = materialise(self.module, memory, device, kind)
        for name, table in self.tables.items():
            owner, own = owner_of(self.module, name)
            nothing = torch.full((), torch.nan, dtype=kind, device=device).expand(table.shape)
            owner._parameters[own] = nn.Parameter(nothing)

    def passed(self, batch: dict[str, Tensor]) -> Passed:
        """As `PlainStep.passed`; a JobError where a table is used otherwise than by its rows."""
        ids = self.module.lookups(batch)
        rows = {
            name: leaf(table.index_select(0, ids[name].reshape(-1)), ids[name])
            for name, table in self.tables.items()
        }

        def step() -> Tensor:
            loss = self.module(batch, rows) / len(batch["0"])
            if loss.requires_grad:
                loss.backward()
            return loss.detach()

        loss = in_type(self.kind, step)
        gradients = {name: dense(p.grad) for name, p in self.parameters.items()}
        for name, table in self.tables.items():
            owner, own = owner_of(self.module, name)
            whole, looked_up = owner._parameters[own], rows[name].grad
            if looked_up is None or whole is None or whole.grad is not None:
                raise JobError(f"{name} is used otherwise than by rows that are looked up once")
            gradient = torch.zeros_like(table)
            gradient.index_add_(0, ids[name].reshape(-1), looked_up.reshape(-1, table.shape[1]))
            gradients[name] = gradient
        for name, parameter in self.parameters.items():
            if parameter.grad is not None and parameter.grad.is_sparse:
                raise JobError(
                    f"{name.removeprefix(PREFIX)} gets a sparse gradient, which placements do not"
                    " merge: look it up without sparse=True"
                )
        self.module.zero_grad()
        return Passed(float(loss), gradients)

    @torch.no_grad()
    def move(self, updates: dict[str, Tensor]) -> None:
        for name, update in updates.items():
            (self.tables if name in self.tables else self.parameters)[name].sub_(update)


def updates_of(step: PlainStep, passed: Passed) -> dict[str, Tensor]:
    """Return the amount that a step of the comparison takes off each variable."""
    most = max(map(largest, passed.gradients.values()), default=0.0)
    updates = {}
    for name, gradient in passed.gradients.items():
        size = largest(gradient)
        if gradient is not None and size > LEAST * most:
            scale = max(largest(step.parameters[name].detach()), MOVED)
            updates[name] = gradient * (MOVED * scale / size)
    return updates


def difference(plain: Passed, placed: Passed, kind: torch.dtype, fixed: list[str]) -> str | None:
    """In which two steps of one computation differ, in words; None: in nothing."""
    apart = APART[kind]
    if not abs(plain.loss - placed.loss) <= apart * max(1e-12, abs(plain.loss)):
        return f"the loss is {placed.loss:.6g} where plain PyTorch's is {plain.loss:.6g}"
    most = max(map(largest, plain.gradients.values()), default=0.0)
    for name, gradient in plain.gradients.items():
        if name in fixed and gradient is None:
            continue
        other = placed.gradients.get(name)
        gap = largest(gradient)
        if gradient is not None and other is not None:
            gap = largest(gradient - other)
        elif gradient is None:
            gap = largest(other)
        if not gap <= apart * max(largest(gradient), 1e-6 * most):
            own = name.removeprefix(PREFIX)
            return f"the gradient of {own} is not plain PyTorch's"
    return None


def first_difference(
    plain: PlainStep,
    placed: list[PlacedStep],
    batches: Callable[[int], dict[str, Tensor]],
    steps: int,
    goes_on: Callable[[int], bool],
) -> list[str | None]:
    """Train all of them on the same batches and say of each in which it first differs from plain
    PyTorch, in words; None: in nothing. goes_on: whether there is time for a step, by its number.
    """
    found: list[str | None] = [None] * len(placed)
    for step in range(steps):
        if step and not goes_on(step):
            break
        passed = plain.passed(batches(step))
        updates = updates_of(plain, passed)
        plain.move(updates)
        for index, other in enumerate(placed):
            if found[index] is not None:
                continue
            try:
                own = other.passed(batches(step))
            except JobError as error:
                found[index] = str(error)
                continue
            except RuntimeError as error:  # rows that do not fit what is asked for
                found[index] = " ".join(str(error).split())
                continue
            found[index] = difference(passed, own, plain.kind, other.described.fixed)
            other.move(updates)
    return found
