import os
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from sklearn.datasets import load_digits

from multigpu.inputs.batch import Draw
from multigpu.inputs.images import cifar10, digits, digits_split, image_folder, synthetic_images
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
from multigpu.inputs.teacher import (
    CLASSES,
    TaughtImages,
    Teacher,
    draw_images,
    from_bytes,
    to_bytes,
)
from tests.multigpu.inputs.stand_ins import make_image_model, make_run, shard_lists
from tests.refusals import refused

SIZES = shard_lists()


@given(SIZES, st.integers(0, 100))
def test_synthetic_images_are_drawn_by_the_engine(sizes: list[int], seed: int):
    source, seeds = synthetic_images(make_run(sizes, seed=seed), make_image_model(32, 3, 11)), set()
    assert (source.period, source.capacity) == (1, {})
    for rank, size in enumerate(sizes):
        images, labels = (source.batch(0, rank).arrays[name] for name in ("images", "labels"))
        assert images == Draw((size, 3, 32, 32), "normal", images.seed) and labels == Draw(
            (size,), "labels", labels.seed, 11
        )
        seeds |= {images.seed, labels.seed}
    assert len(seeds) == 2 * len(sizes)


def test_digits_are_scikit_learns_with_their_labels():
    source = digits(make_run([100, 99], "digits"), make_image_model(8, 1, 10))
    pixels = load_digits().images / 16
    known = {
        image.tobytes(): int(label)
        for image, label in zip(*load_digits(return_X_y=True), strict=True)
    }
    assert source.steps_per_epoch == 10
    for step, rank in product(range(10), range(2)):
        images, labels = (source.batch(step, rank).arrays[name] for name in ("images", "labels"))
        assert (images.shape, images.dtype, labels.dtype) == (
            (100 - rank, 1, 8, 8),
            np.float32,
            np.int64,
        )
        # no -0
        raw = (
            np.round((images * pixels.std() + pixels.mean()) * 16)
            .astype(np.float64)
            .reshape(len(labels), 64)
            + 0.0
        )
        assert [known[row.tobytes()] for row in raw] == labels.tolist()
    large = (
        digits(make_run([4], "digits"), make_image_model(28, 3, 11)).batch(450, 0).arrays["images"]
    )
    assert large.shape == (4, 3, 28, 28) and large.flags.c_contiguous and large.flags.writeable
    assert (large[:, 0] == large[:, 2]).all()


def test_resize_follows_pillow_and_channels_are_standardised():
    images = np.random.default_rng(0).random((1, 1, 9, 13)).astype(np.float32)
    for size in (4, 9, 13, 30):
        picture = Image.fromarray(images[0, 0], mode=None).resize(
            (size, size), Image.Resampling.BILINEAR
        )
        assert resize(images, size)[0, 0] == pytest.approx(np.asarray(picture), abs=1e-5)
    assert (resize(images[:, :, :, :9], 9) == images[:, :, :, :9]).all()
    assert resize(np.ones((2, 3, 8, 8)), 21) == pytest.approx(1)
    found = standardise(
        np.stack([np.full((2, 2), 5.0), np.full((2, 2), 7.0)])[None], (1.0, 3.0), (2.0, 8.0)
    )
    assert found.dtype == np.float32 and (found[0, 0] == 2).all() and (found[0, 1] == 0.5).all()


def write_cifar(folder: Path, counts: list[int]) -> np.ndarray:
    """Files of random records; returns them all, shape (images, 3073)."""
    records = np.random.default_rng(1).integers(0, 256, (sum(counts), CIFAR_RECORD), dtype=np.uint8)
    records[:, 0] %= 10
    for number, part in enumerate(np.split(records, np.cumsum(counts)[:-1]), start=1):
        (folder / f"data_batch_{number}.bin").write_bytes(part.tobytes())
    return records


def test_cifar10_reads_its_own_format(tmp_path: Path):
    records, seen = write_cifar(tmp_path, [7, 1, 5]), set()
    (tmp_path / "test_batch.bin").write_bytes(b"not read")
    source = cifar10(
        make_run([4, 3], "cifar10", data=(str(tmp_path),)), make_image_model(32, 3, 10)
    )
    mean, deviation = (
        np.array(numbers).reshape(3, 1, 1) for numbers in (CIFAR_MEAN, CIFAR_DEVIATION)
    )
    for step, rank in product(range(2), range(2)):
        images, labels = (source.batch(step, rank).arrays[name] for name in ("images", "labels"))
        raw = np.round((images * deviation + mean) * 255).astype(np.uint8)
        for image, label in zip(raw, labels, strict=True):  # planes one after the other, row by row
            (place,) = np.flatnonzero((records[:, 1:] == image.ravel()).all(axis=1))
            assert records[place, 0] == label
            seen.add(int(place))
    assert seen == set(range(13))
    assert cifar10(make_run([2], data=(str(tmp_path),)), make_image_model(16)).batch(0, 0).arrays[
        "images"
    ].shape == (2, 3, 16, 16)


def write_folder(folder: Path) -> Path:
    files = [
        ("cat", "b.png", "RGB"),
        ("cat", "a.jpg", "RGB"),
        ("ape", "c.JPEG", "L"),
        ("dog", "d.png", "RGBA"),
    ]
    for number, (name, file, mode) in enumerate(files):
        (folder / name).mkdir(exist_ok=True, parents=True)
        Image.new(
            mode, (10 + number, 8), 40 * number if mode == "L" else (40 * number,) * len(mode)
        ).save(folder / name / file)
    (folder / "cat" / "notes.txt").write_text("not an image")
    (folder / "README").write_text("not a class")
    return folder


