"""What devices keep of a small model, by hand: three variables of 47 elements in all, with Adam's
two arrays of states. Bytes are four an element but where a case says otherwise.
"""

from typing import Any

import pytest

from multigpu.build import build_run
from multigpu.placements.memory import DeviceBytes, kept_on, needed
from multigpu.spec.model import Init, Model, Optimizer, Variable
from multigpu.spec.parse import parse_fields
from multigpu.spec.run import Run
from multigpu.workloads import description_of
from tests.refusals import cases_beside


def model_of(unit: Any = "images", **shapes: tuple[int, ...]) -> Model:
    """A model of variables of these shapes; the one that is named `table` is looked up by row."""
    variables = tuple(
        Variable(
            name.replace("_", "."),
            shape,
            "embedding" if name.endswith("table") else "dense",
            Init("constant", 0.0),
        )
        for name, shape in shapes.items()
    )
    return Model("made_up", "cnn", unit, variables, Optimizer("sgd", 0.1), 1.0, 1.0, None)


SMALL = model_of(conv_kernel=(6, 2), head_table=(10, 3), head_bias=(5,))


def run_of(placement: str, devices: int, **more: Any) -> Run:
    fields = {"workload": "cnn", "model": "resnet_tiny", "batch_size": 4, "optimizer": "adam"}
    return build_run(**fields | {"placement": placement, "devices": devices} | more)


GPT = {"workload": "gpt", "model": "gpt_tiny", "sequence_length": 8, "precision": "bf16_params"}
KEPT = {
    "a copy on each": ("ddp", 2, {}, [(188, 188, 376)] * 2),
    "and what others' copies send": ("replicated_copy", 3, {}, [(188, 188, 376, 2 * 188)] * 3),
    "16 bits beside masters": ("ddp", 2, GPT, [(188 + 94, 94, 376)] * 2),
    # end to end at multiples of four: 12 + 32 + 8, filled up to 56
    "states cut": ("zero1", 2, {}, [(224, 224, 224)] * 2),
    "gradients freed": ("zero2", 2, {}, [(224, 112, 224)] * 2),
    # rows of 4 x 2, 4 x 3 and 2 x 1 on each; the last has two of the table and one of the bias
    "all cut": ("fsdp2", 3, {}, [(72, 72, 144), (72, 72, 144), (72, 72, 88)]),
    # the last has one row of the table and nothing of the others
    "less than a row for the last": (
        "fsdp2",
        4,
        {},
        [(60, 60, 120)] * 2 + [(60, 60, 112), (60, 60, 24)],
    ),
    "cut in pairs": ("fsdp2", 4, {"sharded_over": 2}, [(96, 96, 192), (96, 96, 184)] * 2),
    "copies for a step alone": (
        "data_parallel",
        2,
        {"processes": "one"},
        [(188, 188, 376), (0, 0, 0)],
    ),
    # the kernel and the bias at the first device, the table, which is looked up where it is, at the
    # second
    "spread": ("exp4", 2, {}, [(68, 68, 136, 68), (188, 188, 240, 0)]),
    "at the first, staged": ("staged_gpu0", 2, {}, [(188, 188, 376, 564), (188, 188, 0, 188)]),
}


@pytest.mark.parametrize("name", KEPT)
def test_each_device_keeps_what_its_row_says(name: str) -> None:
    placement, devices, more, expected = KEPT[name]
    run = run_of(placement, devices, **more)
    kept = [kept_on(run, SMALL, rank) for rank in range(devices)]
    assert kept == [DeviceBytes(*each) for each in expected]
    assert [each.total for each in kept] == [sum(each) for each in expected]


def test_the_device_that_needs_most_also_gathers() -> None:
    """Buckets on their way where gradients are scattered; where variables are cut, the largest part
    four times, or all of them and the largest twice where they stay gathered.
    """
    most = {
        name: needed(run_of(name, devices, **more), SMALL).least
        for name, devices, more in (
            ("ddp", 2, {}),
            ("zero1", 2, {}),
            ("zero2", 2, {}),
            ("fsdp2", 3, {}),
        )
    }
    head, twice = 4 * (36 + 6), 72  # pieces of gradients, new and of the update before
    assert most == {
        "ddp": 752 + 188,  # buckets, at first beside those in the order of backward
        "zero1": 672,
        "zero2": 560 + 3 * 188,
        "fsdp2": 288 + twice + 4 * head,
    }
    kept = run_of("fsdp2", 3, reshard=False)
    assert needed(kept, SMALL).least == 288 + twice + (4 * 54 + 2 * head)
    assert needed(run_of("fsdp2", 1), SMALL).least == 5 * 188
    pairs = run_of("fsdp2", 4, sharded_over=2)
    assert needed(pairs, SMALL).least == 384 + 96 + 4 * 4 * 36


@pytest.mark.parametrize(
    ("placement", "devices", "fields", "expected"),
    [
        pytest.param(placement, int(devices), fields, tuple(map(int, expected)), id=name)
        for name, placement, devices, fields, *expected in cases_beside(__file__, "beside.csv")
    ],
)
def test_which_gradients_are_there_beside_activations(
    placement: str, devices: int, fields: str, expected: tuple[int, ...]
) -> None:
    """(held, made, updating) beside variables and states; all gradients have 188 bytes."""
    run = run_of(placement, devices, **parse_fields(fields.split()))
    kept, found = kept_on(run, SMALL), needed(run, SMALL)
    held = found.held - (kept.total - kept.gradients)
    assert (held, found.made, found.updating) == expected


def test_buckets_end_where_the_run_says() -> None:
    """Of 3, 2 and 1 MiB a bucket of 1 MiB holds each alone, one of 25 the last, then the rest;
    copied sums have the largest once more, and packed steps those of several.
    """
    wide = model_of(a_kernel=(768, 1024), b_kernel=(512, 1024), c_kernel=(256, 1024))
    buckets = {
        "copied": {1: (6 + 3, 6), 2: (6 + 3, 6), 25: (6 + 5, 6)},
        None: {1: (0, 6), 25: (5, 6)},
    }
    for send, cases in buckets.items():
        for limit, expected in cases.items():
            run = run_of("ddp", 2, execution="captured", bucket_mib=limit, bucket_send=send)
            found = needed(run, wide)
            beside = found.held - 3 * 6 * 2**20  # variables and two states
            assert (beside / 2**20, found.made / 2**20) == expected, (send, limit)


def test_of_many_small_parts_all_gathered_are_more_than_the_largest_four_times() -> None:
    layers = {f"layers_{number}_bias": (8,) for number in range(6)}
    run = run_of("fsdp2", 8, optimizer="sgd")
    blocks = model_of("tokens", **layers)
    assert needed(run, blocks).least == 6 * 32 + 6 * 4
    # as an image model they are one part: all of it four times, and what is kept
    assert needed(run, model_of(**layers)).least == 4 * 6 * 32 + 3 * 6 * 4


def test_which_placements_a_model_fits_under() -> None:
    """VGG-16 with momentum, 553.4 MB of variables, of which one layer is three quarters."""
    fields = {"workload": "cnn", "model": "vgg16", "batch_size": 8, "optimizer": "momentum"}
    runs = [
        build_run(placement=name, devices=8, **fields)
        for name in ("ddp", "zero1", "fsdp2", "replicated_copy")
    ]
    assert description_of(runs[0]).parameter_bytes == pytest.approx(553.4e6, rel=1e-3)
    peaks = {run.placement: needed(run, description_of(run)).least for run in runs}
    assert sorted(peaks, key=peaks.__getitem__) == ["zero1", "fsdp2", "ddp", "replicated_copy"]
