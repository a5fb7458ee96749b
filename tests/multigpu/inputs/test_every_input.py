"""What holds for every input: any rank works out any shard alone, a batch counts what it holds, and
an epoch reads every item.

Ways of feeding them; and JPEG files as training reads them: the same whoever decodes, and honest
about files that are none.
"""

import threading
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from multigpu.build import build_run
from multigpu.inputs.batch import Batch, Feeding, Source
from multigpu.inputs.encoded import (
    AREA,
    SIZES,
    EncodedImages,
    Example,
    crop_box,
    jpeg_folder,
    made_folder,
)
from multigpu.inputs.images import HostImages
from multigpu.inputs.pictures import IMAGENET_DEVIATION, IMAGENET_MEAN
from multigpu.inputs.plans import Epochs
from multigpu.workloads import description_of, workloads
from tests.installed import installed
from tests.multigpu.inputs.stand_ins import make_image_model, make_run, same, shard_lists
from tests.refusals import refused

MODELS = {"nmt": "nmt_small", "cnn": "resnet_tiny", "deepconn": "deepconn_tiny", "gpt": "gpt_small"}
SHARDS = [6, 5]
"""Of the shards: a global batch of 11 on two devices."""
INPUTS = [
    *(("nmt", name) for name in ("synthetic", "lengths_000", "bucket_means_000", "catalogs")),
    *(
        ("cnn", name)
        for name in (
            "synthetic",
            "synthetic_host",
            "digits",
            "digits_split",
            "teacher_small",
            "jpeg_folder",
        )
    ),
    *(("deepconn", name) for name in ("synthetic", "planted_reviews")),
    *(("gpt", name) for name in ("synthetic", "pieces_package")),
]
IN_ORDER = {"catalogs", "pieces_package"}
"""Whose order is the corpus's, whatever the seed."""
UNITS = {"gpt": 64}
"""Units of one row; 1 of others but sentences."""
TABLE = "word_embeddings"  # of the recommender, which another package may bring
DRAWN = {"synthetic", "synthetic_host", "lengths_000", "bucket_means_000", "planted_reviews"}
"""Whose seed decides what there is, and not only in which order it comes."""


COUNT = 16


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return made_folder(tmp_path_factory.mktemp("cache"), COUNT)


@pytest.fixture(scope="module")
def opened(folder: Path) -> Any:
    """The source of an input, on two devices."""

    def make(workload: str, inputs: str, seed: int = 0) -> Source:
        more: dict[str, Any] = {"data": (str(folder),)} if inputs == "jpeg_folder" else {}
        fields = {
            "placement": "ddp",
            "device_type": "cpu",
            "devices": 2,
            "batch_size": 11,
            "scaling": "strong",
        }
        run = build_run(
            workload=workload, model=MODELS[workload], inputs=inputs, seed=seed, **fields, **more
        )
        return workloads()[workload].inputs[inputs](run, description_of(run))

    return make


def shards_of(source: Source, step: int) -> list[Batch]:
    return [source.batch(step, rank) for rank in range(2)]


def differ(one: Batch, other: Batch) -> bool:
    """Whether no array of the one is the other's, rows that one has more left out, and draws by
    their seeds.
    """
    pairs = [
        (one.arrays[name], other.arrays[name])
        for name in one.arrays
        if not name.endswith("_length")
    ]
    return all(
        (
            not np.array_equal(a[:5], b[:5])
            if isinstance(a, np.ndarray) and isinstance(b, np.ndarray)
            else a.seed != b.seed
        )  # type: ignore[union-attr]
        for a, b in pairs
        if np.shape(a)[1:] == np.shape(b)[1:]
    )


