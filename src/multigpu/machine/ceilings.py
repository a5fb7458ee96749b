"""Measure a machine's best rates: matrix products, memory, links. The limits that figures are
compared with. `python -m multigpu ceilings` writes `data/runs/<machine>/ceilings.json`; a few
seconds on eight GPUs. Random data: on zeros matrix products run faster than real ones ever do.
"""

import json
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from multigpu.machine.lock import machine_lock
from multigpu.machine.machine import gpu_count, source_state, this_machine, versions
from multigpu.machine.process import ask
from multigpu.spec.schema import Data

PRODUCT, COPY_BYTES, LINK_BYTES, REPEATS = 8192, 2**32, 2**28, 20


class Ceilings(Data):
    """Medians of `REPEATS` timings on each device. FLOP/s and bytes/s.
    matmul: precision -> one value a device. memory: bytes read plus written by a copy within the
        device.
    host_to_device, device_to_host: pinned memory, one device at a time. links: [from][to], one way,
        one pair at a time.
    """

    machine: str
    gpu: str
    measured_at: str
    commit: str
    versions: dict[str, str]
    matmul: dict[str, list[float]]
    memory: list[float]
    host_to_device: list[float]
    device_to_host: list[float]
    links: list[list[float]]


def ceilings_path(records: Path, machine: str) -> Path:
    """Where a machine's ceilings are kept."""
    return records / machine / "ceilings.json"


def read_ceilings(records: Path) -> list[Ceilings]:
    """The ceilings of every machine that has some."""
    return [
        Ceilings.model_validate_json(path.read_text())
        for path in sorted(records.glob("*/ceilings.json"))
    ]


def measure_ceilings(records: Path) -> Path:
    """Measure this machine's ceilings in a process of their own; a ValueError: there is no GPU, a
    RuntimeError says how it failed.
    """
    if not gpu_count():
        raise ValueError("ceilings are measured on GPUs, and this machine has none")
    with machine_lock():
        found = ask("measuring the ceilings", "multigpu.machine.ceilings")
    path = ceilings_path(records, this_machine().name)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(found)
    return path


def main() -> None:
    """Measure and print as JSON."""
    import torch

    def seconds(device: int, action: Callable[[], object]) -> float:
        with torch.cuda.device(device):
            times = []
            for _ in range(REPEATS + 3):
                first = torch.cuda.Event(enable_timing=True)
                last = torch.cuda.Event(enable_timing=True)
                first.record()
                action()
                last.record()
                torch.cuda.synchronize()
                times.append(first.elapsed_time(last) / 1000)
            return sorted(times[3:])[REPEATS // 2]

    count = torch.cuda.device_count()
    matmul: dict[str, list[float]] = {"bf16": [], "tf32": [], "fp32": []}
    memory, down, up = [], [], []
    for device in range(count):
        on = torch.device("cuda", device)
        for precision, values in matmul.items():
            kind = torch.bfloat16 if precision == "bf16" else torch.float32
            torch.backends.cuda.matmul.allow_tf32 = precision == "tf32"
            a, b = (torch.randn(PRODUCT, PRODUCT, device=on, dtype=kind) for _ in range(2))
            out = torch.empty_like(a)
            product_s = seconds(device, partial(torch.mm, a, b, out=out))
            values.append(2 * PRODUCT**3 / product_s)
        source = torch.randint(255, (COPY_BYTES,), dtype=torch.uint8, device=on)
        target = torch.empty_like(source)
        copy_s = seconds(device, partial(target.copy_, source))
        memory.append(2 * COPY_BYTES / copy_s)
        host = torch.empty(LINK_BYTES, dtype=torch.uint8, pin_memory=True)
        part = target[:LINK_BYTES]
        down.append(LINK_BYTES / seconds(device, partial(part.copy_, host, non_blocking=True)))
        up.append(LINK_BYTES / seconds(device, partial(host.copy_, part, non_blocking=True)))
        del source, target, part
    parts = [
        torch.empty(LINK_BYTES, dtype=torch.uint8, device=f"cuda:{device}")
        for device in range(count)
    ]
    links = [
        [
            0.0 if i == j else LINK_BYTES / seconds(i, partial(parts[j].copy_, parts[i]))
            for j in range(count)
        ]
        for i in range(count)
    ]
    found = Ceilings(
        machine=this_machine().name,
        gpu=this_machine().gpus[0],
        measured_at=datetime.now(UTC).isoformat(timespec="seconds"),
        commit=source_state()[0],
        versions=versions(),
        matmul=matmul,
        memory=memory,
        host_to_device=down,
        device_to_host=up,
        links=links,
    )
    print(json.dumps(found.model_dump(), indent=1))


if __name__ == "__main__":
    main()
