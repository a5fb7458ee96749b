"""Checkpoints of a real run's server, written atomically."""

from __future__ import annotations

import io
import zipfile
from pathlib import Path

import numpy as np

from multigpu.synchrony.experiment import Experiment
from multigpu.synchrony.server import Checkpoint
from multigpu.writing import write_whole


def checkpoint_path(folder: Path) -> Path:
    """The latest checkpoint of the run in `folder`."""
    return folder / "checkpoint.npz"


def write_checkpoint(folder: Path, experiment: Experiment, checkpoint: Checkpoint) -> None:
    """Replace the folder's checkpoint; a reader, or a process killed here, finds the old one or the new one."""
    buffer = io.BytesIO()
    np.savez(
        buffer,
        digest=experiment.digest,
        version=checkpoint.version,
        tickets=np.array(checkpoint.tickets),
        parameters=np.empty(0) if checkpoint.parameters is None else checkpoint.parameters,
        gradients=checkpoint.gradients,
        elapsed_s=checkpoint.elapsed_s,
    )
    write_whole(checkpoint_path(folder), buffer.getbuffer(), replace=True, synced=False)


def read_checkpoint(folder: Path, experiment: Experiment) -> Checkpoint:
    """The checkpoint in `folder`.

    Raises:
        ValueError: there is none, it cannot be read, or it belongs to another experiment; one sentence.
    """
    path = checkpoint_path(folder)
    try:
        with np.load(path, allow_pickle=False) as held:
            if str(held["digest"]) != experiment.digest:
                raise ValueError(f"{path} belongs to another experiment: resume with the same fields, or start in another folder")
            return Checkpoint(
                version=int(held["version"]),
                tickets=tuple(int(ticket) for ticket in held["tickets"]),
                parameters=held["parameters"] if experiment.problem else None,
                gradients=int(held["gradients"]),
                elapsed_s=float(held["elapsed_s"]),
            )
    except (OSError, KeyError, EOFError, zipfile.BadZipFile) as error:
        raise ValueError(f"{path} is no checkpoint to resume from: {str(error).splitlines()[0]}") from None
