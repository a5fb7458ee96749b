"""Start a TensorFlow Run's several processes, keep them in step and gather. No TensorFlow."""

import socket
import subprocess
import time
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import wait
from typing import Any

from multigpu.engines.common.session import Opening
from multigpu.engines.tensorflow.members import Gathering, end_members, free_ports, start_member
from multigpu.machine.line import Line
from multigpu.machine.machine import this_machine
from multigpu.placements import find_placement
from multigpu.spec.errors import EndsProcess, Unsupported

# of a Run's time-out: after this the members are ended and the Run is a `timeout`, before the
# program's own watch ends it all
SHARE = 0.9
# after the first failure, members have so long to say theirs: a death is often told by its echoes
# first
ECHO_S = 2.0
# while workers on other hosts are awaited, their hosts are asked so often whether one has ended
LOOK_S = 5.0

ECHOES = (
    "UnavailableError",
    "AbortedError",
    "CancelledError",
    "ClosureInputError",
    "WorkerPreemptionError",
    "PSUnavailableError",
)
"""Names of TensorFlow's errors that say that another process has gone."""

RAISED = {"out_of_memory": MemoryError, "unsupported": Unsupported, "timeout": TimeoutError}
"""What a member's failure becomes here, by its status."""


class Lost(EndsProcess):
    """A member died without a word: the launcher starts this program and the Run again."""


@dataclass
class Member:
    """A process of the group. rank: of its replica, or -1. process: None on another host."""

    name: str
    rank: int
    process: subprocess.Popen[bytes] | None
    pipe: Line


