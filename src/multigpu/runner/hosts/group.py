"""Define what a sweep asks of the hosts that carry out its launches together."""

from typing import Any, Protocol

from multigpu.machine.machine import Machine
from multigpu.runner.plan import Journal, Plan


class LaunchHosts(Protocol):
    """Several hosts: those that run one command each (`launching.HostGroup`), or some that are made
    on this machine (`benchmarks/namespaces.py`).
    """

    interface: str | None
    """Of each host, whose bytes can be read; None where others use it too."""

    def check(self, run: Any) -> None:
        """Refuse (ValueError) what these hosts cannot run."""

    def machine(self, devices: int) -> Machine:
        """The machine that Records of a launch with so many processes name."""

    def offer(self, plan: Plan) -> Plan:
        """The plan for all hosts, of which others learn where they are no part of this machine."""

    def agents(self, plan: Plan) -> list[tuple[list[str], Plan]]:
        """Those that this machine starts, each by the words before its command and its plan."""

    def in_trouble(self) -> bool:
        """Whether another host's agent failed; called often."""

    def settle(self, journal: Journal) -> None:
        """End the launch on all hosts, and keep what theirs knew of failures."""
