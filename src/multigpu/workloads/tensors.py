"""Share operations on tensors among PyTorch's modules of several workloads."""

import torch
from torch import Tensor

DTYPES = {
    "fp64": torch.float64,
    "fp32": torch.float32,
    "tf32": torch.float32,
    "bf16": torch.float32,
    "bf16_params": torch.float32,
    "fp16": torch.float32,
}
"""The type of variables: float32 under bf16, fp16 (autocast), and of bf16_params' masters."""


def arithmetic_type(x: Tensor) -> torch.dtype:
    """The type that matrix products of `x` run in: autocast's where it is on, else its own."""
    kind = x.device.type
    return torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else x.dtype


def of_kind(tensor: Tensor, kind: torch.dtype) -> Tensor:
    """Real numbers in this type, complex ones in this precision, others as they are."""
    if tensor.is_floating_point():
        return tensor.to(kind)
    return tensor.to(kind.to_complex()) if tensor.is_complex() else tensor


def to_device(host: Tensor, device: torch.device) -> Tensor:
    """A copy that never makes the host wait for the device."""
    if device.type == "cuda":
        host = host.pin_memory()
    return host.to(device, non_blocking=True)
