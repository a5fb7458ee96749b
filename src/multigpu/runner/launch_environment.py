"""Set the environment of a launch's processes."""

import os
from pathlib import Path

from multigpu.machine.machine import cores_here, source_state
from multigpu.machine.process import MULTICAST_OFF, NO_KERAS


def launch_environment() -> dict[str, str]:
    """Return the environment of every process of a launch."""
    commit, clean = source_state()
    paths = [
        str(Path(__file__).resolve().parents[2]),
        *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep)),
    ]
    told = {
        "PYTHONPATH": os.pathsep.join(paths),
        "MULTIGPU_COMMIT": commit,
        "MULTIGPU_CLEAN": "1" if clean else "0",
    }
    # workers set their own thread counts; the default of one that launchers impose would starve
    # host placements
    return {"OMP_NUM_THREADS": str(cores_here())} | os.environ | MULTICAST_OFF | NO_KERAS | told
