"""The launcher's own process: torch's elastic agent over `worker.py` or `solo.py`. Kept apart so
that a notebook never imports torch.

Workers that use PyTorch are forked from it, which has imported what they need and touches no GPU: a
start, or a restart after a fault, costs milliseconds. Those that use TensorFlow are commands of
their own, since the two frameworks bring different CUDA libraries.

The store by which the processes of a launch find each other listens on one named address, and their
words in it are JSON: torch's own rendezvous listens on all interfaces and unpickles what it reads
    there, so that whoever reached the port could run code.
"""

import importlib
import json
import logging
import os
import pkgutil
import signal
import socket
import sys
import time
import warnings
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch.distributed as dist
from torch.distributed.elastic.agent.server.api import RunResult, WorkerGroup, WorkerState
from torch.distributed.elastic.agent.server.local_elastic_agent import LocalElasticAgent
from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs, Std
from torch.distributed.elastic.multiprocessing.api import MultiprocessContext, SubprocessContext
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError, ProcessFailure
from torch.distributed.elastic.rendezvous import (
    RendezvousHandler,
    RendezvousInfo,
    RendezvousParameters,
    RendezvousStoreInfo,
    rendezvous_handler_registry,
)
from torch.distributed.launcher import api
from torch.distributed.launcher.api import LaunchConfig, elastic_launch

from multigpu.machine.process import (
    STARTED_AT,
    age_s,
    end_with_parent,
    import_for_good,
    tensorflow_environment,
)
from multigpu.runner.hosts.launching import LOOPBACK
from multigpu.runner.plan import MAX_STARTS, Journal

BACKEND = "multigpu"  # the name of this rendezvous in torch's launcher
PATIENCE = timedelta(seconds=120)  # for agents of other hosts to come


def serve_store(address: str, port: int = 0) -> dist.TCPStore:
    """A store that listens on this address of this host alone (port 0: any that is free). An
    OSError: there is none, or another listens.
    """
    listener = socket.create_server((address, port), backlog=128)
    port = listener.getsockname()[1]
    serving: dict[str, Any] = {"is_master": True, "wait_for_workers": False}
    held = listener.detach()
    return dist.TCPStore(address, port, timeout=PATIENCE, master_listen_fd=held, **serving)


class OneAddress(RendezvousHandler):
    """The agents of a launch, one a host: known from the start, and numbered. Host 0's holds the
    store, for its workers too.
    """

    def __init__(self, params: RendezvousParameters) -> None:
        address, _, port = params.endpoint.rpartition(":")
        self.address, self.port = address, int(port)
        self.host = int(params.config["host"])
        self.hosts = params.max_nodes
        self.run_id = params.run_id
        self.store: dist.Store | None = None
        self.rounds = 0

    def get_backend(self) -> str:
        return BACKEND

    @property
    def use_agent_store(self) -> bool:
        return True

    def next_rendezvous(self) -> RendezvousInfo:
        """The store, for one start of the workers: what an earlier start left in it is out of
        sight.
        """
        if self.store is None and self.host == 0:
            served = serve_store(self.address, self.port)
            self.store, self.port = served, served.port
        elif self.store is None:
            self.store = dist.TCPStore(self.address, self.port, is_master=False, timeout=PATIENCE)
        self.rounds += 1
        own = dist.PrefixStore(f"agents/{self.run_id}/{self.rounds}", self.store)
        return RendezvousInfo(
            own, self.host, self.hosts, RendezvousStoreInfo(self.address, self.port)
        )

    def is_closed(self) -> bool:
        return False

    def set_closed(self) -> None:
        pass

    def num_nodes_waiting(self) -> int:
        return 0

    def get_run_id(self) -> str:
        return self.run_id

    def shutdown(self) -> bool:
        return True


rendezvous_handler_registry.register(BACKEND, OneAddress)


def forked(module: str, path: str) -> None:
    """Run a forked worker: the same as `python -m module path`."""
    # the agent's own handlers would only raise in Python, which a worker inside a collective never
    # returns to
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
        signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    if os.environ.get("TORCHELASTIC_RESTART_COUNT", "0") != "0":
        os.environ[STARTED_AT] = str(time.monotonic())
    sys.argv = [module, path]
    importlib.import_module(module).main()