def test_image_folder_takes_classes_from_folders(tmp_path: Path):
    data, found = (str(write_folder(tmp_path)),), {}
    source = image_folder(make_run([2, 2], "image_folder", data=data), make_image_model(6, 3, 3))
    for rank in range(2):
        images, labels = (source.batch(0, rank).arrays[name] for name in ("images", "labels"))
        assert (
            images.shape == (2, 3, 6, 6)
            and images.dtype == np.float32
            and images.flags.c_contiguous
        )
        raw = images * np.array(IMAGENET_DEVIATION).reshape(3, 1, 1) + np.array(
            IMAGENET_MEAN
        ).reshape(3, 1, 1)
        found |= {
            round(float(image.mean()) * 255): int(label)
            for image, label in zip(raw, labels, strict=True)
        }
    assert found == {0: 1, 40: 1, 80: 0, 120: 2}  # ape, cat, dog


def test_image_folder_fingerprint_is_of_names_and_contents(tmp_path: Path):
    def mark(folder: Path) -> str:
        return image_folder(make_run([1], data=(str(folder),)), make_image_model()).fingerprint

    one, two = (write_folder(tmp_path / name) for name in ("one", "two"))
    before = mark(one)
    assert before == mark(two)
    Image.new("RGB", (10, 8), (9, 9, 9)).save(two / "cat" / "b.png")
    (one / "cat" / "b.png").rename(one / "cat" / "e.png")
    assert len({before, mark(one), mark(two)}) == 3


def test_every_error_is_one_sentence(tmp_path: Path):
    def refuse(sentence: str, make: Any, data: tuple[str, ...] | None, **model: int) -> None:
        refused(
            f"^{sentence}$",
            lambda: make(make_run([1], "x", data=data), make_image_model(**model)).batch(0, 0),
        )

    folder = (str(tmp_path),)
    refuse("inputs 'x' needs data to name one folder: it names 2", cifar10, ("a", "b"))
    refuse(
        ".* holds no data_batch_.*bin: name the folder with CIFAR-10's binary files",
        cifar10,
        folder,
    )
    write_cifar(tmp_path, [3])
    refuse("CIFAR-10 has 3 channels: model 'm' takes 1", cifar10, folder, channels=1)
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
    good = (str(write_folder(tmp_path / "good")),)
    refuse(
        "images of a folder have 1 or 3 channels: the model takes 4", image_folder, good, channels=4
    )
    refuse(
        "image folder good has 3 classes: model 'm' tells only 2 apart",
        image_folder,
        good,
        classes=2,
    )

    refuse("inputs 'x' reads no files: leave out data, which names a, b", digits, ("a", "b"))
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
    said = r"a.png cannot be decoded as an image: its pixels are neither of 8 nor of 16 bits"
    refused(said, ImageFolder(tmp_path, 2, 1).read, np.arange(1))


def test_a_pipe_among_images_is_refused_and_not_waited_for(tmp_path: Path):
    (tmp_path / "cat").mkdir()
    os.mkfifo(tmp_path / "cat" / "a.png")
    found = ImageFolder(tmp_path, 2, 1)
    refused(
        r"cat/a.png cannot be decoded as an image: it is no file but a pipe",
        found.read,
        np.arange(1),
    )
    with pytest.raises(OSError, match=r"cat/a.png is no file but a pipe"):
        found.fingerprint  # noqa: B018


def test_digits_are_divided_once_for_all_seeds():
    """And no image that is held out is trained on."""
    one, other = (
        digits_split(make_run([15, 15], "digits_split", seed), make_image_model(8, 1, 10))
        for seed in (0, 3)
    )
    assert (
        one.count == 1500
        and one.held_out().fingerprint == other.held_out().fingerprint
        and one.fingerprint == other.fingerprint
    )
    held = {image.tobytes() for image in one.held_out().images(np.arange(297))}
    batches = [
        one.batch(step, rank).arrays["images"]
        for step, rank in product(range(one.steps_per_epoch), range(2))
    ]
    trained = {image.tobytes() for images in batches for image in images}
    assert len(one.held_out()) == 297 and len(trained) == 1500 and not held & trained


def test_teacher_labels_every_class_agrees_with_itself_and_can_be_learned_from():
    """Ridge regression on the teacher's own features finds its classes on images that it never saw;
    on pixels, chance is hardly beaten.
    """
    first = draw_images(2000, 8, 3, 0)
    assert (
        not np.array_equal(first, draw_images(2000, 8, 3, 1))
        and abs(from_bytes(to_bytes(first)) - np.clip(first, -3, 3)).max() < 0.02
    )
    images, labels = TaughtImages(600, 8, 3).read(np.arange(600))
    counts = np.bincount(labels, minlength=CLASSES)
    teacher = Teacher(3, from_bytes(to_bytes(first)))
    assert counts.min() > 20 and counts.max() < 150
    assert np.array_equal(teacher.outputs(images).argmax(axis=1), labels)
    features = np.concatenate([teacher.features(images), np.ones((600, 1))], axis=1)
    wanted, accuracy = np.eye(CLASSES)[labels], []
    for inputs in (features, images.reshape(600, -1)):
        weights = np.linalg.solve(
            inputs[:450].T @ inputs[:450] + 1e-3 * np.eye(inputs.shape[1]),
            inputs[:450].T @ wanted[:450],
        )
        accuracy.append(((inputs[450:] @ weights).argmax(axis=1) == labels[450:]).mean())
    assert accuracy[0] > 0.6 and accuracy[1] < 0.3
