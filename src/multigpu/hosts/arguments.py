"""The words by which a command says that it is one of several, one a host."""

import argparse
import contextlib
import socket
from collections.abc import Iterator

from multigpu.command import count
from multigpu.hosts.cluster import Cluster, slug
from multigpu.hosts.launching import PORT, Company, about_this_host, link_speed
from multigpu.hosts.meeting import HostLost, Meeting
from multigpu.measure.machine import gpu_count


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Give a command the arguments that `company` reads."""
    several = parser.add_argument_group("several hosts", "the same command on each, with its own --node-rank; only host 0 writes Records")
    several.add_argument("--nnodes", type=count(), default=1, metavar="N", help="how many hosts take part (default: 1)")
    several.add_argument("--node-rank", type=int, default=0, metavar="K", help="this host's number, 0 to N-1")
    several.add_argument("--rendezvous", metavar="ADDRESS[:PORT]", help=f"of host 0, as the others reach it (port {PORT} if none is given)")
    several.add_argument("--per-host", type=count(), metavar="P", help="processes on each host (default: its GPUs, or 1)")
    several.add_argument("--network", metavar="TEXT", help='the links between hosts, for Records, such as "100 Gbit/s Ethernet"')


@contextlib.contextmanager
def company(arguments: argparse.Namespace) -> Iterator[Company | None]:
    """The hosts that the arguments speak of, all of them met; None for one alone. Raises as `Meeting`, or where an argument is wrong."""
    if arguments.nnodes == 1 and not arguments.rendezvous:  # with one, it is a point of the same machine as more of its kind
        yield None
        return
    if not arguments.rendezvous:
        raise ValueError(f"--nnodes {arguments.nnodes} needs --rendezvous: the address of host 0, as the other hosts reach it")
    address, colon, port = arguments.rendezvous.partition(":")
    port = port if colon else str(PORT)
    if not port.isdecimal() or not 0 < int(port) < 2**16 or not address:
        told = f"give host 0's name or address, with a port if not {PORT}: node0:29500"
        raise ValueError(f"rendezvous {arguments.rendezvous!r} is no address: {told}")
    network = arguments.network or link_speed(socket.gethostbyname(address))
    per_host = arguments.per_host or gpu_count() or 1
    cluster = Cluster(hosts=arguments.nnodes, per_host=per_host, network=network, link=slug(network.partition(",")[0]))
    try:
        meeting = Meeting(arguments.nnodes, arguments.node_rank, address, int(port), about_this_host(cluster))
        with Company(meeting, cluster) as found:
            yield found
    except HostLost as error:
        raise HostLost(f"{error}; what was measured is kept on host 0, and the same commands go on from there") from None
