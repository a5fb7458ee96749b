"""Measured costs of a model's stages and of copies between devices."""

from typing import Literal

from multigpu.spec.schema import Data

HostModel = Literal["one", "forward", "per_device"]
"""Whose threads start work: one for all; one, with each device's for backward; one each."""


class StagePass(Data):
    """Cost of a stage's pass: seconds that the device works, and that the host starts it."""

    device_s: float
    host_s: float


class StageCost(Data):
    """Measured costs of one stage. update: of all variables that live with it."""

    name: str
    forward: StagePass
    backward: StagePass
    update: StagePass


class CopyCost(Data):
    """Cost of copying `bytes` between devices: seconds on the link, and of the host to start it."""

    bytes: int
    device_s: float
    host_s: float


class Costs(Data):
    """Costs of every stage, and of copies at several sizes.

    hand_over_s: of the host where a gradient crosses, beyond starting its copy. call_s: of calling
        a graph, before anything is started.
    """

    stages: tuple[StageCost, ...]
    copies: tuple[CopyCost, ...]
    threads: HostModel = "one"
    hand_over_s: float = 0.0
    call_s: float = 0.0
