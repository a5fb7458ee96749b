"""One launch on several hosts: one command on each, host 0 decides and writes, the others
(`follow`) start workers and watch them.

Host 0 sends each plan over the meeting; every host starts its agent on it; ranks are dealt out host
after host. A worker that fails ends the agents of all hosts, and host 0 starts the plan again
without what failed; a host that is lost ends the run on all others.
"""

import argparse
import contextlib
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import IO, Any

import psutil

from multigpu.engines.common.failures import Fault
from multigpu.machine.cluster import CLUSTER_VARIABLE, Cluster, slug
from multigpu.machine.lock import scratch_folder
from multigpu.machine.machine import (
    Machine,
    framework_version,
    gpu_count,
    source_state,
    this_host,
    this_machine,
)
from multigpu.machine.private_network import check_allowed
from multigpu.machine.process import end_in_order
from multigpu.placements import find_placement
from multigpu.runner.hosts.meeting import HostLost, Meeting
from multigpu.runner.launch_environment import launch_environment
from multigpu.runner.plan import Journal, Plan
from multigpu.runner.summary import Summary
from multigpu.spec.run import Run

LOOPBACK = "127.0.0.1"
PORT = 29400  # where host 0 listens unless a command says otherwise
MOST_CPU_PROCESSES = 16  # of one host


def check_host(run: Any, devices: int, gpus: int) -> None:
    """Refuse what a Run asks of a host with `devices` of its own and the host has not. gpus: that
    it has, enough for them.
    """
    if run.device_type == "cuda" and run.device_ids is not None and max(run.chosen_devices) >= gpus:
        raise ValueError(
            f"device_ids {run.device_ids!r} names GPUs that are not here: this machine has 0 to"
            f" {gpus - 1}"
        )
    if run.device_type == "cpu" and devices > MOST_CPU_PROCESSES:
        raise ValueError(
            f"{devices} CPU processes were asked for and at most {MOST_CPU_PROCESSES} are allowed"
        )
    if run.host_cores and run.host_cores > (cores := this_machine().cores):
        raise ValueError(
            f"host_cores {run.host_cores} were asked for and this machine has {cores}: choose at"
            f" most {cores}"
        )
    if framework_version(run.framework) == "none":
        raise ValueError(
            f"framework {run.framework!r} is not installed here: see `python -m multigpu doctor`"
        )


def check_run(run: Run, cluster: Cluster) -> None:
    """Refuse (ValueError) what several hosts cannot run."""
    there = cluster.hosts * cluster.per_host
    if run.devices > there:
        raise ValueError(
            f"{run.devices} devices were asked for and {cluster.hosts} hosts of {cluster.per_host}"
            f" have {there}: choose fewer"
        )
    if run.device_type == "cuda" and cluster.per_host > gpu_count():
        raise ValueError(
            f"{cluster.per_host} processes a host were asked for and this one has {gpu_count()}"
            " GPUs"
        )
    row = find_placement(run.placement)
    joined = any(
        engine.framework == "tensorflow" and engine.strategy == "multi_worker"
        for engine in row.engines
    )
    if run.processes != "per_device" or (run.framework == "tensorflow" and not joined):
        raise ValueError(
            "several hosts run PyTorch with a process a device, or TensorFlow's placement"
            f" 'multi_worker', not {run.label()}"
        )
    check_host(run, min(run.devices, cluster.per_host), gpu_count())
    if row.uses_host:
        raise ValueError(
            f"placement {run.placement!r} uses memory that one host's processes share: choose"
            " another on several hosts"
        )
    opened = f"TensorFlow on several hosts ({run.label()})"
    if run.framework == "tensorflow":
        check_allowed(opened, "which must reach each other")


def _interface_of(address: str) -> str | None:
    every = psutil.net_if_addrs().items()
    named = (name for name, own in every if any(one.address == address for one in own))
    return next(named, None)


