"""Bytes of a step by hand, where the Run itself says how gradients, inputs or predictions travel:
of the small model of 47 elements, 188 bytes.
"""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from multigpu.placements import find_placement
from multigpu.placements.row import Placement
from multigpu.placements.step_bytes import step_bytes
from multigpu.placements.traffic import ID_BYTES, predicted_bytes, scattered_together
from multigpu.spec.model import Variable
from tests.multigpu.placements.test_kept import GPT, SMALL, run_of

IMAGES = replace(SMALL, config=SimpleNamespace(channels=3, image_size=7, classes=11))
SAMPLES = replace(SMALL, unit="samples", config=SimpleNamespace(row_shape=(6, 5)))
TOKENS = replace(SMALL, unit="tokens", config=SimpleNamespace(context=16))
IMAGE, ANSWER = 3 * 7 * 7 * 4, 11 * 4
SLICED = {"processes": "one", "slicing": "device", "scaling": "strong", "batch_size": 12}
STACK = {"workload": "stacks", "model": "mlp_tiny"}
ONE = {"processes": "one", "scaling": "strong", "batch_size": 12}
BF16, FP32, PAIRS = {"precision": "bf16"}, {"precision": "fp32"}, {"sharded_over": 2}


def copied(others: int) -> dict[str, int]:
    """Of 188 bytes on the first of three devices, and so much more between them."""
    return {"device_to_device": 2 * 2 * 188 + others}


def cut(gathers: int, scatters: int = 3, size: int = 216) -> dict[str, int]:
    """Of variables in three pieces, filled up to 216 bytes."""
    return {"all_gather": gathers * size, "reduce_scatter": scatters * size}


UNREAD = -2 * 2 * 120  # where no row of the table is looked up, it does not travel
EACH = {"micro_sync": "each"}
CASES: dict[str, tuple[str, int, dict[str, Any], Any, dict[str, int]]] = {
    # of 12 rows eight are others': images out, predictions in, and their gradients out
    "predictions": ("make_parallel", 3, ONE, IMAGES, copied(UNREAD + 8 * (IMAGE + 2 * ANSWER))),
    "of 16 bits": ("make_parallel", 3, ONE | BF16, IMAGES, copied(UNREAD + 8 * (IMAGE + ANSWER))),
    "images with labels": ("data_parallel", 3, SLICED, IMAGES, copied(8 * (IMAGE + ID_BYTES))),
    "rows": ("data_parallel", 3, SLICED | STACK, SAMPLES, copied(8 * (30 * 4 + ID_BYTES))),
    "tokens": ("data_parallel", 3, SLICED | GPT | FP32, TOKENS, copied(8 * 2 * 8 * ID_BYTES)),
    "each its own": ("data_parallel", 3, ONE, IMAGES, copied(0)),
    "half as wide": ("ddp", 2, {"wire_dtype": "bf16"}, IMAGES, {"all_reduce": 2 * 47 * 2}),
    "gathered twice": ("fsdp2", 3, {}, IMAGES, cut(2)),
    "16 bits of products only": ("fsdp2", 3, BF16, IMAGES, cut(2)),
    "gathered once": ("fsdp2", 3, {"reshard": False}, IMAGES, cut(1)),
    "gathered for each part": ("fsdp2", 3, {"micro_steps": 2}, IMAGES, cut(4)),
    "and summed after each": ("fsdp2", 3, {"micro_steps": 2} | EACH, IMAGES, cut(4, 6)),
    "summed after each": ("ddp", 2, {"micro_steps": 4} | EACH, IMAGES, {"all_reduce": 8 * 188}),
    # two pairs do all of it with 192 bytes, and each sums its stretches with the other's
    "in pairs": ("fsdp2", 4, PAIRS, IMAGES, cut(4, 4, 192) | {"all_reduce": 2 * 192}),
    "gathered in 16 bits": ("fsdp2", 3, GPT, TOKENS, cut(1)),
    "gradients of 16 bits": ("ddp", 2, GPT, TOKENS, {"all_reduce": 2 * 94}),
}


@pytest.mark.parametrize("name", CASES)
def test_a_step_moves_what_its_run_says(name: str) -> None:
    placement, devices, more, model, expected = CASES[name]
    run = run_of(placement, devices, **more)
    assert step_bytes(run, model, [{}] * devices) == expected


def test_gradients_are_scattered_together_as_backward_makes_them() -> None:
    """The last ones first, a first message of 1 MiB: 0.75 and 0.5, then what is before them."""
    sizes = {"first": 2.0, "middle": 0.5, "last": 0.75}
    init = SMALL.variables[0].init
    made = [Variable(name, (int(mib * 2**18),), "dense", init) for name, mib in sizes.items()]
    groups = scattered_together(made, 4)
    assert [[one.name for one in group] for group in groups] == [["last", "middle"], ["first"]]
    assert [len(group) for group in scattered_together(made, 8)] == [1, 2]


def test_sparse_gradients_travel_as_rows_with_their_ids() -> None:
    """Two rows of the first replica and five of the second, of 3 numbers each."""
    lookups = [{"head.table": 4}, {"head.table": 6}]
    rows = [{"head.table": 2}, {"head.table": 5}]
    each = 3 * 4 + ID_BYTES
    for name, expected in {
        "ddp": {"all_reduce": 2 * 68, "device_to_device": 7 * each},
        # the table is on the second: ids to it, rows from it, and their gradients back
        "exp4": {"device_to_device": 2 * 68 + 4 * ID_BYTES + 4 * 12 + 2 * each},
        # whole tables go out from the first
        "staged_gpu0": {"device_to_device": 188 + 68 + 5 * each},
    }.items():
        row = find_placement(name)
        assert predicted_bytes(row, SMALL.variables, lookups, 4, rows) == expected
    # updated on the first, where ids, rows and gradients go and the table comes and goes once
    apart = {"name": "apart", "update": "gpu0", "reduction": "gpu0"}
    row = Placement(**find_placement("exp4").model_dump() | apart)
    expected = {"device_to_device": 2 * 68 + 10 * ID_BYTES + 4 * 12 + 6 * 12 + 2 * 120}
    assert predicted_bytes(row, SMALL.variables, lookups) == expected
