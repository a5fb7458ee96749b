"""Captured steps: recorded once after a warm-up, checked against eager ones, replayed where all is
as it was recorded, and run eagerly elsewhere.
"""

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from multigpu.engines.torch.recorder import Graph, Recorder, first_line
from multigpu.user_model.wrap.batches import Structure, move, put_together, take_apart
from multigpu.user_model.wrap.placed import local
from multigpu.user_model.wrap.step import Randomness, Step

TRIES = 4  # recordings that are tried, at steps further and further apart
LISTENED = 3  # steps before a recording in which waits for the device are listened for


@dataclass(frozen=True)
class Circumstances:
    """All that a recorded step has for good, beside the batch's values and the learning rates."""

    structure: Structure
    modes: tuple[bool, ...]
    trained: tuple[bool, ...]
    storage: tuple[int, ...]
    fixed: tuple[Any, ...]


@dataclass
class Recorded:
    """A recorded step: what it reads and writes. `kept`: what must live as long as it."""

    graph: Graph
    circumstances: Circumstances
    inputs: list[Tensor]
    loss: Tensor
    norm: Tensor | None
    kept: list[Tensor]


class CapturedSteps:
    """Runs steps: eager ones in the warm-up, then replays of a recorded one."""

    def __init__(
        self, step: Step, recorder: Recorder, randomness: Randomness, tell: Callable[[str], None]
    ) -> None:
        self.step = step
        self.recorder = recorder
        self.randomness = randomness
        self.tell = tell
        self.recorded: Recorded | None = None
        self.calls = 0
        self.tries = 0
        self.next_try = step.settings.warm_up + 1
        self.given_up = False
        self.waits: list[str] = []
        self.last: Circumstances | None = None
        self.host_state: dict[str, float] = {}
        self.modules = list(step.placed.module.modules())
        self.parameters = list(step.placed.parameters.values())

    def run(self, batch: Any) -> tuple[Tensor, bool]:
        """Train on a batch; its loss, and whether a replay trained."""
        self.calls += 1
        self.step.update.set_rates()
        if not self.step.settings.reshard:
            self.step.placed.gather_anew()  # a replay would not free what an evaluation gathered
        structure, tensors = take_apart(batch)
        now = self.circumstances(structure)
        if self.recorded is not None:
            change = changed(self.recorded.circumstances, now)
            if change is None:
                return self.replay(self.recorded, tensors), True
            self.tell(f"this step ran eagerly, not captured: {change}")
            return self.step.run(move(batch, self.step.group.device)), False
        batch = move(batch, self.step.group.device)
        if self.given_up:
            return self.step.run(batch), False
        if self.calls < self.next_try:
            loss = self.warm_up(batch, self.next_try - self.calls <= LISTENED)
            self.last = self.circumstances(structure)
            return loss, False
        return self.attempt(batch, now)

    def circumstances(self, structure: Structure) -> Circumstances:
        placed = self.step.placed
        held = [local(each) for each in self.parameters]
        held += list(placed.masters.values())
        held += list(placed.module.buffers())
        return Circumstances(
            structure,
            tuple(module.training for module in self.modules),
            tuple(parameter.requires_grad for parameter in self.parameters),
            tuple(each.data_ptr() for each in held),
            self.step.update.fixed(),
        )

    def warm_up(self, batch: Any, listen: bool) -> Tensor:
        """A step as any other; what in it waits for the device, which no capture can, is noted."""
        self.host_state = self.step.update.host_state()
        if not listen or self.step.group.device.type != "cuda":
            return self.step.run(batch)
        before = torch.cuda.get_sync_debug_mode()
        with warnings.catch_warnings(record=True) as heard:
            warnings.simplefilter("always")
            torch.cuda.set_sync_debug_mode("warn")
            try:
                loss = self.step.run(batch)
            finally:
                torch.cuda.set_sync_debug_mode(before)
        self.waits = []
        for each in heard:
            if "synchronizing CUDA operation" in str(each.message):
                self.waits.append(f"{each.filename}:{each.lineno}")
            elif "prototype feature" not in str(each.message):
                warnings.warn_explicit(each.message, each.category, each.filename, each.lineno)
        return loss

    def obstacle(self, now: Circumstances) -> str | None:
        """Why this step should not be recorded, as far as can be known without trying."""
        if self.waits:
            return (
                "the step waits for the device, as a captured one cannot (a value brought to the"
                f" host, .item() or a copy from pageable memory, at {self.waits[0]})"
            )
        changing = self.step.update.host_state()
        for name, value in changing.items():
            if name in self.host_state and self.host_state[name] != value:
                kind = type(self.step.update.optimizer).__name__
                return (
                    f"{kind} keeps {name!r} on the host and changes it each step, which a captured"
                    " step would not: choose an optimizer that has capturable=True"
                )
        if self.last is None:
            return "no step was run before"
        change = changed(self.last, now)
        return None if change is None else f"the step before was another one: {change}"

    def attempt(self, batch: Any, now: Circumstances) -> tuple[Tensor, bool]:
        """Record this step on all ranks and check it, or run it eagerly: one update either way."""
        self.tries += 1
        self.next_try = self.calls + 3 * 2**self.tries
        obstacle = self.obstacle(now)
        if not self.step.group.agree(obstacle is None):
            self.postpone(obstacle or "another rank cannot record its step now")
            loss = self.step.run(batch)
            self.last = self.circumstances(now.structure)
            return loss, False
        trial = Trial(self.step, self.randomness)
        loss = trial.eager(batch)
        try:
            self.recorded = self.record(batch, now)
            failure = None
        except Exception as error:
            failure = first_line(error)
        if not self.step.group.agree(failure is None):
            self.give_up(f"the step cannot be captured ({failure or 'on another rank'})")
            self.step.placed.start_over()
            trial.settle_eager()
            return loss, False
        assert self.recorded is not None
        trial.go_back()
        captured = self.replay(self.recorded, take_apart(batch)[1])
        told, equal = trial.compare(captured)
        self.tell(told)
        if not equal:
            self.give_up("the captured step does not train as the eager one")
            trial.settle_eager()
            return loss, False
        return captured, True

    def postpone(self, reason: str) -> None:
        if self.tries >= TRIES:
            self.give_up(reason)
        else:
            self.tell(f"capture is tried again at step {self.next_try}: {reason}")

    def give_up(self, reason: str) -> None:
        self.given_up = True
        self.recorded = None
        self.tell(f"training goes on eagerly: {reason}")

    def close(self) -> None:
        """Free the graph, before the communicator whose kernels it holds."""
        if self.recorded is not None and hasattr(self.recorded.graph, "reset"):
            self.recorded.graph.reset()
        self.recorded = None
        self.given_up = True

    def record(self, batch: Any, now: Circumstances) -> Recorded:
        structure, tensors = take_apart(batch)
        inputs = [tensor.to(self.step.group.device).clone() for tensor in tensors]
        fixed = put_together(structure, inputs)
        graph, loss = self.recorder.record(lambda: self.step.run(fixed))
        trainable = self.step.placed.trainable.values()
        kept = [local(each.grad) for each in trainable if each.grad is not None]
        kept += self.step.placed.local_tensors() + self.step.update.state_tensors()
        return Recorded(graph, now, inputs, loss, self.step.update.norm, kept)

    def replay(self, recorded: Recorded, tensors: list[Tensor]) -> Tensor:
        for target, source in zip(recorded.inputs, tensors, strict=True):
            target.copy_(source, non_blocking=True)
        recorded.graph.replay()
        self.step.update.norm = recorded.norm
        return recorded.loss.clone()