def link_speed(address: str) -> str:
    """Of the link behind an address, as the kernel knows it."""
    stats = psutil.net_if_stats().get(_interface_of(address) or "")
    speed = stats.speed if stats else 0
    if not 0 < speed < 2**16 * 16:
        return "link of unknown speed"
    if speed >= 1000:
        return f"{speed / 1000:g} Gbit/s"
    return f"{speed} Mbit/s"


def libraries_environment(address: str) -> dict[str, str]:
    """The interface that libraries are to use, where the user has not said it: the one over which
    host 0 is reached.
    """
    if not (interface := _interface_of(address)):
        return {}
    return {
        name: interface
        for name in ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME")
        if name not in os.environ
    }


def spread_out(
    plan: Plan, cluster: Cluster, address: str, ports: Sequence[int], environment: Mapping[str, str]
) -> Plan:
    """The plan for all hosts: with as many workers on each, and where agents and programs meet on
    host 0.
    """
    alone = plan.program == "solo"  # one program a host, which starts what it needs itself
    meets = {
        "address": address,
        "rendezvous": f"{address}:{ports[0]}",
        "gathering": f"{address}:{ports[1]}" if alone else "",
    }
    there = {"hosts": cluster.hosts, "workers": 1 if alone else cluster.per_host}
    return plan.model_copy(
        update=meets | there | {"environment": plan.environment | dict(environment)}
    )


class HostGroup:
    """The hosts of a launch, as one of them sees it."""

    interface: str | None = None

    def __init__(self, meeting: Meeting, cluster: Cluster) -> None:
        self.meeting, self.cluster = meeting, cluster
        # what other hosts said when their part of a launch was over
        self.ended: list[dict[str, Any]] = []
        # from now on this process and those it starts are one of several hosts: `this_machine` says
        # so, and so do Records
        os.environ[CLUSTER_VARIABLE] = cluster.model_dump_json()
        this_machine.cache_clear()

    def offer(self, plan: Plan) -> Plan:
        """The plan for all hosts, sent to the others."""
        address = socket.gethostbyname(self.meeting.address)
        with socket.create_server((address, 0)) as one, socket.create_server((address, 0)) as other:
            ports = [free.getsockname()[1] for free in (one, other)]
        plan = spread_out(plan, self.cluster, address, ports, libraries_environment(address))
        self.meeting.tell("plan", plan=plan.model_dump(mode="json"))
        self.ended = []
        return plan

    def in_trouble(self) -> bool:
        """Whether another host's agent failed; a HostLost if a host is gone. Called often."""
        self.meeting.check()
        while (message := self.meeting.take("ended")) is not None:
            self.ended.append(message)
        return any(message["code"] for message in self.ended)

    def settle(self, journal: Journal) -> None:
        """End the launch on all hosts, and keep what theirs knew of failures."""
        self.meeting.tell("stop")
        while len(self.ended) < self.cluster.hosts - 1:
            self.ended.append(self.meeting.hear("ended"))
        for message in self.ended:
            for kind, noted_there in message["noted"].items():
                for key, fault in noted_there.items():
                    journal.note(key, fault, kind)

    def check(self, run: Any) -> None:
        check_run(run, self.cluster)

    def agents(self, plan: Plan) -> list[tuple[list[str], Plan]]:
        """Those that host 0 starts, each by the words before its command and its plan."""
        return [([], plan)]

    def machine(self, devices: int) -> Machine:
        return this_machine()


def start_agent(
    plan: Plan, environment: Mapping[str, str], log: IO[str] | int, prefix: Sequence[str] = ()
) -> subprocess.Popen[Any]:
    """This host's agent, or that of the host which `prefix` puts a command on."""
    path = plan.scratch / f"plan{plan.host}.json"
    path.write_text(plan.model_dump_json())
    return subprocess.Popen(
        [*prefix, sys.executable, "-m", "multigpu.runner.agent", str(path)],
        env=environment,
        stdout=log,
        stderr=log,
    )


