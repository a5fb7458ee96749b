"""A model put on the devices of a group under a placement: who holds and who updates what."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor, distribute_tensor
from torch.nn.parallel import DistributedDataParallel

from multigpu.engines.torch.blocks import (
    attributes_kept,
    blocks_of,
    check_held_once,
    check_ties,
    recompute,
)
from multigpu.engines.torch.variables import strided_view
from multigpu.placements.traffic import laid_out
from multigpu.user_model.wrap.group import Group
from multigpu.user_model.wrap.settings import Settings


def local(tensor: Tensor) -> Tensor:
    """This rank's part of a tensor, sharing its storage: the tensor itself unless it is sharded."""
    return tensor._local_tensor if isinstance(tensor, DTensor) else tensor


def like(parameter: nn.Parameter, value: Tensor) -> nn.Parameter:
    """A parameter of this value, with what a user set on another: optimizers may group by it."""
    made = nn.Parameter(value)
    vars(made).update(vars(parameter))
    return made


class Placed:
    """A module on this rank's device, as its placement trains it.

    module: the user's, trained in place. forward: what is called in a training step.
    owners: parameter's name -> the rank that updates it; empty where every rank does (its part of)
        all. masters: name -> fp32 copy that is updated in place of a bf16 parameter.
    """

    def __init__(self, module: nn.Module, settings: Settings, group: Group) -> None:
        self.module = module
        self.settings = settings
        self.group = group
        self.placement = settings.placement if group.size > 1 else "one"
        self.owners: dict[str, int] = {}
        self.masters: dict[str, nn.Parameter] = {}
        self.flat: list[list[Tensor]] = []
        self.forward: nn.Module = module
        self.blocks = self._blocks()
        if settings.recompute:
            for block in self.blocks.values():
                recompute(block)
        if self.placement == "fsdp2":
            with attributes_kept(module):
                self._shard()
        else:
            self._replicate()
        self.parameters = dict(module.named_parameters())
        self.trainable = {
            name: each for name, each in self.parameters.items() if each.requires_grad
        }
        if settings.compiled:
            self.compile()

    def _blocks(self) -> dict[str, nn.Module]:
        settings = self.settings
        blocks = blocks_of(self.module, settings.shard)
        if not blocks and settings.recompute:
            raise ValueError(
                "recompute=True, and the model repeats no block in a ModuleList or Sequential: name"
                " the blocks by shard="
            )
        return blocks

    def _shard(self) -> None:
        check_ties(self.module, self.blocks)
        check_held_once(self.module)
        for name, parameter in self.module.named_parameters():
            if not parameter.dim():
                raise ValueError(
                    f"parameter {name!r} has no axis, and FSDP2 shards the first one: give it the"
                    " shape (1,), or choose another placement"
                )
        low = self.settings.precision in ("bf16", "bf16_params")
        policy = (
            MixedPrecisionPolicy(torch.bfloat16, torch.float32) if low else MixedPrecisionPolicy()
        )
        mesh = init_device_mesh(self.group.device.type, (self.group.size,))
        root = () if "" in self.blocks else (self.module,)
        for part in (*self.blocks.values(), *root):
            self._take(part)
            fully_shard(
                part, mesh=mesh, mp_policy=policy, reshard_after_forward=self.settings.reshard
            )

    def _take(self, part: nn.Module) -> None:
        """Move what of a part is not sharded yet to the device, with rank 0's values."""
        device = self.group.device
        with torch.no_grad():
            for parameter in part.parameters():
                if not isinstance(parameter, DTensor):
                    parameter.data = parameter.data.to(device).contiguous()
                    self.group.from_rank(parameter.data)
            for module in part.modules():
                for name, buffer in module._buffers.items():
                    if buffer is not None:
                        moved = buffer.to(device).contiguous()
                        module._buffers[name] = moved
                        self.group.from_rank(moved)

    def _replicate(self) -> None:
        self._take(self.module)
        if self.settings.precision == "bf16_params":
            self._keep_masters()
        if self.placement == "zero1":
            self._deal_out()
        if self.group.size > 1:
            self.wrap_replica()

    def wrap_replica(self) -> None:
        """Put PyTorch's DistributedDataParallel, new, around the module."""
        cuda = self.group.device.type == "cuda"
        self.forward = DistributedDataParallel(
            self.module,
            device_ids=[self.group.device.index] if cuda else None,
            broadcast_buffers=False,
            gradient_as_bucket_view=True,
            find_unused_parameters=self.settings.find_unused,
        )

    def _keep_masters(self) -> None:
        with torch.no_grad():
            for name, parameter in self.module.named_parameters():
                if parameter.dtype == torch.float32:
                    if parameter.requires_grad:
                        self.masters[name] = like(parameter, parameter.detach().clone())
                    parameter.data = parameter.data.to(torch.bfloat16)

    def _deal_out(self) -> None:
        """Give each parameter to one rank, the largest first to the rank that has least; those of a
        rank lie beside each other, so that one broadcast a type carries them.
        """
        held = [0] * self.group.size
        named = {n: p for n, p in self.module.named_parameters() if p.requires_grad}
        for name in sorted(named, key=lambda name: -named[name].numel()):
            owner = held.index(min(held))
            self.owners[name] = owner
            held[owner] += named[name].numel()
        for rank in range(self.group.size):
            dealt = [parameter for name, parameter in named.items() if self.owners[name] == rank]
            flat = []
            for dtype in sorted({parameter.dtype for parameter in dealt}, key=str):
                flat.append(laid_together([each for each in dealt if each.dtype == dtype]))
            self.flat.append(flat)
        mine = self.group.rank
        self.masters = {n: p for n, p in self.masters.items() if self.owners[n] == mine}

    def compile(self) -> None:
        """Compile each block under FSDP2, else the whole module, in place."""
        for part in self.blocks.values() if self.placement == "fsdp2" else [self.module]:
            part.compile(**self.settings.compile_options or {})

    def undo_compile(self) -> None:
        """Let every module run as it is written again."""
        for part in self.module.modules():
            part._compiled_call_impl = None

    @property
    def targets(self) -> dict[str, nn.Parameter]:
        """The parameters that this rank's optimizer updates, by name."""
        mine = {
            name: each
            for name, each in self.trainable.items()
            if self.owners.get(name, self.group.rank) == self.group.rank
        }
        return {name: self.masters.get(name, each) for name, each in mine.items()}

    @property
    def divided(self) -> bool:
        """Whether the gradients that the optimizer reads are parts, which add up over the ranks."""
        return self.placement == "fsdp2" or bool(
            self.owners and self.settings.precision == "bf16_params"
        )

    @torch.no_grad()
    def spread(self) -> None:
        """Bring updated values from masters to parameters, and from owners to all ranks."""
        if self.masters:
            low: list[Tensor] = [self.trainable[name] for name in self.masters]
            torch._foreach_copy_(low, list(self.masters.values()))
        for rank, flat in enumerate(self.flat):
            for values in flat:
                self.group.from_rank(values, rank)

    @contextmanager
    def merged(self, wanted: bool) -> Iterator[None]:
        """Let a backward pass inside merge gradients over the ranks, or keep them for a later."""
        if isinstance(self.forward, DistributedDataParallel) and not wanted:
            with self.forward.no_sync():
                yield
            return
        if isinstance(self.module, FSDPModule):
            self.module.set_requires_gradient_sync(wanted)
        yield

    def local_tensors(self) -> list[Tensor]:
        """Return this rank's tensors on the device: (parts of) parameters, masters, buffers."""
        held = [local(each.detach()) for each in self.parameters.values()]
        held += [each.detach() for each in self.masters.values()]
        return held + list(self.module.buffers())

    def whole(self, name: str, value: Tensor) -> Tensor:
        """A full copy, on the CPU and on all ranks, of a parameter or of a state of its shape."""
        parameter = self.parameters[name]
        if isinstance(value, DTensor):
            return value.full_tensor().detach().cpu()
        if isinstance(parameter, DTensor) and value.shape == parameter._local_tensor.shape:
            return of_piece(parameter, value).full_tensor().cpu()
        return value.detach().cpu().clone()

    def fill(self, name: str, target: Tensor, value: Tensor) -> None:
        """Overwrite a parameter (or a state of it) in place by its part of a full value."""
        parameter = self.parameters[name]
        value = value.to(self.group.device, target.dtype)
        if isinstance(target, DTensor):
            value = shard_like(target, value)
            target = target._local_tensor
        elif isinstance(parameter, DTensor) and value.shape == parameter.shape and value.dim():
            value = shard_like(parameter, value)
        with torch.no_grad():
            local(target).copy_(value)

    def gather_anew(self) -> None:
        """Let FSDP2 free what it has gathered, so that the next use gathers present values."""
        for part in self.module.modules():
            if isinstance(part, FSDPModule):
                part.reshard()

    def start_over(self) -> None:
        """Forget a step that broke off: gradients under way, gathered parameters, events."""
        if isinstance(self.forward, DistributedDataParallel):
            self.forward = self.module
            gc.collect()  # the old wrapper's hooks go with it
            self.wrap_replica()
        if isinstance(self.module, FSDPModule):
            for part in self.module.modules():
                if isinstance(part, FSDPModule):
                    forget_iteration(part)
        for parameter in self.trainable.values():
            if parameter.grad is not None:
                parameter.grad.zero_()


