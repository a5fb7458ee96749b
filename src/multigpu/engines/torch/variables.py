"""Variables of a module: their initial values, and memory under them."""

from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor, nn

from multigpu.engines.common.numbers import VariableNumbers
from multigpu.spec.model import Model, Optimizer, Variable
from multigpu.spec.run import Run
from multigpu.workloads import description_of


@lru_cache(maxsize=2)
def stored_values(file: str) -> dict[str, Tensor]:
    """Read variables' first values from a file, by name; read only where it is asked for."""
    return torch.load(file, weights_only=True, mmap=True)


def initial_value(
    variable: Variable, index: int, seed: int, device: torch.device, dtype: torch.dtype
) -> Tensor:
    """A first value, of any placement, drawn in float32 on `device` (CPUs draw others)."""
    if variable.init.law == "stored":
        stored = stored_values(variable.init.file)[variable.name]
        # first to the device, which turns it into another type sooner than the host
        return stored.to(device, copy=True).to(dtype)
    value = torch.empty(variable.shape, device=device, dtype=torch.float32)
    generator = torch.Generator(device=device).manual_seed(seed * 1_000_003 + index)
    if variable.init.law == "uniform":
        value.uniform_(-variable.init.scale, variable.init.scale, generator=generator)
    elif variable.init.law == "normal":
        value.normal_(0.0, variable.init.scale, generator=generator)
    else:
        value.fill_(variable.init.scale)
    return value.to(dtype)


def initial_values(
    model: Model, seed: int, device: torch.device, dtype: torch.dtype
) -> Iterable[tuple[Variable, Tensor]]:
    """Each variable of the model with its initial value, one at a time."""
    for index, variable in enumerate(model.variables):
        yield variable, initial_value(variable, index, seed, device, dtype)


def strided_view(flat: Tensor, like: Tensor) -> Tensor:
    """A stretch of flat memory with the shape and the strides of `like`."""
    return flat.as_strided(like.shape, like.stride(), flat.storage_offset())


def views_of(flat: Tensor, parameters: Iterable[Tensor], every: int = 1) -> list[Tensor]:
    """Stretches of flat memory with the shape and strides of each parameter, one behind the other,
    each at a multiple of `every` numbers.
    """
    views, start = [], 0
    for parameter in parameters:
        views.append(strided_view(flat[start : start + parameter.numel()], parameter))
        start += -(-parameter.numel() // every) * every
    return views


def flat_gradients(
    parameters: Sequence[nn.Parameter], device: torch.device, dtype: torch.dtype
) -> Tensor:
    """One zeroed stretch of memory under all these parameters' gradients, in their order."""
    flat = torch.zeros(
        sum(parameter.numel() for parameter in parameters), device=device, dtype=dtype
    )
    for parameter, view in zip(parameters, views_of(flat, parameters), strict=True):
        parameter.grad = view
    return flat


def memory_like(like: Tensor, device: torch.device, dtype: torch.dtype) -> Tensor:
    """Memory of its own, not filled, with the shape and the strides of `like`."""
    return torch.empty_strided(like.shape, like.stride(), device=device, dtype=dtype)


def materialise(
    module: nn.Module, memory: Mapping[str, Tensor], device: torch.device, dtype: torch.dtype
) -> dict[str, nn.Parameter]:
    """A meta module in `memory`, its buffers on `device`: the real parameters, in order."""
    parameters = {}
    for name, old in list(module.named_parameters()):
        if name in memory:
            assert memory[name].shape == old.shape, name
            if old.is_meta:
                path, _, leaf = name.rpartition(".")
                parameters[name] = nn.Parameter(memory[name])
                module.get_submodule(path).register_parameter(leaf, parameters[name])
            else:  # a user's, which may hold it twice or have hooks on it: it stays the one object
                old.data, old.grad = memory[name], None
                parameters[name] = old
    for owner in module.modules():
        for leaf, buffer in list(owner.named_buffers(recurse=False)):
            kind = dtype if buffer.is_floating_point() else buffer.dtype
            owner._buffers[leaf] = torch.zeros(buffer.shape, dtype=kind, device=device)
        if isinstance(owner, nn.modules.batchnorm._BatchNorm):
            owner.reset_running_stats()
    reset = getattr(module, "reset_buffers", None)
    if reset:
        reset()
    return parameters


def begun(
    module: nn.Module,
    model: Model,
    seed: int,
    device: torch.device,
    dtype: torch.dtype,
    own: Container[str] | None = None,
) -> dict[str, nn.Parameter]:
    """Materialise each variable at its initial value. own: those this device has; None: all."""
    shapes, memory = dict(module.named_parameters()), {}
    for variable, value in initial_values(model, seed, device, dtype):
        if own is None or variable.name in own:
            memory[variable.name] = memory_like(shapes[variable.name], device, dtype).copy_(value)
    return materialise(module, memory, device, dtype)


def add_in_order(parts: Sequence[Tensor], target: Tensor) -> None:
    """Add up `parts` (overwriting the first) into `target`, in one order on all replicas."""
    total, *others = parts
    for part in others:
        total += part
    if total is not target:
        target.copy_(total)


def make_optimizer(
    rule: Optimizer,
    parameters: list[nn.Parameter],
    capturable: bool = False,
    fused: bool | None = True,
) -> torch.optim.Optimizer:
    """The rule in the library's fused kernels. capturable: a step may be in a CUDA graph, so all it
    counts lives on the device. fused: None leaves the choice of kernels to the library.
    """
    # the library refuses a process that holds no piece of any variable
    parameters = parameters or [nn.Parameter(torch.zeros(0))]
    if rule.name != "sgd":
        kind = torch.optim.Adam if rule.name == "adam" else torch.optim.AdamW
        return kind(
            parameters,
            lr=rule.rate,
            betas=(rule.beta1, rule.beta2),
            eps=rule.epsilon,
            weight_decay=rule.weight_decay,
            fused=fused,
            capturable=capturable and parameters[0].is_cuda,
        )
    rest: dict[str, Any] = {"momentum": rule.momentum, "weight_decay": rule.weight_decay}
    return torch.optim.SGD(parameters, lr=rule.rate, fused=fused, **rest)


def distances(
    run: Run,
    owned: Mapping[str, Tensor],
    device: torch.device,
    dtype: torch.dtype,
    piece: Callable[[str, Tensor], Tensor],
) -> VariableNumbers:
    """How far each variable is from its start, and prints. piece: the owned part of a start."""
    found: VariableNumbers = {"distance": {}, "start_square": 0.0, "prints": {}}
    for variable, initial in initial_values(description_of(run), run.seed, device, dtype):
        if variable.name not in owned:
            continue
        value, initial = owned[variable.name].detach().to(device), piece(variable.name, initial)
        found["distance"][variable.name] = float(
            torch.linalg.vector_norm(value - initial, dtype=torch.float64)
        )
        found["start_square"] += float(torch.linalg.vector_norm(initial, dtype=torch.float64)) ** 2
        found["prints"][variable.name] = float(value.sum(dtype=torch.float64))
    return found
