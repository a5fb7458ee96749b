"""Where a step's parts truly ran: `python -m multigpu.engines.tensorflow.proof exp1 exp2` prints it as JSON.

A process of its own, since TensorFlow fixes its devices once: here logical CPU devices, on which programs are partitioned as on
GPUs. The model is small; where a part runs depends on the placement's row and not on sizes.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from multigpu.engines.tensorflow.build import build_trainer
from multigpu.engines.tensorflow.devices import Devices
from multigpu.engines.tensorflow.feed import Feed, is_even
from multigpu.engines.tensorflow.graphs import Ran, where_ops_ran
from multigpu.engines.tensorflow.trainer import Context
from multigpu.placements import find_placement
from multigpu.placements.traffic import REPLICA, Assigned, predicted_bytes
from multigpu.run import Run
from multigpu.workloads import workloads

DEVICES = 2
UPDATE = "ResourceApplyAdam"


def small_run(placement: str, devices: int = DEVICES) -> Run:
    """A tiny translation model under `placement`, all towers in one graph on stand-ins for GPUs, fp32, Adam."""
    return Run(
        workload="nmt",
        model="nmt_tiny",
        placement=placement,
        framework="tensorflow",
        device_type="cpu",
        devices=devices,
        processes="one",
        batch_size=4,
        sequence_length=5,
        execution="graph",
        optimizer="adam",
    )


def proof(run: Run) -> dict[str, Any]:
    """One step of `run`, read back from the graphs that TensorFlow partitioned by device.

    Returns:
        placement, devices, counted and predicted (bytes by kind), variables: of each its name, kind, the places its row asks for
        (home, lookup, update) and the places found: read, lookup, merge, update, each a sorted list (-1 is the host).
    """
    source = workloads()[run.workload].inputs[run.inputs](run, run.description)
    devices = Devices(run)
    context = Context(run, devices, is_even(source, run.devices), dynamic=source.period != 1)
    trainer = build_trainer(context)
    shards = Feed(source, devices).shards(0)
    counted = trainer.counted_step(shards)
    assert trainer.graphs
    ran = where_ops_ran(trainer.graphs, devices)
    return {
        "placement": run.placement,
        "devices": run.devices,
        "counted": counted,
        "predicted": predicted_bytes(find_placement(run.placement), run.description.variables, shards[0].batch.lookups),
        "variables": [_variable(assigned, ran) for assigned in context.assigned],
    }


def _variable(assigned: Assigned, ran: list[Ran]) -> dict[str, Any]:
    name = assigned.variable.name
    table = assigned.variable.kind == "embedding"

    def places(part: str) -> list[int]:
        return sorted({one.place for one in ran if (one.part, one.name) == (part, name) and (part != "update" or one.op == UPDATE)})

    return {
        "name": name,
        "kind": assigned.variable.kind,
        "asked": {"home": assigned.home, "lookup": assigned.lookup if table else REPLICA, "update": assigned.update},
        "found": {part: places(part) for part in ("read", "lookup", "merge", "update")},
    }


if __name__ == "__main__":
    print(json.dumps([proof(small_run(name)) for name in sys.argv[1:]]))
