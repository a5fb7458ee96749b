"""List the Runs of all-reduces that are worth measuring, the most informative first."""

import math
import re
from collections.abc import Sequence

from multigpu.spec.collective import CollectiveRun, DeviceType, methods_for, repetition


def parse_size(text: str) -> int:
    """Bytes from "4", "64K", "64KiB", "1G" (binary units), or a ValueError."""
    if not (found := re.fullmatch(r"\s*(0*[1-9][0-9]*)\s*([KMG]?)I?B?\s*", text.upper())):
        raise ValueError(f"{text!r} is no size: use bytes with K, M or G, such as 4,64K,1M,1G")
    return int(found[1]) << {"": 0, "K": 10, "M": 20, "G": 30}[found[2]]


def sizes_in_order(sizes: Sequence[int]) -> list[int]:
    """The most informative first: those that the study quotes, the ends, then always the middle of
    the widest gap (in powers).
    """
    left = sorted(set(sizes))
    chosen = list(
        dict.fromkeys(
            [*(size for size in (2**30, 2**20, 2**16, 2**22) if size in left), left[0], left[-1]]
        )
    )
    while rest := [size for size in left if size not in chosen]:
        chosen.append(
            max(rest, key=lambda size: min(abs(math.log2(size / known)) for known in chosen))
        )
    return chosen


def runs_in_order(
    devices: int,
    device_type: DeviceType,
    sizes: Sequence[int] = (),
    methods: Sequence[str] = (),
    executions: Sequence[str] = (),
) -> list[CollectiveRun]:
    """The Runs of one number of devices, the most informative first: by size (4 B to 1 GiB, on CPUs
    to 16 MiB, where none are given), then form of execution, then method. ValueError: one that
    cannot work was asked for.
    """
    on_gpus = device_type == "cuda"
    forms = executions or (("captured", "eager") if on_gpus else ("eager",))
    return [
        CollectiveRun.built(
            method=method,
            bytes=size,
            execution=execution,
            devices=devices,
            device_type=device_type,
            **repetition(size, device_type),
        )
        for size in sizes_in_order(sizes or [4**k for k in range(1, 16 if on_gpus else 13)])
        for execution in forms
        for method in methods or methods_for(device_type)
    ]
