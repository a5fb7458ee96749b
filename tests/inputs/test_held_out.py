"""Inputs that hold a part out: the parts share nothing, batches hold what they say, and the teacher's labels can be learned."""

import numpy as np
import pytest

from multigpu.inputs.teacher import CLASSES, TaughtImages, Teacher, draw_images, from_bytes, to_bytes
from multigpu.run import Run
from multigpu.workloads import workloads
from tests.refusals import refused


def source(inputs: str, model: str = "resnet_tiny", **more):
    """The input of a small Run on two devices."""
    run = Run(workload="cnn", model=model, placement="ddp", device_type="cpu", devices=2, batch_size=30, inputs=inputs, **more)
    return workloads()["cnn"].inputs[inputs](run, run.description)


def rows(pictures) -> set[bytes]:
    """Every image of a set, as bytes."""
    images, _ = pictures.read(np.arange(len(pictures)))
    return {image.tobytes() for image in images}


def test_digits_are_divided_once_for_all_seeds():
    one, other = source("digits_split"), source("digits_split", seed=3)
    assert one.count == 1500 and len(one.held_out()) == 297
    assert one.held_out().fingerprint == other.held_out().fingerprint and one.fingerprint == other.fingerprint
    held, trained = rows(one.held_out()), set()
    for step in range(one.steps_per_epoch):
        for rank in range(2):
            images = one.batch(step, rank).arrays["images"]
            trained |= {image.tobytes() for image in images}
    assert len(trained) == 1500 and not held & trained, "what is held out was trained on"


@pytest.mark.parametrize("inputs", ["digits", "digits_split"])
def test_items_are_what_the_batch_holds(inputs):
    """The audit of shards trusts `items`: equal numbers must be equal images."""
    found = source(inputs)
    seen: dict[int, bytes] = {}
    for step in (0, 1, found.steps_per_epoch, found.steps_per_epoch + 1):
        for rank in range(2):
            items, batch = found.items(step, rank), found.batch(step, rank)
            assert len(items) == batch.units
            for item, image in zip(items.tolist(), batch.arrays["images"], strict=True):
                assert seen.setdefault(item, image.tobytes()) == image.tobytes()


def test_teacher_is_a_function_of_its_seed():
    first, again = draw_images(20, 8, 3, 0), draw_images(20, 8, 3, 0)
    assert np.array_equal(first, again) and not np.array_equal(first, draw_images(20, 8, 3, 1))
    assert abs(from_bytes(to_bytes(first)) - np.clip(first, -3, 3)).max() < 0.02


def test_teacher_labels_every_class_and_agrees_with_itself():
    taught = TaughtImages(600, 8, 3)
    images, labels = taught.read(np.arange(600))
    counts = np.bincount(labels, minlength=CLASSES)
    assert counts.min() > 20 and counts.max() < 150
    teacher = Teacher(3)
    teacher.fit(from_bytes(to_bytes(draw_images(2000, 8, 3, 0))))
    assert np.array_equal(teacher.outputs(images).argmax(axis=1), labels)


def test_teacher_can_be_learned_from_and_generalises():
    """Ridge regression on the teacher's own features finds its classes on images that it never saw; on pixels, chance is hardly beaten."""
    taught = TaughtImages(600, 8, 3)
    images, labels = taught.read(np.arange(600))
    features = np.concatenate([Teacher(3).features(images), np.ones((600, 1))], axis=1)
    pixels = images.reshape(600, -1)
    wanted = np.eye(CLASSES)[labels]
    accuracy = []
    for inputs in (features, pixels):
        weights = np.linalg.solve(inputs[:450].T @ inputs[:450] + 1e-3 * np.eye(inputs.shape[1]), inputs[:450].T @ wanted[:450])
        accuracy.append(((inputs[450:] @ weights).argmax(axis=1) == labels[450:]).mean())
    assert accuracy[0] > 0.6 and accuracy[1] < 0.3


def test_refuses_files():
    refused("reads no files", source, "digits_split", data=("x",))
