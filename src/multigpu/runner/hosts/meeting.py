"""How the hosts of one launch keep in touch: words over one connection from every host to host 0,
which the kernel watches.

Libraries notice a lost peer late (a cut cable raises nothing until a collective's time-out) and
differently on every host. Here each host hears of it within `SILENCE_S`, in one sentence: a
connection of a program that ends is closed, and one whose other end answers no probe is broken by
the kernel (`tcp(7)`). Launchers meet, workers do not know of it.
"""

import contextlib
import os
import socket
import time
from collections import deque
from dataclasses import dataclass, field
from multiprocessing.connection import wait
from typing import Any, Self

from multigpu.machine.line import Line, connect, limit, line_of

SILENCE_S = 20.0  # a host whose kernel has answered nothing for so long is lost
ENTRY_S = 600.0  # how long host 0 waits for the others to start, and they for it
# who has connected to host 0 may take so long to say who it is; then it is no host
GREETING_S = 10.0


class HostLost(RuntimeError):
    """Another host is gone; the sentence says which and how it was noticed."""


@dataclass
class _Peer:
    """Another host. words: what it has said and was not heard."""

    line: Line
    address: str
    words: deque[dict[str, Any]] = field(default_factory=deque)

    def send(self, word: str, **message: Any) -> None:
        with contextlib.suppress(OSError):  # a broken line is found by whoever reads
            self.line.send({"word": word, **message})

    def read(self) -> dict[str, Any]:
        """TimeoutError: the kernel has given the host up; EOFError: it has gone, or speaks as no
        host does.
        """
        try:
            if isinstance(message := self.line.recv(), dict):
                return message
        except TimeoutError:
            raise
        except (OSError, ValueError, RecursionError):
            pass
        raise EOFError

    def first(self, seconds: float) -> dict[str, Any]:
        """As `read`; TimeoutError also where it says nothing for so long."""
        if not self.line.poll(seconds):
            raise TimeoutError
        limit(self.line, max(seconds, 0.1))
        message = self.read()
        limit(self.line, 0)
        return message