def changed(before: Circumstances, now: Circumstances) -> str | None:
    """In words, the first circumstance in which two steps differ; None if in none."""
    if before.structure != now.structure:
        return f"the batch is {in_words(now.structure)}, and was {in_words(before.structure)}"
    if before.modes != now.modes:
        return "modules changed between training and evaluation mode (.train(), .eval())"
    if before.trained != now.trained:
        return "requires_grad of a parameter changed"
    if before.storage != now.storage:
        return (
            "a parameter or buffer lies elsewhere in memory (it was assigned, not copied into:"
            " use copy_ or load_state_dict)"
        )
    if before.fixed != now.fixed:
        return f"a setting of the optimizer changed ({difference(before.fixed, now.fixed)})"
    return None


def difference(before: tuple[Any, ...], now: tuple[Any, ...]) -> str:
    """The first setting of optimizer's groups that differs."""
    for first, second in zip(before, now, strict=False):
        for (name, value), (_, other) in zip(first, second, strict=False):
            if value != other:
                return f"{name} {value!r} to {other!r}"
    return "its groups"


def in_words(structure: Structure) -> str:
    """A batch's structure, short."""
    if hasattr(structure, "shape"):
        return f"{tuple(structure.shape)} {str(structure.dtype).removeprefix('torch.')}"
    if hasattr(structure, "value"):
        return repr(structure.value)
    if structure[0] == "dict":
        return "{" + ", ".join(f"{key}: {in_words(part)}" for key, part in structure[1]) + "}"
    inside = ", ".join(in_words(part) for part in structure[-1])
    return f"[{inside}]" if structure[0] == "list" else f"({inside})"


