"""The launcher's own process: torch's elastic agent over `worker.py` or `solo.py`. Kept apart so that a notebook never imports torch."""

from __future__ import annotations

import json
import logging
import sys
from pathlib import Path
from typing import Any

from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs, Std
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
from torch.distributed.launcher.api import LaunchConfig, elastic_launch

from multigpu.measure.plan import MAX_STARTS
from multigpu.measure.process import end_with_parent


def main() -> None:
    """Entry point: `python -m multigpu.measure.agent PLAN`."""
    end_with_parent()
    logging.getLogger("torch").setLevel(logging.ERROR)
    path = Path(sys.argv[1])
    plan = json.loads(path.read_text())  # of any kind: what is done with its items is the workers' business
    logs = Path(plan["scratch"]) / "logs"
    logs.mkdir(exist_ok=True)
    hosts = plan["hosts"]
    alone: dict[str, Any] = {
        "rdzv_backend": "c10d",
        "rdzv_endpoint": "localhost:0",
        "local_addr": "localhost",
        # every Run may end a launch so often; what is left unmeasured then is measured by the next command
        "max_restarts": MAX_STARTS * len(plan["items"]) + 1,
    }
    # ranks by the hosts' own numbers, and no restart that the other hosts would not know of: host 0's launcher starts all again
    several: dict[str, Any] = {
        "rdzv_backend": "static",
        "rdzv_endpoint": plan["rendezvous"],
        "rdzv_configs": {"rank": plan["host"], "timeout": 120},
        "run_id": plan["launch_id"],
        "max_restarts": 0,
    }
    config = LaunchConfig(
        min_nodes=hosts,
        max_nodes=hosts,
        nproc_per_node=plan["workers"],
        **(alone if hosts == 1 else several),
        monitor_interval=0.1,
        logs_specs=DefaultLogsSpecs(log_dir=str(logs), redirects=Std.ALL),
    )
    if hasattr(config, "shutdown_timeout"):  # newer than torch 2.11: how long a terminated worker may take to go
        config.shutdown_timeout = 5
    try:
        program = plan["program"]
        module = program if "." in program else f"multigpu.measure.{program}"
        elastic_launch(config, sys.executable)("-m", module, str(path))
    except ChildFailedError as error:
        sys.exit(f"workers failed too often: {str(error).splitlines()[0]}")


if __name__ == "__main__":
    main()
