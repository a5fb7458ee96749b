"""Several hosts as one machine: what a Record says of where it was measured."""

import re
from typing import TYPE_CHECKING

from pydantic import Field

from multigpu.spec.schema import Data

if TYPE_CHECKING:
    from multigpu.machine.machine import Machine

# tells a process that it runs on one of several hosts that are one machine, and which
CLUSTER_VARIABLE = "MULTIGPU_CLUSTER"


class Cluster(Data):
    """The hosts of a launch, `per_host` processes on each. network: the links in words. link: the
    same as a short word for folders.
    """

    hosts: int = Field(ge=1)
    per_host: int = Field(ge=1)
    network: str = Field(min_length=1)
    link: str = Field(min_length=1)


def slug(text: str) -> str:
    """Lower-case letters, digits and hyphens only."""
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")


def as_machine(host: "Machine", cluster: Cluster) -> "Machine":
    """The hosts as one machine, each like `host`. Its name does not say how many there are (a Run's
    devices do), so that 1 to 16 devices of a cluster are points of one machine.
    """
    hosts = {
        "hosts": cluster.hosts,
        "processes_per_host": cluster.per_host,
        "network": cluster.network,
    }
    return host.model_copy(
        update={"name": f"{cluster.per_host}-a-host-{slug(cluster.link)}-{host.name}", **hosts}
    )
