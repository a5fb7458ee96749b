"""Records that are shared tell nothing of who measured, or on which host; what they measured is as it was."""

from __future__ import annotations

from pathlib import Path

import pytest

from multigpu import paths, shared
from multigpu.cli import main
from multigpu.record import Record, RecordStore
from multigpu.store import Held
from tests.factory import make_machine, make_point, plant

SECRETS = ("acme-node-17", "somebody", "/" + "home/somebody/envs", "10.1.2.3", "GPU-1234abcd", "deadbeef")


def tellings(settings: dict[str, str], **machine: str) -> list[Record]:
    """Records of a machine with these settings, whose host was started as `deadbeef`."""
    own = make_machine(2).model_copy(update={"environment": settings, **machine})
    return [record.model_copy(update={"boot": "deadbeef"}) for record in make_point([1e6, 1.1e6], devices=2, machine=own)]


def texts(folder: Path) -> list[Held]:
    return [held for store in [RecordStore(folder)] for place in store.places() for held in store.held(place).values()]


@pytest.fixture(autouse=True)
def host(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared.socket, "gethostname", lambda: SECRETS[0])
    monkeypatch.setattr(shared.getpass, "getuser", lambda: SECRETS[1])


def test_nothing_identifies_and_every_figure_stays(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    settings = {"OMP_NUM_THREADS": "8", "NCCL_IB_HCA": "mlx5_0", "CUDA_VISIBLE_DEVICES": "GPU-1234abcd", "NCCL_TOPO_FILE": SECRETS[2]}
    records = tellings(settings | {"NCCL_SOCKET_IFNAME": "=eth0 at 10.1.2.3"}, kernel="6.8.0-acme-node-17", network="10.1.2.3")
    plant(RecordStore(tmp_path / "runs"), records)
    out = tmp_path / "offered"
    assert main(["--records", str(tmp_path / "runs"), "records", "--share", str(out)]) == 0
    assert len(list(out.rglob("records-*.tar.xz"))) == 1
    found = list(RecordStore(out))
    assert len(found) == len(records) and not [secret for held in texts(out) for secret in SECRETS if secret.encode() in held.text()]
    assert found[0].machine.environment["OMP_NUM_THREADS"] == "8" and found[0].machine.environment["NCCL_IB_HCA"] == "mlx5_0"
    for own, other in zip(sorted(records, key=lambda r: r.key), sorted(found, key=lambda r: r.key), strict=True):
        assert (own.key, own.own_key, own.measurement, own.run) == (other.key, other.own_key, other.measurement, other.run)
    capsys.readouterr()


def test_what_still_names_a_host_is_left_out_and_counted(tmp_path: Path) -> None:
    named = [record.model_copy(update={"input_label": "photos of somebody"}) for record in tellings({})]
    addressed = [record.model_copy(update={"launch_id": "10.1.2.3"}) for record in tellings({})]
    written, left = shared.share([*named, *addressed], tmp_path)
    assert not written and list(left.values()) == [4]


def test_shared_records_are_verified_as_any(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Real Records, which a launch wrote."""
    store = RecordStore(paths.RUNS)
    place = min(store.places(), key=lambda name: len(store.held(name)))
    records = [store.read(held) for held in list(store.held(place).values())[:40]]
    written, left = shared.share(records, tmp_path)
    assert len(written) == 1 and not left
    assert main(["verify", str(tmp_path)]) == 0
    assert f"{len(records)}" in capsys.readouterr().out
