import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from sklearn.datasets import load_digits

from multigpu.inputs.batch import Draw
from multigpu.inputs.images import cifar10, digits, image_folder, synthetic_images
from multigpu.inputs.pictures import (
    CIFAR_DEVIATION,
    CIFAR_MEAN,
    CIFAR_RECORD,
    IMAGENET_DEVIATION,
    IMAGENET_MEAN,
    ImageFolder,
    resize,
    standardise,
)
from tests.inputs.stand_ins import make_image_model, make_run
from tests.refusals import refused

SIZES = st.lists(st.integers(1, 7), min_size=1, max_size=8)


@given(SIZES, st.integers(0, 100))
def test_synthetic_images_are_drawn_by_the_engine(sizes: list[int], seed: int):
    source = synthetic_images(make_run(sizes, seed=seed), make_image_model(32, 3, 11))
    assert (source.label, source.period, source.capacity) == ("synthetic", 1, {})
    seeds = set()
    for rank, size in enumerate(sizes):
        batch = source.batch(0, rank)
        images, labels = batch.arrays["images"], batch.arrays["labels"]
        assert isinstance(images, Draw) and isinstance(labels, Draw)
        assert (images.shape, images.law) == ((size, 3, 32, 32), "normal")
        assert (labels.shape, labels.law, labels.classes) == ((size,), "labels", 11)
        assert (batch.units, batch.padded_units, batch.loss_terms, batch.lookups) == (size, size, tuple(sizes), tuple({} for _ in sizes))
        seeds |= {images.seed, labels.seed}
    assert len(seeds) == 2 * len(sizes)
    marks = [synthetic_images(make_run([size]), make_image_model(pixels)).fingerprint for size, pixels in ((4, 8), (9, 8), (4, 16))]
    assert marks[0] == marks[1] != marks[2]


def test_digits_are_scikit_learns_with_their_labels():
    source, sizes = digits(make_run([100, 99], "digits"), make_image_model(8, 1, 10)), [100, 99]
    assert (source.label, source.period, source.steps_per_epoch) == ("digits", None, 10)
    known = {image.tobytes(): int(label) for image, label in zip(*load_digits(return_X_y=True), strict=True)}
    pixels = load_digits().images / 16
    seen = 0
    for step in range(10):
        for rank in range(2):
            batch = source.batch(step, rank)
            images, labels = batch.arrays["images"], batch.arrays["labels"]
            assert (images.shape, images.dtype, labels.dtype) == ((sizes[rank], 1, 8, 8), np.float32, np.int64)
            raw = np.round((images * pixels.std() + pixels.mean()) * 16).astype(np.float64).reshape(len(labels), 64) + 0.0  # no -0
            assert [known[row.tobytes()] for row in raw] == labels.tolist()
            seen += len(labels)
            assert (batch.units, batch.loss_terms) == (sizes[rank], (100, 99))
    assert seen == 1990
    large = digits(make_run([4], "digits"), make_image_model(28, 3, 11)).batch(450, 0).arrays["images"]
    assert large.shape == (4, 3, 28, 28) and large.flags.c_contiguous and large.flags.writeable
    assert (large[:, 0] == large[:, 2]).all()


def test_resize_follows_pillow_and_channels_are_standardised():
    images = np.random.default_rng(0).random((1, 1, 9, 13)).astype(np.float32)
    for size in (4, 9, 13, 30):
        picture = Image.fromarray(images[0, 0], mode=None).resize((size, size), Image.Resampling.BILINEAR)
        assert resize(images, size)[0, 0] == pytest.approx(np.asarray(picture), abs=1e-5)
    assert (resize(images[:, :, :, :9], 9) == images[:, :, :, :9]).all()
    assert resize(np.ones((2, 3, 8, 8)), 21) == pytest.approx(1)
    found = standardise(np.stack([np.full((2, 2), 5.0), np.full((2, 2), 7.0)])[None], (1.0, 3.0), (2.0, 8.0))
    assert found.dtype == np.float32 and (found[0, 0] == 2).all() and (found[0, 1] == 0.5).all()


