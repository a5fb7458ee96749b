"""Processes dealt out to hosts that are made on this machine: one launcher starts an agent on each of them."""

from __future__ import annotations

from dataclasses import dataclass

from multigpu.hosts.cluster import CLUSTER_VARIABLE, Cluster, as_machine
from multigpu.hosts.launching import PORT, spread_out
from multigpu.hosts.namespaces import Hosts
from multigpu.measure.machine import Machine, this_host
from multigpu.measure.plan import Journal, Plan


@dataclass(frozen=True)
class Spread:
    """Ranks in order over `hosts`, `per_host` on each. link: of these hosts as a short word, which names folders of Records."""

    hosts: Hosts
    per_host: int = 1
    link: str = ""

    def cluster(self, devices: int) -> Cluster:
        """What a launch of so many processes runs on.

        Raises:
            ValueError: there are too few hosts.
        """
        needed = -(-devices // self.per_host)
        if needed > self.hosts.count:
            raise ValueError(f"{devices} processes, {self.per_host} a host, need {needed} hosts and there are {self.hosts.count}")
        rate = self.hosts.rate_mbit
        link = self.link or ("unlimited" if rate is None else f"{rate:g} mbit")
        return Cluster(hosts=needed, per_host=self.per_host, network=self.hosts.description, link=link)

    def machine(self, devices: int) -> Machine:
        """The same as a Record's machine."""
        return as_machine(this_host(), self.cluster(devices))

    def offer(self, plan: Plan) -> Plan:
        """The plan for as many hosts as its processes take."""
        cluster = self.cluster(max(item.run.devices for item in plan.items))
        # the hosts share one machine's processors: a thread that waits by spinning would take the turn of another host's
        environment = self.hosts.environment | {CLUSTER_VARIABLE: cluster.model_dump_json(), "OMP_WAIT_POLICY": "passive"}
        return spread_out(plan, cluster, self.hosts.address(0), (PORT, PORT + 1), environment)

    def agents(self, plan: Plan) -> list[tuple[list[str], Plan]]:
        """Every host's agent, by the words that put its command there, and its plan."""
        hosts = range(plan.hosts)
        return [(self.hosts.prefix(host), plan.model_copy(update={"host": host, "address": self.hosts.address(host)})) for host in hosts]

    def in_trouble(self) -> bool:
        """Agents are all this machine's: who starts them sees by itself that one has failed."""
        return False

    def settle(self, journal: Journal) -> None:
        """What they knew of failures is in this journal: they share its folder."""
