"""A Run as plain data: what no file could hold, the devices it chooses, and what its processes need
in their environment.
"""

from typing import Any

import pytest

from multigpu.spec.model import block_of
from multigpu.spec.run import Run
from tests.refusals import refused


def made(**more: Any) -> Run:
    fields = {"workload": "cnn", "model": "resnet_tiny", "placement": "ddp", "batch_size": 4}
    return Run.built(**fields | more)


@pytest.mark.parametrize("letter", ["\n", "\x1f", "\ud800", "\udabc", "\udfff"])
def test_a_path_that_no_line_of_a_log_could_hold_is_refused(letter: str) -> None:
    refused("is no text of a line in UTF-8", made, data=("good", f"a{letter}b"))


def test_devices_are_counted_from_the_first_unless_they_are_named() -> None:
    assert made(devices=3, prefetch=2).chosen_devices == (0, 1, 2)
    assert made(warmup_steps=10**6, timed_steps=10**6, batch_size=10**6).timed_steps == 10**6
    assert made(devices=2, device_ids="5,0").chosen_devices == (5, 0)


LEAST = {
    0: ("seed", "input_workers", "prefetch", "traced_steps"),
    1: (
        *("devices", "batch_size", "bucket_mib", "nccl_ctas", "loss_scale", "energy_window_s"),
        *("model_parallel", "warmup_steps", "timed_steps", "traced_from", "host_cores"),
    ),
    2: ("sequence_length", "micro_batches", "micro_steps", "sharded_over", "local_steps"),
}
"""Nothing of the first is none of it; of the second there is always one; of the last, one is what a
Run without the field does.
"""


@pytest.mark.parametrize(
    ("least", "name"), [(k, name) for k, names in LEAST.items() for name in names]
)
def test_fewer_than_mean_anything_are_refused(least: int, name: str) -> None:
    assert getattr(made(**{name: least}), name) == least
    refused(f"{name} = {least - 1}: input should be greater than", made, **{name: least - 1})


def test_a_variables_name_tells_its_block() -> None:
    """Up to its first number, which is not its last part."""
    names = ("blocks.0.norm.scale", "a.1.b.2.kernel", "stem.kernel", "layers.3", "9.bias", "")
    assert [block_of(name) for name in names] == ["blocks.0", "a.1", "", "", "9", ""]


def test_a_long_value_is_cut_where_it_is_refused() -> None:
    whole = refused("framework = ", made, framework="x" * 78)
    assert f"'{'x' * 78}':" in whole
    assert f"'{'x' * 79} ...:" in refused("framework = ", made, framework="x" * 79)
