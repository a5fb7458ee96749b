"""A Run's TensorBoard logs can be read, and show where every operation ran."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from multigpu.cli import main
from multigpu.measure.point import Point
from multigpu.measure.sweep import measure
from multigpu.record import RecordStore
from multigpu.run import Run


def test_a_measured_run_leaves_logs_that_tensorboard_opens(tmp_path: Path, tf: Any) -> None:
    """Through the command line, and read by TensorBoard's own multiplexer, beside a Record that it does not change."""
    multiplexer = pytest.importorskip("tensorboard.backend.event_processing.plugin_event_multiplexer").EventMultiplexer()
    fields = "workload=deepconn model=deepconn_tiny placement=exp2 framework=tensorflow processes=one execution=graph"
    more = "device_type=cpu devices=2 batch_size=4 warmup_steps=2 timed_steps=3"
    asked = ["--records", str(tmp_path / "runs"), "measure", *fields.split(), *more.split()]
    assert main([*asked, "--quiet", "--tensorboard", str(tmp_path / "logs")]) == 0
    multiplexer.AddRunsFromDirectory(str(tmp_path / "logs")).Reload()
    ((run, tags),) = multiplexer.Runs().items()
    nodes = multiplexer.GetAccumulator(run).Graph().node
    places = [(node.op, node.device.rpartition(":device:")[2][-5:]) for node in nodes]
    (record,) = RecordStore(tmp_path / "runs")
    assert record.status == "ok" and record.measurement
    assert run == f"deepconn_tiny-exp2-x2-{record.run.digest}"
    assert {"loss", "run", "bytes a step/host_to_device"} <= set(tags["tensors"])
    assert {place for _, place in places} == {"CPU:0", "CPU:1", "CPU:2"} and any(op == "_Send" for op, _ in places)
    assert {place for op, place in places if op == "ResourceApplyAdam"} == {"CPU:0"}, "Exp2 updates on the host"
    losses = [float(tf.make_ndarray(event.tensor_proto)) for event in multiplexer.Tensors(run, "loss")]
    assert losses == pytest.approx(record.measurement.loss, rel=1e-5)
    assert len(multiplexer.Tensors(run, "step time in s, host's clock")) == 5


def test_logs_of_another_framework_are_refused(tmp_path: Path) -> None:
    run = Run(workload="cnn", model="resnet_tiny", placement="exp2", device_type="cpu", batch_size=4)
    with pytest.raises(ValueError, match="need framework=tensorflow and processes=one, which resnet_tiny exp2 torch"):
        measure([Point(run)], RecordStore(tmp_path / "runs"), tensorboard=tmp_path / "logs")
    (tmp_path / "file").touch()
    run = Run(**run.model_dump() | {"framework": "tensorflow", "processes": "one", "execution": "graph"})
    with pytest.raises(ValueError, match="TensorBoard's logs cannot be written to"):
        measure([Point(run)], RecordStore(tmp_path / "runs"), tensorboard=tmp_path / "file")
