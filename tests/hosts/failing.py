"""Hosts whose cables can be pulled and whose processes killed, and what their interfaces have carried."""

import contextlib
import json
import os
import signal
import time
from types import SimpleNamespace

from multigpu.hosts import namespaces


class Hosts(namespaces.Hosts):
    """Those of this machine, which may fail."""

    def traffic(self, host: int) -> SimpleNamespace:
        """Bytes that the host's interface has sent and received since it was made, headers included."""
        (found,) = json.loads(namespaces._call("ip", "-n", self.names[host], "-s", "-j", "link", "show", namespaces.INTERFACE))
        return SimpleNamespace(sent=found["stats64"]["tx"]["bytes"], received=found["stats64"]["rx"]["bytes"])

    def unplug(self, host: int) -> None:
        """Pull its cable: nothing arrives any more, and no connection is told."""
        namespaces._call("ip", "-n", self.switch, "link", "set", f"port{host}", "down")

    def plug(self, host: int) -> None:
        namespaces._call("ip", "-n", self.switch, "link", "set", f"port{host}", "up")

    def kill(self, host: int) -> None:
        """End every process of the host at once, as a fallen machine would, except that its connections are closed."""
        until = time.monotonic() + 5
        while (left := namespaces.processes_in(self.names[host])) and time.monotonic() < until:
            for pid in left:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(0.02)
