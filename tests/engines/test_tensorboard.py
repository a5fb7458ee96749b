"""A Run's TensorBoard logs can be read, and show where every operation ran."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from multigpu.measure.launch import measure
from multigpu.measure.point import Point
from multigpu.record import RecordStore
from multigpu.run import Run

pytestmark = [
    pytest.mark.skipif(importlib.util.find_spec("tensorflow") is None, reason="TensorFlow is not installed"),
    pytest.mark.timeout(300),
]

ROOT = Path(__file__).parents[2]
READ = """
import json, sys
from tensorboard.backend.event_processing.plugin_event_multiplexer import EventMultiplexer
multiplexer = EventMultiplexer().AddRunsFromDirectory(sys.argv[1])
multiplexer.Reload()
import tensorflow as tf
(run,) = multiplexer.Runs()
accumulator = multiplexer.GetAccumulator(run)
nodes = accumulator.Graph().node
place = lambda node: node.device.rpartition(":device:")[2][-5:]
print(json.dumps({
    "run": run,
    "tags": sorted(accumulator.Tags()["tensors"]),
    "sends": sum(node.op == "_Send" for node in nodes),
    "places": sorted({place(node) for node in nodes}),
    "updates": sorted({place(node) for node in nodes if node.op == "ResourceApplyAdam"}),
    "losses": [float(tf.make_ndarray(event.tensor_proto)) for event in multiplexer.Tensors(run, "loss")],
    "steps": len(multiplexer.Tensors(run, "step time in s, host's clock")),
}))
"""


def test_a_measured_run_leaves_logs_that_tensorboard_opens(tmp_path: Path) -> None:
    """Through the command line, and read by TensorBoard's own multiplexer, beside a Record that it does not change."""
    pytest.importorskip("tensorboard")
    fields = "workload=deepconn model=deepconn_tiny placement=exp2 framework=tensorflow processes=one execution=graph"
    more = "device_type=cpu devices=2 batch_size=4 warmup_steps=2 timed_steps=3"
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": "-1"}
    command = [sys.executable, "-m", "multigpu", "--records", str(tmp_path / "runs"), "measure", *fields.split(), *more.split()]
    subprocess.run([*command, "--quiet", "--tensorboard", str(tmp_path / "logs")], env=environment, check=True)
    read = subprocess.run([sys.executable, "-c", READ, str(tmp_path / "logs")], env=environment, check=True, capture_output=True, text=True)
    found = json.loads(read.stdout)
    (record,) = RecordStore(tmp_path / "runs")
    assert record.status == "ok" and record.measurement
    assert found["run"] == f"deepconn_tiny-exp2-x2-{record.run.digest}"
    assert {"loss", "run", "bytes a step/host_to_device"} <= set(found["tags"])
    assert found["places"] == ["CPU:0", "CPU:1", "CPU:2"] and found["sends"] > 0
    assert found["updates"] == ["CPU:0"], "Exp2 updates on the host"
    assert found["losses"] == pytest.approx(record.measurement.loss, rel=1e-5) and found["steps"] == 5


def test_logs_of_another_framework_are_refused(tmp_path: Path) -> None:
    run = Run(workload="cnn", model="resnet_tiny", placement="exp2", device_type="cpu", batch_size=4)
    with pytest.raises(ValueError, match="need framework=tensorflow and processes=one, which resnet_tiny exp2 torch"):
        measure([Point(run)], RecordStore(tmp_path / "runs"), tensorboard=tmp_path / "logs")
    (tmp_path / "file").touch()
    run = Run(**run.model_dump() | {"framework": "tensorflow", "processes": "one", "execution": "graph"})
    with pytest.raises(ValueError, match="TensorBoard's logs cannot be written to"):
        measure([Point(run)], RecordStore(tmp_path / "runs"), tensorboard=tmp_path / "file")
