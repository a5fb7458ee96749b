"""tf.data decodes the same files, with the same crops and flips, as everybody else."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from multigpu.inputs.encoded import jpeg_folder, made_folder
from multigpu.run import Run, build_run


def make(folder: Path, **more: object) -> Run:
    common: dict[str, object] = {"workload": "cnn", "model": "resnet_small", "placement": "exp2", "framework": "tensorflow"}
    common |= {"processes": "one", "execution": "graph", "device_type": "cpu", "batch_size": 4, "inputs": "jpeg_folder"}
    return build_run(**(common | {"data": (str(folder),), "input_workers": 2, "prefetch": 1} | more))


def test_batches_agree_with_the_source_within_what_decoders_differ(tmp_path: Path, tf: Any) -> None:
    from multigpu.engines.tensorflow.devices import Devices
    from multigpu.engines.tensorflow.feed import DataFeed

    run = make(made_folder(tmp_path, 8))
    source = jpeg_folder(run, run.description)
    feed = DataFeed(source, Devices(run))
    for step in range(3):  # one epoch and half of the next
        (shard,) = feed.shards(step)
        expected = source.batch(step, 0).arrays
        images, labels = expected["images"], expected["labels"]
        assert isinstance(images, np.ndarray) and np.array_equal(shard.tensors["labels"].numpy(), labels)
        found = shard.tensors["images"].numpy()
        assert found.shape == images.shape and found.dtype == np.float32
        # a step of 0 .. 255 is about 0.017 here; the libraries' decoders and filters differ by one or two of them
        assert np.abs(found - images).mean() < 0.04 < np.abs(found - found[:, :, :, ::-1]).mean()
        assert (shard.batch.units, shard.batch.loss_terms) == (4, (4,))
    assert sorted(feed.waits) == [0, 1, 2] and all(wait > 0 for wait in feed.waits.values())
    with pytest.raises(RuntimeError, match="step 3 comes next, not 1"):
        feed.shards(1)
    feed.close()


def test_a_file_that_is_no_jpeg_is_one_sentence(tmp_path: Path, tf: Any) -> None:
    from multigpu.engines.tensorflow.devices import Devices
    from multigpu.engines.tensorflow.feed import DataFeed

    folder = made_folder(tmp_path, 4)
    for file in folder.rglob("*.jpg"):
        file.write_bytes(file.read_bytes()[:2000])  # its head still tells its size
    run = make(folder, input_workers=0, prefetch=0)
    feed = DataFeed(jpeg_folder(run, run.description), Devices(run))
    with pytest.raises(ValueError, match=r"^an image of step 0 cannot be decoded: ") as caught:
        feed.shards(0)
    assert "\n" not in str(caught.value)
    feed.close()
