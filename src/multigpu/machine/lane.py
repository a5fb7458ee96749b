"""A lane: the part of one machine that measures Runs while other parts measure others. Imports no
framework.
"""

import json
import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from pydantic import Field

from multigpu.spec.schema import Data

# tells a process that it has a part of a machine: JSON of the whole `machine` and of the `lane`
LANE_VARIABLE = "MULTIGPU_LANE"


class Lane(Data):
    """The part of its machine that a process may use. gpus: their numbers there. neighbours: lanes
    that measure at the same time; 0: alone.
    """

    gpus: list[int]
    cores: int = Field(ge=1)
    neighbours: int = Field(ge=0)


@dataclass(frozen=True)
class Place:
    """Where a lane is. visible: its CUDA_VISIBLE_DEVICES, None on CPUs. cores: their numbers."""

    gpus: tuple[int, ...]
    visible: str | None
    cores: tuple[int, ...]

    def __str__(self) -> str:
        gpus = f"GPU{'s' if len(self.gpus) > 1 else ''} {', '.join(map(str, self.gpus))}"
        return gpus if self.gpus else f"cores {', '.join(map(str, self.cores))}"


def this_lane(environment: Mapping[str, str] = os.environ) -> Lane | None:
    """The lane of this process, or of those with this environment; None: the whole machine is its
    own.
    """
    text = environment.get(LANE_VARIABLE)
    return Lane.model_validate(json.loads(text)["lane"]) if text else None


def visible_gpus(text: str | None, found: int) -> list[str]:
    """The names of the GPUs that a process may use, as CUDA_VISIBLE_DEVICES names them (`text`;
    None: it is not set).
    """
    if text is None:
        return [str(number) for number in range(found)]
    return [name.strip() for name in text.split(",") if name.strip() not in ("", "-1")][:found]


def in_order(cores: Iterable[int], root: Path = Path("/sys/devices/system/cpu")) -> list[int]:
    """The cores so that those of one socket, and within it the hardware threads of one core, are
    neighbours.
    """

    def place(core: int) -> tuple[int, int, int]:
        folder = root / f"cpu{core}" / "topology"
        try:
            socket = int((folder / "physical_package_id").read_text())
            first = int(re.split(r"[,-]", (folder / "thread_siblings_list").read_text())[0])
        except (OSError, ValueError):  # a sandbox may not say
            return 0, core, core
        return socket, first, core

    return sorted(cores, key=place)


def places(count: int, devices: int, gpus: list[str] | None, cores: Iterable[int]) -> list[Place]:
    """So many lanes of `devices` adjacent GPUs (None: on CPUs) and an equal share of the cores
    each; a ValueError: there are too few.
    """
    order = in_order(cores)
    if gpus is not None and count * devices > len(gpus):
        raise ValueError(
            f"{count} lanes of {devices} GPUs need {count * devices} and this machine has"
            f" {len(gpus)}: choose fewer lanes"
        )
    if not 1 <= count <= len(order):
        raise ValueError(
            f"{count} lanes cannot share {len(order)} cores: choose 1 to {len(order)} lanes"
        )
    share, found = len(order) // count, []
    for number in range(count):
        names = list(enumerate(gpus or ()))[number * devices : (number + 1) * devices]
        # a GPU that is named by its UUID gets the number of its place in the list
        numbers = tuple(int(name) if name.isdecimal() else index for index, name in names)
        visible = None if gpus is None else ",".join(name for _, name in names)
        found.append(Place(numbers, visible, tuple(order[number * share : (number + 1) * share])))
    return found