@pytest.mark.parametrize(("workload", "inputs"), installed(INPUTS))
def test_every_rank_works_out_the_same_and_a_batch_counts_what_it_holds(
    opened: Any, workload: str, inputs: str
) -> None:
    source = opened(workload, inputs)
    twin = opened(workload, inputs)
    other = opened(workload, inputs, seed=1)
    for step in (3, 0, 1):
        batches = shards_of(source, step)
        for rank, batch in enumerate(batches):
            assert same(batch, twin.batch(step, rank)), (
                "not the same whoever asks, and in whatever order"
            )
            rows = {array.shape[0] for array in batch.arrays.values()}
            assert (batch.rank, rows) == (
                rank,
                {SHARDS[rank]},
            ) and batch.units <= batch.padded_units
            assert (
                batch.loss_terms == batches[0].loss_terms
                and batch.lookups == batches[0].lookups
                and batch.global_loss_terms >= 11
            )
            assert all(
                rows <= source.capacity[name]
                for lookups in batch.lookups
                for name, rows in lookups.items()
            )
            if workload != "nmt":
                each = [UNITS.get(workload, 1) * rows for rows in SHARDS]
                assert batch.units == batch.padded_units == each[rank]
                assert batch.loss_terms == tuple(each)
        assert differ(*batches)
        assert differ(batches[0], other.batch(step, 0)) is (inputs not in IN_ORDER)
        if workload == "deepconn":
            assert all(
                batch.lookups[batch.rank] == {TABLE: np.size(batch.arrays["words"])}
                for batch in batches
            )
    if source.period:
        assert same(source.batch(1, 1), source.batch(1 + source.period, 1))
    assert source.label and source.fingerprint == twin.fingerprint
    assert (source.fingerprint != other.fingerprint) is (inputs in DRAWN)


@pytest.mark.parametrize("inputs", ["digits", "digits_split", "jpeg_folder"])
def test_items_are_what_the_batch_holds(opened: Any, inputs: str) -> None:
    """The audit of shards trusts `items`: equal numbers must be equal images, or images of one file
    that is cropped anew.
    """
    source, seen = opened("cnn", inputs), {}
    for step in (0, 1, source.steps_per_epoch, source.steps_per_epoch + 1):
        for batch in shards_of(source, step):
            items = source.items(step, batch.rank).tolist()
            held = batch.arrays["labels"] if inputs == "jpeg_folder" else batch.arrays["images"]
            assert len(items) == batch.units
            assert all(
                seen.setdefault(item, row.tobytes()) == row.tobytes()
                for item, row in zip(items, held, strict=True)
            )


class Numbers(Epochs):
    """A data set of numbers."""

    def batch(self, step: int, rank: int) -> Batch:
        raise NotImplementedError


@given(st.data(), shard_lists(), st.integers(0, 2**31))
def test_an_epoch_covers_everything_in_an_order_of_its_own_and_shards_are_disjoint(
    data: st.DataObject, sizes: list[int], seed: int
) -> None:
    joined = sum(sizes)
    count = data.draw(st.integers(joined, joined + 100))
    plan, orders = Numbers(make_run(sizes, seed=seed), count), []
    for epoch in range(2):
        seen: Counter[int] = Counter()
        for step in range(epoch * plan.steps_per_epoch, (epoch + 1) * plan.steps_per_epoch):
            shards = [plan.items(step, rank).tolist() for rank in range(len(sizes))]
            assert [len(shard) for shard in shards] == sizes
            assert len({item for shard in shards for item in shard}) == joined
            seen.update(item for shard in shards for item in shard)
        assert set(seen) == set(range(count)) and sum(seen.values()) - count < joined
        orders.append(list(seen))
    assert count < 20 or orders[0] != orders[1]
    refused(
        "^a global batch of 9 rows needs at least as many: the data set has 8$",
        Numbers,
        make_run([5, 4]),
        8,
        "rows",
    )


class Numbered(Source):
    """Batches that hold their step (or with a period their place in it) and rank; notes who asked
    for which.
    """

    label, capacity, fingerprint = "numbered", {}, ""

    def __init__(self, period: int | None) -> None:
        self.period = period
        self.asked: list[tuple[int, int, str]] = []

    def batch(self, step: int, rank: int) -> Batch:
        self.asked.append((step, rank, threading.current_thread().name))
        return Batch({"numbers": np.array([step, rank])}, rank, 1, 1, (1, 1), ({}, {}))