def laid_together(parameters: list[nn.Parameter]) -> Tensor:
    """Move parameters of one type into one flat tensor, which they are then views of.

    Each begins at a multiple of 16 bytes: code compiled for parameters that do is used again for
    these, since guards of `torch.compile` do not ask where memory begins.
    """
    first = parameters[0].data
    sizes = [parameter.numel() for parameter in parameters]
    starts, length = laid_out(sizes, first.element_size(), 1)
    flat = first.new_zeros(length)
    for parameter, start in zip(parameters, starts, strict=True):
        parameter.data = strided_view(flat[start:], parameter).copy_(parameter.data)
    return flat


def of_piece(parameter: DTensor, piece: Tensor) -> DTensor:
    """A rank's piece of something of a parameter's shape, as the sharded tensor that it is of."""
    whole: dict[str, Any] = {"shape": parameter.shape, "stride": parameter.stride()}
    layout = parameter.device_mesh, parameter.placements
    return DTensor.from_local(piece.detach(), *layout, run_check=False, **whole)


def shard_like(parameter: DTensor, value: Tensor) -> Tensor:
    """This rank's part of a full value, cut as the parameter is; every rank has the full one."""
    cut = distribute_tensor(value, parameter.device_mesh, parameter.placements, src_data_rank=None)
    return cut._local_tensor


