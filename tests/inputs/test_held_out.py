"""Inputs that hold a part out: the parts share nothing, batches hold what they say, and the teacher's labels can be learned."""

import numpy as np

from multigpu.inputs.teacher import CLASSES, TaughtImages, Teacher, draw_images, from_bytes, to_bytes
from multigpu.run import Run
from multigpu.workloads import workloads


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


def test_teacher_labels_every_class_agrees_with_itself_and_can_be_learned_from():
    """Ridge regression on the teacher's own features finds its classes on images that it never saw; on pixels, chance is hardly beaten."""
    first = draw_images(2000, 8, 3, 0)
    assert not np.array_equal(first, draw_images(2000, 8, 3, 1)) and abs(from_bytes(to_bytes(first)) - np.clip(first, -3, 3)).max() < 0.02
    images, labels = TaughtImages(600, 8, 3).read(np.arange(600))
    counts, teacher = np.bincount(labels, minlength=CLASSES), Teacher(3, from_bytes(to_bytes(first)))
    assert counts.min() > 20 and counts.max() < 150
    assert np.array_equal(teacher.outputs(images).argmax(axis=1), labels)
    features = np.concatenate([teacher.features(images), np.ones((600, 1))], axis=1)
    wanted, accuracy = np.eye(CLASSES)[labels], []
    for inputs in (features, images.reshape(600, -1)):
        weights = np.linalg.solve(inputs[:450].T @ inputs[:450] + 1e-3 * np.eye(inputs.shape[1]), inputs[:450].T @ wanted[:450])
        accuracy.append(((inputs[450:] @ weights).argmax(axis=1) == labels[450:]).mean())
    assert accuracy[0] > 0.6 and accuracy[1] < 0.3
