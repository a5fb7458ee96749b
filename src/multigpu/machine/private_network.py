"""A network of a launch's own, which nothing outside reaches: for libraries that can only listen on
all interfaces of a machine.

    python -m multigpu.machine.private_network PROGRAM ARGUMENTS...

becomes PROGRAM in a Linux network namespace that has a loopback and nothing else. Needs root, or a
kernel that lets users make namespaces of their own. Imports no framework.
"""

import ctypes
import fcntl
import os
import socket
import struct
import subprocess
import sys
from functools import cache
from pathlib import Path

OPEN_PORTS = "MULTIGPU_OPEN_PORTS"
"""Set to 1 by a user: libraries may listen on all interfaces where no private network can be."""

CLONE_NEWUSER, CLONE_NEWNET = 0x10000000, 0x40000000
SIOCSIFFLAGS, IFF_UP = 0x8914, 0x1


def unshare(flags: int) -> None:
    """Leave this thread's namespaces for new ones; an OSError: it may not."""
    if ctypes.CDLL(None, use_errno=True).unshare(flags):
        raise OSError(number := ctypes.get_errno(), os.strerror(number))


def raise_loopback() -> None:
    """A new network's loopback is down."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        fcntl.ioctl(any_socket, SIOCSIFFLAGS, struct.pack("16sh", b"lo", IFF_UP))


def enter() -> None:
    """Move this process, which must have one thread only, and all that it starts into a network of
    its own; an OSError: it may not.
    """
    user, group = os.geteuid(), os.getegid()
    try:
        unshare(CLONE_NEWNET)
    except PermissionError:
        unshare(CLONE_NEWUSER | CLONE_NEWNET)  # whose only user is this one, under the same number
        Path("/proc/self/setgroups").write_text("deny")
        Path("/proc/self/uid_map").write_text(f"{user} {user} 1")
        Path("/proc/self/gid_map").write_text(f"{group} {group} 1")
    raise_loopback()


@cache
def why_not() -> str | None:
    """Why no private network can be made here, or None."""
    if not sys.platform.startswith("linux"):
        return "private networks exist on Linux only"
    done = subprocess.run([*prefix(), "true"], capture_output=True, text=True)
    return (done.stderr.strip().splitlines() or ["no message"])[-1] if done.returncode else None


def prefix() -> list[str]:
    """The words before a command that is to run in a network of its own; the process that they
    start becomes the command.
    """
    return [sys.executable, "-I", "-S", str(Path(__file__).resolve())]


def check_allowed(what: str, obstacle: str) -> None:
    """Refuse (ValueError) what would listen on all interfaces of this machine, unless a user allows
    it.
    """
    if os.environ.get(OPEN_PORTS) != "1":
        raise ValueError(
            f"{what} would listen on every interface of this machine, {obstacle}: set"
            f" {OPEN_PORTS}=1 where you trust all that reach it"
        ) from None


def main() -> None:
    """Entry point; ends with one line where there can be no private network."""
    try:
        enter()
    except OSError as error:
        sys.exit(error.strerror or str(error))
    os.execvp(sys.argv[1], sys.argv[1:])


if __name__ == "__main__":
    main()
