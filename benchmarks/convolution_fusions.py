"""What cuDNN's fused convolutions would save of a model's step: batch norm's statistics in the
epilogue of the convolution before it, its scale, bias and ReLU in the prologue of the next one.

    pip install nvidia-cudnn-frontend
    python -m benchmarks.convolution_fusions --batch 64 256 --out data/benchmarks/fusions.csv

Each convolution of the forward pass is timed by itself and with each fusion, and so is the pass
over memory of this project's kernels that the fusion would save; all in 16 bits, channels last, as
CUDA graphs. A fusion pays where it takes less than the two that it joins. What cuDNN proposes
no engine for says so: on an H200 cuDNN 9.19 proposed none for any of these graphs in bfloat16. In
float16 it sums statistics in 23 of 24 kinds of convolution, and takes the prologue only with them.
About half a minute for two batches and one number type.
"""

import argparse
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import pandas as pd
import torch
import torch.nn.functional as F
from benchmarks.batch_norm import milliseconds
from torch import Tensor

from multigpu.kernels import batch_norm_launch as launch
from multigpu.kernels.batch_norm import library_instead
from multigpu.kernels.batch_norm_launch import Norm, Pool
from multigpu.machine.machine import source_state, this_machine
from multigpu.workloads import find_model
from multigpu.workloads.cnn.torch import build
from multigpu.workloads.cnn.torch_layers import Conv

FUSIONS = {"statistics": (False, True), "prologue": (True, False), "both": (True, True)}
"""Fusion -> whether scale, bias and ReLU come before the convolution, and sums after it."""
TIMES = 20  # calls of one window
DTYPES = {"bfloat16": torch.bfloat16, "float16": torch.float16}