def on_hosts(
    arguments: argparse.Namespace, sweep: Callable[[HostGroup | None], Summary]
) -> Summary | None:
    """Sweep over the hosts that the arguments speak of (`company`), and print what became of it.
    None on all hosts but the first, which start workers for it.
    """
    with company(arguments) as hosts:
        if hosts and arguments.node_rank:
            print(f"{follow(hosts)} launches on host {arguments.node_rank}; Records are on host 0")
            return None
        summary = sweep(hosts)
    print(summary)
    return summary


def follow(company: HostGroup) -> int:
    """Start workers for each plan until host 0 says that it was the last: how many. HostLost:
    another host is gone.
    """
    done = 0
    while (message := company.meeting.hear("plan", "end", "stop"))["word"] != "end":
        if message["word"] == "plan":
            _carry_out(company, Plan.model_validate(message["plan"]))
            done += 1
    return done


def _carry_out(company: HostGroup, plan: Plan) -> None:
    address = socket.gethostbyname(company.meeting.address)
    with scratch_folder("multigpu-host-") as scratch:
        own = {
            name: value
            for name, value in plan.environment.items()
            if not name.endswith("_SOCKET_IFNAME")
        }
        place = {
            "host": company.meeting.host,
            "scratch": scratch,
            "memory": scratch,
            "address": address,
            "environment": own,
        }
        agent = start_agent(
            plan.model_copy(update=place),
            launch_environment() | own | libraries_environment(address),
            subprocess.DEVNULL,
        )
        try:
            while agent.poll() is None:
                company.meeting.check()
                if company.meeting.take("stop"):
                    end_in_order([agent])
                time.sleep(0.1)
            # of host 0 again: it may hear this only after it said "stop", whose answer this is
            journal = Journal(scratch)
            company.meeting.tell(
                "ended",
                code=agent.returncode,
                noted={"fault": _faults(journal), "echo": journal.noted("echo")},
            )
        finally:
            end_in_order([agent])


def _faults(journal: Journal) -> dict[str, Fault]:
    """Why Runs cannot be measured, as far as this host's workers know, by key."""
    found: dict[str, Fault] = {}
    for key, stood in journal.hung().items():
        rank, place = next(iter(stood.items()))
        found[key] = (
            "timeout",
            f"replica {rank} did not finish in time on its host"
            + (f": in {place}" if place else ""),
        )
    return found | journal.noted("fault")


@contextlib.contextmanager
def company(arguments: argparse.Namespace) -> Iterator[HostGroup | None]:
    """The hosts that the arguments speak of, all met; None for one alone. Raises as `Meeting`, or
    where an argument is wrong.
    """
    # with one, it is a point of the same machine as more of its kind
    if arguments.nnodes == 1 and not arguments.rendezvous:
        yield None
        return
    if not arguments.rendezvous:
        raise ValueError(
            f"--nnodes {arguments.nnodes} needs --rendezvous: the address of host 0, as the other"
            " hosts reach it"
        )
    address, colon, port = arguments.rendezvous.partition(":")
    port = port if colon else str(PORT)
    if not port.isdecimal() or not 0 < int(port) < 2**16 or not address:
        told = f"give host 0's name or address, with a port if not {PORT}: node0:29500"
        raise ValueError(f"rendezvous {arguments.rendezvous!r} is no address: {told}")
    network = arguments.network or link_speed(socket.gethostbyname(address))
    per_host = arguments.per_host or gpu_count() or 1
    cluster = Cluster(
        hosts=arguments.nnodes,
        per_host=per_host,
        network=network,
        link=slug(network.partition(",")[0]),
    )
    frameworks = {
        "PyTorch": framework_version("torch"),
        "TensorFlow": framework_version("tensorflow"),
    }
    alike = {
        "machine": this_host().name,
        **frameworks,
        "commit": source_state()[0],
        "processes a host": str(per_host),
    }
    try:
        with Meeting(arguments.nnodes, arguments.node_rank, address, int(port), alike) as meeting:
            yield HostGroup(meeting, cluster)
            if meeting.host == 0:
                meeting.tell("end")
    except HostLost as error:
        raise HostLost(
            f"{error}; what was measured is kept on host 0, and the same commands go on from there"
        ) from None
