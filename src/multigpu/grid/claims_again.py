"""What claims ask one GPU once more, in windows of two seconds, five repeats over five launches: C3, C16, C24, C41, C44."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from multigpu.grid.entries import Planned, nmt, resnet50
from multigpu.run import Run

FIVE = (0, 1, 2, 3, 4)
"""Launches: a repeat each."""
SHUFFLE_BATCH, SHUFFLE_STEPS = 64, 383
"""Of grid `shuffling`: steps of an epoch of the committed corpus."""
IN_GRAPH: dict[str, Any] = {"framework": "tensorflow", "processes": "one", "execution": "graph"}


def claims_one_gpu(devices: Sequence[int]) -> list[Planned]:
    """In PyTorch: are tables faster on the GPU (C3), the GPU's process started either way; ResNet-50's and VGG-16's step beside
    TensorFlow's (C44) and their warm-up (C24). About four minutes.
    """
    if 1 not in devices:
        return []
    planned = []
    for processes in ("per_device", "one"):
        form: dict[str, Any] = {"processes": processes, "precision": "bf16"}
        if processes == "one":
            planned += [_repeated(resnet50("exp4", 1, 64, **form, timed_steps=120), 6.0)]
            planned += [_repeated(_vgg("channels_last", **form, timed_steps=100), 10.0)]
        planned += [
            _repeated(nmt("exp4", 1, 128, **form, timed_steps=80), 5.0),
            _repeated(nmt("exp3", 1, 128, **form, timed_steps=60), 6.0),
        ]
    return planned


def claims_shuffling(devices: Sequence[int]) -> list[Planned]:
    """C41 once more: an epoch of the committed corpus in its order, five times, and shuffled, ten times. About three minutes."""
    if 1 not in devices:
        return []
    form: dict[str, Any] = {"inputs": "catalogs", "sequence_length": None, "precision": "bf16", "timed_steps": SHUFFLE_STEPS}
    once, twice = FIVE, tuple(sorted(2 * FIVE))
    return [
        Planned(nmt("ddp", 1, SHUFFLE_BATCH, shuffle=shuffle, **form), "headline", 12.0, twice if shuffle else once)
        for shuffle in (True, False)
    ]


def claims_tensorflow(devices: Sequence[int]) -> list[Planned]:
    """In TensorFlow: ResNet-50 with either kernel of batch norm and VGG-16 beside PyTorch's (C44), their warm-up (C24), and both in fp32
    with either layout (C16). About seven minutes.
    """
    if 1 not in devices:
        return []
    bf16: dict[str, Any] = IN_GRAPH | {"precision": "bf16"}
    planned = [
        _repeated(resnet50("exp4", 1, 64, **bf16, timed_steps=60), 10.0),
        _repeated(_vgg("channels_last", **bf16, timed_steps=80), 10.0),
        _repeated(resnet50("exp4", 1, 64, **bf16, batch_norm="persistent", timed_steps=100), 10.0),
    ]
    for layout in ("channels_first", "channels_last"):
        fp32: dict[str, Any] = IN_GRAPH | {"precision": "fp32"}
        planned.append(_repeated(resnet50("exp4", 1, 64, **fp32 | {"layout": layout}, timed_steps=60), 12.0))
        planned.append(_repeated(_vgg(layout, **fp32, timed_steps=60), 14.0))
    return planned


def _vgg(layout: str, **more: Any) -> Run:
    """VGG-16 at 64 images: a batch that 600 steps do not learn by heart, as AlexNet's was."""
    return Run(workload="cnn", model="vgg16", placement="exp4", batch_size=64, layout=layout, **more)  # type: ignore[arg-type]


def _repeated(run: Run, cost_s: float) -> Planned:
    return Planned(run, "headline", cost_s, FIVE)