class Trial:
    """Steps from one state, kept on the host: two eager, one captured, of which one stands."""

    def __init__(self, step: Step, randomness: Randomness) -> None:
        self.step = step
        self.generator = randomness.generator
        self.before = self.copies()
        self.drawn_before = self.generator.get_state()
        self.after: list[Tensor] = []
        self.loss = 0.0
        self.noise = 0.0
        self.loss_noise = 0.0

    def held(self) -> list[Tensor]:
        return self.step.placed.local_tensors() + self.step.update.state_tensors()

    def copies(self) -> list[Tensor]:
        return [each.detach().to("cpu", copy=True) for each in self.held()]

    def put_back(self, copies: list[Tensor]) -> None:
        with torch.no_grad():
            for target, source in zip(self.held(), copies, strict=True):
                target.copy_(source)

    def go_back(self) -> None:
        """Return to the state before the step."""
        self.put_back(self.before)
        self.generator.set_state(self.drawn_before)

    def eager(self, batch: Any) -> Tensor:
        """The step, run eagerly (twice, if it is to be compared); its loss."""
        loss = self.step.run(batch)
        self.loss = float(loss)
        self.after = self.copies()
        self.drawn_after = self.generator.get_state()
        if self.step.settings.check:
            self.go_back()
            again = self.step.run(batch)
            self.noise = self.distance()
            self.loss_noise = abs(float(again) - self.loss)
        return loss

    def settle_eager(self) -> None:
        """Let the eager step stand."""
        self.put_back(self.after)
        self.generator.set_state(self.drawn_after)

    def distance(self) -> float:
        """How far the state now is from the eager step's, relative to what that step changed: over
        all parameters and buffers of all ranks.
        """
        device = self.step.group.device
        sums = torch.zeros(2, dtype=torch.float64, device=device)
        count = len(self.step.placed.local_tensors())
        for tensor, after, before in zip(
            self.held()[:count], self.after[:count], self.before[:count], strict=True
        ):
            if tensor.is_floating_point():
                eager = after.to(device).double()
                sums[0] += (tensor.double() - eager).square().sum()
                sums[1] += (eager - before.to(device).double()).square().sum()
        apart, moved = self.step.group.sum(sums).sqrt().tolist()
        return apart / moved if moved else apart

    def compare(self, captured: Tensor) -> tuple[str, bool]:
        """In words how far the captured step is from the eager one, and whether that is equal."""
        if not self.step.settings.check:
            return "captured; not compared with an eager step (check=False)", True
        apart = self.distance()
        loss = float(captured)
        loss_apart = abs(loss - self.loss)
        allowed = max(tolerance(self.step), 4 * self.noise)
        loss_allowed = max(tolerance(self.step) * abs(self.loss), 4 * self.loss_noise)
        equal = apart <= allowed and loss_apart <= loss_allowed
        return (
            f"captured; the same step run eagerly and captured: losses {self.loss:.9g} and"
            f" {loss:.9g}, updates apart by {apart:.2g} of their size (eager again:"
            f" {self.noise:.2g}; allowed: {allowed:.2g})"
        ), self.step.group.agree(equal)


def tolerance(step: Step) -> float:
    """How far a captured step's update may be from the eager one's, relative to its size."""
    kinds = {each.dtype for each in step.placed.trainable.values()}
    if step.settings.precision in ("bf16", "bf16_params") or torch.bfloat16 in kinds:
        return 1e-2
    if step.settings.precision == "tf32":
        return 1e-3
    return 1e-9 if kinds == {torch.float64} else 1e-4