@dataclass(frozen=True)
class Convolution:
    """One convolution of a model: its input (N, C, H, W), its filters and windows.

    normed: whether its input is what one batch norm with its ReLU has written, and nothing else.
    """

    shape: tuple[int, int, int, int]
    filters: int
    sides: tuple[int, int]
    stride: tuple[int, int]
    padding: tuple[int, int]
    normed: bool

    def tensors(self, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        """Draw an input and weights."""
        weights = (self.filters, self.shape[1], *self.sides)
        return images(self.shape, dtype), images(weights, dtype) / weights[1] ** 0.5


def images(shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    """Draw numbers as convolutions read them: channels last."""
    drawn = torch.randn(shape, device="cuda", dtype=dtype)
    return drawn.contiguous(memory_format=torch.channels_last)


def convolutions(model: str, batch: int, device: str = "cuda") -> Counter[Convolution]:
    """Count the convolutions of a model's forward pass that are alike."""
    description, found = find_model("cnn", model), Counter[Convolution]()
    module = build(description, "channels_last", "fused").to(device)

    def note(name: str) -> Callable[[Conv, tuple[Tensor, ...]], None]:
        # within a block's branch all but the first follow a batch norm and its ReLU
        *_, where, place = ["", *name.split(".")]
        first = next(iter(module.get_submodule(name.rpartition(".")[0])._modules))
        normed = where == "branch" and place != first

        def hook(layer: Conv, given: tuple[Tensor, ...]) -> None:
            windows = (tuple(layer.kernel_size), tuple(layer.stride), tuple(layer.padding))
            shape = tuple(given[0].shape)
            found[Convolution(shape, layer.out_channels, *windows, normed)] += 1  # type: ignore[arg-type]

        return hook

    for name, layer in module.named_modules():
        if isinstance(layer, Conv):
            layer.register_forward_pre_hook(note(name))
    with torch.no_grad(), torch.autocast(device, dtype=torch.bfloat16):
        module.logits(torch.zeros(batch, *description.config.image_shape, device=device))
    return found


def fused(layer: Convolution, dtype: torch.dtype, fusion: str, handle: Any) -> Callable[[], object]:
    """Return a call of cuDNN's fused convolution, once its sums have been compared with PyTorch's.

    Raises Exception: cuDNN has no engine for it, or gives something else.
    """
    import cudnn

    prologue, epilogue = FUSIONS[fusion]
    x, weights = layer.tensors(dtype)
    scale, bias = torch.rand(2, 1, layer.shape[1], 1, 1, device="cuda").to(dtype).unbind()
    windows = {"padding": list(layer.padding), "stride": list(layer.stride), "dilation": [1, 1]}
    given = F.relu(x * scale + bias) if prologue else x
    expected = F.conv2d(given, weights, None, layer.stride, layer.padding)
    y = torch.empty_like(expected)
    sums = [torch.zeros(1, layer.filters, 1, 1, device="cuda") for _ in range(2)]
    short = {torch.bfloat16: cudnn.data_type.BFLOAT16, torch.float16: cudnn.data_type.HALF}[dtype]
    graph = cudnn.pygraph(
        io_data_type=short,
        intermediate_data_type=cudnn.data_type.FLOAT,
        compute_data_type=cudnn.data_type.FLOAT,
        handle=handle,
    )
    pack: dict[Any, Tensor] = {}

    def named(tensor: Tensor) -> Any:
        made = graph.tensor(dim=tensor.size(), stride=tensor.stride(), data_type=tensor.dtype)
        pack[made] = tensor
        return made

    image = named(x)
    if prologue:
        image = graph.scale(name="scale", input=image, scale=named(scale))
        image = graph.relu(
            name="relu", input=graph.bias(name="bias", input=image, bias=named(bias))
        )
    result = graph.conv_fprop(image=image, weight=named(weights), **windows)
    result.set_output(True).set_data_type(short)
    pack[result] = y
    if epilogue:
        for each, kept in zip(graph.genstats(name="sums", input=result), sums, strict=True):
            each.set_output(True).set_data_type(cudnn.data_type.FLOAT)
            pack[each] = kept
    graph.validate()
    graph.build_operation_graph()
    graph.create_execution_plans([cudnn.heur_mode.A, cudnn.heur_mode.FALLBACK])
    graph.check_support()
    graph.build_plans()
    workspace = torch.empty(graph.get_workspace_size(), device="cuda", dtype=torch.uint8)

    def call() -> None:
        cudnn.set_stream(handle=handle, stream=torch.cuda.current_stream().cuda_stream)
        graph.execute(pack, workspace, handle=handle)

    call()
    torch.testing.assert_close(y, expected, rtol=0.05, atol=0.05 * float(expected.abs().max()))
    if epilogue:
        total = expected.float().sum((0, 2, 3))
        spread = float(expected.float().square().sum((0, 2, 3)).sqrt().max())
        torch.testing.assert_close(sums[0].flatten(), total, rtol=0.05, atol=spread)
    return call


def alone(layer: Convolution, dtype: torch.dtype) -> dict[str, Callable[[], object]]:
    """Return calls of the library's convolution and of the passes beside it."""
    x, weights = layer.tensors(dtype)
    y = F.conv2d(x, weights, None, layer.stride, layer.padding)
    mean, variance = torch.zeros(2, layer.filters, device="cuda").unbind()
    arrivals = torch.zeros(layer.filters, dtype=torch.int32, device="cuda")
    vectors = torch.rand(4, layer.shape[1], device="cuda").add_(0.5).unbind()
    return {
        "convolution": lambda: F.conv2d(x, weights, None, layer.stride, layer.padding),
        "statistics_pass": lambda: launch.moments(y, mean, variance, arrivals, 0.1, 1e-5),
        "normalise_pass": lambda: launch.forward(x, Norm(*vectors), None, True, Pool()),
    }


def timed(layer: Convolution, dtype: torch.dtype, handle: Any) -> dict[str, Any]:
    """Time one convolution in all ways: milliseconds by name, or why there is none."""
    row: dict[str, Any] = {}
    for name, call in alone(layer, dtype).items():
        row[name] = milliseconds([call] * TIMES, 5) / TIMES
    for fusion in FUSIONS:
        if FUSIONS[fusion][0] and not layer.normed:
            continue
        try:
            row[fusion] = milliseconds([fused(layer, dtype, fusion, handle)] * TIMES, 5) / TIMES
        except Exception as error:  # cuDNN has classes of its own for each reason
            row[f"{fusion}_not"] = " ".join(str(error).split())[:400] or type(error).__name__
    return row


def gains(table: pd.DataFrame) -> pd.DataFrame:
    """Return what each fusion would save of a forward pass, ms, where it is taken only if it pays.

    table: a row a convolution: number type, batch, count, milliseconds of each way.
    """
    apart = {
        "statistics": table["convolution"] + table["statistics_pass"],
        "prologue": table["convolution"] + table["normalise_pass"],
        "both": table["convolution"] + table["statistics_pass"] + table["normalise_pass"],
    }
    saved = pd.DataFrame(
        {
            name: ((apart[name] - table[name]).clip(lower=0) * table["count"]).fillna(0)
            for name in FUSIONS
            if name in table
        }
    )
    kinds = ["dtype", "batch"]
    return saved.join(table[kinds]).groupby(kinds).sum()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default="resnet50_v1.5", help="an image model with batch norms")
    parser.add_argument("--batch", type=int, nargs="+", default=[64, 256])
    parser.add_argument("--dtype", nargs="+", choices=DTYPES, default=[*DTYPES])
    parser.add_argument("--out", type=Path, help="the table of all convolutions, as CSV")
    options = parser.parse_args()
    if not torch.cuda.is_available() or library_instead(torch.device("cuda")):
        parser.error("fusions are of a GPU's kernels, and no GPU here runs them")
    import cudnn

    torch.backends.cudnn.benchmark = True
    handle = cudnn.create_handle()
    rows: list[dict[str, Any]] = []
    source = {"machine": this_machine().name, "commit": source_state()[0][:8]}
    for dtype, batch in product(options.dtype, options.batch):
        for layer, count in convolutions(options.model, batch).items():
            here = {"dtype": dtype, "batch": batch} | vars(layer) | {"count": count}
            row = here | timed(layer, DTYPES[dtype], handle)
            print(row, flush=True)
            rows.append(source | row)
            if options.out:
                pd.DataFrame(rows).to_csv(options.out, index=False)
    print(gains(pd.DataFrame(rows)).round(3).to_string())


if __name__ == "__main__":
    main()