class Session:
    """A Run with a process a device. TimeoutError: members took too long; Lost: one was killed."""

    def __init__(self, opening: Opening, gathering: Gathering | None = None) -> None:
        run = opening.run
        if run.traced_steps:
            raise Unsupported(
                f"traced_steps {run.traced_steps}: a Run over several TensorFlow processes is not"
                " traced; leave it out"
            )
        self.timeout_s = opening.timeout_s
        self.deadline = time.monotonic() + SHARE * self.timeout_s
        self.run, self.gathering = run, gathering
        self.members: list[Member] = []
        self.far: set[int] = set()
        strategy = next(
            engine.strategy
            for engine in find_placement(run.placement).engines
            if engine.framework == "tensorflow"
        )
        replicas = [("worker", rank) for rank in range(run.devices)]
        roles = replicas if strategy == "multi_worker" else [("ps", -1), *replicas, ("chief", -1)]
        # replicas are dealt out host after host; who computes none is on the first
        per_host = (this_machine().processes_per_host if gathering else None) or run.devices
        threads = max(1, opening.threads // min(run.devices, per_host))
        order = {"strategy": strategy, "threads": threads}
        hosts = [max(rank, 0) // per_host for _, rank in roles]
        cluster: dict[str, list[str]] = {}
        for (role, _), address in zip(roles, self._addresses(hosts), strict=True):
            cluster.setdefault(role, []).append(address)
        try:
            for (role, at), host in zip(roles, hosts, strict=True):
                self._start(role, at, host, at - host * per_host, cluster)
            self._receive_far([at for (_, at), host in zip(roles, hosts, strict=True) if host])
            for member in self.members:
                role = member.name.split()[0]
                member.pipe.send(
                    order
                    | {
                        "role": role,
                        "rank": member.rank,
                        "run": run.model_dump_json(exclude_defaults=True),
                    }
                )
            self._all("built", self.members)
        except BaseException:
            self.close()
            raise

    def _addresses(self, hosts: list[int]) -> list[str]:
        if self.gathering is None:
            return [f"127.0.0.1:{port}" for port in free_ports(len(hosts))]
        ports = {
            host: iter(self.gathering.ports(host, hosts.count(host))) for host in sorted(set(hosts))
        }
        return [f"{self.gathering.address_of(host)}:{next(ports[host])}" for host in hosts]

    def _start(
        self, role: str, rank: int, host: int, place: int, cluster: dict[str, list[str]]
    ) -> None:
        """Start a process here, or on its host. place: of its GPU on that host."""
        task = {"cluster": cluster, "task": {"type": role, "index": max(rank, 0)}}
        common: dict[str, Any] = {
            "task": task,
            "device_type": self.run.device_type,
            "place": place if rank >= 0 else -1,
        }
        if host:
            assert self.gathering
            self.far.add(host)
            self.gathering.outposts[host].ask(
                "start", common | {"words": [self.gathering.place, str(rank)]}
            )
            return
        ours, theirs = socket.socketpair()
        with theirs:
            process = start_member(**common, words=[str(theirs.fileno())], files=[theirs.fileno()])
        self.members.append(Member(f"{role} {max(rank, 0)}", rank, process, Line(ours.detach())))

    def _receive_far(self, ranks: list[int]) -> None:
        found: dict[int, Line] = {}
        while len(found) < len(ranks):
            assert self.gathering
            try:
                pipe, (rank,) = self.gathering.accept(min(self.deadline, time.monotonic() + LOOK_S))
                found[rank] = pipe
                continue
            except TimeoutError:
                if any(self.gathering.outposts[host].ask("ended") for host in sorted(self.far)):
                    raise Lost(
                        f"a worker of {self.run.label()} ended on its host before it came"
                    ) from None
            if time.monotonic() >= self.deadline:
                missing = sorted(set(ranks) - set(found))
                raise TimeoutError(
                    f"workers {missing} did not come from their hosts within {SHARE:.0%} of"
                    f" {self.timeout_s:g} s"
                )
        self.members += [Member(f"worker {rank}", rank, None, found[rank]) for rank in ranks]

    def warm_up(self) -> None:
        self._all("warm", self.members)

    def time(self) -> list[dict[str, Any]]:
        """The timed steps: each replica's numbers by rank. Servers are asked when they are done."""
        steppers = [member for member in self.members if member.name == "chief 0"] or self.members
        servers = [member for member in self.members if member not in steppers]
        known: dict[int, dict[str, Any]] = {}
        for answer in [*self._all("timed", steppers), *self._all("timed", servers)]:
            for part in answer or ():
                known.setdefault(part["rank"], {}).update(part)
        return [known[rank] for rank in sorted(known)]

    def _all(self, word: str, asked: list[Member]) -> list[Any]:
        """Ask members for `word` and wait for all answers, meeting barriers on the way."""
        with suppress(BrokenPipeError):
            for member in asked:
                member.pipe.send(word)
        answers: dict[str, Any] = {}
        waiting: list[Member] = []
        while len(answers) < len(asked):
            # all are listened to: what those can say that were not asked, or have answered, is that
            # they are gone
            ready = wait(
                [member.pipe for member in self.members], max(0.0, self.deadline - time.monotonic())
            )
            if not ready:
                missing = [member.name for member in asked if member.name not in answers]
                raise TimeoutError(
                    f"{', '.join(missing)} did not answer within {SHARE:.0%} of"
                    f" {self.timeout_s:g} s"
                )
            for member in self.members:
                if member.pipe in ready:
                    said = self._hear(member)
                    if said[0] == "barrier":
                        waiting.append(member)
                    else:
                        answers[member.name] = said[1]
            if waiting and len(waiting) == len(asked):
                for member in waiting:
                    member.pipe.send("go")
                waiting = []
        return [answers[member.name] for member in asked]

    def _hear(self, member: Member) -> tuple[str, Any]:
        """Receive one message of a member; a failure ends the Run by its first cause."""
        said = self._one(member)
        if said is not None and said[0] != "fault":
            return said
        faults = [said[1]] if said else []
        until = time.monotonic() + ECHO_S
        others = [other for other in self.members if other is not member]
        while others and (left := until - time.monotonic()) > 0:
            for pipe in wait([other.pipe for other in others], left):
                other = next(other for other in others if other.pipe is pipe)
                heard = self._one(other)
                if heard is None or heard[0] == "fault":
                    others.remove(other)
                if heard is not None and heard[0] == "fault":
                    faults.append(heard[1])
        for status, reason in faults:
            if not reason.startswith(ECHOES):
                raise RAISED.get(status, RuntimeError)(reason)
        raise Lost(f"{member.name} of {self.run.label()} ended without a cause of its own")

    @staticmethod
    def _one(member: Member) -> tuple[str, Any] | None:
        """The next message, or None from a process that is gone."""
        try:
            word, content = member.pipe.recv()
            return word, content
        except (EOFError, ConnectionResetError):
            return None

    def close(self) -> None:
        """End every member by its process id, those of other hosts by their hosts' programs."""
        for member in self.members:
            with suppress(OSError):
                member.pipe.close()  # who waits for the next word ends by itself
        end_members([member.process for member in self.members if member.process])
        for host in self.far:
            assert self.gathering
            with suppress(OSError, EOFError):  # a host that is gone has no members left
                self.gathering.outposts[host].ask("end")
        self.members = []
