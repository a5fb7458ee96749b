"""What the way of batching is asked: own buckets, a shared one or one width, and a corpus in its order or shuffled."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from multigpu.grid.entries import ENDS, EXPERIMENTS, FEWEST, Planned, Tier, ends_of, nmt
from multigpu.grid.tensorflow import TENSORFLOW
from multigpu.run import Run

CAPTURE_WARMUP = 100
"""The rarest bucket comes twice in 30 steps, and a shape is captured at its third time: after 100 steps all six are."""


CORRECTED_BATCH = 384
"""Sentences a GPU in the correction of document 000 by its author (`data/published/000_correction.csv`), on 1 and 8 GPUs."""


def _lengths(placement: str, count: int, batching: str, **more: object) -> Run:
    return _of_batch(128, placement, count, {"batching": batching} | more)


def _of_batch(batch: int, placement: str, count: int, more: Mapping[str, object]) -> Run:
    """So many sentences of the document's lengths a device; bf16 and own buckets unless told."""
    usual: dict[str, object] = {"inputs": "lengths_000", "sequence_length": None, "precision": "bf16", "batching": "own"}
    return nmt(placement, count, batch, **(usual | dict(more)))


def batching(devices: Sequence[int]) -> list[Planned]:
    """Document 000's lengths at batch 128, bf16, eager: own and shared buckets under ddp, Exp4 and Exp2, and one width of 100.

    ddp and Exp4 are repeated on 1, 4 and 8 (C4 reads Exp4), Exp2 and the rest are screening. On one device a shared bucket is an
    own one and is not measured again. The whole law takes 30 steps, so each Run counts all of it once. Last come what the document's
    tables are rebuilt from (`rebuilt`). About 7 minutes on 1, 2, 4, 8.
    """
    repeated: list[Planned] = []
    once: list[Planned] = []
    for count in sorted(devices, reverse=True):
        tier: Tier = "headline" if count in ENDS else "screening"
        modes = ("own", "shared") if count > 1 else ("own",)
        for placement in ("exp4", "ddp"):
            repeated += [Planned(_lengths(placement, count, mode), tier, 4.0, FEWEST) for mode in modes]
        once += [Planned(_lengths("exp2", count, mode), "screening", 7.0) for mode in modes]
        once.append(Planned(_lengths("ddp", count, "fixed"), "screening", 4.0))
        once.append(Planned(_lengths("independent", count, "own"), "screening", 4.0))
    return repeated + once + rebuilt(devices)


def rebuilt(devices: Sequence[int]) -> list[Planned]:
    """Document 000's Exp1-Exp4 on its own lengths where nothing above measures them: Exp1 and Exp3 at every count, and all four
    dispatched by one process for all devices, as the document did it, on the fewest and most; its author's corrected batch (Exp4) on
    as many. Own buckets, screening.
    """
    counts, ends = sorted(devices, reverse=True), ends_of(devices)
    apart = [_lengths(name, count, "own") for count in counts for name in ("exp1", "exp3")]
    together = [_lengths(name, count, "own", processes="one") for count in ends for name in EXPERIMENTS]
    corrected = [_of_batch(CORRECTED_BATCH, "exp4", count, {"processes": "one"}) for count in ends]
    return [Planned(run, "screening", 7.0) for run in apart + together + corrected]


def batching_captured(devices: Sequence[int]) -> list[Planned]:
    """Every bucket at its mean length, so that steps have few shapes: eager, and one CUDA graph a shape where there are six.

    Own buckets on several GPUs have more combinations than graphs are kept for, so they are eager only. Screening, about 1 minute.
    """
    planned = []
    means = {"inputs": "bucket_means_000"}
    graph = {"execution": "captured", "warmup_steps": CAPTURE_WARMUP}
    for count in sorted(devices, reverse=True):
        mode = "shared" if count > 1 else "own"
        planned.append(Planned(_lengths("ddp", count, mode, cross_entropy="fused", **means, **graph), "screening", 7.0))
        planned.append(Planned(_lengths("ddp", count, mode, cross_entropy="fused", **means), "screening", 3.0))
        if count > 1:
            planned.append(Planned(_lengths("ddp", count, "own", cross_entropy="fused", **means), "screening", 3.0))
    return planned


def batching_tensorflow(devices: Sequence[int]) -> list[Planned]:
    """Document 000 in its own framework on its own lengths, TF32: own, shared and one width, and its author's corrected batch on the
    fewest and most devices. Screening, about 3 minutes.

    Own buckets under Exp1-Exp4 are in `tensorflow_forms` too: what has a Record is not measured again.
    """
    planned = []
    form = TENSORFLOW | {"precision": "tf32"}
    for count in sorted(devices, reverse=True):
        for placement, cost_s in (("exp4", 10.0), ("exp2", 14.0)):
            modes = ("own", "shared") if count > 1 else ("own",)
            planned += [Planned(_lengths(placement, count, mode, **form), "screening", cost_s) for mode in modes]
        planned.append(Planned(_lengths("exp4", count, "fixed", **form), "screening", 10.0))
    corrected = [_of_batch(CORRECTED_BATCH, "exp4", count, form) for count in ends_of(devices)]
    return planned + [Planned(run, "screening", 14.0) for run in corrected]


SMALL = {"workload": "nmt", "model": "nmt_small", "device_type": "cpu", "placement": "ddp"}


def modes_small(devices: Sequence[int], modes: Sequence[str]) -> list[Planned]:
    """000's lengths on CPU processes. Screening."""
    form = SMALL | {"batch_size": 16, "inputs": "lengths_000", "warmup_steps": 5, "timed_steps": 20}
    return [
        Planned(Run(devices=count, batching=mode, **form), "screening", 4.0)  # type: ignore[arg-type]
        for count in devices
        for mode in modes
        if count > 1 or mode != "shared"
    ]


def batching_small(devices: Sequence[int]) -> list[Planned]:
    """Every mode on CPU processes, and half an epoch of the committed corpus in its order and shuffled. Under a minute, screening."""
    form = SMALL | {"devices": 1, "batch_size": 64, "inputs": "catalogs", "timed_steps": 190}
    orders = [Planned(Run(shuffle=shuffle, **form), "screening", 8.0) for shuffle in (False, True)]  # type: ignore[arg-type]
    return modes_small(devices, ("own", "shared", "fixed")) + (orders if 1 in devices else [])