def write_cifar(folder: Path, counts: list[int]) -> np.ndarray:
    """Files of random records; returns them all, shape (images, 3073)."""
    rng = np.random.default_rng(1)
    records = [rng.integers(0, 256, (count, CIFAR_RECORD), dtype=np.uint8) for count in counts]
    for number, part in enumerate(records, start=1):
        part[:, 0] %= 10
        (folder / f"data_batch_{number}.bin").write_bytes(part.tobytes())
    return np.concatenate(records)


def test_cifar10_reads_its_own_format(tmp_path: Path):
    records = write_cifar(tmp_path, [7, 1, 5])
    (tmp_path / "test_batch.bin").write_bytes(b"not read")
    source = cifar10(make_run([4, 3], "cifar10", data=(str(tmp_path),)), make_image_model(32, 3, 10))
    assert (source.label, source.steps_per_epoch) == ("CIFAR-10", 2)
    seen = set()
    for step in range(2):
        for rank in range(2):
            batch = source.batch(step, rank)
            images, labels = batch.arrays["images"], batch.arrays["labels"]
            assert images.dtype == np.float32 and labels.dtype == np.int64 and images.flags.writeable
            scale = np.array(CIFAR_DEVIATION).reshape(3, 1, 1), np.array(CIFAR_MEAN).reshape(3, 1, 1)
            raw = np.round((images * scale[0] + scale[1]) * 255).astype(np.uint8)
            for image, label in zip(raw, labels, strict=True):
                (place,) = np.flatnonzero((records[:, 1:] == image.ravel()).all(axis=1))
                assert records[place, 0] == label
                # red, green and blue planes one after the other, row by row
                assert image[1, 2, 3] == records[place, 1 + 1024 + 2 * 32 + 3]
                seen.add(int(place))
    assert seen == set(range(13))
    assert cifar10(make_run([2], data=(str(tmp_path),)), make_image_model(16)).batch(0, 0).arrays["images"].shape == (2, 3, 16, 16)


def write_folder(folder: Path) -> Path:
    for number, (name, file, mode) in enumerate(
        [("cat", "b.png", "RGB"), ("cat", "a.jpg", "RGB"), ("ape", "c.JPEG", "L"), ("dog", "d.png", "RGBA")]
    ):
        (folder / name).mkdir(exist_ok=True)
        picture = Image.new(mode, (10 + number, 8), 40 * number if mode == "L" else tuple([40 * number] * len(mode)))
        picture.save(folder / name / file)
    (folder / "cat" / "notes.txt").write_text("not an image")
    (folder / "README").write_text("not a class")
    return folder


def test_image_folder_takes_classes_from_folders(tmp_path: Path):
    data = (str(write_folder(tmp_path)),)
    source = image_folder(make_run([2, 2], "image_folder", data=data), make_image_model(6, 3, 3))
    assert source.label == f"image folder {tmp_path.name}"
    found = {}
    for rank in range(2):
        batch = source.batch(0, rank)
        images, labels = batch.arrays["images"], batch.arrays["labels"]
        assert images.shape == (2, 3, 6, 6) and images.dtype == np.float32 and images.flags.c_contiguous
        raw = images * np.array(IMAGENET_DEVIATION).reshape(3, 1, 1) + np.array(IMAGENET_MEAN).reshape(3, 1, 1)
        found |= {round(float(image.mean()) * 255): int(label) for image, label in zip(raw, labels, strict=True)}
    assert found == {0: 1, 40: 1, 80: 0, 120: 2}  # ape, cat, dog
    grey = image_folder(make_run([4], data=data), make_image_model(6, 1, 3)).batch(0, 0)
    assert grey.arrays["images"].shape == (4, 1, 6, 6)


def test_image_folder_fingerprint_is_of_names_and_contents(tmp_path: Path):
    def mark(folder: Path) -> str:
        return image_folder(make_run([1], data=(str(folder),)), make_image_model()).fingerprint

    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        write_folder(tmp_path / name)
    assert mark(tmp_path / "one") == mark(tmp_path / "two")
    Image.new("RGB", (10, 8), (9, 9, 9)).save(tmp_path / "two" / "cat" / "b.png")
    assert mark(tmp_path / "one") != mark(tmp_path / "two")
    before = mark(tmp_path / "one")
    (tmp_path / "one" / "cat" / "b.png").rename(tmp_path / "one" / "cat" / "e.png")
    assert mark(tmp_path / "one") != before