class Copied(Feeding[list[np.ndarray]]):
    """Gives a step copies of its shards' numbers."""

    ranks = (0, 1)

    def put_all(self, batches: list[Batch]) -> list[np.ndarray]:
        return [np.array(batch.arrays["numbers"]) for batch in batches]


def steps_of(given: list[np.ndarray]) -> int:
    """The step whose shards these are."""
    one, other = (numbers.tolist() for numbers in given)
    assert (one[1], other[1]) == (0, 1) and one[0] == other[0]
    return int(one[0])


def test_what_repeats_is_kept_and_nobody_waits() -> None:
    source = Numbered(3)
    feed = Copied(source, None)
    first = [feed.given(step) for step in range(3)]
    assert all(feed.given(step) is first[step % 3] for step in (3, 4, 5, 7)) and [
        steps_of(given) for given in first
    ] == [0, 1, 2]
    assert len(source.asked) == 6 and feed.waits == {} and feed.thread is None


@pytest.mark.parametrize("mode", ["arrays", "strings"])
def test_what_the_step_asks_for_is_copied_by_its_own_thread_every_time(mode: str) -> None:
    source = Numbered(2)
    feed = Copied(source, mode)
    given = [feed.given(step) for step in range(4)]
    assert [steps_of(each) for each in given] == [0, 1, 0, 1]
    assert given[2][0] is not given[0][0], "a copy every time, of a batch that is made once"
    assert [asked[:2] for asked in source.asked] == [(0, 0), (0, 1), (1, 0), (1, 1)]
    assert {name for _, _, name in source.asked} == {threading.current_thread().name}
    assert sorted(feed.waits) == [0, 1, 2, 3]
    feed.close()


@pytest.mark.parametrize(("period", "mode"), [(None, None), (None, "pipeline"), (9, "pipeline")])
def test_one_step_ahead_is_made_by_another_thread_whatever_the_order(
    period: int | None, mode: str | None
) -> None:
    source = Numbered(period)
    feed = Copied(source, mode)
    assert [steps_of(feed.given(step)) for step in (0, 1, 7, 8)] == [0, 1, 7, 8]
    feed.close()
    own = threading.current_thread().name
    by_own = [step for step, rank, name in source.asked if name == own and rank == 0]
    by_other = {step for step, _, name in source.asked if name != own}
    assert by_own == [0, 7], "what no step before asked for"
    assert {1, 2, 8} <= by_other and sorted(feed.waits) == [0, 1, 7, 8]


def jpegs(folder: Path, sizes: list[int], seed: int = 0, size: int = 16) -> EncodedImages:
    run = make_run(sizes, "jpeg_folder", seed=seed, data=(str(folder),))
    return jpeg_folder(run, make_image_model(size, 3, 11))


def test_a_folder_is_made_once_and_a_picture_depends_on_seed_and_number_alone(
    folder: Path, tmp_path: Path
) -> None:
    files = {file: file.stat() for file in folder.glob("*/*.jpg")}
    # ImageNet's are about 110 kB
    assert (
        len(files) == COUNT and 40e3 < np.mean([state.st_size for state in files.values()]) < 200e3
    )
    assert {Example(file, 0, (0, 0, 0)).size() for file in files} <= {*SIZES}
    assert made_folder(folder.parent, COUNT) == folder and all(
        file.stat().st_mtime_ns == files[file].st_mtime_ns for file in files
    )
    fewer, other = made_folder(tmp_path, 4), made_folder(tmp_path, 4, seed=1)
    for file in fewer.rglob("*.jpg"):
        assert file.read_bytes() == (folder / file.relative_to(fewer)).read_bytes()
    assert {file.read_bytes() for file in other.rglob("*.jpg")}.isdisjoint(
        file.read_bytes() for file in fewer.rglob("*.jpg")
    )
    assert not list(tmp_path.glob(".making-*"))
    assert (
        jpegs(folder, [4]).fingerprint
        == jpegs(folder, [2, 2], seed=5).fingerprint
        != jpegs(fewer, [4]).fingerprint
    )


