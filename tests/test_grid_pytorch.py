"""What PyTorch is asked: rows that tables of the report have, and claims need, are planned."""

from __future__ import annotations

from multigpu.grid import EXPERIMENTS, GRIDS, Planned, cost_s, find_grid
from multigpu.placements import placements
from multigpu.placements.refusals import refusal
from multigpu.run import Run

COUNTS = [1, 2, 3, 4]
USUAL_WAYS = (("per_device", "eager"), ("one", "eager"), ("per_device", "captured"))
JOBS = {("nmt000", 128), ("resnet50_v1.5", 64)}


def chosen(grid: str, counts: list[int] = COUNTS, **fields: object) -> list[Planned]:
    """The grid's entries whose Runs have these values."""
    return [entry for entry in find_grid(grid, counts) if all(getattr(entry.run, name) == value for name, value in fields.items())]


def asked(grid: str, **fields: object) -> set[tuple[str, int]]:
    """(placement, devices) of these entries."""
    return {(entry.run.placement, entry.run.devices) for entry in chosen(grid, **fields)}


def test_every_experiment_of_document_000_is_planned_in_its_own_arithmetic() -> None:
    for count in COUNTS:
        own = {placement for placement, devices in asked("documents_precision", model="nmt000", batch_size=128) if devices == count}
        assert own >= {*EXPERIMENTS, "ddp"}
    assert not {name for name, _ in asked("documents_precision", batch_size=360)} & {"exp1", "exp3"}, "000's larger batch is Exp4's"
    assert {entry.run.precision for entry in find_grid("documents_precision", COUNTS)} == {"fp32"}


def test_three_devices_are_repeated_where_claims_ask_for_them() -> None:
    """C1 and C11: the NMT at 128 x 100, eager, a process a device, Exp1 to Exp4 and ddp."""
    job = {"model": "nmt000", "batch_size": 128, "sequence_length": 100, "execution": "eager", "precision": "bf16"}
    three = chosen("placements_repeated", devices=3, processes="per_device", **job)
    assert {entry.run.placement for entry in three} == {*EXPERIMENTS, "ddp"}
    assert all(len(entry.points()) >= 5 for entry in three) and cost_s(three) <= 90
    assert not chosen("placements_repeated", [1, 2, 4], devices=3)


def test_what_one_process_can_dispatch_is_planned_on_the_most_devices() -> None:
    able = {name for name, row in placements().items() if refusal(row, "torch", "one", "eager") is None and row.compute == "replica"}
    for model, _ in JOBS:
        assert {name for name, count in asked("dispatch", model=model) if count == 4} == {n for n in able if "make_parallel" not in n}
        assert {name for name, count in asked("dispatch", model=model) if count < 4} == set(EXPERIMENTS)
    assert {entry.run.processes for entry in find_grid("dispatch", COUNTS)} == {"one"}
    assert not GRIDS["dispatch"]([])


def test_every_way_that_is_timed_on_the_most_devices_is_traced_there() -> None:
    """Page 05's table: what these grids time of its jobs has a traced twin, but for ddp with the other of its two losses."""

    def point(run: Run) -> str:
        return run.model_copy(update={"warmup_steps": 1, "timed_steps": 1, "traced_steps": 0}).digest

    traced = {point(entry.run) for entry in chosen("traces") if entry.run.traced_steps}
    for entry in find_grid("captured,dispatch,cnn_updates,headline,placements_screening", COUNTS):
        run = entry.run
        plain = run.bucket_mib is None and run.all_reduce_spec is None and run.wire_dtype is None and run.precision == "bf16"
        plain &= (run.placement, run.model) != ("ddp", "nmt000") or (run.execution == "captured") == (run.cross_entropy == "fused")
        if (run.model, run.batch_size) in JOBS and run.devices == 4 and plain and run.framework == "torch":
            assert point(run) in traced, run.label()


def test_the_table_of_placements_is_repeated_and_traced_row_by_row() -> None:
    """Every placement of any model that PyTorch runs, in each way that page 05 asks for, and nothing that it cannot run."""
    entries = chosen("placement_table", [1, 2])
    timed = {(e.run.model, e.run.placement, e.run.processes, e.run.execution) for e in entries if not e.run.traced_steps}
    traced = {(e.run.model, e.run.placement, e.run.processes, e.run.execution) for e in entries if e.run.traced_steps}
    assert timed == traced and {entry.run.devices for entry in entries} == {2}
    assert all((len(entry.points()) >= 5) == (not entry.run.traced_steps) for entry in entries)
    for name, row in placements().items():
        for processes, execution in USUAL_WAYS:
            able = refusal(row, "torch", processes, execution) is None and row.compute == "replica"
            assert able == (("resnet50_v1.5", name, processes, execution) in timed), (name, processes, execution)
    assert not GRIDS["placement_table"]([])


def test_tf32_is_traced_where_tensorflow_is() -> None:
    own = chosen("traces", precision="tf32")
    assert {(entry.run.placement, entry.run.devices) for entry in own} == {(name, count) for name in ("exp2", "exp4") for count in (1, 4)}
    assert all((e.run.model, e.run.execution, e.run.processes) == ("nmt000", "eager", "per_device") for e in own)
    assert {entry.tier for entry in find_grid("traces", COUNTS)} == {"screening"}
