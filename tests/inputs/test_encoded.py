"""JPEG files as training reads them: the same whoever decodes, disjoint between shards, and honest about files that are none."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from multigpu.inputs.encoded import AREA, SIZES, EncodedImages, Example, crop_box, jpeg_folder, made_folder
from multigpu.inputs.images import HostImages
from multigpu.inputs.pictures import IMAGENET_DEVIATION, IMAGENET_MEAN
from tests.inputs.stand_ins import make_image_model, make_run
from tests.refusals import refused

COUNT = 16


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return made_folder(tmp_path_factory.mktemp("cache"), COUNT)


def opened(folder: Path, sizes: list[int], seed: int = 0, size: int = 16) -> EncodedImages:
    run = make_run(sizes, "jpeg_folder", seed=seed, data=(str(folder),))
    return jpeg_folder(run, make_image_model(size, 3, 11))


def test_a_folder_is_made_once_and_a_picture_depends_on_seed_and_number_alone(folder: Path, tmp_path: Path) -> None:
    files = {file: file.stat() for file in folder.glob("*/*.jpg")}
    assert len(files) == COUNT and 40e3 < np.mean([state.st_size for state in files.values()]) < 200e3  # ImageNet's are about 110 kB
    assert {Example(file, 0, (0, 0, 0)).size() for file in files} <= {*SIZES}
    assert made_folder(folder.parent, COUNT) == folder and all(file.stat().st_mtime_ns == files[file].st_mtime_ns for file in files)
    fewer, other = made_folder(tmp_path, 4), made_folder(tmp_path, 4, seed=1)
    for file in fewer.rglob("*.jpg"):
        assert file.read_bytes() == (folder / file.relative_to(fewer)).read_bytes()
    assert {file.read_bytes() for file in other.rglob("*.jpg")}.isdisjoint(file.read_bytes() for file in fewer.rglob("*.jpg"))
    assert not list(tmp_path.glob(".making-*"))
    assert opened(folder, [4]).fingerprint == opened(folder, [2, 2], seed=5).fingerprint != opened(fewer, [4]).fingerprint


def test_a_cache_that_cannot_be_written_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ValueError, match=r"JPEG files cannot be written to .*file/cache: .*name your own folder of images in data"):
        made_folder(tmp_path / "file" / "cache", 4)


@given(st.integers(1, 800), st.integers(1, 800), st.integers(0, 2**32))
def test_crops_lie_within_the_image(width: int, height: int, seed: int) -> None:
    left, top, w, h = crop_box(width, height, np.random.default_rng(seed))
    assert 0 <= left <= left + w <= width and 0 <= top <= top + h <= height and w > 0 and h > 0


def test_crops_cover_all_areas_and_both_shapes() -> None:
    boxes = [crop_box(500, 375, np.random.default_rng(seed)) for seed in range(300)]
    shares = [w * h / (500 * 375) for _, _, w, h in boxes]
    assert AREA[0] - 0.01 < min(shares) < 0.15 and max(shares) > 0.85 and {w > h for _, _, w, h in boxes} == {True, False}
    assert crop_box(1000, 1, np.random.default_rng(0)) == (499, 0, 1, 1)  # no shape fits: the square in the middle


def test_a_batch_is_decoded_cropped_flipped_and_normalised(folder: Path) -> None:
    source = opened(folder, [6, 5])
    batch = source.batch(1, 1)
    images, labels = batch.arrays["images"], batch.arrays["labels"]
    assert images.shape == (5, 3, 16, 16) and images.dtype == np.float32 and images.flags.c_contiguous and labels.dtype == np.int64
    assert (batch.rank, batch.units, batch.loss_terms, source.label) == (1, 5, (6, 5), f"JPEG files of {folder.name}")
    flips = set()
    for example, image, label in zip(source.examples(1, 1), images, labels, strict=True):
        assert int(example.file.parent.name) == example.label == label
        with Image.open(example.file) as picture:
            (left, top, w, h), flipped = example.changes(*picture.size)
            part = picture.crop((left, top, left + w, top + h)).resize((16, 16), Image.Resampling.BILINEAR)
        expected = np.asarray(part, dtype=np.float64)[:, ::-1] if flipped else np.asarray(part, dtype=np.float64)
        expected = (expected / 255 - IMAGENET_MEAN) / IMAGENET_DEVIATION
        assert image.transpose(1, 2, 0) == pytest.approx(expected, abs=1e-5)
        flips.add(flipped)
    assert flips == {True, False}


def test_every_epoch_crops_anew(folder: Path) -> None:
    source = opened(folder, [COUNT])
    epochs = [{example.file: example.changes(500, 375) for example in source.examples(step, 0)} for step in range(2)]
    assert epochs[0].keys() == epochs[1].keys()
    assert sum(epochs[0][file] == epochs[1][file] for file in epochs[0]) <= 1


def test_a_file_that_is_no_image_is_named(folder: Path, tmp_path: Path) -> None:
    own = tmp_path / "own" / "a"
    own.mkdir(parents=True)
    (own / "broken.jpg").write_bytes(b"\xff\xd8 no picture")
    source = opened(own.parent, [1])
    for ask in (lambda: source.batch(0, 0), lambda: source.examples(0, 0)[0].size()):
        refused(r"^\S*broken.jpg cannot be decoded as an image$", ask)


def test_what_does_not_fit_is_refused(folder: Path) -> None:
    run = make_run([1], "jpeg_folder", data=(str(folder),))
    refused("JPEG files have 3 channels: model 'm' takes 1", jpeg_folder, run, make_image_model(8, 1))
    refused("has 10 classes: model 'm' tells only 3 apart", jpeg_folder, run, make_image_model(8, 3, 3))
    refused("needs data to name one folder: it names 2", jpeg_folder, make_run([1], "jpeg_folder", data=("a", "b")), make_image_model())
    refused("reads no files: leave out data, which names x", HostImages, make_run([1], "synthetic_host", data=("x",)), make_image_model())
    grey = make_image_model(channels=1)
    refused("'uint8' is for pixels of 3 channels: model 'm' takes 1", HostImages, make_run([1], image_dtype="uint8"), grey)
