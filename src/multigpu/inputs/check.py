"""Which files an input reads, and opening them before any Run starts: a wrong path costs a second and a sentence, not a launch."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

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


def no_files(run: Run) -> None:
    """Refuse files, which this input does not read."""
    if run.data is not None:
        raise ValueError(f"inputs {run.inputs!r} reads no files: leave out data, which names {', '.join(run.data)}")


def named_files(run: Run, *wanted: str) -> list[Path]:
    """The paths that `run.data` names, one for each of `wanted`.

    Raises:
        ValueError: it names more or fewer.
    """
    if run.data is None or len(run.data) != len(wanted):
        what = f"one {wanted[0]}" if len(wanted) == 1 else f"two files, {' and '.join(wanted)}"
        raise ValueError(f"inputs {run.inputs!r} needs data to name {what}: it names {len(run.data or ())}")
    return [Path(path) for path in run.data]
