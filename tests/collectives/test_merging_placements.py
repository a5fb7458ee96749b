"""A placement's row may name the algorithm of its merge: what is refused and what moves; that replicas call it: `tests/equivalence`."""

from typing import Any

import pytest
from pydantic import ValidationError

from multigpu.placements import find_placement, placements
from multigpu.placements.pictures import movement
from multigpu.placements.refusals import refusal
from multigpu.placements.row import Engine, Placement
from multigpu.placements.traffic import predicted_bytes
from multigpu.workloads.base import Init, Variable

ZEROS = Init("constant", 0.0)

WRITTEN_OUT = [row.name for row in placements().values() if row.algorithm]


def row(**changed: Any) -> Placement:
    """The ring's row with other settings."""
    return Placement(**find_placement("replicated_ring").model_dump() | changed)


def test_the_documents_two_algorithms_are_placements() -> None:
    assert {find_placement(name).algorithm for name in WRITTEN_OUT} >= {"ring", "central_server"}
    for name in WRITTEN_OUT:
        found = refusal(find_placement(name), "torch", "per_device", "captured")
        assert found is not None and "kernel by kernel only" in found.said
    assert movement(find_placement("replicated_server")) == ("gpus", "gradients, by all-reduce (central server)")


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"algorithm": "star"}, "unknown all-reduce algorithm 'star': choose one of central_server"),
        ({"overlap": True}, "algorithm 'ring' is one of an all-reduce after backward, and cannot be used with .* and overlap"),
        ({"merge": "copy"}, "cannot be used with merge 'copy'"),
        ({"engines": (Engine(processes="one"),)}, "is carried out in 'torch' with one process a device only"),
        ({"engines": (Engine(), Engine(framework="tensorflow"))}, "is carried out in 'torch' with one process a device only"),
        ({"algorithm": "everyone_bf16"}, "sends bf16, so its semantics are 'lossy', not 'joined'"),
    ],
)
def test_what_cannot_work_is_refused_in_one_sentence(changed: dict[str, Any], words: str) -> None:
    with pytest.raises(ValidationError, match=words):
        row(**changed)
    assert row(algorithm="everyone_fp16", semantics={"kind": "lossy", "tolerance": 1e-3}), "what rounds is lossy"


def test_bytes_are_those_of_all_links() -> None:
    variables = [Variable("a", (10,), "bias", ZEROS), Variable("b", (7, 3), "dense", ZEROS)]  # 31 elements of 4 bytes
    for name in ("replicated_ring", "replicated_server"):
        assert predicted_bytes(find_placement(name), variables, [{}] * 4) == {"device_to_device": 2 * 3 * 31 * 4}
        assert predicted_bytes(find_placement(name), variables, [{}]) == {}
    assert predicted_bytes(row(algorithm="everyone"), variables, [{}] * 4) == {"device_to_device": 4 * 3 * 31 * 4}
