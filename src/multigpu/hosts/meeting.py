"""How the hosts of one launch keep in touch: words and heartbeats over one connection from every host to host 0.

Libraries notice a lost peer late (a cut cable raises nothing until a collective's time-out) and differently on every host. Here each
host hears of it within `SILENCE_S`, in one sentence, whether a program was killed, a machine fell or a cable was pulled. Imports no
framework: launchers meet, workers do not know of it.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import threading
import time
from collections import deque
from multiprocessing.connection import wait
from types import TracebackType
from typing import Any

BEAT_S = 2.0
SILENCE_S = 20.0
"""A host that has not been heard of for so long is lost. Below the minute within which a run is to end."""

ENTRY_S = 600.0
"""How long host 0 waits for the others to start, and they for it."""

GREETING_S = 10.0
"""Who has connected to host 0 may take so long to say who it is; then it is no host, and the next is heard."""


class HostLost(RuntimeError):
    """Another host is gone; the sentence says which and how it was noticed."""


class _Line:
    """One connection: JSON lines, and when the other end was last heard."""

    def __init__(self, connection: socket.socket, peer: str) -> None:
        self.connection, self.peer = connection, peer
        self.words: deque[dict[str, Any]] = deque()
        self.heard = time.monotonic()
        self.closed = False
        self.left = False
        self.lock = threading.Lock()
        self.rest = b""
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.settimeout(SILENCE_S)

    def send(self, message: dict[str, Any]) -> None:
        with self.lock, contextlib.suppress(OSError):  # a broken line is found by whoever listens
            self.connection.sendall(json.dumps(message).encode() + b"\n")

    def receive(self, until: float | None = None) -> dict[str, Any] | None:
        """The next message; None where the other end has gone, speaks as no host does, or has not ended it `until` then (`time.monotonic`;
        None: there is no hurry).
        """
        while b"\n" not in self.rest:
            if until is not None:
                left = until - time.monotonic()
                if left <= 0 or not wait([self.connection], left):
                    return None
            try:
                part = self.connection.recv(65536)
            except TimeoutError:
                continue
            except OSError:
                part = b""
            if not part:
                return None
            self.heard = time.monotonic()
            self.rest += part
        line, _, self.rest = self.rest.partition(b"\n")
        try:
            message = json.loads(line)
        except (ValueError, RecursionError):  # no JSON, or brackets without end
            return None
        return message if isinstance(message, dict) else None

    def listen(self, changed: threading.Condition) -> None:
        """Take what arrives until the line closes."""
        while (message := self.receive()) is not None:
            with changed:
                if message.get("word") == "leave":
                    self.left = True
                elif message.get("word") != "beat":
                    self.words.append(message)
                changed.notify_all()
        with changed:
            self.closed = True
            changed.notify_all()


def _is_greeting(hello: dict[str, Any]) -> bool:
    """Whether a host says this when it comes."""
    host, hosts = hello.get("host"), hello.get("hosts")
    numbers = type(host) is int and type(hosts) is int and 0 <= host < hosts
    return hello.get("word") == "hello" and numbers and isinstance(hello.get("about"), dict)


class Meeting:
    """One host's connections to the others: host 0 has one to each, every other one to host 0.

    Args:
        host: this one's number, 0 to hosts - 1.
        address, port: where host 0 listens; on host 0 the address may be any of its own.
        about: what must be equal on all hosts, by name (versions, the machine); host 0 refuses those that differ.
        entry_s, silence_s: limits, see `ENTRY_S` and `SILENCE_S`.

    Raises:
        ValueError: a number that cannot be, or hosts that differ; the sentence says in what.
        HostLost: the others did not come within `entry_s`.
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
            raise ValueError(f"host {host} does not exist among {hosts}: hosts are 0 to {hosts - 1}")
        self.hosts, self.host, self.silence_s = hosts, host, silence_s
        self.changed = threading.Condition()
        self.lines: dict[int, _Line] = {}
        self.over = threading.Event()
        self.trouble: str | None = None
        about = dict(about or {})
        if host == 0:
            self._receive_all(address, port, about, entry_s)
        else:
            self._join(address, port, about, entry_s)
        for line in self.lines.values():
            line.heard = time.monotonic()  # who came early had no reason to speak until now
            threading.Thread(target=line.listen, args=(self.changed,), daemon=True).start()
        threading.Thread(target=self._beat, daemon=True).start()

    def _receive_all(self, address: str, port: int, about: dict[str, str], entry_s: float) -> None:
        until = time.monotonic() + entry_s
        with socket.create_server((address, port), backlog=self.hosts) as server:
            self.address = address
            while len(self.lines) < self.hosts - 1:
                server.settimeout(max(0.01, until - time.monotonic()))
                try:
                    connection, peer = server.accept()
                except TimeoutError:
                    absent = sorted(set(range(1, self.hosts)) - set(self.lines))
                    self._dismiss(f"host 0 waited {entry_s:.0f} s for hosts {absent}, which did not come")
                    raise HostLost(self.trouble) from None
                line = _Line(connection, peer[0])
                hello = line.receive(min(until, time.monotonic() + GREETING_S))
                if hello is not None and _is_greeting(hello):
                    self._enter(line, hello, about)
                else:  # a stranger, such as a scan of ports, or a host that ended at once
                    connection.close()
        for line in self.lines.values():
            line.send({"word": "welcome"})

    def _enter(self, line: _Line, hello: dict[str, Any], about: dict[str, str]) -> None:
        """Take a host in, or refuse all."""
        number = hello["host"]
        theirs = hello["about"]
        wrong = [f"{name} {theirs.get(name)!r} and not {value!r}" for name, value in about.items() if theirs.get(name) != value]
        if hello["hosts"] != self.hosts:
            wrong = [f"{hello['hosts']} hosts in its command and not {self.hosts}"]
        elif number in self.lines or number == 0:
            wrong = ["a number that another host has"]
        self.lines.setdefault(number, line)
        if wrong:
            line.send({"word": "refuse", "text": (text := f"host {number} ({line.peer}) has {', '.join(wrong)}")})
            self._dismiss(text)
            raise ValueError(text)

    def _dismiss(self, text: str) -> None:
        self.trouble = text
        for line in self.lines.values():
            line.send({"word": "refuse", "text": text})

    def _join(self, address: str, port: int, about: dict[str, str], entry_s: float) -> None:
        until = time.monotonic() + entry_s
        while True:
            try:
                connection = socket.create_connection((address, port), timeout=5)
                break
            except OSError as error:
                if time.monotonic() > until:
                    raise HostLost(f"host 0 did not answer at {address}:{port} within {entry_s:.0f} s: {error}") from None
                time.sleep(0.2)
        self.address = connection.getsockname()[0]
        line = self.lines[0] = _Line(connection, address)
        line.send({"word": "hello", "hosts": self.hosts, "host": self.host, "about": about})
        # host 0 speaks when all have come, and it has been there for no shorter than this connection
        until = time.monotonic() + entry_s + GREETING_S
        answer = line.receive(until)
        if answer is None and time.monotonic() >= until:
            raise HostLost(f"host 0 ({address}) did not answer within {entry_s + GREETING_S:.0f} s")
        if answer is None:
            raise HostLost(f"host 0 ({address}) ended before all hosts had come")
        if answer.get("word") == "refuse":
            raise ValueError(answer["text"])

    def _beat(self) -> None:
        """Say that this host is there, and look who else is."""
        while not self.over.wait(min(BEAT_S, self.silence_s / 5)):
            for line in list(self.lines.values()):
                line.send({"word": "beat"})
            with self.changed:
                self._look()
                self.changed.notify_all()

    def _look(self) -> None:
        """Find a host that is lost; host 0 tells the others. The condition is held."""
        if self.trouble:
            return
        for number, line in self.lines.items():
            name = f"host {number} ({line.peer})"
            told = next((message for message in line.words if message["word"] == "lost"), None)
            if told:
                self.trouble = told["text"]
            elif line.closed and not line.left:
                self.trouble = f"{name} ended in the middle of the run: its connection was closed"
            elif not line.left and time.monotonic() - line.heard > self.silence_s:
                self.trouble = f"{name} has not been heard of for {self.silence_s:.0f} s: it or its link is down"
            if self.trouble:
                break
        else:
            return
        for other, line in self.lines.items():
            if other != number:
                line.send({"word": "lost", "text": self.trouble})

    def check(self) -> None:
        """Go on if every host is there.

        Raises:
            HostLost: one is not.
        """
        with self.changed:
            self._look()
            if self.trouble:
                raise HostLost(self.trouble)

    def tell(self, word: str, **message: Any) -> None:
        """A message to all hosts that this one is connected to."""
        for line in self.lines.values():
            line.send({"word": word, **message})

    def take(self, *wanted: str) -> dict[str, Any] | None:
        """The next message with one of these words, or None; does not wait."""
        with self.changed:
            for line in self.lines.values():
                for message in line.words:
                    if message["word"] in wanted:
                        line.words.remove(message)
                        return message
        return None

    def hear(self, *wanted: str) -> dict[str, Any]:
        """Wait, as long as every host is there, for the next message with one of these words.

        Raises:
            HostLost: a host is lost, or host 0 has left.
        """
        with self.changed:
            while True:
                self._look()
                if (message := self.take(*wanted)) is not None:
                    return message
                if not self.trouble and all(line.left for line in self.lines.values()):
                    self.trouble = "host 0 has left"
                if self.trouble:
                    raise HostLost(self.trouble)
                self.changed.wait(0.5)

    def __enter__(self) -> Meeting:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """Leave: after an orderly end the others do not miss this host; after an error they hear of it."""
        if error is None:
            self.tell("leave")
        elif self.trouble is None:
            self.tell("lost", text=f"host {self.host} ({os.uname().nodename}) ended with an error: {str(error) or type(error).__name__}")
        self.over.set()
        for line in self.lines.values():
            with contextlib.suppress(OSError):
                line.connection.shutdown(socket.SHUT_RDWR)
            line.connection.close()
