"""Hosts on one machine: network namespaces with their own addresses, joined by a switch over links
of limited bandwidth.

    with Hosts(4, rate_mbit=200) as hosts:
        subprocess.Popen([*hosts.prefix(2), "program"], env=os.environ | hosts.environment)

What a process in a namespace sends to another host really crosses both hosts' links, which the
kernel limits (token bucket, `tc-tbf(8)`) and counts. Memory, disk, processors and clock are the
machine's own and shared. Needs root and iproute2.
"""

import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Self

from multigpu.machine.cluster import CLUSTER_VARIABLE, Cluster, as_machine
from multigpu.machine.machine import Machine, this_host
from multigpu.machine.private_network import OPEN_PORTS
from multigpu.machine.process import start_ticks
from multigpu.runner.hosts.launching import PORT, check_host, spread_out
from multigpu.runner.plan import Journal, Plan

PREFIX = "multigpu"
INTERFACE = "eth0"
MOST_HOSTS = 64
NETWORK = (  # namespaces are apart from each other, so several sets of hosts may use it at once
    "10.77.0"
)
BURST_BYTES = 2**17
# before a link at most: enough that senders slow each other down by waiting and not by lost packets
QUEUE_BYTES = 2**23


@cache
def why_not() -> str | None:
    """Why hosts cannot be made here, or None."""
    if not sys.platform.startswith("linux"):
        return "network namespaces exist on Linux only"
    missing = [tool for tool in ("ip", "tc", "nsenter") if shutil.which(tool) is None]
    if missing:
        return f"no command {' and no '.join(missing)} here: install iproute2 and util-linux"
    if os.geteuid() != 0:
        return "network namespaces need root"
    try:
        with Hosts(2, rate_mbit=100):
            return None
    except OSError as error:
        return f"network namespaces cannot be made here: {error}"


def _alive(name: str) -> bool:
    """Whether the process that made this namespace is still there, and not a later one with its
    number; true of what is not ours.
    """
    found = re.match(rf"{PREFIX}-(\d+)-(\d+)-", name)
    try:
        return found is None or start_ticks(int(found[1])) == int(found[2])
    except OSError:
        return False


def _names() -> list[str]:
    folder = Path("/run/netns")
    return sorted(path.name for path in folder.iterdir()) if folder.is_dir() else []


def _call(*words: str, text: str = "") -> str:
    """Run a tool and return its output; an OSError where it fails."""
    done = subprocess.run(words, input=text, capture_output=True, text=True)
    if done.returncode:
        raise OSError(
            (done.stderr.strip() or f"{words[0]} ended with {done.returncode}").splitlines()[0]
        )
    return done.stdout


def processes_in(name: str) -> list[int]:
    """Processes whose network is this namespace."""
    return [int(pid) for pid in _call("ip", "netns", "pids", name).split()]


def remove(name: str) -> None:
    """End what runs in a namespace and remove it, and with it its end of every link."""
    with contextlib.suppress(OSError):
        for pid in processes_in(name):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
    with contextlib.suppress(OSError):
        _call("ip", "netns", "delete", name)


def remove_left() -> list[str]:
    """Remove the hosts of processes that ended without doing so (kill -9); their names."""
    left = [name for name in _names() if not _alive(name)]
    for name in left:
        remove(name)
    return left


