"""Try for `doctor` the features of GPUs that a machine may lack."""

from collections.abc import Iterator

import torch

from multigpu.kernels import build


def tried_lines() -> Iterator[str]:
    """Whether a CUDA graph is captured, and Triton and NVRTC build a kernel, on the first GPU."""

    def graph() -> None:
        value = torch.zeros(8, device="cuda")
        captured = torch.cuda.CUDAGraph()
        with torch.cuda.graph(captured):
            value += 1
        captured.replay()
        if float(value.sum()) != 8:
            raise RuntimeError("a replayed graph computed something else")

    def triton() -> None:
        double = torch.compile(lambda value: 2 * value + 1)
        if float(double(torch.ones(8, device="cuda")).sum()) != 24:
            raise RuntimeError("a kernel computed something else")

    tries = {
        "CUDA graphs": graph,
        "Triton": triton,
        "NVRTC": lambda: build.compile_source('extern "C" __global__ void nothing() {}', []),
    }
    for name, attempt in tries.items():
        try:
            attempt()
            yield f"{name:<11} work" if name.endswith("s") else f"{name:<11} works"
        except Exception as error:
            yield f"{name:<11} fails ({type(error).__name__}: {' '.join(str(error).split())[:200]})"
