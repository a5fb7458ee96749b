"""The replicas of one TrainingRun that one process works on (its own, or all of them where one thread dispatches for all devices), and what
each holds between two steps, whatever its placement: variables, slots, rates, running statistics, random numbers.
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
    """One replica of a trainer, which may have several in this process: what it holds, and what updates that."""

    def __init__(self, trainer: Trainer, rank: int) -> None:
        self.trainer = trainer.trainer if isinstance(trainer, CapturedTrainer) else trainer
        self.rank, self.replicas = rank, trainer.replicas
        self.device, self.module = trainer.devices.of(rank), trainer.modules[rank]

    @property
    def replicated(self) -> bool:
        """Whether every replica keeps copies of all variables that must be equal."""
        row = self.trainer.context.placement
        return row.variables == "replica" and row.semantics.facts.replicas_agree and self.replicas > 1

    def optimizers(self) -> list[torch.optim.Optimizer]:
        """Those that update what this replica answers for, in one order."""
        return self.trainer.optimizers_of(self.rank)

    def owned(self) -> Iterator[tuple[str, Tensor]]:
        """As `Trainer.owned`."""
        return self.trainer.owned(self.rank)

    def full_values(self) -> dict[str, Tensor]:
        """All variables on the CPU: this replica's copies, or the masters wherever they are."""
        return self.trainer.full_values(self.rank)


def replicas_of(trainer: Trainer) -> list[Tower]:
    """The replicas that a trainer has in this process, by rank."""
    return [Tower(trainer, rank) for rank in trainer.ranks]


def shares_slots(replica: Tower) -> bool:
    """Whether every replica keeps copies of all optimizer states that must be equal, and not a stretch of its own."""
    return replica.replicated and not isinstance(replica.trainer, ShardedUpdateTrainer)


def copies_of(replica: Tower) -> list[Tensor]:
    """Variables and floating-point buffers that must be equal on all replicas, in one order; none where they need not."""
    if not replica.replicated:
        return []
    buffers = [buffer for buffer in replica.module.buffers() if buffer.is_floating_point()]
    return [value for _, value in replica.owned()] + buffers


def staged_copies(replica: Tower) -> list[Tensor]:
    """What this replica fetched during its last step and computes the next one with, where variables are staged: all replicas fetch the
    same, and between two steps it is one update older than the masters.
    """
    if not isinstance(replica.trainer, ServerTrainer):
        return []
    return [store.fetched for store in replica.trainer.stores if isinstance(store, StagedDeviceStore | StagedHostStore)]


def keeps_copies(replica: Tower) -> bool:
    """Whether there is something between steps that must be equal on all replicas: copies of all variables, or staged ones."""
    return replica.replicated or (replica.replicas > 1 and bool(staged_copies(replica)))


def make_rates_tensors(replica: Tower) -> None:
    """Keep rates on the device, where a captured step reads them at every replay. Before the first capture."""
    for optimizer in replica.optimizers():
        for group in optimizer.param_groups:
            group["lr"] = torch.tensor(float(group["lr"]), device=replica.device.torch, dtype=torch.float32)


def set_rate(replica: Tower, rate: float) -> None:
    """The rate of the next step, for every optimizer of this replica."""
    for optimizer in replica.optimizers():
        for group in optimizer.param_groups:
            if isinstance(group["lr"], Tensor):
                group["lr"].fill_(rate)
            else:
                group["lr"] = rate


def clip_updates(replica: Tower, most: float) -> None:
    """From now on every update takes gradients whose joint norm is at most this: larger ones shrink together (004: `max_gradient_norm`).

    Gradients are merged by then, so that every replica shrinks them alike.
    """
    for optimizer in replica.optimizers():
        every = [parameter for group in optimizer.param_groups for parameter in group["params"]]

        def clip(*_: Any, every: list[Tensor] = every) -> None:
            torch.nn.utils.clip_grad_norm_(every, most)

        optimizer.register_step_pre_hook(clip)


def rate_mark(replica: Tower) -> float | Tensor | None:
    """The rate that this replica's optimizers hold now (to be read later, where it is on the device); None where it updates nothing."""
    for optimizer in replica.optimizers():
        rate = optimizer.param_groups[0]["lr"]
        return rate.clone() if isinstance(rate, Tensor) else float(rate)
    return None


def weights_of(replica: Tower) -> list[Tensor]:
    """Variables, or staged copies of them, that must be equal on all replicas; running statistics are each replica's own once it trains."""
    return [value for _, value in replica.owned()] if replica.replicated else staged_copies(replica)


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


def take(replica: Tower, rank: int) -> dict[str, Any]:
    """All that this replica must get back to go on as if nothing had happened; tensors on the CPU.

    Of copies that are equal on all replicas, staged ones too, rank 0's are enough; running statistics, random numbers and stretches of
    optimizer states are each replica's own.
    """
    cuda = replica.device.cuda
    held: dict[str, Any] = {
        "buffers": {name: buffer.detach().cpu().clone() for name, buffer in replica.module.named_buffers()},
        "random": torch.get_rng_state(),
        "device_random": torch.cuda.get_rng_state(replica.device.torch) if cuda else None,
    }
    scale = getattr(replica.trainer, "scale", None)
    if scale is not None:  # fp16: what the loss is multiplied by is found while training
        held["loss_scale"] = {name: getattr(scale, name).cpu().clone() for name in SCALE}
    if rank == 0 or not replica.replicated:
        held["variables"] = {name: value.detach().cpu().contiguous().clone() for name, value in replica.owned()}
    if rank == 0 or not shares_slots(replica):
        held["optimizers"] = [_on_cpu(optimizer.state_dict()) for optimizer in replica.optimizers()]
    if rank == 0 and (staged := staged_copies(replica)):
        held["staged"] = _on_cpu(staged)
    return held


def put_back(replica: Tower, rank: int, replicas: list[dict[str, Any]]) -> None:
    """Undo whatever happened since `take`.

    Args:
        replicas: what every replica took, by rank.
    """
    mine = replicas[rank]
    source = replicas[0] if replica.replicated else mine
    with torch.no_grad():
        for name, value in replica.owned():
            value.copy_(source["variables"][name])
        for name, buffer in replica.module.named_buffers():
            buffer.copy_(mine["buffers"][name])
        for copy, taken in zip(staged_copies(replica), replicas[0].get("staged", []), strict=True):
            copy.copy_(taken)
    for optimizer, state in zip(replica.optimizers(), (source if shares_slots(replica) else mine)["optimizers"], strict=True):
        optimizer.load_state_dict(_on_cpu(state))  # a copy: a CPU's optimizer keeps the tensors that it is given, and towers share a source
    scale = getattr(replica.trainer, "scale", None)
    if scale is not None:
        for name in SCALE:
            getattr(scale, name).copy_(mine["loss_scale"][name])
    torch.set_rng_state(mine["random"])
    if mine["device_random"] is not None:
        torch.cuda.set_rng_state(mine["device_random"], replica.device.torch)


def _on_cpu(state: Any) -> Any:
    if isinstance(state, Tensor):
        return state.detach().cpu().clone()
    if isinstance(state, dict):
        return {name: _on_cpu(value) for name, value in state.items()}
    return [_on_cpu(value) for value in state] if isinstance(state, list) else state
