"""Opening the inputs of Runs."""

from collections.abc import Iterable

from multigpu.inputs.batch import Source
from multigpu.spec.run import Run
from multigpu.workloads import description_of, workloads

DRAWN = (
    "synthetic",
    "synthetic_host",
    "lengths_000",
    "bucket_means_000",
    "planted_reviews",
    "teacher",
    "teacher_small",
)
"""Inputs that are drawn from a law and read nothing."""


def check_inputs(runs: Iterable[Run]) -> None:
    """Make each kind of input once; a ValueError where a file or a library is missing."""
    seen = set()
    for run in runs:
        kind = (
            run.workload,
            run.model,
            run.inputs,
            run.data,
            run.batch_size,
            run.devices,
            run.batching,
            run.sequence_length,
        )
        if kind in seen or (run.inputs in DRAWN and run.data is None):
            continue
        seen.add(kind)
        try:
            open_source(run)
        except ImportError as error:
            raise ValueError(
                f"input {run.inputs!r} needs {error.name}, which is not installed here"
            ) from None
        except OSError as error:
            raise ValueError(
                f"{error.filename or ', '.join(run.data or ())} cannot be read:"
                f" {error.strerror or error}"
            ) from None


def open_source(run: Run) -> Source:
    """The Run's input; a ValueError, OSError or ImportError where it cannot be read."""
    return workloads()[run.workload].inputs[run.inputs](run, description_of(run))
