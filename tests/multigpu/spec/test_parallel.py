"""Degrees of parallelism: their product is the devices, and each placement has its own kind."""

import pytest

from multigpu.build import build_run
from multigpu.placements import every_placement, placements
from multigpu.placements.resolve import dims_of, shard_sizes
from multigpu.placements.row import Placement
from multigpu.spec import parallel
from multigpu.spec.parallel import ParallelDims
from multigpu.spec.run import Run

FIELDS = {"workload": "stacks", "model": "mlp_tiny", "batch_size": 13}


def plain(row: Placement, devices: int, **more: object) -> Run:
    return Run.built(**FIELDS, placement=row.name, devices=devices, **more)


@pytest.mark.parametrize("row", every_placement().values(), ids=lambda row: row.name)
@pytest.mark.parametrize("scaling", ["weak", "strong"])
def test_degrees_make_up_the_devices_and_every_row_of_a_batch_is_in_one_shard(
    row: Placement, scaling: str
) -> None:
    for devices in (1, 2, 4, 8):
        run = plain(row, devices, scaling=scaling)
        dims = dims_of(run)
        assert dims.devices == devices
        assert len(shard_sizes(run)) == dims.copies
        # a batch is of each device under weak scaling; stages share one in any case
        joined = 13 * devices if scaling == "weak" and row.compute != "stage" else 13
        assert sum(shard_sizes(run)) == joined
        assert sum(dims.leads(rank) for rank in range(devices)) == dims.copies
        assert {dims.copy_of(rank) for rank in range(devices)} == set(range(dims.copies))


@pytest.mark.parametrize(
    ("placement", "more", "dims"),
    [
        ("ddp", {}, ParallelDims(data=8)),
        ("exp1", {}, ParallelDims(data=8)),
        ("fsdp2", {}, ParallelDims(shard=8)),
        ("zero1", {}, ParallelDims(shard=8)),
        ("tensor_split", {}, ParallelDims(tensor=8)),
        ("tensor_split", {"model_parallel": 2}, ParallelDims(data=4, tensor=2)),
        ("layer_split", {"model_parallel": 4}, ParallelDims(data=2, pipeline=4)),
        ("searched", {}, ParallelDims(pipeline=8)),
    ],
)
def test_a_placement_is_parallel_in_its_own_way(
    placement: str, more: dict[str, int], dims: ParallelDims
) -> None:
    assert dims_of(plain(every_placement()[placement], 8, **more)) == dims


def test_a_remainder_goes_to_the_first_replicas_or_to_the_last() -> None:
    """Whoever slices a global batch on the first device gives all that is left to the last one."""
    batch = {"scaling": "strong", "batch_size": 11}
    first = Run.built(**FIELDS | batch, placement="ddp", devices=4)
    assert shard_sizes(first) == [3, 3, 3, 2]
    last = first.model_copy(update={"placement": "make_parallel"})
    assert shard_sizes(last) == [2, 2, 2, 5]


def test_a_run_that_stands_for_all_placements_has_shards_of_its_devices() -> None:
    run = Run.built(**FIELDS, placement="", devices=4)
    assert parallel.shard_sizes(run, None) == [13] * 4
    shared = run.model_copy(update={"model_parallel": 2})
    assert parallel.shard_sizes(shared, None) == [26] * 2


def test_more_devices_a_copy_than_devices_are_refused_in_a_sentence() -> None:
    """Whatever else is asked of its shards: there is none."""
    more = {"devices": 1, "model_parallel": 3, "micro_steps": 2, "scaling": "strong"}
    for name in placements():
        with pytest.raises(ValueError, match=r"^[a-z]\w*( \S+)+$") as caught:
            build_run(**FIELDS | more, placement=name)
        assert "min()" not in str(caught.value)
