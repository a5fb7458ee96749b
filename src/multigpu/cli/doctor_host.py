"""Report what this host means for training: its threads, its input workers, its launches. What is
said of it, and of the rest of a machine, stands in `doctor.j2`.
"""

import importlib
import time
from typing import Any

from jinja2 import Environment, PackageLoader

TEMPLATE = Environment(
    loader=PackageLoader("multigpu.cli", "."), trim_blocks=True, lstrip_blocks=True
).get_template("doctor.j2")
SLOW_LAUNCH_US = 12
"""Hosts of the study's H200s took 7 to 11 us (data/benchmarks/wrapped_gpt.csv)."""


def said(part: str, **facts: Any) -> list[str]:
    """Return the lines that `doctor.j2` makes of the facts about one part of a machine."""
    lines: str = getattr(TEMPLATE.module, part)(**facts)
    return [line for line in lines.splitlines() if line]


def thread_lines(cores: int, processes: int, told: str | None) -> list[str]:
    """Return how many threads each process of a launch computes with, and whether what the
    environment asks for exceeds the cores. told: its OMP_NUM_THREADS.
    """
    number = None if not told else int(told) if told.isdecimal() else 0
    each = max(1, cores // processes)
    return said("threads", cores=cores, processes=processes, each=each, told=number)


def launch_us(launches: int = 2000) -> float:
    """Return what one launch of a small kernel costs the host, in us; on a CPU, one operation."""
    torch = importlib.import_module("torch")  # seconds
    place = torch.zeros(1, device="cuda" if torch.cuda.is_available() else "cpu")
    for _ in range(100):
        place.add_(1)
    begun = time.perf_counter()
    for _ in range(launches):
        place.add_(1)
    return 1e6 * (time.perf_counter() - begun) / launches


def launch_lines(each_us: float, on_gpus: bool) -> list[str]:
    """Return what launches cost this host, and what that means for a step of many kernels."""
    return said("launches", each_us=each_us, on_gpus=on_gpus, slow_us=SLOW_LAUNCH_US)


def worker_lines(cores: int, processes: int) -> list[str]:
    """Return how many input workers the cores have room for."""
    return said("workers", cores=cores, processes=processes, room=cores // processes - 1)
