"""The store by which the processes of a launch find each other: it listens on one named address, and nothing in it is ever unpickled.

torch's own rendezvous listens on all interfaces of a machine, and what its agent reads there it unpickles: whoever reached the port could
run code. Here the agents' words are JSON, and the workers' too (`agree.py`).
"""

from __future__ import annotations

import socket
from datetime import timedelta

import torch.distributed as dist
from torch.distributed.elastic.rendezvous import (
    RendezvousHandler,
    RendezvousInfo,
    RendezvousParameters,
    RendezvousStoreInfo,
    rendezvous_handler_registry,
)

BACKEND = "multigpu"
"""The name of this rendezvous in torch's launcher."""

PATIENCE = timedelta(seconds=120)
"""For agents of other hosts to come."""


def serve_store(address: str, port: int = 0) -> dist.TCPStore:
    """A store that listens on this address of this host alone; port 0: any that is free.

    Raises:
        OSError: this host has no such address, or something listens there.
    """
    listener = socket.create_server((address, port), backlog=128)
    port = listener.getsockname()[1]
    return dist.TCPStore(address, port, is_master=True, wait_for_workers=False, timeout=PATIENCE, master_listen_fd=listener.detach())


class OneAddress(RendezvousHandler):
    """The agents of a launch, one a host: known from the start, and numbered. Host 0's holds the store, for its workers too."""

    def __init__(self, params: RendezvousParameters) -> None:
        address, _, port = params.endpoint.rpartition(":")
        self.address, self.port = address, int(port)
        self.host, self.hosts, self.run_id = int(params.config["host"]), params.max_nodes, params.run_id
        self.store: dist.Store | None = None
        self.rounds = 0

    def get_backend(self) -> str:
        return BACKEND

    @property
    def use_agent_store(self) -> bool:
        return True

    def next_rendezvous(self) -> RendezvousInfo:
        """The store, for one start of the workers: what an earlier start left in it is out of sight."""
        if self.store is None and self.host == 0:
            served = serve_store(self.address, self.port)
            self.store, self.port = served, served.port
        elif self.store is None:
            self.store = dist.TCPStore(self.address, self.port, is_master=False, timeout=PATIENCE)
        self.rounds += 1
        own = dist.PrefixStore(f"agents/{self.run_id}/{self.rounds}", self.store)
        return RendezvousInfo(own, self.host, self.hosts, RendezvousStoreInfo(self.address, self.port))

    def is_closed(self) -> bool:
        return False

    def set_closed(self) -> None:
        """There is nobody to keep out: the hosts are known."""

    def num_nodes_waiting(self) -> int:
        return 0

    def get_run_id(self) -> str:
        return self.run_id

    def shutdown(self) -> bool:
        return True


rendezvous_handler_registry.register(BACKEND, OneAddress)
