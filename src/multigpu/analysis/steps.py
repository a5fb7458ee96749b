"""Tell how long the steps of a Run waited for their batches."""

import math
from collections.abc import Iterable
from statistics import fmean

import numpy as np

from multigpu.records.record import Record
from multigpu.spec.rules.inputs import ON_DEVICE


def waited_s(record: Record) -> float:
    """Return the host's seconds a step until it had its batch: the mean over the timed steps, as
    the rate is, of the replica that waited most. Without recorded waits: 0 for inputs that lie on
    the device, else NaN.
    """
    run, m = record.run, record.measurement
    if m is None or not m.input_wait_s:
        return 0.0 if run.inputs in ON_DEVICE else math.nan
    end = run.warmup_steps + run.timed_steps
    return float(np.array(m.input_wait_s)[:, run.warmup_steps : end].mean(axis=1).max())


def wait_of(records: Iterable[Record]) -> float:
    """Return the mean of `waited_s` over a point's Records, s; 0 where none recorded its waits."""
    waits = [waited for record in records if not math.isnan(waited := waited_s(record))]
    return fmean(waits) if waits else 0.0
