"""What listens while something runs, and whether another host could reach it: every socket is tried
by its address and its network.
"""

import ipaddress
import os
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

LOOK_S = 0.25


@dataclass(frozen=True)
class Listener:
    """A socket that listens. private: in a network that has a loopback and nothing else."""

    address: str
    port: int
    private: bool
    pid: int

    @property
    def reachable(self) -> bool:
        """From another host."""
        return not (self.private or ipaddress.ip_address(self.address).is_loopback)


def address_of(text: str) -> tuple[str, int]:
    """An address as /proc/net/tcp writes it: words of 32 bits in the order of this machine's
    bytes.
    """
    address, _, port = text.partition(":")
    words = [
        struct.pack("=I", int(address[start : start + 8], 16))
        for start in range(0, len(address), 8)
    ]
    found = ipaddress.ip_address(b"".join(words))
    return str(getattr(found, "ipv4_mapped", None) or found), int(port, 16)


def listeners() -> set[Listener]:
    """What listens now of this process and all that it has started, whatever network they are
    in.
    """
    found: set[Listener] = set()
    tables: dict[
        int, dict[str, tuple[str, int, bool]]
    ] = {}  # of every network: each socket that listens, and whether it is private
    for process in [psutil.Process(), *psutil.Process().children(recursive=True)]:
        with suppress(OSError):  # ended since
            own = Path(f"/proc/{process.pid}")
            network = (own / "ns" / "net").stat().st_ino
            if network not in tables:
                private = {
                    line.split(":")[0].strip()
                    for line in (own / "net" / "dev").read_text().splitlines()[2:]
                } == {"lo"}
                lines = [
                    line.split()
                    for table in ("tcp", "tcp6")
                    for line in (own / "net" / table).read_text().splitlines()[1:]
                ]
                tables[network] = {
                    f"socket:[{words[9]}]": (*address_of(words[1]), private)
                    for words in lines
                    if words[3] == "0A"
                }
            for number in os.listdir(own / "fd") if tables[network] else ():
                with suppress(OSError):  # closed since
                    if listens := tables[network].get(os.readlink(own / "fd" / number)):
                        found.add(Listener(*listens, process.pid))
    return found


@contextmanager
def overheard() -> Iterator[set[Listener]]:
    """What begins to listen meanwhile in this process and in all that it starts; another host could
    reach none of it.
    """
    before, seen, over = listeners(), set(), threading.Event()

    def look() -> None:
        while not over.wait(LOOK_S):
            seen.update(listeners() - before)

    thread = threading.Thread(target=look)
    thread.start()
    try:
        yield seen
    finally:
        over.set()
        thread.join()
    reachable = [one for one in seen if one.reachable]
    assert not reachable, reachable