def forget_iteration(part: Any) -> None:
    """Set FSDP2's record of an iteration that broke off back to its beginning.

    Its events may belong to a capture that failed, so nothing waits for them: the caller has
    synchronised the device.
    """
    state = part._get_fsdp_state()
    idle = type(state._training_state).IDLE
    state._training_state = idle
    shared = state._state_ctx
    shared.iter_forward_root = None
    shared.post_backward_final_callback_queued = False
    shared.post_optim_event = None
    for name in ("_modules_to_run_forward",):
        if hasattr(state, name):
            getattr(state, name).clear()
    groups = getattr(state, "_fsdp_param_groups", None)
    if groups is None:
        groups = [] if state._fsdp_param_group is None else [state._fsdp_param_group]
    for members in groups:
        context = members.comm_ctx
        context.post_forward_order.clear()
        for name, value in (
            ("all_gather_state", None),
            ("reduce_scatter_state", None),
            ("reduce_scatter_states", []),
            ("_last_post_reduce_events", {}),
        ):
            if hasattr(context, name):
                setattr(context, name, value)
        members._training_state = idle
        members._post_forward_indices.clear()
        for name in (
            "_all_gather_result",
            "_post_reduce_event",
            "_reshard_after_forward_event",
            "_all_reduce_state",
            "_partial_reduce_output",
        ):
            if hasattr(members, name):
                setattr(members, name, None)
        members._to_sharded()
        for each in members.fsdp_params:
            each.unsharded_accumulated_grad = None
            if hasattr(each, "_unsharded_param"):
                each._unsharded_param.grad = None
