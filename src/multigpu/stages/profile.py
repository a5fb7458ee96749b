"""The process that measures a model's stages: reads what to measure from its input, prints the costs as one line of JSON."""

import importlib
import json
import sys

from multigpu.measure.process import end_with_parent
from multigpu.run import Run


def main() -> None:
    """Entry point: `python -m multigpu.stages.profile`, with {"run": ..., "sizes": [...], "calls": n} on its input."""
    end_with_parent()
    asked = json.loads(sys.stdin.read())
    run = Run.model_validate_json(json.dumps(asked["run"]))
    engine = importlib.import_module(f"multigpu.engines.{run.framework}.stage_costs")
    print(engine.measure_costs(run, asked["sizes"], asked["calls"]).model_dump_json())


if __name__ == "__main__":
    main()
