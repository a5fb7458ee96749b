"""Several hosts as one machine: what a Record says of where it was measured."""

from __future__ import annotations

import re
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

CLUSTER_VARIABLE = "MULTIGPU_CLUSTER"
"""Tells a process that it runs on one of several hosts that are one machine, and which."""


def slug(text: str) -> str:
    """Lower-case letters, digits and hyphens only."""
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")


class Cluster(BaseModel):
    """The hosts of a launch.

    hosts: how many. per_host: processes on each; ranks are dealt out host after host.
    network: the links between hosts in words. link: the same as a short word for names of folders.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    hosts: int = Field(ge=1)
    per_host: int = Field(ge=1)
    network: str = Field(min_length=1)
    link: str = Field(min_length=1)

    def of_machine(self, host: str) -> dict[str, Any]:
        """What the machine that these hosts are has otherwise than one of them, called `host`.

        The name holds what determines speed, the processes a host and the links, but not how many hosts there are: that follows from a
        Run's devices, so that 1 to 16 devices of a cluster are points of one machine.
        """
        name = f"{self.per_host}-a-host-{slug(self.link)}-{host}"
        return {"name": name, "hosts": self.hosts, "processes_per_host": self.per_host, "network": self.network}
