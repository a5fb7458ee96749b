"""What a Run takes that outlives Python's own memory is given back, also when its building fails
and nobody ever gets its session.
"""

import gc
import weakref
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist

from multigpu.engines.common.session import Opening
from multigpu.engines.torch import split
from multigpu.engines.torch.host_store import SharedMemory
from multigpu.engines.torch.session import Session
from multigpu.engines.torch.split import Group
from multigpu.engines.torch.trainer import Context
from multigpu.spec.run import Run
from tests.multigpu.runner.launched import WORDS
from tests.refusals import refused


class Pages:
    """Stands in for CUDA's account of page-locked memory, which refuses what is registered
    twice.
    """

    def __init__(self) -> None:
        self.locked: set[int] = set()
        self.calls = 0

    def cudaHostRegister(self, address: int, size: int, flags: int) -> int:
        assert address not in self.locked, "already registered"
        self.locked.add(address)
        self.calls += 1
        return 0

    def cudaHostUnregister(self, address: int) -> int:
        self.locked.remove(address)
        return 0


@pytest.fixture
def pages(monkeypatch: pytest.MonkeyPatch) -> Pages:
    """Memory is locked as on a GPU."""
    account, plain = Pages(), SharedMemory.__init__

    def locking(self: SharedMemory, folder: Path, rank: int, cuda: bool) -> None:
        plain(self, folder, rank, cuda=True)

    monkeypatch.setattr(SharedMemory, "__init__", locking)
    monkeypatch.setattr(torch.cuda, "cudart", lambda: account)
    monkeypatch.setattr(torch.cuda, "check_error", lambda code: None)
    return account


def host_run(placement: str) -> Run:
    return Run(placement=placement, devices=1, **WORDS)


def fail(*arguments: Any, **named: Any) -> Any:
    raise MemoryError("planted: cannot allocate")


def build(run: Run, folder: Path) -> Session:
    return Session(Opening(run, 0, 1, folder, 60.0, 0.0, lambda stage: None))


# calls that come after the store has stood, and within its building, when its pages are locked
# already
PLACES = [
    "multigpu.engines.torch.server.materialise",
    "multigpu.engines.torch.host_store.HostBarrier.wait",
]
OPENED: list[tuple[str, Callable[[Path], Session]]] = [
    *(
        (place, partial(build, host_run(placement)))
        for placement in ("exp1", "exp2")
        for place in PLACES
    )
]


@pytest.mark.parametrize(
    ("place", "opened"),
    OPENED,
    ids=lambda part: part.rpartition(".")[2] if isinstance(part, str) else "",
)
def test_pages_are_unlocked_where_building_fails(
    place: str,
    opened: Callable[[Path], Session],
    pages: Pages,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    are_unlocked(place, opened, pages, tmp_path, monkeypatch)


def are_unlocked(
    place: str,
    opened: Callable[[Path], Any],
    pages: Pages,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Fails unless a Run's pages are unlocked where its building fails, and when it is closed."""
    with monkeypatch.context() as planted:
        planted.setattr(place, fail)
        refused("planted", opened, tmp_path, error=MemoryError)
        assert pages.calls and not pages.locked
        planted.setattr(pages, "cudaHostUnregister", lambda address: 1 / 0)
        # an error of closing does not hide why building failed
        refused("planted", opened, tmp_path, error=MemoryError)
    pages.locked.clear()
    session = opened(tmp_path)
    assert pages.locked, "a Run that stands keeps its pages"
    session.close()
    assert not pages.locked


STANDING = ["independent", "exp1", "exp2", "exp3", "exp4", "ps_gpu0", "replicated_allreduce", "ddp"]


@pytest.mark.parametrize("placement", STANDING)
def test_nothing_of_a_model_is_left_when_its_run_has_ended(
    placement: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next Run of the process would count it as its own memory, or lack it."""
    if placement == "ddp":  # as where its step is captured, which a CPU cannot
        monkeypatch.setattr(Context, "captured", property(lambda self: True))
        monkeypatch.setattr(
            "multigpu.engines.torch.session.CapturedTrainer", lambda trainer: trainer
        )
    session = build(host_run(placement), tmp_path)
    for step in range(2):
        session.step(step)
    left = [weakref.ref(parameter) for parameter in session.trainer.module.parameters()]
    session.close()
    del session
    gc.collect()
    assert left and all(one() is None for one in left)


def test_groups_of_parts_end_where_building_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended: list[Any] = []
    groups: list[Group] = []

    def planted(wire: Any, degree: int, cuda: bool) -> tuple[Group, Group, list[Any]]:
        groups[:] = [Group(wire, [0, 1], "sharing"), Group(wire, [0], None)]
        return groups[0], groups[1], ["sharing"]

    monkeypatch.setattr(split, "groups_of", planted)
    monkeypatch.setattr(split, "materialise", fail)
    monkeypatch.setattr(dist, "destroy_process_group", ended.append)
    run = Run(
        workload="stacks",
        model="mlp_tiny",
        placement="tensor_split",
        devices=2,
        device_type="cpu",
        batch_size=8,
    )
    refused("planted", build, run, tmp_path, error=MemoryError)
    assert ended == ["sharing"] and groups[0].group is None
