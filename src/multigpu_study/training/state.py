"""The replicas of one TrainingRun in one process, and what each holds between two steps, whatever
its placement.
"""

import hashlib
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor

from multigpu.engines.torch.captured import CapturedTrainer
from multigpu.engines.torch.device_store import StagedDeviceStore
from multigpu.engines.torch.host_store import StagedHostStore
from multigpu.engines.torch.replicated import ShardedUpdateTrainer
from multigpu.engines.torch.server import ServerTrainer
from multigpu.engines.torch.trainer import Trainer

SCALE = ("scale", "tracker", "left_out")
"""What a `LossScale` keeps between steps."""


class Tower:
    """One of a trainer's replicas in this process: what it holds, and what updates that."""

    def __init__(self, trainer: Trainer, rank: int) -> None:
        self.trainer = trainer.trainer if isinstance(trainer, CapturedTrainer) else trainer
        self.rank, self.replicas = rank, trainer.replicas
        self.device, self.module = trainer.devices.of(rank), trainer.modules[rank]

    @property
    def replicated(self) -> bool:
        """Whether every replica keeps copies of all variables that must be equal."""
        row = self.trainer.context.placement
        return (
            row.variables == "replica" and row.semantics.facts.replicas_agree and self.replicas > 1
        )

    @property
    def shares_slots(self) -> bool:
        """Whether every replica keeps equal copies of all optimizer states, not a stretch."""
        return self.replicated and not isinstance(self.trainer, ShardedUpdateTrainer)

    @property
    def keeps_copies(self) -> bool:
        """Whether variables, or staged copies, must be equal on all replicas between steps."""
        return self.replicated or (self.replicas > 1 and bool(self.staged()))

    def optimizers(self) -> list[torch.optim.Optimizer]:
        """Those that update what this replica answers for, in one order."""
        return self.trainer.optimizers_of(self.rank)

    def groups(self) -> list[dict[str, Any]]:
        return [group for optimizer in self.optimizers() for group in optimizer.param_groups]

    def owned(self) -> Iterator[tuple[str, Tensor]]:
        return self.trainer.owned(self.rank)

    def full_values(self) -> dict[str, Tensor]:
        """All variables on the CPU: this replica's copies, or the masters wherever they are."""
        return self.trainer.full_values(self.rank)

    def copies(self) -> list[Tensor]:
        """Variables and float buffers that must be equal on all replicas, in one order."""
        if not self.replicated:
            return []
        buffers = [buffer for buffer in self.module.buffers() if buffer.is_floating_point()]
        return [value for _, value in self.owned()] + buffers

    def staged(self) -> list[Tensor]:
        """Where variables are staged: what the next step is computed with, the same on all
        replicas, one update older than the masters.
        """
        if not isinstance(self.trainer, ServerTrainer):
            return []
        return [
            store.fetched
            for store in self.trainer.stores
            if isinstance(store, StagedDeviceStore | StagedHostStore)
        ]

    def weights(self) -> list[Tensor]:
        """Variables, or staged copies, that must be equal on all replicas."""
        return [value for _, value in self.owned()] if self.replicated else self.staged()

    def make_rates_tensors(self) -> None:
        """Keep rates on the device, where replays read them. Call it before the first capture."""
        for group in self.groups():
            group["lr"] = torch.tensor(
                float(group["lr"]), device=self.device.torch, dtype=torch.float32
            )

    def set_rate(self, rate: float) -> None:
        """The rate of the next step, for every optimizer of this replica."""
        for group in self.groups():
            if isinstance(group["lr"], Tensor):
                group["lr"].fill_(rate)
            else:
                group["lr"] = rate

    def rate_mark(self) -> float | Tensor | None:
        """The rate that optimizers hold now, perhaps on the device; None: it updates nothing."""
        rates = [group["lr"] for group in self.groups()[:1]]
        return next(
            (rate.clone() if isinstance(rate, Tensor) else float(rate) for rate in rates), None
        )

    def clip_updates(self, most: float) -> None:
        """Shrink merged gradients from now on to this joint norm (004: `max_gradient_norm`)."""
        for optimizer in self.optimizers():
            every = [parameter for group in optimizer.param_groups for parameter in group["params"]]

            def clip(*_: Any, every: list[Tensor] = every) -> None:
                torch.nn.utils.clip_grad_norm_(every, most)

            optimizer.register_step_pre_hook(clip)

    def take(self) -> dict[str, Any]:
        """All that this replica must get back to go on as if nothing had happened, on the CPU; of
        equal copies rank 0's are enough.
        """
        held: dict[str, Any] = {
            "buffers": _on_cpu(dict(self.module.named_buffers())),
            "random": torch.get_rng_state(),
            "device_random": torch.cuda.get_rng_state(self.device.torch)
            if self.device.cuda
            else None,
        }
        scale = getattr(self.trainer, "scale", None)
        if scale is not None:  # fp16: what the loss is multiplied by is found while training
            held["loss_scale"] = {name: _on_cpu(getattr(scale, name)) for name in SCALE}
        if self.rank == 0 or not self.replicated:
            held["variables"] = {
                name: value.detach().cpu().contiguous().clone() for name, value in self.owned()
            }
        if self.rank == 0 or not self.shares_slots:
            held["optimizers"] = [
                _on_cpu(optimizer.state_dict()) for optimizer in self.optimizers()
            ]
        if self.rank == 0 and (staged := self.staged()):
            held["staged"] = _on_cpu(staged)
        return held

    def put_back(self, replicas: list[dict[str, Any]]) -> None:
        """Undo whatever happened since `take`. replicas: what every replica took, by rank."""
        mine = replicas[self.rank]
        source = replicas[0] if self.replicated else mine
        with torch.no_grad():
            for name, value in self.owned():
                value.copy_(source["variables"][name])
            self.trainer.refresh()
            for name, buffer in self.module.named_buffers():
                buffer.copy_(mine["buffers"][name])
            for copy, taken in zip(self.staged(), replicas[0].get("staged", []), strict=True):
                copy.copy_(taken)
        for optimizer, state in zip(
            self.optimizers(), (source if self.shares_slots else mine)["optimizers"], strict=True
        ):
            # a copy: a CPU's keeps the tensors that it is given, and towers share a source
            optimizer.load_state_dict(_on_cpu(state))
        scale = getattr(self.trainer, "scale", None)
        if scale is not None:
            for name in SCALE:
                getattr(scale, name).copy_(mine["loss_scale"][name])
        torch.set_rng_state(mine["random"])
        if mine["device_random"] is not None:
            torch.cuda.set_rng_state(mine["device_random"], self.device.torch)


