"""Runs of the placements under which devices share copies of a model: every one that is found, on
every workload that can be cut so.
"""

from typing import Any

from multigpu.placements.row import Placement
from multigpu.spec.rules.partition import uncuttable
from multigpu.spec.run import Run
from multigpu.workloads import find_model

POINTS: list[tuple[str, str, int, dict[str, Any]]] = [
    # (workload, model, global batch, more): nothing divides evenly but hidden units of the
    # recurrent model, by 2 and 3
    ("nmt", "nmt_tiny", 7, {"inputs": "lengths_000", "seed": 35}),
    ("cnn", "resnet_small", 13, {}),
    ("stacks", "mlp_tiny", 9, {}),
    ("stacks", "stack_convolution_tiny", 9, {}),
    ("stacks", "stack_recurrent_tiny", 9, {}),
    ("gpt", "gpt_tiny", 9, {}),
]

COPIES: dict[str, Any] = {"devices": 4, "model_parallel": 2}  # two of two devices
SHAPES: dict[str, list[dict[str, Any]]] = {
    "sections": [
        {"devices": 1},
        {"devices": 2},
        {"devices": 3, "micro_batches": 4},
        COPIES | {"micro_batches": 2},
    ],
    "pipelined": [
        {"devices": 1, "micro_batches": 2},
        {"devices": 2},
        {"devices": 2, "micro_batches": 4, "pipeline_schedule": "1f1b"},
        {"devices": 2, "micro_batches": 2, "pipeline_schedule": "interleaved"},
        {"devices": 3, "micro_batches": 6},
        COPIES | {"micro_batches": 3, "pipeline_schedule": "1f1b"},
    ],
    "split": [{"devices": 1}, {"devices": 2}, {"devices": 3}, COPIES],
}
RULES = (("momentum", "fp64"), ("adam", "fp64"), ("momentum", "fp32"))


def partitioned_runs(placement: Placement) -> list[Run]:
    """All Runs of one placement that its models allow; the first rule in all shapes, the others in
    the last one.
    """
    engine = next(engine for engine in placement.engines if engine.framework == "torch")
    runs = []
    pipelined = placement.compute == "sections" and engine.processes == "per_device"
    for workload, model, batch, more in POINTS:
        described = find_model(workload, model)
        if not (described.graph.stages if placement.compute == "sections" else described.splitting):
            continue
        if pipelined and workload == "nmt":
            continue  # its sections are no chain
        for shape in SHAPES["pipelined" if pipelined else placement.compute]:
            if pipelined:
                batch = 12  # micro-batches are equal
                if len(described.graph.stages) < 4 and "interleaved" in shape.values():
                    continue
            degree = shape.get("model_parallel", shape["devices"])
            if placement.compute == "split" and uncuttable(described, degree):
                continue  # heads of a transformer are whole
            normalised = workload == "cnn"  # batch norm would see each micro-batch by itself
            shape = {
                name: value
                for name, value in shape.items()
                if not (normalised and name in ("micro_batches", "pipeline_schedule"))
            }
            for optimizer, precision in RULES if shape["devices"] == 4 else RULES[:1]:
                fields: dict[str, Any] = {
                    "workload": workload,
                    "model": model,
                    "batch_size": batch,
                    **more,
                    **shape,
                }
                fields |= {
                    "optimizer": optimizer,
                    "precision": precision,
                    "processes": engine.processes,
                }
                runs.append(
                    Run(placement=placement.name, device_type="cpu", scaling="strong", **fields)
                )
                if (
                    workload == "nmt"
                    and placement.compute == "sections"
                    and (shape["devices"], optimizer) == (2, "momentum")
                ):
                    runs.append(runs[-1].model_copy(update={"recurrence": "persistent"}))
    return runs
