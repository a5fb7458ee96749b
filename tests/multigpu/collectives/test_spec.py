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
from tests.refusals import refused

GRAPH = {"execution": "captured", "device_type": "cuda"}
CNN = {
    "workload": "cnn",
    "model": "resnet_tiny",
    "device_type": "cpu",
    "devices": 4,
    "batch_size": 4,
}


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


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        (
            {"placement": "replicated_ring", "all_reduce_spec": "library"},
            "or choose 'replicated_allreduce'",
        ),
        ({"placement": "ddp", "all_reduce_spec": "library"}, "leave it out with placement 'ddp'"),
        (
            {"placement": "replicated_allreduce", "all_reduce_spec": "library", "processes": "one"},
            "with a process a device",
        ),
        (
            GRAPH | {"placement": "replicated_allreduce", "all_reduce_spec": "ring"},
            "names 'ring', which runs kernel by kernel only",
        ),
        (
            {"placement": "replicated_copy", "wire_dtype": "bf16"},
            "leave it out with placement 'replicated_copy'",
        ),
        ({"placement": "exp2", "wire_dtype": "fp16"}, "leave it out with placement 'exp2'"),
        ({"placement": "ddp", "micro_sync": "each"}, "has no meaning without micro_steps"),
        ({"placement": "ddp", "micro_steps": 64}, "rows, which cannot be cut into micro_steps 64"),
        ({"placement": "exp4", "micro_steps": 2, "processes": "one"}, "with processes 'one'"),
        (
            {"placement": "exp4", "micro_steps": 2, "micro_sync": "each"},
            "has them pushed to one home, once a step",
        ),
        ({"placement": "independent", "micro_steps": 2, "micro_sync": "each"}, "merges none"),
        (
            GRAPH
            | {"placement": "ddp", "micro_steps": 2, "micro_sync": "each"}
            | {"bucket_update": "in_backward"},
            "would update it each time",
        ),
        (
            {"placement": "ddp", "loss_scale": 128},
            "loss_scale 128 has no meaning for precision 'fp32'",
        ),
        (GRAPH | {"placement": "zero2", "bucket_send": "grouped"}, "or choose 'ddp'"),
        ({"placement": "exp2", "precision": "fp16"}, "not 'exp2'"),
        (
            {
                "placement": "make_parallel",
                "workload": "stacks",
                "model": "mlp_tiny",
                "processes": "one",
            },
            "choose an image model",
        ),
    ],
)
def test_runs_that_cannot_be_are_refused_in_one_sentence(
    fields: dict[str, object], words: str
) -> None:
    refused(words, build_run, **CNN | fields)


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


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        (
            {"algorithm": "star"},
            "unknown all-reduce algorithm 'star': choose one of central_server",
        ),
        (
            {"overlap": True},
            (
                "algorithm 'ring' is one of an all-reduce after backward, and cannot be used with"
                " .* and overlap"
            ),
        ),
        ({"reduction": "copy"}, "cannot be used with reduction 'copy'"),
        (
            {"engines": (Engine(processes="one"),)},
            "is carried out in 'torch' with one process a device only",
        ),
        (
            {"engines": (Engine(), Engine(framework="tensorflow"))},
            "is carried out in 'torch' with one process a device only",
        ),
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
