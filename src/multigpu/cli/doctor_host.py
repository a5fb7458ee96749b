"""Report what this host means for training: its threads, its input workers, its launches."""

import importlib
import time
from collections.abc import Iterator


def thread_lines(cores: int, processes: int, told: str | None) -> Iterator[str]:
    """How many threads each process of a launch computes with, and whether what the environment
    asks for exceeds the cores.
    """
    each, own = (
        max(1, cores // processes),
        f"{processes} processes that a script of your own starts",
    )
    yield (
        f"threads     {each} in each of {processes} processes of a launch, which share {cores}"
        " cores, whatever OMP_NUM_THREADS says"
    )
    if told and told.isdecimal() and int(told) * processes > cores:
        yield (
            f"threads     OMP_NUM_THREADS={told} would be {int(told) * processes} threads in {own}:"
            f" set {each}"
        )
    elif not told and processes > 1:
        yield (
            f"threads     {own} want OMP_NUM_THREADS={each}: without it PyTorch takes all cores in"
            " each"
        )
    if processes > cores:
        yield (
            f"threads     {processes} processes wait for each other on {cores} cores: steps that"
            " the host launches are slowed"
        )


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


SLOW_LAUNCH_US = 12
"""Hosts of the study's H200s took 7 to 11 us (data/benchmarks/wrapped_gpt.csv)."""


def launch_lines(each_us: float, on_gpus: bool) -> Iterator[str]:
    """Yield what launches cost this host, and what that means for a step of many kernels."""
    if not on_gpus:
        yield f"host        {each_us:.1f} us for each operation of PyTorch, however small"
        return
    yield (
        f"host        {each_us:.1f} us to launch a kernel: a step of 1,000 launches takes"
        f" {each_us:.0f} ms or more, however fast the GPU; execution=captured or compiled launches"
        " less"
    )
    if each_us > SLOW_LAUNCH_US:
        yield (
            f"host        that is slow (the study's hosts take 7 to {SLOW_LAUNCH_US - 1} us): eager"
            " FSDP2, small batches and small models will wait for it"
        )


def worker_lines(cores: int, processes: int) -> Iterator[str]:
    """Yield how many input workers the cores have room for."""
    room = cores // processes - 1
    if room > 0:
        yield (
            f"input       {room} input workers for each of {processes} processes have a core each;"
            " more share cores with what trains"
        )
    else:
        yield (
            f"input       {cores} cores have no room for input workers beside {processes}"
            " processes: each worker takes time from what trains, so keep data on the device"
        )
