"""Training on GPUs: the curve of every placement and form of execution is that of
DistributedDataParallel, launched kernel by kernel.

Not that of CPUs: GPUs draw other initial weights from one seed.
"""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from multigpu_study.training.build import build_training_run
from multigpu_study.training.command import train
from multigpu_study.training.experiment import TrainingItem
from multigpu_study.training.grid import joined_placements, placed, staged_twins
from multigpu_study.training.record import TrainingRecord, TrainingStore
from multigpu_study.training.run import TrainingRun

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU that PyTorch can use here"),
]

STEPS = 12
ONE_PROCESS = ("exp1", "exp2", "ps_gpu0", "replicated_allreduce", "replicated_copy")
"""Placements with both shapes, of each way in which one thread moves variables and gradients."""
COMMON: dict[str, Any] = {
    "workload": "cnn",
    "model": "resnet_tiny",
    "inputs": "teacher_small",
    "scaling": "strong",
    "batch_size": 64,
}
COMMON |= {"steps": STEPS, "base_rate": 0.05, "evaluate_every": STEPS, "precision": "fp32"}


def on_gpus(placement: str, devices: int, **more: Any) -> TrainingRun:
    return build_training_run(
        **COMMON | placed(placement) | {"device_type": "cuda", "devices": devices} | more
    )


def trained(runs: list[TrainingRun], folder: Path) -> list[TrainingRecord]:
    """The Records of these runs, all of one launch; what did not train fails with its reason."""
    store = TrainingStore(folder / "records")
    summary = train(
        [TrainingItem.of(run) for run in runs], store, folder / "checkpoints", progress=False
    )
    assert not summary.troubles, [record.reason for record in store if record.status != "ok"]
    found = {record.training.digest: record for record in store}
    return [found[run.digest] for run in runs]


@pytest.fixture(scope="module")
def usual(tmp_path_factory: pytest.TempPathFactory) -> dict[int, list[float]]:
    """Losses of the library's own DistributedDataParallel, by the number of GPUs: each normalises
    its own share of a batch.
    """
    found = {}
    for record in trained(
        [on_gpus("ddp", count) for count in counts()], tmp_path_factory.mktemp("usual")
    ):
        assert record.measurement
        found[record.training.run.devices] = curve(record)
        energy = record.measurement.energy_j
        assert len(energy) == record.training.run.devices and all(
            joules > 0 for joules in energy
        ), "joules are not read"
    return found


def curve(record: TrainingRecord) -> list[float]:
    assert record.status == "ok" and record.measurement, record.reason
    return record.measurement.loss


def counts() -> list[int]:
    return [count for count in (1, 2) if count <= torch.cuda.device_count()]


def test_every_placement_and_a_captured_one_follow_one_curve(
    tmp_path: Path, usual: dict[int, list[float]]
) -> None:
    """In fp32 on the same weights and batches; twelve steps leave rounding no time to grow."""
    runs = [on_gpus("ddp", count, execution="captured") for count in counts()]
    runs += [
        on_gpus(name, counts()[-1])
        for name in joined_placements()
        if name not in ("ddp", "independent")
    ]
    runs += [on_gpus(name, counts()[-1], processes="one") for name in ONE_PROCESS]
    for run, record in zip(runs, trained(runs, tmp_path), strict=True):
        np.testing.assert_allclose(
            curve(record), usual[run.run.devices], rtol=2e-3, err_msg=run.label()
        )


def test_staged_variables_follow_the_curve_of_each_other_and_leave_their_twins(
    tmp_path: Path, usual: dict[int, list[float]]
) -> None:
    """The first step is the same; then gradients are one step old, wherever the variables are and
    however steps are launched.
    """
    runs = [on_gpus(name, count) for count in counts() for name in staged_twins()]
    runs += [on_gpus("staged_gpu0", count, execution="captured") for count in counts()]
    found = [
        (run.run.devices, curve(record))
        for run, record in zip(runs, trained(runs, tmp_path), strict=True)
    ]
    for devices, losses in found:
        first = next(other for count, other in found if count == devices)
        np.testing.assert_allclose(losses, first, rtol=2e-3)
        assert losses[0] == pytest.approx(usual[devices][0], rel=2e-3) and losses[
            1
        ] != pytest.approx(usual[devices][1], rel=5e-3)


def test_reduced_precision_trains_nearly_as_well(
    tmp_path: Path, usual: dict[int, list[float]]
) -> None:
    (record,) = trained([on_gpus("ddp", 1, precision="bf16", execution="captured")], tmp_path)
    assert abs(curve(record)[-1] - usual[1][-1]) < 0.1 * usual[1][-1]
