"""Checkpoints: one file with a header of its own and torch's bytes, replaced atomically, read
without running anybody's code.
"""

import hashlib
import io
import json
from pathlib import Path
from typing import Any

from multigpu.writing import write_whole
from multigpu_study.training.run import TrainingRun

FORMAT = "multigpu checkpoint 2"


def checkpoint_path(folder: Path) -> Path:
    """The latest checkpoint of the run in `folder`."""
    return folder / "checkpoint.pt"


def write_checkpoint(folder: Path, training: TrainingRun, step: int, state: dict[str, Any]) -> Path:
    """Replace the folder's checkpoint; whoever reads it finds the old one or the new one."""
    import torch

    buffer = io.BytesIO()
    torch.save(state, buffer)
    content = buffer.getbuffer()
    header = {
        "format": FORMAT,
        "digest": training.digest,
        "label": training.label(),
        "step": step,
        "bytes": len(content),
    }
    header["sha256"] = hashlib.sha256(content).hexdigest()
    write_whole(checkpoint_path(folder), json.dumps(header).encode() + b"\n", content, replace=True)
    return checkpoint_path(folder)


def open_checkpoint(path: Path, training: TrainingRun) -> tuple[int, bytes]:
    """Open a checkpoint: step, checked content; ValueError: unreadable, damaged, another run's."""
    try:
        with open(path, "rb") as file:
            header, content = json.loads(file.readline()), file.read()
        form = header["format"]
        expected = header["sha256"]
        size = header["bytes"]
        digest = header["digest"]
        step = int(header["step"])
    except OSError as error:
        raise ValueError(f"{path} cannot be read: {error.strerror}") from None
    except (ValueError, KeyError, TypeError):
        raise ValueError(
            f"{path} is no checkpoint of this program: delete it to start anew"
        ) from None
    if form != FORMAT:
        raise ValueError(
            f"{path} has the format {form!r}, and this version reads {FORMAT!r}: delete it to start"
            " anew"
        )
    if len(content) != size or hashlib.sha256(content).hexdigest() != expected:
        raise ValueError(
            f"{path} is damaged ({len(content)} of {size} bytes, or other ones than were written):"
            " delete it to start anew"
        )
    if digest != training.digest:
        raise ValueError(
            f"{path} belongs to another training run ({header.get('label', digest)}): resume with"
            " the same fields, or use another folder"
        )
    return step, content


def read_checkpoint(path: Path, training: TrainingRun) -> tuple[int, dict[str, Any]]:
    """Step and state of a checkpoint; raises as `open_checkpoint`."""
    import torch

    step, content = open_checkpoint(path, training)
    return step, torch.load(io.BytesIO(content), weights_only=True)
