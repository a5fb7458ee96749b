"""Members of a TensorFlow Run over several processes: starting and ending them here, and on other
hosts. No TensorFlow here. Each host runs one program (`runner.solo`): host 0's decides, writes
Records and holds all sessions; others do what it asks. Members come to host 0 by themselves, so
that a session hears all alike, and notices alike that one has gone.
"""

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from multiprocessing import AuthenticationError
from multiprocessing.connection import answer_challenge, deliver_challenge
from typing import Any, Protocol, Self

from multigpu.machine.lane import visible_gpus
from multigpu.machine.line import Line, connect, limit, line_of
from multigpu.spec.errors import Unsupported

Processes = Sequence["subprocess.Popen[bytes]"]


class Launch(Protocol):
    """The parts of a launch that members need (`runner.plan.Plan`): its name, its hosts, the number
    and the address of this one, and where host 0's program hears the others, "address:port".
    """

    launch_id: str
    hosts: int
    host: int
    address: str
    gathering: str


def free_ports(count: int) -> list[int]:
    """Ports of this host that nobody listens to now."""
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("", 0))
        return [one.getsockname()[1] for one in sockets]


def device_environment(device_type: str, place: int) -> dict[str, str]:
    """Return the environment in which a process sees one GPU of its host, or none (-1)."""
    if device_type == "cpu" or place < 0:
        return {"CUDA_VISIBLE_DEVICES": "-1"}
    visible = visible_gpus(os.environ.get("CUDA_VISIBLE_DEVICES"), place + 1)
    if place >= len(visible):
        raise Unsupported(
            f"CUDA_VISIBLE_DEVICES shows {len(visible)} GPUs and replica {place} needs one of"
            " its own"
        )
    return {"CUDA_VISIBLE_DEVICES": visible[place]}


STARTED_BY = "MULTIGPU_MEMBER_OF"
"""The process that started a member, in the member's environment."""


def start_member(
    task: dict[str, Any],
    device_type: str,
    place: int,
    words: Sequence[str],
    files: Sequence[int] = (),
) -> Any:
    """Start a process of the cluster on this host. task: what TF_CONFIG says. place: of its GPU,
    -1: none. files: it inherits these.
    """
    environment = os.environ | device_environment(device_type, place)
    environment |= {"TF_CONFIG": json.dumps(task), "TF_FORCE_GPU_ALLOW_GROWTH": "true"}
    environment[STARTED_BY] = str(os.getpid())
    command = [sys.executable, "-m", "multigpu.engines.tensorflow.member", *words]
    return subprocess.Popen(
        command, env=environment, pass_fds=tuple(files), stdin=subprocess.DEVNULL
    )


def end_members(processes: Processes) -> None:
    """End them by process id: first let them end, then terminate (with stacks), then kill."""
    until = time.monotonic() + 3.0
    for kind in ("wait", "terminate", "kill"):
        for process in processes:
            if kind != "wait" and process.poll() is None:
                getattr(process, kind)()
        for process in processes:
            with suppress(subprocess.TimeoutExpired):
                process.wait(max(0.1, until - time.monotonic()))
        until = time.monotonic() + 5.0


ENTRY_S = 120.0  # how long programs and members may take to come
# who has connected may take so long for each word of its greeting; then the next is heard
GREETING_S = 5.0

KEY_VARIABLE = "MULTIGPU_LAUNCH"
"""The launch's name in a program's and its members' environment lets them in to host 0."""


def join(meeting_place: str, *greeting: Any) -> Line:
    """Connect to host 0's program and greet it; TimeoutError where nobody answers."""
    address, _, port = meeting_place.rpartition(":")
    try:
        connection = line_of(connect(address, int(port), ENTRY_S))
    except OSError as error:
        raise TimeoutError(
            f"host 0's program did not answer at {meeting_place} within {ENTRY_S:.0f} s: {error}"
        ) from None
    key = os.environ[KEY_VARIABLE].encode()
    answer_challenge(connection, key)
    deliver_challenge(connection, key)
    connection.send(greeting)
    return connection


@dataclass
class Outpost:
    """The program of another host, as host 0's sees it."""

    address: str
    connection: Line

    def ask(self, word: str, content: Any = None) -> Any:
        """Ask a member and return its answer; EOFError: it has gone."""
        self.connection.send((word, content))
        return self.connection.recv()


class Gathering:
    """Host 0's program and all others of one launch, which end with this context."""

    def __init__(self, plan: Launch) -> None:
        self.address, self.place, self.key = plan.address, plan.gathering, plan.launch_id
        address, _, port = self.place.rpartition(":")
        self.server = socket.create_server((address, int(port)), backlog=64)
        self.outposts: dict[int, Outpost] = {}
        until = time.monotonic() + ENTRY_S
        while len(self.outposts) < plan.hosts - 1:
            connection, (host, where) = self.accept(until)
            self.outposts[host] = Outpost(where, connection)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *rest: object) -> None:
        for outpost in self.outposts.values():
            with suppress(OSError):
                if kind is None:
                    outpost.connection.send(("over", None))
                outpost.connection.close()
        self.server.close()

    def accept(self, until: float) -> tuple[Line, list[Any]]:
        """The next connection of this launch, and its greeting; TimeoutError: none came in time."""
        while True:
            self.server.settimeout(max(0.1, until - time.monotonic()))
            connection = line_of(self.server.accept()[0])
            try:
                # who comes after one that said nothing is heard too
                limit(connection, min(GREETING_S, max(1.0, until - time.monotonic())))
                deliver_challenge(connection, self.key.encode())
                answer_challenge(connection, self.key.encode())
                greeting = connection.recv()
                limit(connection, 0)
                return connection, greeting
            # a stranger, or a member that ended at once
            except (AuthenticationError, EOFError, OSError, ValueError):
                connection.close()

    def address_of(self, host: int) -> str:
        """The address by which the other hosts reach this one."""
        return self.outposts[host].address if host else self.address

    def ports(self, host: int, count: int) -> list[int]:
        return self.outposts[host].ask("ports", count) if host else free_ports(count)


def attend(plan: Launch) -> None:
    """Do what host 0's program asks until it is over, or has gone without a word (SystemExit)."""
    os.environ[KEY_VARIABLE] = plan.launch_id
    connection = join(plan.gathering, plan.host, plan.address)
    members: list[Any] = []
    with ExitStack() as ending:
        ending.callback(end_members, members)
        while True:
            try:
                word, content = connection.recv()
            except (EOFError, ConnectionResetError):
                raise SystemExit(
                    "the program of host 0 has ended in the middle of the launch"
                ) from None
            answer = None
            if word == "over":
                return
            if word == "ports":
                answer = free_ports(content)
            elif word == "start":
                members.append(start_member(**content))
            elif word == "ended":
                answer = [code for member in members if (code := member.poll()) is not None]
            elif word == "end":
                end_members(members)
                members.clear()
            connection.send(answer)