class WatchfulAgent(LocalElasticAgent):
    """Torch's agent, which leaves word of each worker that ends before its plan does, and takes one
    that ends with 0 for what it is: torch's waits for the others, or for ever.
    """

    journal: Journal

    def _monitor_workers(self, worker_group: WorkerGroup) -> RunResult:
        context = self._pcontext
        if isinstance(context, MultiprocessContext) and context._pc is not None:
            for rank, process in enumerate(context._pc.processes):
                if process.exitcode is not None and not self.journal.has_left(process.pid):
                    return self._lost(worker_group, rank, process.pid, process.exitcode)
        if isinstance(context, SubprocessContext):
            for rank, handler in context.subprocess_handlers.items():
                code, pid = handler.proc.poll(), handler.proc.pid
                if code is not None and not self.journal.has_left(pid):
                    return self._lost(worker_group, rank, pid, code)
        return super()._monitor_workers(worker_group)

    def _lost(self, group: WorkerGroup, local: int, pid: int, code: int) -> RunResult:
        rank = group.workers[local].global_rank
        self.journal.report("lost", rank=rank, code=code)
        failure = ProcessFailure(local_rank=local, pid=pid, exitcode=code or 1, error_file="")
        return RunResult(state=WorkerState.FAILED, failures={rank: failure})


def main() -> None:
    """Entry point: `python -m multigpu.runner.agent PLAN`."""
    end_with_parent()
    logging.getLogger("torch").setLevel(logging.ERROR)
    warnings.filterwarnings(
        "ignore", "This process .* is multi-threaded, use of fork", DeprecationWarning
    )
    # the agent asks whether there are GPUs: answered by the CUDA runtime, no process forked from
    # this one could use them
    os.environ["PYTORCH_NVML_BASED_CUDA_CHECK"] = "1"
    path = Path(sys.argv[1])
    # of any kind: what is done with its items is the workers' business
    plan = json.loads(path.read_text())
    logs = Path(plan["scratch"]) / "logs"
    logs.mkdir(exist_ok=True)
    hosts = plan["hosts"]
    config = LaunchConfig(
        min_nodes=hosts,
        max_nodes=hosts,
        nproc_per_node=plan["workers"],
        run_id=plan["launch_id"],
        rdzv_backend=BACKEND,
        rdzv_endpoint=plan["rendezvous"] or f"{LOOPBACK}:0",
        rdzv_configs={"host": plan["host"]},
        # every Run may end a launch so often; on several hosts none restarts without the others:
        # host 0's launcher starts all again
        max_restarts=MAX_STARTS * len(plan["items"]) + 1 if hosts == 1 else 0,
        start_method="fork",
        monitor_interval=0.1,
        logs_specs=DefaultLogsSpecs(log_dir=str(logs), redirects=Std.ALL),
    )
    # newer than torch 2.11: how long a terminated worker may take to go
    if hasattr(config, "shutdown_timeout"):
        config.shutdown_timeout = 5
    WatchfulAgent.journal = Journal(Path(plan["scratch"]))
    api.LocalElasticAgent = WatchfulAgent  # type: ignore[misc]
    try:
        module = f"multigpu.runner.{plan['program']}"
        if plan["framework"] == "tensorflow":
            # too late for this process, in time for its workers
            os.environ |= tensorflow_environment(sys.path, os.environ)
            elastic_launch(config, sys.executable)("-m", module, str(path))
        else:
            for name in (module, *pkgutil.resolve_name(plan["experiment"]).modules):
                # PyTorch's compiler is imported before the fork on CPUs alone until it is shown
                # beside a GPU that it asks CUDA nothing
                if name != "torch._dynamo" or not os.path.exists("/dev/nvidiactl"):
                    import_for_good(name)
            os.environ[STARTED_AT] = str(time.monotonic() - age_s())
            elastic_launch(config, forked)(module, str(path))
    except ChildFailedError as error:
        sys.exit(f"workers failed too often: {str(error).splitlines()[0]}")


if __name__ == "__main__":
    main()
