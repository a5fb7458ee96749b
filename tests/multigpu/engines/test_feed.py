"""Feeding in PyTorch: whoever makes batches and however far ahead, the step gets the same ones, and
is told in a sentence why not.
"""

import gc
import os
import signal
import threading
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from unittest.mock import Mock

import psutil
import pytest
import torch

from multigpu.build import build_run
from multigpu.engines.torch.devices import Device
from multigpu.engines.torch.feed import Feed
from multigpu.engines.torch.loader import Workers
from multigpu.inputs.encoded import jpeg_folder, made_folder, normalised
from multigpu.inputs.images import synthetic_images
from multigpu.spec.run import Run
from multigpu.workloads import description_of, workloads
from tests.multigpu.runner.launched import IMAGES
from tests.patience import PATIENCE_S
from tests.refusals import refused

STEPS = 5


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return made_folder(tmp_path_factory.mktemp("cache"), 24)


def make(folder: Path, **more: object) -> Run:
    own = {"placement": "ddp", "devices": 2, "inputs": "jpeg_folder", "data": (str(folder),)}
    return build_run(**IMAGES | own | more)


def feed_of(run: Run, rank: int = 1) -> Feed:
    return Feed(jpeg_folder(run, description_of(run)), rank, Device(run, rank, 1))


def workers_of_this_process() -> list[psutil.Process]:
    """Processes below this one that make batches: not the server they come from, nor what watches
    over shared memory.
    """
    below = [(child, child.parent()) for child in psutil.Process().children(recursive=True)]
    return [
        one
        for one, parent in below
        if parent and parent.pid != os.getpid() and one.status() != psutil.STATUS_ZOMBIE
    ]


def ended(processes: list[psutil.Process]) -> bool:
    gc.collect()
    return not psutil.wait_procs(processes, timeout=PATIENCE_S)[1]


NONE = {"input_workers": 0}
WAYS = [
    {},
    {"prefetch": 1},
    {"prefetch": 2},
    NONE,
    NONE | {"prefetch": 2},
    {"input_workers": 2, "prefetch": 1},
]


@pytest.mark.parametrize("way", WAYS, ids=str)
def test_every_way_of_feeding_gives_the_sources_batches(
    folder: Path, way: dict[str, object]
) -> None:
    run = make(folder, **way)
    source = jpeg_folder(run, description_of(run))
    with closing(feed_of(run)) as feed:
        for step in [*range(STEPS), 1, 2]:  # and from an earlier step once more
            shard, expected = feed.shard(step), source.batch(step, 1)
            for name, array in expected.arrays.items():
                assert torch.equal(shard.device[name], torch.from_numpy(array)), (name, step)
            assert (shard.batch.units, shard.batch.loss_terms, shard.batch.rank) == (4, (4, 4), 1)
        waits = feed.wait_s(STEPS)
        assert len(waits) == STEPS and all(wait >= 0 for wait in waits)
        workers = workers_of_this_process()
        assert len(workers) >= (run.input_workers or 0)
    assert ended(workers)
    assert "input" not in {thread.name for thread in threading.enumerate()}


@pytest.mark.parametrize("prefetch", [1, 2])
def test_so_many_batches_are_placed_ahead_and_no_more(folder: Path, prefetch: int) -> None:
    feed = feed_of(make(folder, prefetch=prefetch))
    asked = feed.source.batch = Mock(wraps=feed.source.batch)  # type: ignore[method-assign]
    placed = feed.place = Mock(wraps=feed.place)  # type: ignore[method-assign]

    def until(true: Callable[[], bool]) -> None:
        """Wait for what another thread does."""
        last = time.monotonic() + PATIENCE_S
        while not true():
            assert time.monotonic() < last
            time.sleep(0.01)

    with closing(feed):
        feed.shard(0)
        # one more waits on the host, as it always does
        until(lambda: placed.call_count == 1 + prefetch and asked.call_count == 2 + prefetch)
        time.sleep(0.2)
        assert placed.call_count == 1 + prefetch and sorted(
            call.args[0] for call in asked.mock_calls
        ) == list(range(2 + prefetch))
        feed.shard(1)
        until(lambda: placed.call_count == 2 + prefetch)
    assert feed.wait_s(2)[1] < feed.wait_s(2)[0]  # it was ready, and the first had to be made


def test_batches_that_stay_on_the_device_are_not_waited_for() -> None:
    run = build_run(
        workload="cnn", model="resnet_tiny", placement="ddp", device_type="cpu", batch_size=2
    )
    feed = Feed(synthetic_images(run, description_of(run)), 0, Device(run, 0, 1))
    assert feed.shard(0) is feed.shard(1) and feed.wait_s(2) == []
    feed.close()


@pytest.mark.parametrize("way", [{"input_workers": 1}, NONE, NONE | {"prefetch": 1}, {}])
def test_a_file_that_is_no_image_is_one_sentence_from_wherever_it_is_read(
    tmp_path: Path, way: dict[str, object]
) -> None:
    (tmp_path / "a").mkdir()
    for number in range(8):
        (tmp_path / "a" / f"{number}.jpg").write_bytes(b"nothing")
    with closing(feed_of(make(tmp_path, **way))) as feed:
        refused(r"^\S+\.jpg cannot be decoded as an image$", feed.shard, 0)
    assert ended(workers_of_this_process())


def test_a_worker_that_is_killed_is_one_sentence(folder: Path) -> None:
    with closing(Workers(make(folder, input_workers=1), 0)) as workers:
        workers.given(0)
        for worker in workers_of_this_process():
            os.kill(worker.pid, signal.SIGKILL)
        sentence = (
            r"^an input worker of replica 0 ended before its batch was ready: DataLoader worker"
            r" \(pid"
        )
        refused(sentence, lambda: [workers.given(step) for step in range(1, 4)], error=RuntimeError)


@pytest.mark.parametrize("inputs", ["jpeg_folder", "synthetic_host"])
@pytest.mark.parametrize("layout", ["channels_first", "channels_last"])
def test_bytes_are_normalised_on_the_device_as_on_the_host(
    folder: Path, inputs: str, layout: str
) -> None:
    """To the last bit: both multiply and subtract in float32."""
    files = (str(folder),) if inputs == "jpeg_folder" else None
    images = {}
    for kind in (None, "uint8"):
        run = make(
            folder, image_dtype=kind, inputs=inputs, layout=layout, input_workers=0, data=files
        )
        source = workloads()["cnn"].inputs[inputs](run, description_of(run))
        with closing(Feed(source, 1, Device(run, 1, 1))) as feed:
            shard = feed.shard(3)
        images[kind] = shard.device["images"]
        order = torch.channels_last if layout == "channels_last" else torch.contiguous_format
        assert images[kind].dtype == torch.float32 and images[kind].is_contiguous(
            memory_format=order
        )
        if kind:
            pixels = source.batch(3, 1).arrays["images"]
            assert pixels.dtype == "uint8" and shard.host["images"].dtype == torch.uint8
            assert torch.equal(images[kind], torch.from_numpy(normalised(pixels)))
    # those of the host are drawn as bytes
    assert torch.equal(images[None], images["uint8"]) == (inputs == "jpeg_folder")