class Meeting:
    """One host's connections to the others: host 0 has one to each, every other one to host 0.

    address, port: where host 0 listens. about: what must be equal on all hosts, by name (versions,
        the machine).

    Raises ValueError: a number that cannot be, or hosts that differ; HostLost: the others did not
        come within `entry_s`.
    """

    def __init__(
        self,
        hosts: int,
        host: int,
        address: str,
        port: int,
        about: dict[str, str] | None = None,
        entry_s: float = ENTRY_S,
        silence_s: float = SILENCE_S,
    ) -> None:
        if not 0 <= host < hosts:
            raise ValueError(
                f"host {host} does not exist among {hosts}: hosts are 0 to {hosts - 1}"
            )
        self.hosts, self.host, self.silence_s = hosts, host, silence_s
        self.address, self.about = address, about or {}
        self.lines: dict[int, _Peer] = {}
        self.left: set[int] = set()
        self.trouble: str | None = None
        if host == 0:
            self._receive_all(port, entry_s)
        else:
            self._join(port, entry_s)

    def _receive_all(self, port: int, entry_s: float) -> None:
        until = time.monotonic() + entry_s
        with socket.create_server((self.address, port), backlog=self.hosts) as server:
            while len(self.lines) < self.hosts - 1:
                server.settimeout(max(0.01, until - time.monotonic()))
                try:
                    connection, where = server.accept()
                except TimeoutError:
                    absent = sorted(set(range(1, self.hosts)) - set(self.lines))
                    text = f"host 0 waited {entry_s:.0f} s for hosts {absent}, which did not come"
                    self.tell("refuse", text=text)
                    raise HostLost(text) from None
                peer, hello = _Peer(line_of(connection, self.silence_s), where[0]), {}
                with contextlib.suppress(EOFError, TimeoutError):
                    hello = peer.first(min(until - time.monotonic(), GREETING_S))
                match hello:
                    case {
                        "word": "hello",
                        "host": int(host),
                        "hosts": int(hosts),
                        "about": dict(about),
                    } if 0 <= host < hosts:
                        self._enter(peer, host, hosts, about)
                    case _:  # a stranger, such as a scan of ports, or a host that ended at once
                        peer.line.close()
        self.tell("welcome")

    def _enter(self, peer: _Peer, number: int, hosts: int, about: dict[str, Any]) -> None:
        wrong = [
            f"{name} {about.get(name)!r} and not {value!r}"
            for name, value in self.about.items()
            if about.get(name) != value
        ]
        if hosts != self.hosts:
            wrong = [f"{hosts} hosts in its command and not {self.hosts}"]
        elif number in self.lines or number == 0:
            wrong = ["a number that another host has"]
        self.lines.setdefault(number, peer)
        if wrong:
            text = f"host {number} ({peer.address}) has {', '.join(wrong)}"
            peer.send("refuse", text=text)
            self.tell("refuse", text=text)
            raise ValueError(text)

    def _join(self, port: int, entry_s: float) -> None:
        try:
            connection = connect(self.address, port, entry_s)
        except OSError as error:
            raise HostLost(
                f"host 0 did not answer at {self.address}:{port} within {entry_s:.0f} s: {error}"
            ) from None
        asked, self.address = self.address, connection.getsockname()[0]
        peer = self.lines[0] = _Peer(line_of(connection, self.silence_s), asked)
        peer.send("hello", hosts=self.hosts, host=self.host, about=self.about)
        # host 0 speaks when all have come, and it has been there for no shorter than this
        # connection
        try:
            answer = peer.first(entry_s + GREETING_S)
        except EOFError:
            raise HostLost(f"host 0 ({peer.address}) ended before all hosts had come") from None
        except TimeoutError:
            raise HostLost(
                f"host 0 ({peer.address}) did not answer within {entry_s + GREETING_S:.0f} s"
            ) from None
        if answer.get("word") == "refuse":
            raise ValueError(answer["text"])

    def _look(self, timeout_s: float = 0.0) -> None:
        """Take what arrives within so many seconds. Of a host that is lost, host 0 tells the
        others.
        """
        here: dict[Any, int] = {
            peer.line: number for number, peer in self.lines.items() if number not in self.left
        }
        for line in wait([*here], timeout_s) if here and not self.trouble else ():
            peer, text = self.lines[number := here[line]], ""
            name = f"host {number} ({peer.address})"
            try:
                while not text and number not in self.left and peer.line.poll():
                    match message := peer.read():
                        case {"word": "leave"}:
                            self.left.add(number)
                        case {"word": "lost"}:
                            text = message["text"]
                        case _:
                            peer.words.append(message)
            except TimeoutError:
                text = (
                    f"{name} has not been heard of for {self.silence_s:.0f} s: it or its link is"
                    " down"
                )
            except EOFError:
                text = f"{name} ended in the middle of the run: its connection was closed"
            if text and not self.trouble:
                self.trouble = text
                for other in self.lines.keys() - {number}:
                    self.lines[other].send("lost", text=text)

    def check(self) -> None:
        """Raise HostLost, which says who it is, unless every host is there."""
        self._look()
        if self.trouble:
            raise HostLost(self.trouble)

    def tell(self, word: str, **message: Any) -> None:
        for peer in self.lines.values():
            peer.send(word, **message)

    def take(self, *wanted: str) -> dict[str, Any] | None:
        """The next message with one of these words, or None; does not wait."""
        self._look()
        for peer in self.lines.values():
            for message in peer.words:
                if message.get("word") in wanted:
                    peer.words.remove(message)
                    return message
        return None

    def hear(self, *wanted: str) -> dict[str, Any]:
        """Wait for the next message with one of these words. Raises HostLost: a host is lost, or
        host 0 has left.
        """
        while (message := self.take(*wanted)) is None:
            if not self.trouble and self.left.issuperset(self.lines):
                self.trouble = "host 0 has left"
            self.check()
            self._look(0.5)
        return message

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        """Leave: after an orderly end the others do not miss this host; after an error they hear of
        it.
        """
        if error is None:
            self.tell("leave")
        elif self.trouble is None:
            self.tell(
                "lost",
                text=(
                    f"host {self.host} ({os.uname().nodename}) ended with an error:"
                    f" {str(error) or type(error).__name__}"
                ),
            )
        for peer in self.lines.values():
            peer.line.close()