def test_every_error_is_one_sentence(tmp_path: Path):
    def refuse(sentence: str, make: Any, data: tuple[str, ...] | None, sizes: tuple[int, ...] = (1,), **model: int) -> None:
        run = make_run(list(sizes), "x", data=data)
        refused(f"^{sentence}$", lambda: make(run, make_image_model(**{"size": 8, **model})).batch(0, 0))

    folder = (str(tmp_path),)
    refuse("inputs 'x' needs data to name one folder: it names 0", cifar10, None)
    refuse("inputs 'x' needs data to name one folder: it names 2", cifar10, ("a", "b"))
    for absent in (("absent",), folder):
        refuse(".* holds no data_batch_.*bin: name the folder with CIFAR-10's binary files", cifar10, absent)
    write_cifar(tmp_path, [3])
    refuse("CIFAR-10 has 3 channels: model 'm' takes 1", cifar10, folder, channels=1)
    refuse("a joined batch of 4 images needs at least as many: the data set has 3", cifar10, folder, (2, 2))
    for content, sentence in (
        (bytes(3074), "has 3074 bytes: CIFAR-10's records take 3073 bytes each"),
        (b"", "has 0 bytes: CIFAR-10's records take 3073 bytes each"),
        (b"\x0a" + bytes(3072), "has the label 10: CIFAR-10's labels are 0 to 9"),
    ):
        (tmp_path / "data_batch_2.bin").write_bytes(content)
        refuse(f".*data_batch_2.bin {sentence}", cifar10, folder)

    refuse("image folder .*absent does not exist", image_folder, (str(tmp_path / "absent"),))
    refuse(r"image folder .* holds no class/image.png or .jpg", image_folder, folder)
    (tmp_path / "broken" / "cat").mkdir(parents=True)
    (tmp_path / "broken" / "cat" / "a.png").write_bytes(b"no image")
    refuse(".*a.png cannot be decoded as an image", image_folder, (str(tmp_path / "broken"),))
    (tmp_path / "good").mkdir()
    good = (str(write_folder(tmp_path / "good")),)
    refuse("images of a folder have 1 or 3 channels: the model takes 4", image_folder, good, channels=4)
    refuse("image folder good has 3 classes: model 'm' tells only 2 apart", image_folder, good, classes=2)

    refuse("inputs 'x' reads no files: leave out data, which names a, b", digits, ("a", "b"))
    refuse("inputs 'x' reads no files: leave out data, which names a", synthetic_images, ("a",))
    refuse("digits has 10 classes: model 'm' tells only 9 apart", digits, None, classes=9)


def test_grey_pixels_of_16_bits_are_scaled_and_others_refused(tmp_path: Path):
    (tmp_path / "grey").mkdir()
    values = np.array([[0, 257], [32896, 65535]], np.uint16)
    for name, array in (("deep", values), ("plain", (values // 257).astype(np.uint8))):
        Image.fromarray(array).save(tmp_path / "grey" / f"{name}.png")
    found = ImageFolder(tmp_path, 2, 1).read(np.arange(2))[0]
    np.testing.assert_array_equal(found[0], found[1])
    assert len(np.unique(found)) == 4
    Image.fromarray(np.full((2, 2), 1 << 20, np.int32)).save(tmp_path / "grey" / "a.tiff")
    (tmp_path / "grey" / "a.tiff").rename(tmp_path / "grey" / "a.png")
    with pytest.raises(ValueError, match=r"a.png cannot be decoded as an image: its pixels are neither of 8 nor of 16 bits"):
        ImageFolder(tmp_path, 2, 1).read(np.arange(1))


def test_a_pipe_among_images_is_refused_and_not_waited_for(tmp_path: Path):
    (tmp_path / "cat").mkdir()
    os.mkfifo(tmp_path / "cat" / "a.png")
    found = ImageFolder(tmp_path, 2, 1)
    refused(r"cat/a.png cannot be decoded as an image: it is no file but a pipe", found.read, np.arange(1))
    with pytest.raises(OSError, match=r"cat/a.png is no file but a pipe"):
        found.fingerprint  # noqa: B018