def replicas_of(trainer: Trainer) -> list[Tower]:
    """The replicas that a trainer has in this process, by rank."""
    return [Tower(trainer, rank) for rank in trainer.ranks]


def checksum(tensors: list[Tensor]) -> list[int]:
    """Sum each tensor's bits as integers, where it is: replicas with equal bits agree."""
    found = []
    for tensor in tensors:
        plain = tensor.detach().contiguous()
        bits = plain.view({8: torch.int64, 4: torch.int32, 2: torch.int16}[plain.element_size()])
        found.append(bits.sum(dtype=torch.int64))
    return torch.stack(found).tolist() if found else []


def weights_hash(values: Mapping[str, Tensor]) -> str:
    """sha256 over names and bits of variables, in order of name."""
    digest = hashlib.sha256()
    for name in sorted(values):
        digest.update(name.encode() + b"\0")
        digest.update(
            values[name].detach().cpu().contiguous().flatten().view(torch.uint8).numpy().tobytes()
        )
    return digest.hexdigest()


def _on_cpu(state: Any) -> Any:
    if isinstance(state, Tensor):
        return state.detach().cpu().clone()
    if isinstance(state, dict):
        return {name: _on_cpu(value) for name, value in state.items()}
    return [_on_cpu(value) for value in state] if isinstance(state, list) else state
