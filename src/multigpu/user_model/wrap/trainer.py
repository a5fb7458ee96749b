"""A wrapped model: steps, evaluation, state."""

import atexit
import os
import sys
import warnings
import weakref
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from multigpu.engines.torch.recorder import CudaRecorder, Recorder, first_line
from multigpu.user_model.wrap import state as states
from multigpu.user_model.wrap.batches import move
from multigpu.user_model.wrap.captured import CapturedSteps
from multigpu.user_model.wrap.group import Group, close_group
from multigpu.user_model.wrap.optimizers import Update, scheduler_of
from multigpu.user_model.wrap.placed import Placed
from multigpu.user_model.wrap.settings import Settings, check_model, use_precision
from multigpu.user_model.wrap.step import Loss, Randomness, Step, on_stream

TRAINERS: "weakref.WeakSet[ModelTrainer]" = weakref.WeakSet()


@atexit.register
def close_all() -> None:
    """End as a script that closes what it opened: graphs first, then the process group.

    After an error the group stays, since the other ranks will not come to close it.
    """
    for trainer in list(TRAINERS):
        trainer.close()
    if not hasattr(sys, "last_value"):
        close_group()


class ModelTrainer:
    """A model under a placement and in a form, as `multigpu.wrap` makes it.

    model: the module that was given, trained in place. optimizer: its torch optimizer.
    notes: what was found and decided, in sentences. steps: updates so far, those of a loaded state
        included. form: how the last step ran, "eager", "compiled", "captured" or
        "compiled_captured". ran: form -> steps that ran so.
    """

    def __init__(
        self,
        model: nn.Module,
        loss: Loss | None,
        optimizer: Any,
        settings: Settings,
        device: torch.device | str | None = None,
        recorder: Recorder | None = None,
    ) -> None:
        check_model(model)
        if loss is not None and not callable(loss):
            raise ValueError(f"loss={loss!r} cannot be called: give a function of (output, target)")
        self.settings = settings
        self.notes: list[str] = []
        self.group = Group(device)
        self.device = self.group.device
        use_precision(settings.precision)
        cuda = self.device.type == "cuda"
        if recorder is None and settings.captured and cuda:
            recorder = CudaRecorder(self.device)
        capture = settings.captured and recorder is not None
        # all of it, DDP's buckets and NCCL's first calls too, belongs to the stream of the capture
        self.stream = torch.cuda.Stream(self.device) if capture and cuda else None
        with on_stream(self.stream):
            self.placed = Placed(model, settings, self.group)
            self.update = Update(self.placed, optimizer, capture)
        if capture and cuda and self.placed.placement in ("ddp", "zero1"):
            check_warm_up(settings)
        self.scheduler = scheduler_of(settings.schedule, self.update.optimizer)
        self.randomness = Randomness(self.device, self.group.rank, settings.seed)
        if isinstance(loss, nn.Module):
            self._bring(loss)
        self.inner = Step(self.placed, loss, self.update)
        self.captured: CapturedSteps | None = None
        if capture and recorder is not None:
            self.captured = CapturedSteps(self.inner, recorder, self.randomness, self.note)
        self.compiling = settings.compiled
        self.steps = 0
        self.form = settings.execution
        self.ran: dict[str, int] = {}
        TRAINERS.add(self)
        self._say_what_differs(capture)

    def _say_what_differs(self, capture: bool) -> None:
        settings = self.settings
        if settings.captured and not capture and self.device.type == "cpu":
            self.note(
                "training goes on eagerly: a captured step is a CUDA graph, and this training is"
                " on a CPU"
            )
        if self.group.size == 1 and settings.placement != "one":
            self.note(f"placement={settings.placement!r} with one process trains on one device")
        if self.placed.placement == "fsdp2" and not self.placed.blocks:
            self.note(
                "the model repeats no block, so FSDP2 gathers it as one piece: name blocks by"
                " shard= to gather less at a time"
            )
        if not self.model.training:
            self.note("the model is in evaluation mode and trains so: call trainer.model.train()")
        if self.update.left_out:
            self.note(
                f"the optimizer leaves out {len(self.update.left_out)} parameters that require a"
                f" gradient, {self.update.left_out[0]!r} first: they stay as they are"
            )

    def _bring(self, loss: nn.Module) -> None:
        """Move what a loss holds to the device, and say where some of it would learn."""
        known = set(map(id, self.placed.parameters.values()))
        learns = [
            name
            for name, each in loss.to(self.device).named_parameters()
            if each.requires_grad and id(each) not in known
        ]
        if learns:
            self.note(
                f"the loss has a parameter {learns[0]!r}, which is not the model's and stays as it"
                " is: make it a part of the model, or say requires_grad_(False)"
            )

    @property
    def model(self) -> nn.Module:
        """The module given, trained in place; under FSDP2 sharded: all ranks call it together."""
        return self.placed.module

    @property
    def optimizer(self) -> torch.optim.Optimizer:
        """The optimizer over this rank's (parts of) parameters."""
        return self.update.optimizer

    @property
    def gradient_norm(self) -> Tensor | None:
        """Of the last eager or captured step, before clipping; None without `gradient_clip`."""
        return self.update.norm

    def note(self, sentence: str) -> None:
        """Keep a sentence in `notes` and warn of it, once."""
        if sentence not in self.notes:
            self.notes.append(sentence)
            if not sentence.startswith("captured;"):
                warnings.warn(sentence, stacklevel=3)

    def step(self, batch: Any) -> Tensor:
        """Train on this rank's batch; the mean loss over all ranks' samples, on the device.

        batch: (inputs, target) with a loss function, else what the model takes: a tensor, a list or
            tuple of arguments, a dict of named ones. The first axis counts samples. Ranks may have
            different numbers of them; every rank must call, equally often (a rank that has no batch
            left would leave the others waiting).
        Raises a ValueError where the batch does not fit.
        """
        with on_stream(self.stream), self.randomness.of_step(self.steps):
            if self.captured is not None:
                loss, replayed = self._captured_step(batch)
            else:
                batch = move(batch, self.device)
                loss, replayed = self._eager_step(batch), False
        self.steps += 1
        if self.scheduler is not None:
            with warnings.catch_warnings():
                # a replayed step is no call of optimizer.step, of which it would warn
                warnings.filterwarnings("ignore", "Detected call of `lr_scheduler.step")
                self.scheduler.step()
        forms = ["compiled"] * self.compiling + ["captured"] * replayed
        self.form = "_".join(forms) or "eager"
        self.ran[self.form] = self.ran.get(self.form, 0) + 1
        return loss

    def _captured_step(self, batch: Any) -> tuple[Tensor, bool]:
        assert self.captured is not None
        if self.compiling and self.steps_here == 0:
            moved = move(batch, self.device)
            self.captured.calls += 1
            return self._eager_step(moved), False
        return self.captured.run(batch)

    @property
    def steps_here(self) -> int:
        """Steps that this object ran, without those of a loaded state."""
        return sum(self.ran.values())

    def _eager_step(self, batch: Any) -> Tensor:
        self.update.set_rates()
        if not self.compiling or self.steps_here:
            return self.inner.run(batch)
        failure = None
        buffers = [buffer.clone() for buffer in self.model.buffers()]
        drawn = self.randomness.generator.get_state()
        loss = None
        try:
            loss = self.inner.run(batch)
        except (torch._dynamo.exc.TorchDynamoException, torch._inductor.exc.InductorError) as error:
            failure = first_line(error)
        if self.group.agree(failure is None):
            assert loss is not None
            return loss
        self.note(f"training goes on without torch.compile, which failed: {failure}")
        self.compiling = False
        self.placed.undo_compile()
        self.placed.start_over()
        with torch.no_grad():
            for buffer, value in zip(self.model.buffers(), buffers, strict=True):
                buffer.copy_(value)
        self.randomness.generator.set_state(drawn)
        return self.inner.run(batch)

    def evaluate(self, batch: Any) -> Tensor:
        """The mean loss over all ranks' samples of a batch, in evaluation mode, without gradients.

        Running statistics are first made the mean over the ranks. Every rank must call.
        """
        with on_stream(self.stream):
            states.synchronise_buffers(self.placed)
            loss = self.inner.evaluate(move(batch, self.device))
            self.placed.gather_anew()
            return loss

    def state_dict(self) -> dict[str, Any]:
        """The whole training, on the CPU, equal on all ranks: `model` (its state_dict), `optimizer`
        (states and groups by parameters' names), `schedule`, `step`. Every rank must call.

        It loads on any number of devices and under any placement. It holds no random state: give
        `seed`, and each step draws from its own number.
        """
        with on_stream(self.stream):
            return states.gathered(self.placed, self.update, self.scheduler, self.steps)

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from a state that `state_dict` gave, on any number of devices; a ValueError where
        it is another model's. Every rank must call, with the same state.
        """
        with on_stream(self.stream):
            self.steps = states.restore(self.placed, self.update, self.scheduler, state)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write `state_dict` to a file, by rank 0; it is whole or not there. Every rank must call.

        Tensors, numbers and text alone: `torch.load(path, weights_only=True)` reads it.
        """
        state = self.state_dict()
        if self.group.rank == 0:
            target = Path(path)
            draft = target.with_name(f"{target.name}.part")
            torch.save(state, draft)
            draft.replace(target)
        self.group.agree(True)  # no rank goes on before the file is there

    def close(self) -> None:
        """Free the captured step; further steps run eagerly."""
        if self.captured is not None:
            self.captured.close()

    def load(self, path: str | os.PathLike[str]) -> None:
        """Go on from a file that `save` wrote; no code in it is run."""
        self.load_state_dict(torch.load(path, map_location="cpu", weights_only=True))


def check_warm_up(settings: Settings) -> None:
    """Raise a ValueError where DistributedDataParallel could not be captured after the warm-up."""
    if settings.warm_up < 11:
        raise ValueError(
            f"warm_up={settings.warm_up} is too short to capture {settings.placement!r}: PyTorch's"
            " DistributedDataParallel times its first 10 steps by events that a capture cannot"
            " have; give 11 or more"
        )
