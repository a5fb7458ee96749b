"""Prepare a user's module for the engines, or refuse it where it cannot be copied."""

import copy
import itertools
import sys

import torch
from torch import Tensor, nn
from torch.nn.modules.dropout import _DropoutNd

from multigpu.spec.errors import JobError
from multigpu.workloads.own.job import Job

COMPILED = (
    "its torch.compile is left out: placements train the model as it is written (and say what"
    " compiling brings where they compile)"
)


def without_dropout(module: nn.Module) -> None:
    """Set every dropout of the library's layers to 0."""
    for part in module.modules():
        if isinstance(part, _DropoutNd):
            part.p = 0.0
        elif isinstance(part, nn.RNNBase | nn.MultiheadAttention):
            part.dropout = 0.0


def without_sparse_gradients(module: nn.Module) -> None:
    """Have every embedding layer give its gradient as an array: so they travel and are merged."""
    for part in module.modules():
        if isinstance(part, nn.Embedding | nn.EmbeddingBag):
            part.sparse = False


def is_wrapped(module: nn.Module) -> bool:
    """Whether torch.compile made it; nothing of the compiler is imported to find out."""
    compiler = sys.modules.get("torch._dynamo")
    return compiler is not None and isinstance(module, compiler.OptimizedModule)


def uncompiled(module: nn.Module, notes: list[str]) -> nn.Module:
    """The module without any torch.compile around it or its parts, which is noted."""
    found = False
    if is_wrapped(module):
        module = module.get_submodule("_orig_mod")
        found = True
    for part in list(module.modules()):
        for name, child in list(part._modules.items()):
            if child is not None and is_wrapped(child):
                part._modules[name] = child.get_submodule("_orig_mod")
                found = True
        if part._compiled_call_impl is not None:
            part._compiled_call_impl = None
            found = True
    if found:
        notes.append(COMPILED)
    return module


def is_hooked(parameter: nn.Parameter) -> bool:
    """Tell whether a hook waits for the parameter's gradient."""
    return bool(parameter._backward_hooks) or is_hooked_late(parameter)


def is_hooked_late(parameter: nn.Parameter) -> bool:
    """Tell whether a hook waits until the gradient was added up in the parameter."""
    return bool(getattr(parameter, "_post_accumulate_grad_hooks", None))


def copied(job: Job, module: nn.Module) -> nn.Module:
    """A copy of a model given as such; a JobError where hooks on parameters would be lost."""
    for name, parameter in module.named_parameters():
        if is_hooked(parameter):
            raise JobError(
                f"model {job.title!r} has a hook on {name}, which no copy of a parameter keeps:"
                f" give the class or a function that makes the model ({job.made_at})"
            )
    made = copy.deepcopy(module)
    if bound := [name for name, parameter in made.named_parameters() if not parameter.is_leaf]:
        raise JobError(
            f"model {job.title!r} is a {type(module).__name__}, and {bound[0]} of a copy of it gets"
            f" no gradient: give the class or a function that makes the model ({job.made_at})"
        )
    return made


def is_lazy(module: nn.Module) -> bool:
    """Whether some of its parameters or buffers have no shape before a first batch."""
    lazy = (nn.UninitializedParameter, nn.UninitializedBuffer)
    return any(isinstance(value, lazy) for value in [*module.parameters(), *module.buffers()])


def checked_parameters(job: Job, module: nn.Module) -> None:
    """Refuse, by a JobError, parameters of a type that no placement trains, hooks that see the
    gradients of several shards added up, two that share memory, and a buffer in a parameter's
    memory: engines give each memory of its own.
    """
    for name, parameter in module.named_parameters():
        if parameter.requires_grad and parameter.dtype != torch.float32:
            raise JobError(
                f"model {job.title!r}: {name} is {str(parameter.dtype).removeprefix('torch.')}, and"
                " placements keep and update parameters in float32:"
                f" {_instead_of(parameter)} ({job.made_at})"
            )
        if is_hooked_late(parameter):
            raise JobError(
                f"model {job.title!r}: the hook on {name} is called after each accumulation"
                " (register_post_accumulate_grad_hook), of which placements have more or fewer:"
                f" register_hook is called once a shard ({job.made_at})"
            )
    spans: list[tuple[int, int, str, bool]] = []
    for name, tensor in [*module.named_parameters(), *module.named_buffers()]:
        if tensor.numel() and tensor.layout == torch.strided:
            steps = zip(tensor.shape, tensor.stride(), strict=True)
            reach = 1 + sum((size - 1) * step for size, step in steps)
            begin = tensor.data_ptr()
            end = begin + reach * tensor.element_size()
            spans.append((begin, end, name, tensor.requires_grad))
    spans.sort()
    for (_, end, name, trained), (begin, _, other, also) in itertools.pairwise(spans):
        if begin < end and (trained or also):
            raise JobError(
                f"model {job.title!r}: {name} and {other} are two tensors in one memory, which"
                " placements would train apart: make them one parameter of two names"
                f" ({job.made_at})"
            )


def _instead_of(parameter: Tensor) -> str:
    if parameter.is_complex():
        return (
            "keep its real and imaginary parts as one real parameter and put them together in"
            " forward (torch.view_as_complex)"
        )
    if parameter.dtype == torch.float64:
        return "leave .double() out"
    if parameter.dtype == torch.bfloat16:
        return "leave .bfloat16() out and ask for precision='bf16'"
    return "leave its type out, and ask for precision='bf16' where it should compute in less"


def cast(module: nn.Module, kind: torch.dtype) -> nn.Module:
    """The module with all real numbers in this type and complex ones as exact, in place."""
    with torch.no_grad():
        for value in [*module.parameters(), *module.buffers()]:
            value.data = value.data.to(kind_for(value, kind))
    return module


def kind_for(value: Tensor, kind: torch.dtype) -> torch.dtype:
    """The type of a module's tensor where it computes in `kind`: fp64, or its own."""
    if kind != torch.float64:
        return value.dtype
    if value.is_complex():
        return torch.complex128
    return kind if value.is_floating_point() else value.dtype
