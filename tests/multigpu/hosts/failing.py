"""Hosts whose cables can be pulled and whose processes killed."""

import contextlib
import os
import signal
import time

from benchmarks import namespaces


class Hosts(namespaces.Hosts):
    """Those of this machine, which may fail."""

    def unplug(self, host: int) -> None:
        """Pull its cable: nothing arrives any more, and no connection is told."""
        namespaces._call("ip", "-n", self.switch, "link", "set", f"port{host}", "down")

    def plug(self, host: int) -> None:
        namespaces._call("ip", "-n", self.switch, "link", "set", f"port{host}", "up")

    def kill(self, host: int) -> None:
        """End every process of the host at once, as a fallen machine would, except that its
        connections are closed.
        """
        until = time.monotonic() + 5
        while (left := namespaces.processes_in(self.names[host])) and time.monotonic() < until:
            for pid in left:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(0.02)
