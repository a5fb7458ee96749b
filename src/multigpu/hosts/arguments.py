"""The words by which a command says that it is one of several, one a host."""

from __future__ import annotations

import argparse
import contextlib
from collections.abc import Iterator

from multigpu.hosts.launching import PORT, Company, meet
from multigpu.hosts.meeting import HostLost


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Give a command the arguments that `company` reads."""
    several = parser.add_argument_group("several hosts", "the same command on each, with its own --node-rank; only host 0 writes Records")
    several.add_argument("--nnodes", type=int, default=1, metavar="N", help="how many hosts take part (default: 1)")
    several.add_argument("--node-rank", type=int, default=0, metavar="K", help="this host's number, 0 to N-1")
    several.add_argument("--rendezvous", metavar="ADDRESS[:PORT]", help=f"of host 0, as the others reach it (port {PORT} if none is given)")
    several.add_argument("--per-host", type=int, metavar="P", help="processes on each host (default: its GPUs, or 1)")
    several.add_argument("--network", metavar="TEXT", help='the links between hosts, for Records, such as "100 Gbit/s Ethernet"')


@contextlib.contextmanager
def company(arguments: argparse.Namespace) -> Iterator[Company | None]:
    """The hosts that the arguments speak of, all of them met; None for one alone.

    Raises:
        ValueError: an argument is missing or means nothing, or the hosts differ.
        HostLost: a host did not come or is lost; the sentence says what to do.
    """
    if arguments.nnodes == 1 and not arguments.rendezvous:  # with one, it is a point of the same machine as more of its kind
        yield None
        return
    if arguments.nnodes < 1:
        raise ValueError(f"--nnodes {arguments.nnodes} is no number of hosts: give 1 or more")
    if not arguments.rendezvous:
        raise ValueError(f"--nnodes {arguments.nnodes} needs --rendezvous: the address of host 0, as the other hosts reach it")
    try:
        with meet(arguments.nnodes, arguments.node_rank, arguments.rendezvous, arguments.per_host, arguments.network) as found:
            yield found
    except HostLost as error:
        raise HostLost(f"{error}; what was measured is kept on host 0, and the same commands go on from there") from None
