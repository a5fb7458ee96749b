"""The processes of a TensorFlow Run over several, as whoever starts them sees them. No TensorFlow here."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from typing import Any

from multigpu.engines.errors import Unsupported
from multigpu.measure.lane import visible_gpus

Processes = Sequence["subprocess.Popen[bytes]"]


def free_ports(count: int) -> list[int]:
    """Ports of this host that nobody listens to now."""
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("", 0))
        return [one.getsockname()[1] for one in sockets]


def device_environment(device_type: str, place: int) -> dict[str, str]:
    """What lets a process see one GPU of this host alone (of those that this process may use), or none (place -1, or CPUs)."""
    if device_type == "cpu" or place < 0:
        return {"CUDA_VISIBLE_DEVICES": "-1"}
    visible = visible_gpus(os.environ.get("CUDA_VISIBLE_DEVICES"), place + 1)
    if place >= len(visible):
        raise Unsupported(f"CUDA_VISIBLE_DEVICES shows {len(visible)} GPUs and replica {place} needs one of its own")
    return {"CUDA_VISIBLE_DEVICES": visible[place]}


def start_member(task: dict[str, Any], device_type: str, place: int, words: Sequence[str], files: Sequence[int] = ()) -> Any:
    """Start a process of the cluster on this host.

    Args:
        task: what TF_CONFIG says to it: the cluster's addresses by role, and which of them it is.
        place: of its GPU on this host, -1 for none.
        words: by which it finds who asks it (`member.py`). files: open ones that it inherits.
    """
    environment = os.environ | device_environment(device_type, place)
    environment |= {"TF_CONFIG": json.dumps(task), "TF_FORCE_GPU_ALLOW_GROWTH": "true"}
    command = [sys.executable, "-m", "multigpu.engines.tensorflow.member", *words]
    return subprocess.Popen(command, env=environment, pass_fds=tuple(files), stdin=subprocess.DEVNULL)


def end_members(processes: Processes) -> None:
    """End them by their process ids: those that end by themselves, for nobody asks them any more, then politely, which leaves their
    stacks in the log if they hang, then surely.
    """
    until = time.monotonic() + 3.0
    for kind in ("wait", "terminate", "kill"):
        for process in processes:
            if kind != "wait" and process.poll() is None:
                getattr(process, kind)()
        for process in processes:
            with suppress(subprocess.TimeoutExpired):
                process.wait(max(0.1, until - time.monotonic()))
        until = time.monotonic() + 5.0
