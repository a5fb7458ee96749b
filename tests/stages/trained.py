"""Three steps of a tiny two-tower model under each placement of its stages."""

import importlib
import tempfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from multigpu.measure.machine import Machine
from multigpu.measure.session import open_session
from multigpu.run import Run
from multigpu.stages.cost import Costs
from multigpu.stages.record import StageRecord, stage_key

STEPS = 3
CASES: dict[str, dict[str, Any]] = {
    "single": {"placement": "single", "devices": 1},
    "tower_per_gpu": {"placement": "tower_per_gpu", "devices": 2},
    "alternating": {"placement": "alternating", "devices": 2, "feed": "arrays"},
    "searched": {"placement": "searched", "devices": 2, "stage_devices": "11010101100", "feed": "pipeline"},
    "replicated_allreduce": {"placement": "replicated_allreduce", "devices": 2, "feed": "arrays"},
}
TENSORFLOW_ALONE: dict[str, dict[str, Any]] = {
    "strings": {"placement": "alternating", "devices": 2, "feed": "strings"},
    "sparse": {"placement": "tower_per_gpu", "devices": 2, "embedding_gradients": "sparse"},
    "op by op": {"placement": "tower_per_gpu", "devices": 2, "execution": "eager"},
}


def run_of(model: str, framework: str, **fields: Any) -> Run:
    """Rows of planted reviews: a joined batch of 11 is the same 11 rows however it is split."""
    common = {"workload": "deepconn", "model": model, "framework": framework, "inputs": "planted_reviews", "device_type": "cpu"}
    form = {"execution": "graph"} if framework == "tensorflow" else {}
    steps = {"warmup_steps": 1, "timed_steps": STEPS - 1}
    return Run(**(common | form | steps | fields), processes="one", batch_size=11, scaling="strong", precision="fp64")


def train(run: Run) -> dict[str, Any]:
    """All variables, the losses, and what the first step moved."""
    session: Any = open_session(run, 0, 1, Path(tempfile.gettempdir()), 60.0, 0.0, lambda stage: None)
    try:
        session.warm_up()
        parts = session.time()
        values = session.trainer.full_values()
        losses = [sum(shares) for shares in zip(*(part["losses"] for part in parts), strict=True)]
        moved = {kind: count for kind, count in session.moved.items() if count}
        found = {"values": {name: value if run.framework == "tensorflow" else value.numpy() for name, value in values.items()}}
        return found | {"losses": losses, "moved": moved, "units": [part["units"] for part in parts]}
    finally:
        session.close()


def train_tensorflow() -> dict[Any, Any]:
    """What came of every case of TensorFlow, and of what is planted there."""
    found: dict[Any, Any] = {(model, name): train(run_of(model, "tensorflow", **fields)) for model, name, fields in tensorflow_cases()}
    return found | {"strays": planted_strays(), "passes": planted_passes(), "costs": measured_costs("tensorflow")}


def measured_costs(framework: str) -> Any:
    """Costs of the tiny model's stages, of two calls each."""
    engine = importlib.import_module(f"multigpu.engines.{framework}.stage_costs")
    return engine.measure_costs(run_of("deepconn_tiny", framework, placement="single", devices=1), [4, 1 << 16], 2)


def planted_passes() -> tuple[float, float]:
    """Seconds of a product called op by op, and of one among several in a graph, where nothing reads what comes of it."""
    import tensorflow as tf

    from multigpu.engines.tensorflow.devices import Devices
    from multigpu.engines.tensorflow.stage_costs import PassClock, as_written

    devices = Devices(run_of("deepconn_tiny", "tensorflow", placement="single", devices=1))
    with devices.at(0), as_written():
        matrix = tf.ones([500, 500], tf.float64)
        clock = PassClock(devices, True, 3)
        return clock.each(lambda: matrix @ matrix), clock.seconds(lambda one: one @ one, matrix)


def record_of(run: Run, costs: Costs, machine: Machine) -> StageRecord:
    """Measured costs for two devices, nothing planned yet."""
    return StageRecord(
        key=stage_key(run, 2, machine.name, "1"),
        run=run,
        devices=2,
        repeats=2,
        costs=costs,
        predictions=[],
        tried=0,
        complete=False,
        machine=machine,
        versions={},
        measured_at="",
        commit="",
        clean_tree=True,
    )


def planted_strays() -> list[str]:
    """What is said of three operations on the host, of which one has no business there."""
    from multigpu.engines.tensorflow.stages import stray_ops

    device = "/job:localhost/replica:0/task:0/device:CPU:0"
    named = [("compute/0/user_conv/Conv2D", "Conv2D"), ("compute/-1/user_ids/find", "LookupTableFindV2"), ("compute/0/x/Const", "Const")]
    graphs: Any = SimpleNamespace(nodes=[SimpleNamespace(name=name, op=op, device=device) for name, op in named], shapes={})
    devices: Any = SimpleNamespace(place=lambda name: -1)
    return stray_ops(graphs, devices)


def tensorflow_cases() -> list[tuple[str, str, dict[str, Any]]]:
    """(model, name, fields)."""
    cases = [("deepconn_tiny", name, fields) for name, fields in (CASES | TENSORFLOW_ALONE).items()]
    return cases + [("deepconn_fm_tiny", name, CASES[name]) for name in ("single", "alternating")]
