"""A Run's TensorBoard logs can be read, and show where every operation ran."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from multigpu.run import Run

pytestmark = [
    pytest.mark.skipif(importlib.util.find_spec("tensorflow") is None, reason="TensorFlow is not installed"),
    pytest.mark.timeout(120),
]

ROOT = Path(__file__).parents[2]
READ = """
import glob, json, sys
try:
    from tensorboard.backend.event_processing.event_file_loader import EventFileLoader
    events = list(EventFileLoader(sys.argv[1]).Load())
except ImportError:
    from tensorflow.python.summary.summary_iterator import summary_iterator
    events = list(summary_iterator(sys.argv[1]))
import tensorflow as tf
tags = sorted({value.tag for event in events for value in event.summary.value})
graph = tf.compat.v1.GraphDef()
for event in events:
    if event.graph_def:
        graph = tf.compat.v1.GraphDef.FromString(event.graph_def)
updates = sorted({node.device.rpartition(":device:")[2][-5:] for node in graph.node if node.op == "ResourceApplyMomentum"})
print(json.dumps({"tags": tags, "nodes": len(graph.node), "sends": sum(n.op == "_Send" for n in graph.node), "updates": updates}))
"""


def test_logs_load_and_name_devices(tmp_path: Path) -> None:
    run = Run(
        workload="cnn",
        model="resnet_tiny",
        placement="exp2",
        framework="tensorflow",
        processes="one",
        execution="graph",
        device_type="cpu",
        devices=2,
        batch_size=4,
        warmup_steps=2,
        timed_steps=3,
    )
    (tmp_path / "run.json").write_text(run.model_dump_json(exclude_defaults=True))
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": "-1"}
    logs = tmp_path / "logs"
    command = [sys.executable, "-m", "multigpu.engines.tensorflow.tensorboard", str(tmp_path / "run.json"), str(logs)]
    subprocess.run(command, env=environment, check=True)
    (events,) = logs.glob("events.out.tfevents.*.v2")
    read = subprocess.run([sys.executable, "-c", READ, str(events)], env=environment, check=True, capture_output=True, text=True)
    found = json.loads(read.stdout)
    assert {"loss", "run", "bytes a step/host_to_device"} <= set(found["tags"])
    assert found["sends"] > 0 and found["nodes"] > 1000
    assert found["updates"] == ["CPU:0"], "Exp2 updates on the host"
    assert list(logs.glob("plugins/profile/*/*.xplane.pb")), "a profile"
