"""The launcher's own process: torch's elastic agent over `worker.py` or `solo.py`. Kept apart so that a notebook never imports torch."""

from __future__ import annotations

import logging
import sys
from pathlib import Path

from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs, Std
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
from torch.distributed.launcher.api import LaunchConfig, elastic_launch

from multigpu.measure.plan import MAX_STARTS, Plan
from multigpu.measure.process import end_with_parent


def main() -> None:
    """Entry point: `python -m multigpu.measure.agent PLAN`."""
    end_with_parent()
    logging.getLogger("torch").setLevel(logging.ERROR)
    path = Path(sys.argv[1])
    plan = Plan.model_validate_json(path.read_text())
    logs = plan.scratch / "logs"
    logs.mkdir(exist_ok=True)
    config = LaunchConfig(
        min_nodes=1,
        max_nodes=1,
        nproc_per_node=plan.workers,
        rdzv_backend="c10d",
        rdzv_endpoint="localhost:0",
        local_addr="localhost",
        # every Run may end a launch so often; what is left unmeasured then is measured by the next command
        max_restarts=MAX_STARTS * len(plan.items) + 1,
        monitor_interval=0.1,
        logs_specs=DefaultLogsSpecs(log_dir=str(logs), redirects=Std.ALL),
    )
    if hasattr(config, "shutdown_timeout"):  # newer than torch 2.11: how long a terminated worker may take to go
        config.shutdown_timeout = 5
    try:
        elastic_launch(config, sys.executable)("-m", f"multigpu.measure.{plan.program}", str(path))
    except ChildFailedError as error:
        sys.exit(f"workers failed too often: {str(error).splitlines()[0]}")


if __name__ == "__main__":
    main()
