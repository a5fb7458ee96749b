"""A comparison's folder from somebody else: it is read without running anything of theirs, and a
job that this user did not pack is not trained.
"""

import hmac
import pickle
from hashlib import sha256
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import multigpu
from multigpu import Job
from multigpu.records.record import RecordStore
from multigpu.spec.errors import JobError
from multigpu.user_model.candidates import candidate_runs
from multigpu.user_model.describe import describe
from multigpu.user_model.kept import keep
from multigpu.user_model.page import lines, page
from multigpu.user_model.result import compared
from multigpu.workloads.own import seals
from multigpu.workloads.own.description import FOLDERS, Described, know
from multigpu.workloads.own.job import opened, pack, unpack
from tests.factory import make_machine, make_record, plant


class Bomb:
    """Whoever unpickles it makes a file."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> tuple[object, ...]:
        return Path.touch, (self.mark,)


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Linear(3, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        made: torch.Tensor = self.a(x)
        return made


def batch(n: int, generator: torch.Generator) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.rand(n, 3, generator=generator), torch.rand(n, 1, generator=generator)


def job() -> Job:
    return Job(Net, batch, F.mse_loss, multigpu.SGD(0.1), batch_size=2)


@pytest.fixture(autouse=True)
def keys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A user of its own."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv(FOLDERS, raising=False)
    return tmp_path / "cache"


@pytest.fixture
def described(tmp_path: Path) -> Described:
    """A comparison's folder, `tmp_path / "out"`, and the description in it."""
    folder = tmp_path / "out"
    know(folder / "jobs")
    made = describe(job(), folder / "jobs", 2, timed=False)
    runs, refused = candidate_runs(job(), made, folder, ["ddp"], 2, "cpu", a_repeat_s=0)
    keep(folder, made, runs, refused, 60)
    plant(
        RecordStore(folder / "records"),
        [
            make_record(machine=make_machine(0), repeat=repeat, **run.model_dump())
            for run in runs
            for repeat in range(2)
        ],
    )
    return made


@pytest.mark.parametrize("sealed_by_them", [False, True])
def test_a_folder_of_somebody_else_is_read_and_its_pickle_is_not(
    described: Described, tmp_path: Path, sealed_by_them: bool
) -> None:
    folder, mark = tmp_path / "out", tmp_path / "mark"
    bomb = pickle.dumps(([], {}, Bomb(mark)))
    pickle.loads(bomb)
    assert mark.exists(), "it does run what it says"
    mark.unlink()
    seal = hmac.new(b"a key of theirs", bomb, sha256).digest() if sealed_by_them else b""
    (folder / "jobs" / described.job).write_bytes(seal + bomb)
    result = compared(folder)
    assert "ddp" in result.names
    assert "ddp" in page(result)
    assert lines(result)
    with pytest.raises(JobError, match="was not packed by you on this machine"):
        described.load(folder / "jobs")
    assert not mark.exists()


def test_what_this_user_packed_is_read_and_what_was_changed_since_is_not(
    tmp_path: Path, keys: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (path := tmp_path / "mine.job").write_bytes(pack(job()))
    assert unpack(path).model.__name__ == "Net"
    key = keys / "multigpu" / "key"
    assert key.stat().st_mode & 0o077 == 0, "nobody else reads the key"
    path.write_bytes(path.read_bytes()[:-1] + b"!")
    with pytest.raises(JobError, match=r"mine\.job was not packed by you"):
        unpack(path)
    kept = pack(job())
    key.unlink()
    seals._key.cache_clear()
    assert opened(kept) is None, "another machine has another key"
    seals._key.cache_clear()


def test_a_folder_for_caches_that_cannot_be_written_is_no_obstacle(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "a file"))
    monkeypatch.setattr(seals.tempfile, "gettempdir", lambda: str(tmp_path))
    assert seals.key_file().parent.parent == tmp_path
    assert opened(seals.sealed(b"text")) == b"text"
    assert len(seals.key_file().read_bytes()) == seals.SIZE
