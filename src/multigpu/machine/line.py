"""Connections between programs of a launch that carry JSON. Imports no framework."""

import json
import os
import socket
import struct
import time
from multiprocessing.connection import Connection
from typing import Any

LONGEST = 1 << 26  # bytes of one message: what seems longer is not said by a program of ours


class Line(Connection):
    """One end of a pipe or of a socket: what arrives is never unpickled."""

    def send(self, obj: Any) -> None:
        self.send_bytes(json.dumps(obj).encode())

    def recv(self) -> Any:
        return json.loads(self.recv_bytes(LONGEST))


def line_of(found: socket.socket, silence_s: float | None = None) -> Line:
    """The socket as a line. The kernel breaks it (TimeoutError) if the other end answers none of
    its probes for so long, as a cut cable.
    """
    options = {"TCP_NODELAY": 1}
    if silence_s is not None:
        found.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        probe_s = max(1, round(silence_s / 4))
        options["TCP_KEEPIDLE"] = probe_s
        options["TCP_KEEPINTVL"] = probe_s
        options["TCP_USER_TIMEOUT"] = round(1000 * silence_s)
    for name, value in options.items():
        found.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
    found.setblocking(True)
    return Line(found.detach())


def connect(address: str, port: int, seconds: float) -> socket.socket:
    """A connection to who listens there, tried for so long. Raises the OSError of the last try."""
    until = time.monotonic() + seconds
    while True:
        try:
            return socket.create_connection((address, port), timeout=5)
        except OSError:
            if time.monotonic() > until:
                raise
            time.sleep(0.1)


def limit(line: Connection, seconds: float) -> None:
    """Let whatever waits for the other end fail with an OSError after so long (0: never), in the
    middle of a message too.
    """
    with socket.socket(fileno=os.dup(line.fileno())) as same:
        same.setsockopt(
            socket.SOL_SOCKET,
            socket.SO_RCVTIMEO,
            struct.pack("ll", int(seconds), int(seconds % 1 * 1e6)),
        )
