"""TensorFlow's engine: values drawn ahead, JPEG files as everybody else decodes them, logs that
show where every operation ran.
"""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from multigpu.build import build_run
from multigpu.cli.main import main
from multigpu.engines.common.session import Opening
from multigpu.inputs.encoded import jpeg_folder, made_folder
from multigpu.records.record import RecordStore
from multigpu.runner.point import Point
from multigpu.runner.sweep import measure
from multigpu.spec.run import Run
from multigpu.workloads import description_of

pytest.importorskip("tensorflow")

from multigpu.engines.tensorflow.devices import Devices
from multigpu.engines.tensorflow.feed import DataFeed
from multigpu.engines.tensorflow.variables import initial_value, initial_values
from multigpu.workloads import workloads
from tests.installed import installed
from tests.refusals import refused


@pytest.mark.parametrize(
    ("workload", "model"),
    installed([("nmt", "nmt_tiny"), ("deepconn", "deepconn_tiny"), ("cnn", "resnet_tiny")]),
)
def test_values_drawn_ahead_come_in_order_and_are_those_drawn_alone(
    workload: str, model: str
) -> None:
    description = workloads()[workload].models[model]
    assert next(iter(initial_values(description, seed=3)))[0] is description.variables[0], (
        "the others may be left"
    )
    drawn = list(initial_values(description, seed=3))
    assert [variable.name for variable, _ in drawn] == [
        variable.name for variable in description.variables
    ]
    for index, (variable, value) in enumerate(drawn):
        assert np.array_equal(value, initial_value(variable, index, 3)), variable.name
        assert value.dtype == np.float32 and value.shape == variable.shape
        if variable.init.law == "uniform":
            assert abs(value).max() <= variable.init.scale and (
                value.size < 100 or value.min() < 0 < value.max()
            )


def make(folder: Path, **more: object) -> Run:
    common: dict[str, object] = {
        "workload": "cnn",
        "model": "resnet_small",
        "placement": "exp2",
        "framework": "tensorflow",
    }
    common |= {
        "processes": "one",
        "execution": "graph",
        "device_type": "cpu",
        "batch_size": 4,
        "inputs": "jpeg_folder",
    }
    return build_run(
        **(common | {"data": (str(folder),), "input_workers": 2, "prefetch": 1} | more)
    )


def test_batches_agree_with_the_source_within_what_decoders_differ(tmp_path: Path, tf: Any) -> None:
    run = make(made_folder(tmp_path, 8))
    source = jpeg_folder(run, description_of(run))
    feed = DataFeed(source, Devices(run))
    for step in range(3):  # one epoch and half of the next
        (shard,) = feed.shards(step)
        expected = source.batch(step, 0).arrays
        images, labels = expected["images"], expected["labels"]
        assert isinstance(images, np.ndarray) and np.array_equal(
            shard.tensors["labels"].numpy(), labels
        )
        found = shard.tensors["images"].numpy()
        assert found.shape == images.shape and found.dtype == np.float32
        # a step of 0 .. 255 is about 0.017 here; the libraries' decoders and filters differ by one
        # or two of them
        assert np.abs(found - images).mean() < 0.04 < np.abs(found - found[:, :, :, ::-1]).mean()
        assert (shard.batch.units, shard.batch.loss_terms) == (4, (4,))
    assert sorted(feed.waits) == [0, 1, 2] and all(wait > 0 for wait in feed.waits.values())
    refused("step 3 comes next, not 1", feed.shards, 1, error=RuntimeError)
    feed.close()


def test_a_file_that_is_no_jpeg_is_one_sentence(tmp_path: Path, tf: Any) -> None:
    folder = made_folder(tmp_path, 4)
    for file in folder.rglob("*.jpg"):
        file.write_bytes(file.read_bytes()[:2000])  # its head still tells its size
    run = make(folder, input_workers=0, prefetch=0)
    feed = DataFeed(jpeg_folder(run, description_of(run)), Devices(run))
    refused("^an image of step 0 cannot be decoded: ", feed.shards, 0)
    feed.close()


def test_a_measured_run_leaves_logs_that_tensorboard_opens(tmp_path: Path, tf: Any) -> None:
    """Through the command line, and read by TensorBoard's own multiplexer, beside a Record that it
    does not change.
    """
    multiplexer = pytest.importorskip(
        "tensorboard.backend.event_processing.plugin_event_multiplexer"
    ).EventMultiplexer()
    fields = (
        "workload=stacks model=mlp_tiny placement=exp2 framework=tensorflow processes=one"
        " execution=graph optimizer=adam"
    )
    more = "device_type=cpu devices=2 batch_size=4 warmup_steps=2 timed_steps=3"
    asked = ["--records", str(tmp_path / "runs"), "measure", *fields.split(), *more.split()]
    assert main([*asked, "--quiet", "--tensorboard", str(tmp_path / "logs")]) == 0
    multiplexer.AddRunsFromDirectory(str(tmp_path / "logs")).Reload()
    ((run, tags),) = multiplexer.Runs().items()
    nodes = multiplexer.GetAccumulator(run).Graph().node
    places = [(node.op, node.device.rpartition(":device:")[2][-5:]) for node in nodes]
    (record,) = RecordStore(tmp_path / "runs")
    assert record.status == "ok" and record.measurement
    assert run == f"mlp_tiny-exp2-x2-{record.run.digest}"
    assert {"loss", "run", "bytes a step/host_to_device"} <= set(tags["tensors"])
    assert {place for _, place in places} == {"CPU:0", "CPU:1", "CPU:2"} and any(
        op == "_Send" for op, _ in places
    )
    assert {place for op, place in places if op == "ResourceApplyAdam"} == {"CPU:0"}, (
        "Exp2 updates on the host"
    )
    losses = [
        float(tf.make_ndarray(event.tensor_proto)) for event in multiplexer.Tensors(run, "loss")
    ]
    assert losses == pytest.approx(record.measurement.loss, rel=1e-5)
    assert len(multiplexer.Tensors(run, "step time in s, host's clock")) == 5


def test_a_session_whose_building_fails_gives_back_its_feed(
    tmp_path: Path, tf: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody ever gets such a session, and its thread would make batches beside the next Run."""
    from multigpu.engines.tensorflow.session import Session

    closed: list[Any] = []

    def fail(self: Session) -> Any:
        monkeypatch.setattr(self.feed, "close", lambda: closed.append(self.feed))
        raise MemoryError("planted: cannot allocate")

    monkeypatch.setattr(Session, "_trainer", fail)
    drawn = {"data": None, "inputs": "synthetic", "input_workers": None, "prefetch": 0}
    run = make(tmp_path, **drawn)
    with pytest.raises(MemoryError, match="planted"):
        Session(Opening(run, 0, 1, tmp_path, 60.0, 0.0, lambda stage: None))
    assert len(closed) == 1


def test_logs_of_another_framework_are_refused(tmp_path: Path) -> None:
    run = Run(
        workload="cnn", model="resnet_tiny", placement="exp2", device_type="cpu", batch_size=4
    )
    wanted = "need framework=tensorflow and processes=one, which resnet_tiny exp2 torch"
    refused(
        wanted, measure, [Point(run)], RecordStore(tmp_path / "runs"), tensorboard=tmp_path / "logs"
    )
    (tmp_path / "file").touch()
    run = Run(
        **run.model_dump() | {"framework": "tensorflow", "processes": "one", "execution": "graph"}
    )
    full = "TensorBoard's logs cannot be written to"
    refused(
        full, measure, [Point(run)], RecordStore(tmp_path / "runs"), tensorboard=tmp_path / "file"
    )
