"""What a replica holds between two steps, whatever its placement: variables, slots, rates, running statistics, random numbers."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from multigpu.engines.torch.captured import CapturedTrainer
from multigpu.engines.torch.replicated import ReplicatedTrainer
from multigpu.engines.torch.server import ServerTrainer
from multigpu.engines.torch.sharded_update import ShardedUpdateTrainer
from multigpu.engines.torch.staged import StagedDeviceStore, StagedHostStore
from multigpu.training.towers import Replica, Tower

SCALE = ("scale", "tracker", "left_out")
"""What a `LossScale` keeps between steps."""


def inner(trainer: Replica) -> Replica:
    """The trainer itself, not what captures its steps."""
    return trainer.trainer if isinstance(trainer, CapturedTrainer) else trainer


def is_replicated(trainer: Replica) -> bool:
    """Whether every replica keeps copies of all variables that must be equal."""
    plain = inner(trainer)
    if isinstance(plain, Tower):
        return plain.replicated
    return (
        isinstance(plain, ReplicatedTrainer)
        and plain.context.placement.variables == "replica"
        and plain.context.placement.semantics.replicas_agree
        and plain.replicas > 1
    )


def shares_slots(trainer: Replica) -> bool:
    """Whether every replica keeps copies of all optimizer states that must be equal, and not a stretch of its own."""
    return is_replicated(trainer) and not isinstance(inner(trainer), ShardedUpdateTrainer)


def copies_of(trainer: Replica) -> list[Tensor]:
    """Variables and floating-point buffers that must be equal on all replicas, in one order; none where they need not."""
    if not is_replicated(trainer):
        return []
    buffers = [buffer for buffer in trainer.module.buffers() if buffer.is_floating_point()]
    return [value for _, value in trainer.owned()] + buffers


def staged_copies(trainer: Replica) -> list[Tensor]:
    """What this replica fetched during its last step and computes the next one with, where variables are staged: all replicas fetch the
    same, and between two steps it is one update older than the masters.
    """
    plain = inner(trainer)
    if not isinstance(plain, ServerTrainer):
        return []
    return [store.fetched for store in plain.stores if isinstance(store, StagedDeviceStore | StagedHostStore)]


def keeps_copies(trainer: Replica) -> bool:
    """Whether there is something between steps that must be equal on all replicas: copies of all variables, or staged ones."""
    return is_replicated(trainer) or (trainer.replicas > 1 and bool(staged_copies(trainer)))


def optimizers_of(trainer: Replica) -> list[torch.optim.Optimizer]:
    """Every optimizer of this replica, in one order."""
    plain = inner(trainer)
    if isinstance(plain, Tower):
        return plain.optimizers()
    if isinstance(plain, ReplicatedTrainer):
        return [optimizer for _, optimizer in plain.reducer.updates] if plain.reducer else [plain.optimizer]
    assert isinstance(plain, ServerTrainer)
    return [optimizer for store in plain.stores for optimizer in store.optimizers_of(plain.rank)]


def make_rates_tensors(trainer: Replica) -> None:
    """Keep rates on the device, where a captured step reads them at every replay. Before the first capture."""
    for optimizer in optimizers_of(trainer):
        for group in optimizer.param_groups:
            group["lr"] = torch.tensor(float(group["lr"]), device=trainer.device.torch, dtype=torch.float32)


def set_rate(trainer: Replica, rate: float) -> None:
    """The rate of the next step, for every optimizer of this replica."""
    for optimizer in optimizers_of(trainer):
        for group in optimizer.param_groups:
            if isinstance(group["lr"], Tensor):
                group["lr"].fill_(rate)
            else:
                group["lr"] = rate


def clip_updates(trainer: Replica, most: float) -> None:
    """From now on every update takes gradients whose joint norm is at most this: larger ones shrink together (004: `max_gradient_norm`).

    Gradients are merged by then, so that every replica shrinks them alike.
    """
    for optimizer in optimizers_of(trainer):
        every = [parameter for group in optimizer.param_groups for parameter in group["params"]]

        def clip(*_: Any, every: list[Tensor] = every) -> None:
            torch.nn.utils.clip_grad_norm_(every, most)

        optimizer.register_step_pre_hook(clip)


def rate_mark(trainer: Replica) -> float | Tensor | None:
    """The rate that this replica's optimizers hold now (to be read later, where it is on the device); None where it updates nothing."""
    for optimizer in optimizers_of(trainer):
        rate = optimizer.param_groups[0]["lr"]
        return rate.clone() if isinstance(rate, Tensor) else float(rate)
    return None


