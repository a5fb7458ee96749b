"""What a placement's picture and its words say, against the bytes that its row predicts."""

import pytest

from multigpu.placements import find_placement, placements
from multigpu.placements.row import Placement
from multigpu.placements.traffic import predicted_bytes
from multigpu.workloads import find_model
from multigpu_study.placements.pictures import held, movement

ROWS = [row for row in placements().values() if row.compute == "replica"]
HOST = {"host_to_device", "device_to_host"}


def mixed(**fields: object) -> Placement:
    """A row whose tables are in host memory and whose other variables are on the first device."""
    row = find_placement("ps_gpu0").model_dump() | {"name": "mixed", "embeddings": "host"}
    return Placement(**row | {"lookup": "host"} | fields)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_data_moves_where_its_bytes_go(row: Placement) -> None:
    variables = find_model("nmt", "nmt000").variables
    tables = {v.name: 100 for v in variables if v.kind == "embedding"}
    kinds = set(predicted_bytes(row, variables, [tables] * 3))
    between = {
        (False, False): "none",
        (True, False): "gpus",
        (False, True): "host",
        (True, True): "both",
    }[bool(kinds - HOST), bool(kinds & HOST)]
    where, words = movement(row)
    assert where == between
    assert ("all-reduce" in words) == ("all_reduce" in kinds or row.algorithm is not None)
    assert ("all-gather" in words) == ("all_gather" in kinds)
    assert ("reduce-scatter" in words) == ("reduce_scatter" in kinds)
    assert ("first GPU" in words) == (
        row.update == "replica" and row.reduction in ("gpu0", "halves")
    )
    assert ("halves" in words) == (row.reduction == "halves")
    assert ("before each use" in words) == (row.variables == "sharded")


def test_what_goes_back_to_the_host_is_what_lives_there() -> None:
    for row, expected in (
        (find_placement("exp1"), ("both", "between the GPUs, new values back to the host")),
        (mixed(), ("both", "between the GPUs, embeddings' new values back to the host")),
        (find_placement("exp2"), ("host", "variables out (rows of embeddings), gradients back")),
        (find_placement("exp4"), ("gpus", "variables out (rows of embeddings), gradients back")),
        (find_placement("layer_split"), ("gpus", "from stage to stage")),
        (find_placement("tensor_split"), ("gpus", "by collectives within the layers")),
        (find_placement("local_sgd"), ("gpus", "after every")),
    ):
        where, words = movement(row)
        assert where == expected[0] and expected[1] in words


def test_each_part_is_drawn_where_its_row_has_it() -> None:
    """Letters of the host, of the first and of the last of three devices; of what all share a part
    is drawn as one.
    """
    drawn = {}
    for name in ("ddp", "exp1", "exp2", "exp3", "ps_gpu0", "fsdp2", "zero1", "pipeline"):
        row = find_placement(name)
        drawn[name] = [
            " ".join(letter.lower() if shared else letter for letter, _, shared in held(row, place))
            for place in (None, 0, 2)
        ]
    assert drawn == {
        "ddp": ["", "V E C U", "V E C U"],
        "exp1": ["V E", "C u", "C u"],
        "exp2": ["V E U", "C", "C"],
        "exp3": ["E", "v C u", "v C u"],
        "ps_gpu0": ["", "V E C U", "C"],
        "fsdp2": ["", "v e C u", "v e C u"],
        "zero1": ["", "V E C u", "V E C u"],
        "pipeline": ["", "v e c u", "v e c u"],
    }
    assert [letter for letter, _, _ in held(mixed(), None)] == ["E"]
    assert [letter for letter, _, _ in held(mixed(), 0)] == ["V", "C", "U"]
