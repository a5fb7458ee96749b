"""Processes dealt out to the hosts of one machine."""

from __future__ import annotations

from dataclasses import dataclass

from multigpu.hosts.cluster import Cluster, as_machine
from multigpu.hosts.namespaces import INTERFACE, Hosts
from multigpu.measure.machine import Machine, this_machine


@dataclass(frozen=True)
class Spread:
    """Ranks in order over `hosts`, `per_host` on each."""

    hosts: Hosts
    per_host: int = 1

    def hosts_for(self, devices: int) -> int:
        """How many hosts so many processes take."""
        return -(-devices // self.per_host)

    def cluster(self, devices: int) -> Cluster:
        """What a launch of so many processes runs on.

        Raises:
            ValueError: there are too few hosts.
        """
        needed = self.hosts_for(devices)
        if needed > self.hosts.count:
            raise ValueError(f"{devices} processes, {self.per_host} a host, need {needed} hosts and there are {self.hosts.count}")
        rate = self.hosts.rate_mbit
        link = "unlimited" if rate is None else f"{rate:g} mbit"
        return Cluster(hosts=needed, per_host=self.per_host, network=self.hosts.description, link=link)

    def machine(self, devices: int) -> Machine:
        """The same as a Record's machine."""
        return as_machine(this_machine(), self.cluster(devices))

    def prefix(self, rank: int) -> list[str]:
        """The words before a command that put it on its rank's host."""
        return self.hosts.prefix(rank // self.per_host)

    @property
    def address(self) -> str:
        """Of the host of rank 0."""
        return self.hosts.address(0)

    @property
    def interface(self) -> str:
        """Of every host."""
        return INTERFACE
