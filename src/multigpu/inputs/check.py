"""Open what Runs will read before any of them starts: a wrong path costs a second and a sentence, not a launch."""

from __future__ import annotations

from collections.abc import Iterable

from multigpu.run import Run
from multigpu.workloads import workloads

DRAWN = ("synthetic", "synthetic_host", "lengths_000", "bucket_means_000", "planted_reviews", "teacher", "teacher_small")
"""Inputs that are drawn from a law and read nothing."""


def check_inputs(runs: Iterable[Run]) -> None:
    """Make the source of every kind of input once.

    Raises:
        ValueError: a file is missing, empty or does not fit, or the library that reads it is; the sentence names it.
    """
    seen = set()
    for run in runs:
        kind = (run.workload, run.model, run.inputs, run.data, run.batch_size, run.devices, run.batching, run.sequence_length)
        if kind in seen or (run.inputs in DRAWN and run.data is None):
            continue
        seen.add(kind)
        try:
            workloads()[run.workload].inputs[run.inputs](run, run.description)
        except ImportError as error:
            raise ValueError(f"input {run.inputs!r} needs {error.name}, which is not installed here") from None
        except OSError as error:
            raise ValueError(f"{error.filename or ', '.join(run.data or ())} cannot be read: {error.strerror or error}") from None
