"""An all-reduce for each range of sizes: the grammar, what travels together, and the bytes of that;
and one that a placement names.
"""

from typing import Any

import pytest

from multigpu.build import build_run
from multigpu.collectives.spec import messages, parse_spec, spec_bytes
from multigpu.placements import find_placement, placements
from multigpu.placements.resolve import semantics_of
from multigpu.placements.row import Engine, Placement
from multigpu.spec.rules.engines import refusal
from tests.multigpu.runner.launched import IMAGES
from tests.refusals import refused

CNN = IMAGES | {"devices": 4}


def test_ranges_grow_and_the_last_has_no_limit() -> None:
    parts = (("central_server", 512), ("ring", 32 * 1024), ("tree", 2 * 2**20), ("library", None))
    assert (
        parse_spec("central_server:512:ring:32k:tree:2M:library") == parts
        and parse_spec("library") == parts[3:]
    )


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("ring:32k", "ends with a limit"),
        ("", "names ''"),
        ("ring:many:library", "has the limit 'many'"),
        ("ring:0:library", "has the limit '0'"),
        ("nccl", "names 'nccl': choose library or one of central_server"),
        ("everyone_bf16", "names 'everyone_bf16'"),
        ("ring:4k:tree:4k:library", "do not grow"),
    ],
)
def test_what_is_no_spec_is_refused(text: str, words: str) -> None:
    assert words in refused("all_reduce_spec", parse_spec, text)


def test_small_gradients_travel_together_and_large_ones_alone() -> None:
    parts = parse_spec("central_server:16:ring:64:library")
    sizes = [4, 100, 1, 16, 5, 17]  # of 4 bytes: 16, 400, 4, 64, 20, 68
    assert messages(parts, sizes, 4) == [
        ("central_server", [0, 2]),
        ("ring", [3, 4]),
        ("library", [1]),
        ("library", [5]),
    ]
    # of 2 bytes each gradient is half as long: what is packed is counted as it travels
    assert messages(parts, sizes, 2) == [
        ("central_server", [0, 2, 4]),
        ("ring", [3, 5]),
        ("library", [1]),
    ]
    # on 3 replicas: a server moves 2N(P-1), a ring as much, the library is handed P N
    assert spec_bytes(parts, sizes, 4, 3) == {
        "device_to_device": 4 * 5 * 4 + 4 * 21 * 4,
        "all_reduce": 3 * 117 * 4,
    }
    assert spec_bytes(parts, sizes, 4, 1) == {}


def test_what_is_left_out_leaves_the_key_as_it_was() -> None:
    plain = build_run(**CNN, placement="ddp")
    assert (
        plain.digest
        == build_run(
            **CNN, placement="ddp", all_reduce_spec=None, wire_dtype=None, loss_scale=None
        ).digest
    )
    assert plain.digest != build_run(**CNN, placement="ddp", wire_dtype="bf16").digest
    assert (
        semantics_of(build_run(**CNN, placement="ddp", wire_dtype="bf16")).kind == "lossy"
        and semantics_of(plain).kind == "joined"
    )


def test_an_algorithm_of_a_placement_runs_kernel_by_kernel_only() -> None:
    written_out = {row.algorithm: row for row in placements().values() if row.algorithm}
    assert written_out.keys() >= {"ring", "central_server"}
    for row in written_out.values():
        assert "kernel by kernel only" in refusal(row, "torch", "per_device", "captured").said


ONLY_IN_TORCH = "is carried out in 'torch' with one process a device only"


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"algorithm": "star"}, "unknown all-reduce algorithm 'star': choose one of central_"),
        ({"overlap": True}, "'ring' is one of an all-reduce after backward, and .* and overlap"),
        ({"reduction": "copy"}, "cannot be used with reduction 'copy'"),
        ({"engines": (Engine(processes="one"),)}, ONLY_IN_TORCH),
        ({"engines": (Engine(), Engine(framework="tensorflow"))}, ONLY_IN_TORCH),
        ({"algorithm": "everyone_bf16"}, "sends bf16, so its semantics are 'lossy', not 'joined'"),
    ],
)
def test_placements_whose_algorithm_cannot_work_are_refused(
    changed: dict[str, Any], words: str
) -> None:
    ring = find_placement("replicated_ring").model_dump()
    with pytest.raises(ValueError, match=words):
        Placement(**ring | changed)
    assert Placement(
        **ring | {"algorithm": "everyone_fp16", "semantics": {"kind": "lossy", "tolerance": 1e-3}}
    ), "what rounds is lossy"