def test_a_cache_that_cannot_be_written_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(
        ValueError,
        match=(
            r"JPEG files cannot be written to .*file/cache: .*name your own folder of images in"
            r" data"
        ),
    ):
        made_folder(tmp_path / "file" / "cache", 4)


@given(st.integers(1, 800), st.integers(1, 800), st.integers(0, 2**32))
def test_crops_lie_within_the_image(width: int, height: int, seed: int) -> None:
    left, top, w, h = crop_box(width, height, np.random.default_rng(seed))
    assert 0 <= left <= left + w <= width and 0 <= top <= top + h <= height and w > 0 and h > 0


def test_crops_cover_all_areas_and_both_shapes() -> None:
    boxes = [crop_box(500, 375, np.random.default_rng(seed)) for seed in range(300)]
    shares = [w * h / (500 * 375) for _, _, w, h in boxes]
    assert (
        AREA[0] - 0.01 < min(shares) < 0.15
        and max(shares) > 0.85
        and {w > h for _, _, w, h in boxes} == {True, False}
    )
    # no shape fits: the square in the middle
    assert crop_box(1000, 1, np.random.default_rng(0)) == (499, 0, 1, 1)


def test_a_batch_is_decoded_cropped_flipped_and_normalised(folder: Path) -> None:
    source = jpegs(folder, [6, 5])
    batch = source.batch(1, 1)
    images, labels = batch.arrays["images"], batch.arrays["labels"]
    assert (
        images.shape == (5, 3, 16, 16)
        and images.dtype == np.float32
        and images.flags.c_contiguous
        and labels.dtype == np.int64
    )
    assert (batch.rank, batch.units, batch.loss_terms, source.label) == (
        1,
        5,
        (6, 5),
        f"JPEG files of {folder.name}",
    )
    flips = set()
    for example, image, label in zip(source.examples(1, 1), images, labels, strict=True):
        assert int(example.file.parent.name) == example.label == label
        with Image.open(example.file) as picture:
            (left, top, w, h), flipped = example.changes(*picture.size)
            part = picture.crop((left, top, left + w, top + h)).resize(
                (16, 16), Image.Resampling.BILINEAR
            )
        expected = (
            np.asarray(part, dtype=np.float64)[:, ::-1]
            if flipped
            else np.asarray(part, dtype=np.float64)
        )
        expected = (expected / 255 - IMAGENET_MEAN) / IMAGENET_DEVIATION
        assert image.transpose(1, 2, 0) == pytest.approx(expected, abs=1e-5)
        flips.add(flipped)
    assert flips == {True, False}


def test_every_epoch_crops_anew(folder: Path) -> None:
    source = jpegs(folder, [COUNT])
    epochs = [
        {example.file: example.changes(500, 375) for example in source.examples(step, 0)}
        for step in range(2)
    ]
    assert epochs[0].keys() == epochs[1].keys()
    assert sum(epochs[0][file] == epochs[1][file] for file in epochs[0]) <= 1


def test_what_does_not_fit_is_refused(folder: Path) -> None:
    run = make_run([1], "jpeg_folder", data=(str(folder),))
    refused(
        "JPEG files have 3 channels: model 'm' takes 1", jpeg_folder, run, make_image_model(8, 1)
    )
    refused(
        "has 10 classes: model 'm' tells only 3 apart", jpeg_folder, run, make_image_model(8, 3, 3)
    )
    refused(
        "needs data to name one folder: it names 2",
        jpeg_folder,
        make_run([1], "jpeg_folder", data=("a", "b")),
        make_image_model(),
    )
    refused(
        "reads no files: leave out data, which names x",
        HostImages,
        make_run([1], "synthetic_host", data=("x",)),
        make_image_model(),
    )
    grey = make_image_model(channels=1)
    refused(
        "'uint8' is for pixels of 3 channels: model 'm' takes 1",
        HostImages,
        make_run([1], image_dtype="uint8"),
        grey,
    )
