"""Variables of compiled steps begin where code that torch.compile generated for others may read them."""

from itertools import pairwise
from pathlib import Path

import pytest
import torch

from multigpu.engines.torch.stores import BOUNDARY, arranged, parts_by_place
from multigpu.placements import placements
from multigpu.placements.row import Placement
from multigpu.placements.traffic import HOST, Assigned, assign
from multigpu.run import Run
from multigpu.workloads.base import Model
from multigpu.workloads.cnn.description import FOR_CIFAR, FOR_IMAGENET, SMALL
from tests.equivalence.cases import replica

COMPILED = [p for p in placements().values() if any(e.framework == "torch" and "compiled" in e.executions for e in p.engines)]
WITH_STORES = [p for p in COMPILED if p.variables != "replica"]
DEVICES = (1, 2, 3, 4, 8)


def stretches(placement: Placement, model: Model, devices: int) -> list[list[Assigned]]:
    """The model's dense variables, a list for each store, in the order of declaration."""
    found: dict[tuple[bool, bool], list[Assigned]] = {}
    for member in assign(placement, model.variables, devices):
        if not member.by_row:
            found.setdefault((member.home == HOST, member.update == HOST), []).append(member)
    return list(found.values())


def check_layout(dense: list[Assigned], devices: int) -> None:
    """Each variable stands in it once, and each place's together."""
    order = arranged(dense, 4)
    assert len(order) == len(dense) and {m.variable.name for m in order} == {m.variable.name for m in dense}
    places = [m.update for m in order]
    assert sum(a != b for a, b in pairwise(places)) == len(set(places)) - 1
    if HOST not in places:
        parts = parts_by_place(order, devices)
        held = [sum(m.variable.elements for m in dense if m.update == place) for place in range(devices)]
        assert [part.stop - part.start for part in parts] == held
        begins = [sum(m.variable.elements for m in order[: places.index(place)]) for place in range(devices) if held[place]]
        assert [part.start for part in parts if part.stop > part.start] == begins


@pytest.mark.parametrize("placement", WITH_STORES, ids=lambda placement: placement.name)
def test_variables_of_document_001_begin_aligned(placement: Placement) -> None:
    """All of them, but for `trivial` on several devices: three of its variables are odd, and two devices may hold some. What is aligned
    already keeps the order of declaration.
    """
    for model in (*FOR_IMAGENET.values(), *FOR_CIFAR.values(), *SMALL.values()):
        for devices in DEVICES:
            for dense in stretches(placement, model, devices):
                check_layout(dense, devices)
                if model.name in SMALL:
                    continue
                for item_bytes in (4, 8):
                    odd = {m.variable.name: m.update for m in dense if m.variable.elements * item_bytes % BOUNDARY}
                    misaligned, start = set(), 0
                    for member in arranged(dense, item_bytes):
                        if start * item_bytes % BOUNDARY:
                            misaligned.add(member.variable.name)
                        start += member.variable.elements
                    assert len(set(odd.values())) > 1 or misaligned <= odd.keys(), (model.name, devices)
                    assert len(odd) > 1 or not misaligned, (model.name, devices)
                    assert len(odd) < 2 or model.name == "trivial"
                    assert odd or devices > 1 or arranged(dense, item_bytes) == dense


JOBS = [("cnn", "resnet_tiny"), ("cnn", "inception3_tiny"), ("deepconn", "deepconn_tiny")]
# staged placements look up no rows
PAIRS = [(placement, *job) for placement in WITH_STORES for job in JOBS if job[0] == "cnn" or not placement.staged]
# copies that overlap are made by the same lines, and need a group of processes
PAIRS += [(placement, *JOBS[0]) for placement in COMPILED if placement.variables == "replica" and not placement.overlap]


@pytest.mark.parametrize(("placement", "workload", "model"), PAIRS, ids=[f"{p.name}-{model}" for p, _, model in PAIRS])
def test_a_compiled_step_computes_with_aligned_variables(placement: Placement, workload: str, model: str, tmp_path: Path) -> None:
    """In copies of those that begin misaligned in their stretch; an eager step computes in the stretch itself."""
    for execution in ("compiled", "eager"):
        run = Run(execution=execution, device_type="cpu", placement=placement.name, workload=workload, model=model, batch_size=2)
        trainer, feed = replica(run, 0, tmp_path)
        dense = {name: p for name, p in trainer.module.named_parameters() if not p.is_meta}
        stores = getattr(trainer, "stores", [])
        views = {name: view for store in stores for name, view in store.views[0].items()}
        apart = {name for store in stores for name in store.apart[0]}
        assert all(dense[name].stride() == view.stride() for name, view in views.items())
        if execution == "compiled":
            assert all(p.data_ptr() % BOUNDARY == 0 for p in dense.values())
            assert bool(apart) == bool(stores) and all(views[name].data_ptr() % BOUNDARY for name in apart)
        else:
            assert not apart and all(dense[name].data_ptr() == view.data_ptr() for name, view in views.items())
        for store in stores:  # what a pull brought is what the module computes with
            store.values[0].normal_()
            store.fill_apart(0)
        assert all(torch.equal(dense[name], view) for name, view in views.items())
        feed.close()
        trainer.close()