def weights_of(trainer: Replica) -> list[Tensor]:
    """Variables, or staged copies of them, that must be equal on all replicas; running statistics are each replica's own once it trains."""
    return [value for _, value in trainer.owned()] if is_replicated(trainer) else staged_copies(trainer)


def checksum(tensors: list[Tensor]) -> list[int]:
    """The sum of each tensor's bits as integers: two replicas with equal bits agree, computed where the tensors are."""
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
        digest.update(values[name].detach().cpu().contiguous().flatten().view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


def take(trainer: Replica, rank: int) -> dict[str, Any]:
    """All that this replica must get back to go on as if nothing had happened; tensors on the CPU.

    Of copies that are equal on all replicas, staged ones too, rank 0's are enough; running statistics, random numbers and stretches of
    optimizer states are each replica's own.
    """
    cuda = trainer.device.cuda
    held: dict[str, Any] = {
        "buffers": {name: buffer.detach().cpu().clone() for name, buffer in trainer.module.named_buffers()},
        "random": torch.get_rng_state(),
        "device_random": torch.cuda.get_rng_state(trainer.device.torch) if cuda else None,
    }
    scale = getattr(inner(trainer), "scale", None)
    if scale is not None:  # fp16: what the loss is multiplied by is found while training
        held["loss_scale"] = {name: getattr(scale, name).cpu().clone() for name in SCALE}
    if rank == 0 or not is_replicated(trainer):
        held["variables"] = {name: value.detach().cpu().contiguous().clone() for name, value in trainer.owned()}
    if rank == 0 or not shares_slots(trainer):
        held["optimizers"] = [_on_cpu(optimizer.state_dict()) for optimizer in optimizers_of(trainer)]
    if rank == 0 and (staged := staged_copies(trainer)):
        held["staged"] = _on_cpu(staged)
    return held


def put_back(trainer: Replica, rank: int, replicas: list[dict[str, Any]]) -> None:
    """Undo whatever happened since `take`.

    Args:
        replicas: what every replica took, by rank.
    """
    mine = replicas[rank]
    source = replicas[0] if is_replicated(trainer) else mine
    with torch.no_grad():
        for name, value in trainer.owned():
            value.copy_(source["variables"][name])
        for name, buffer in trainer.module.named_buffers():
            buffer.copy_(mine["buffers"][name])
        for copy, taken in zip(staged_copies(trainer), replicas[0].get("staged", []), strict=True):
            copy.copy_(taken)
    for optimizer, state in zip(optimizers_of(trainer), (source if shares_slots(trainer) else mine)["optimizers"], strict=True):
        optimizer.load_state_dict(_on_cpu(state))  # a copy: a CPU's optimizer keeps the tensors that it is given, and towers share a source
    scale = getattr(inner(trainer), "scale", None)
    if scale is not None:
        for name in SCALE:
            getattr(scale, name).copy_(mine["loss_scale"][name])
    torch.set_rng_state(mine["random"])
    if mine["device_random"] is not None:
        torch.cuda.set_rng_state(mine["device_random"], trainer.device.torch)


def _on_cpu(state: Any) -> Any:
    if isinstance(state, Tensor):
        return state.detach().cpu().clone()
    if isinstance(state, dict):
        return {name: _on_cpu(value) for name, value in state.items()}
    return [_on_cpu(value) for value in state] if isinstance(state, list) else state