class Hosts(contextlib.ExitStack):
    """A number of hosts, each with one interface on one switch; made on entering (an OSError where
    they cannot: `why_not`) and removed on leaving. What a process that is killed leaves is removed
        when the next one makes hosts.

    rate_mbit: of each host's link, each way, in 10^6 bits/s on the wire, headers included.
    """

    def __init__(self, count: int, rate_mbit: float = 1000.0) -> None:
        if not 1 <= count <= MOST_HOSTS:
            raise ValueError(f"{count} hosts cannot be made: choose 1 to {MOST_HOSTS}")
        if not 0 < rate_mbit < float("inf"):
            raise ValueError(f"a link of {rate_mbit} Mbit/s cannot be made: choose a rate above 0")
        super().__init__()
        self.count, self.rate_mbit = count, rate_mbit

    def __enter__(self) -> Self:
        remove_left()
        base = f"{PREFIX}-{os.getpid()}-{start_ticks()}-{id(self):x}"
        self.names = [f"{base}-host{index}" for index in range(self.count)]
        self.switch = f"{base}-switch"
        try:
            self._make()
        except BaseException:
            self.close()
            raise
        return self

    def _make(self) -> None:
        for name in (self.switch, *self.names):
            self.callback(remove, name)  # and end what still runs there
            _call("ip", "netns", "add", name)
        links = [
            f"link add name port{index} netns {self.switch} type veth peer name {INTERFACE} netns"
            f" {name}"
            for index, name in enumerate(self.names)
        ]
        _call("ip", "-batch", "-", text="\n".join(links))
        ports = "".join(f"link set port{index} master bridge0 up\n" for index in range(self.count))
        _call(
            "ip",
            "-n",
            self.switch,
            "-batch",
            "-",
            text=f"link add bridge0 type bridge\nlink set bridge0 up\n{ports}",
        )
        self._limit(self.switch, [f"port{index}" for index in range(self.count)])
        for index, name in enumerate(self.names):
            up = (
                f"addr add {self.address(index)}/24 dev {INTERFACE}\nlink set lo up\nlink set"
                f" {INTERFACE} up\n"
            )
            _call("ip", "-n", name, "-batch", "-", text=up)
            self._limit(name, [INTERFACE])

    def _limit(self, name: str, interfaces: list[str]) -> None:
        """Limit what leaves these interfaces to the links' rate."""
        rule = (
            f"root tbf rate {round(self.rate_mbit * 1e6)}bit burst {BURST_BYTES} limit"
            f" {QUEUE_BYTES}"
        )
        _call(
            "tc",
            "-n",
            name,
            "-batch",
            "-",
            text="".join(f"qdisc add dev {one} {rule}\n" for one in interfaces),
        )

    @property
    def description(self) -> str:
        return f"{self.rate_mbit:g} Mbit/s each way, network namespaces of one machine"

    @property
    def environment(self) -> dict[str, str]:
        """Of programs on the hosts: the interface that libraries are to use; and they may listen on
        all, which only these hosts reach.
        """
        names = ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME", "TP_SOCKET_IFNAME")
        return dict.fromkeys(names, INTERFACE) | {OPEN_PORTS: "1"}

    def address(self, host: int) -> str:
        return f"{NETWORK}.{host + 1}"

    def prefix(self, host: int) -> list[str]:
        """The words before a command that is to run on this host; the process that they start
        becomes the command.
        """
        return ["nsenter", f"--net=/run/netns/{self.names[host]}", "--"]


@dataclass(frozen=True)
class SimulatedHosts:
    """Ranks in order over `hosts`, `per_host` on each: `LaunchHosts` of which all are on this
    machine. link: as of a `Cluster`.
    """

    hosts: Hosts
    per_host: int = 1
    link: str = ""
    interface: str | None = INTERFACE

    def check(self, run: Any) -> None:
        check_host(run, self.per_host, 0)

    def cluster(self, devices: int) -> Cluster:
        """Describe the cluster of a launch of so many processes."""
        needed = -(-devices // self.per_host)
        if needed > self.hosts.count:
            raise ValueError(
                f"{devices} processes, {self.per_host} a host, need {needed} hosts and there are"
                f" {self.hosts.count}"
            )
        link = self.link or f"{self.hosts.rate_mbit:g} mbit"
        return Cluster(
            hosts=needed, per_host=self.per_host, network=self.hosts.description, link=link
        )

    def machine(self, devices: int) -> Machine:
        return as_machine(this_host(), self.cluster(devices))

    def offer(self, plan: Plan) -> Plan:
        cluster = self.cluster(max(item.run.devices for item in plan.items))
        # the hosts share one machine's processors: a thread that waits by spinning would take the
        # turn of another host's
        environment = self.hosts.environment | {
            CLUSTER_VARIABLE: cluster.model_dump_json(),
            "OMP_WAIT_POLICY": "passive",
        }
        return spread_out(plan, cluster, self.hosts.address(0), (PORT, PORT + 1), environment)

    def agents(self, plan: Plan) -> list[tuple[list[str], Plan]]:
        own = [{"host": host, "address": self.hosts.address(host)} for host in range(plan.hosts)]
        return [
            (self.hosts.prefix(host), plan.model_copy(update=update))
            for host, update in enumerate(own)
        ]

    def in_trouble(self) -> bool:
        """Agents are all this machine's: who starts them sees by itself that one has failed."""
        return False

    def settle(self, journal: Journal) -> None:
        """Do nothing, since what hosts knew of failures is in this journal: they share
        its folder.
        """
