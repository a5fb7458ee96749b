"""Peaks of memory that Records tell beside what `fits` forecasts of the same steps.

    python benchmarks/peaks.py [--models gpt2_124m,...]

A row a workload, form and width of numbers: Records, those whose forecast is within 5% (eager) or
15% (other forms) of the peak, and between which shares forecasts are off. Of PyTorch's image models
and transformers, and placements of whole replicas: recurrent layers run in a kernel of the GPU,
whose operators cannot be followed without one. Of compiled steps transformers are followed as the
compiler sees them, image models as they are written. It needs no GPU.
"""

import argparse
from collections.abc import Sequence
from functools import lru_cache, partial
from unittest import mock

import pandas as pd
import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode

from multigpu import paths
from multigpu.analysis.points import where
from multigpu.analysis.query import run_of
from multigpu.analysis.read import frames
from multigpu.build import build_run
from multigpu.engines.torch.trainer import build_module
from multigpu.inputs.batch import Draw
from multigpu.placements import find_placement
from multigpu.placements.resolve import shard_sizes
from multigpu.spec.run import Run
from multigpu.user_model.activations import live_in_step
from multigpu.user_model.compiled import counting
from multigpu.user_model.fits import GIB, step_memory
from multigpu.user_model.per_batch import COMPILED, GIVEN, WRITTEN, PerBatch, through
from multigpu.workloads import description_of
from multigpu.workloads.sources import open_source

TOLD_SINCE = "2026-11-23T18:42:42"
"""From here on a Run says what earlier ones of its process had left, which its peak counts, too."""

LIKE = ("model", "precision", "layout", "batch_norm", "stem", "weight_casts", "cross_entropy")
"""Fields of a Run by which its activations differ from those of others of its workload."""


def in_memory(module: nn.Module, kind: torch.dtype) -> nn.Module:
    """Replace a module's tensors of the meta device by ones in this type."""
    for part in module.modules():
        for name, old in part._parameters.items():
            if old is not None:
                new = torch.empty_strided(old.shape, old.stride(), dtype=kind)
                part._parameters[name] = nn.Parameter(new)
        for name, old in part._buffers.items():
            if old is not None:
                part._buffers[name] = torch.empty_strided(old.shape, old.stride(), dtype=kind)
    return module


def batch_of(run: Run, kind: torch.dtype) -> dict[str, Tensor]:
    found = {}
    for name, array in open_source(run).batch(0, 0).arrays.items():
        numbers = isinstance(array, Draw) and array.law == "normal"
        found[name] = torch.zeros(array.shape, dtype=kind if numbers else torch.int64)
    if run.layout == "channels_last":
        images = found["images"]
        found["images"] = images.contiguous(memory_format=torch.channels_last)
    return found


@lru_cache
def activations(workload: str, compiled: bool, *values: str | None) -> dict[str, PerBatch]:
    """What a batch holds, by two small ones whose tensors have shapes and no numbers."""
    like = {name: value for name, value in zip(LIKE, values, strict=True) if value is not None}
    found, given = [], []
    for rows in (2, 4):
        run = build_run(workload=workload, placement="independent", batch_size=rows, **like)
        kind = torch.bfloat16 if run.precision == "bf16_params" else torch.float32
        module = build_module(run)
        if compiled:
            with mock.patch.object(torch, "compile", partial(torch.compile, backend=counting)):
                module.compile_parts()
        with FakeTensorMode():
            in_memory(module, kind)
            batch = batch_of(run, kind)
            trained = sum(parameter.nbytes for parameter in module.parameters())
            step = partial(module, batch)
            found.append(live_in_step(module, batch, step, run.precision, compiled))
            given.append(sum(tensor.nbytes for tensor in batch.values()))
    low, high = found
    made = [count / trained for count in high.made]
    return {
        WRITTEN + COMPILED * compiled: through(2, low.after, 4, high.after, made),
        GIVEN: through(2, given[:1], 4, given[1:]),
    }


def forecast(run: Run) -> float:
    """GiB that a step of the Run needs, as `fits` says it of a user's job."""
    whole = find_placement(run.placement).variables != "sharded"
    compiled = run.workload == "gpt" and "compiled" in run.execution and whole
    traced = activations(run.workload, compiled, *(getattr(run, name) for name in LIKE))
    memory = step_memory(run, description_of(run), traced)
    assert memory is not None
    return memory.peak(max(shard_sizes(run))) / GIB


def measured(
    models: Sequence[str] | None = None, without: Sequence[str] = ()
) -> list[tuple[Run, float]]:
    """The Runs and their peaks in GiB, of some models or of all but these."""
    table, _ = frames(paths.DATA / "runs")
    table = where(table, framework="torch", device_type="cuda", workload=["cnn", "gpt"])
    table = table[table["peak_memory_gib"].notna() & table["measured_at"].ge(TOLD_SINCE)]
    chosen = table["model"].isin(models) if models else ~table["model"].isin(without)
    found = [(run_of(row), float(row["peak_memory_gib"])) for _, row in table[chosen].iterrows()]
    return [each for each in found if find_placement(each[0].placement).compute == "replica"]


def beside(models: Sequence[str] | None = None, without: Sequence[str] = ()) -> pd.DataFrame:
    """A row a Record: its Run's fields, peak_gib, forecast_gib, off."""
    rows = [
        run.model_dump() | {"peak_gib": peak, "forecast_gib": forecast(run)}
        for run, peak in measured(models, without)
    ]
    return pd.DataFrame(rows).assign(
        off=lambda table: table["forecast_gib"] / table["peak_gib"] - 1
    )


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--models")
    models = parser.parse_args().models
    table = beside(models.split(",") if models else None)
    bits = table["precision"].isin(["fp32", "tf32"]).map({True: 32, False: 16}).rename("bits")
    bar = table["execution"].eq("eager").map({True: 0.05, False: 0.15})
    off = table.assign(within=table["off"].abs().le(bar)).groupby(["workload", "execution", bits])
    print(
        off.agg(
            records=("off", "size"),
            within=("within", "sum"),
            least=("off", "min"),
            median=("off", "median"),
            most=("off", "max"),
        )
        .round(3)
        .to_string()
    )


if __name__ == "__main__":
    main()
