"""Members of a TensorFlow Run on other hosts: their hosts' programs start them, and host 0's asks them as if they were its own.

Each host of a launch runs one program (`measure.solo`). Host 0's decides, writes Records and holds the session of every Run; that of any
other host only does what it is asked: name free ports, start members, say which have ended, end them. Members on other hosts connect
to host 0 by themselves, so that a session hears all of its members alike, and notices alike that one has gone. No TensorFlow here.
"""

from __future__ import annotations

import os
import socket
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from multiprocessing import AuthenticationError
from multiprocessing.connection import answer_challenge, deliver_challenge
from typing import Any

from multigpu.engines.tensorflow.members import end_members, free_ports, start_member
from multigpu.hosts.line import Line, connect, limit, line_of
from multigpu.measure.plan import Plan

ENTRY_S = 120.0
"""How long programs and members may take to come."""

GREETING_S = 5.0
"""Who has connected may take so long for each word of its greeting; then the next is heard."""

KEY_VARIABLE = "MULTIGPU_LAUNCH"
"""In the environment of a host's program and of its members: the launch's name, by which connections to host 0 are let in."""


def join(meeting_place: str, *greeting: Any) -> Line:
    """A connection to host 0's program, which has heard this greeting.

    Raises:
        TimeoutError: nobody answers there.
    """
    address, _, port = meeting_place.rpartition(":")
    try:
        connection = line_of(connect(address, int(port), ENTRY_S))
    except OSError as error:
        raise TimeoutError(f"host 0's program did not answer at {meeting_place} within {ENTRY_S:.0f} s: {error}") from None
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
        """What it answers.

        Raises:
            EOFError: it has gone.
        """
        self.connection.send((word, content))
        return self.connection.recv()


class Gathering:
    """Host 0's program and those of all other hosts, for one launch. Leave it as a context: the others then end as well.

    Raises:
        TimeoutError: not all came.
    """

    def __init__(self, plan: Plan) -> None:
        self.address, self.place, self.key = plan.address, plan.gathering, plan.launch_id
        address, _, port = self.place.rpartition(":")
        self.server = socket.create_server((address, int(port)), backlog=64)
        self.outposts: dict[int, Outpost] = {}
        until = time.monotonic() + ENTRY_S
        while len(self.outposts) < plan.hosts - 1:
            connection, (host, where) = self.accept(until)
            self.outposts[host] = Outpost(where, connection)

    def __enter__(self) -> Gathering:
        return self

    def __exit__(self, kind: type[BaseException] | None, *rest: object) -> None:
        for outpost in self.outposts.values():
            with suppress(OSError):
                if kind is None:
                    outpost.connection.send(("over", None))
                outpost.connection.close()
        self.server.close()

    def accept(self, until: float) -> tuple[Line, list[Any]]:
        """The next connection of this launch, and its greeting.

        Raises:
            TimeoutError: none came in time.
        """
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
            except (AuthenticationError, EOFError, OSError, ValueError):  # a stranger, or a member that ended at once
                connection.close()

    def address_of(self, host: int) -> str:
        """The address by which the other hosts reach this one."""
        return self.outposts[host].address if host else self.address

    def ports(self, host: int, count: int) -> list[int]:
        """Free ports of a host."""
        return self.outposts[host].ask("ports", count) if host else free_ports(count)


def attend(plan: Plan) -> None:
    """What the program of every host but the first does: what host 0's asks, until that is over.

    Raises:
        SystemExit: host 0's program ended without a word.
    """
    os.environ[KEY_VARIABLE] = plan.launch_id
    connection = join(plan.gathering, plan.host, plan.address)
    with _members() as members:
        while True:
            try:
                word, content = connection.recv()
            except (EOFError, ConnectionResetError):
                sys.exit("the program of host 0 has ended in the middle of the launch")
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


@contextmanager
def _members() -> Iterator[list[Any]]:
    """Processes that end when this is left."""
    members: list[Any] = []
    try:
        yield members
    finally:
        end_members(members)
