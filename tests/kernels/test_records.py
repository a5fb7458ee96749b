"""What the committed Records say of training with persistent cells: the same losses, within what 16 bits do to the library's too."""

from __future__ import annotations

import numpy as np

from multigpu.record import Record
from multigpu.run import Run

STEPS = 300


def curve_of(run: Run) -> tuple[str, str | None, int]:
    return run.precision, run.recurrence, run.seed


def test_losses_stay_as_near_float32_as_the_librarys_do_in_16_bits(committed: list[Record]) -> None:
    curves = {
        curve_of(record.run): np.array(record.measurement.loss)
        for record in committed
        if record.measurement and (record.run.model, record.run.inputs, record.run.batch_size) == ("nmt000", "catalogs", 64)
        if record.run.warmup_steps + record.run.timed_steps == STEPS and record.machine.name == "1x-nvidia-h200"
    }
    seeds = sorted(seed for precision, recurrence, seed in curves if recurrence == "persistent")
    assert len(seeds) >= 3
    gaps = {
        recurrence: [np.abs(curves["bf16", recurrence, seed] - curves["fp32", None, seed]) for seed in seeds]
        for recurrence in ("persistent", None)
    }
    ours, librarys = (np.mean([gap[-50:].mean() for gap in gaps[recurrence]]) for recurrence in ("persistent", None))
    assert ours <= librarys
    first = max(gap[:20].max() for gap in gaps["persistent"])  # before roundings have had the time to grow
    assert first < 0.02
