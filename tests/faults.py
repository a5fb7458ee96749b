"""Faults to plant in a launch: a function for a plan's `hook`, told by the environment what to do.

FAULTS is a JSON list of {"seed", "stage", "rank", "fault"} and, for faults that strike once,
"once": a file's path; for those that strike at every n-th call only (0, n, 2n, ...), "every": n.
    "tell" is none: it writes the process's environment to "file".
"""

import errno
import json
import os
import signal
import threading
import time
from collections import Counter
from pathlib import Path
from unittest import mock

from multigpu.spec.run import Run

CALLS: Counter[int] = Counter()
"""Calls so far in this process, by the fault's place in the list."""


def _measure(*_: object) -> None:
    BROKEN.stop()
    raise KeyError("planted: a number is missing")


BROKEN = mock.patch("multigpu.runner.timed.Timed.measure", _measure)


def strike(stage: str, run: Run, rank: int) -> None:
    """Do what FAULTS says for this stage of this Run on this rank."""
    for number, fault in enumerate(json.loads(os.environ["FAULTS"])):
        if (fault["seed"], fault["stage"], fault["rank"]) != (run.seed, stage, rank) or Path(
            fault.get("once", "/none")
        ).exists():
            continue
        if "once" in fault:
            Path(fault["once"]).touch()
        CALLS[number] += 1
        if (CALLS[number] - 1) % fault.get("every", 1):
            continue
        if fault["fault"] == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        elif fault["fault"] in ("stop", "stop its launcher"):
            os.kill(os.getpid() if fault["fault"] == "stop" else os.getppid(), signal.SIGSTOP)
        elif fault["fault"] == "hang":
            time.sleep(3600)
        elif fault["fault"] == "linger":  # do all, and then do not end
            threading.Thread(target=time.sleep, args=(3600,)).start()
        elif fault["fault"] == "memory":
            raise MemoryError("planted: cannot allocate")
        elif fault["fault"] == "exhausted":
            import tensorflow as tf

            raise tf.errors.ResourceExhaustedError(
                None, None, "planted: OOM when allocating a tensor"
            )
        elif fault["fault"] == "tell":
            Path(fault["file"]).write_text(json.dumps(dict(os.environ)))
        elif fault["fault"] == "record":  # later: the next Record cannot be put together
            BROKEN.start()
        elif fault["fault"] == "disk":
            mock.patch(
                "multigpu.records.store.write_whole",
                side_effect=OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)),
            ).start()
        elif fault["fault"] == "raise":
            raise RuntimeError("planted fault")
        else:
            time.sleep(float(fault["fault"]))
