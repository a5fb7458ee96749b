"""Nothing outside a host reaches a launch on it, and what processes tell each other runs no
code.
"""

import importlib.util
import pickle
import socket
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path

import nbformat
import pytest
import torch
import torch.distributed as dist
from benchmarks import namespaces

from multigpu.build import build_run
from multigpu.engines.tensorflow.members import Line
from multigpu.engines.torch import object_collectives
from multigpu.machine import private_network
from multigpu.machine.cluster import Cluster
from multigpu.runner.agent import serve_store
from multigpu.runner.hosts.launching import check_run
from multigpu.runner.timed import check_devices
from tests.multigpu.equivalence.cases import answers
from tests.multigpu.runner.launched import SAMPLES
from tests.multigpu.runner.listening import LOOK_S, listeners, overheard
from tests.refusals import refused

OPEN = """
import socket, sys
servers = [
    socket.create_server((address, 5000 + number)) for number, address in enumerate(sys.argv[1:])
]
print("ready", flush=True)
sys.stdin.read()
"""


def test_what_another_host_reaches_is_what_is_said_to_be_reachable() -> None:
    """All addresses of a host, its loopback, and all addresses of a network that has nothing
    else.
    """
    if reason := private_network.why_not() or namespaces.why_not():
        pytest.skip(reason)
    with namespaces.Hosts(2) as hosts, ExitStack() as stack:
        before, python = listeners(), [*hosts.prefix(0), sys.executable, "-I", "-S", "-c", OPEN]
        for command in (
            [*python, "0.0.0.0", "127.0.0.1"],
            [*hosts.prefix(0), *private_network.prefix(), *python[-5:], "0.0.0.0"],
        ):
            program = stack.enter_context(
                subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            )
            assert program.stdout and program.stdout.readline() == "ready\n"
        found = listeners() - before
        expected = [("0.0.0.0", 5000, False), ("0.0.0.0", 5000, True), ("127.0.0.1", 5001, False)]
        assert sorted((one.address, one.port, one.private) for one in found) == expected
        connect = "import socket, sys; socket.create_connection((sys.argv[1], int(sys.argv[2])), 5)"
        for port in (5000, 5001):
            done = subprocess.run(
                [*hosts.prefix(1), *python[-5:-1], connect, hosts.address(0), str(port)],
                capture_output=True,
            )
            assert (
                (done.returncode == 0)
                is (port == 5000)
                is (port in {one.port for one in found if one.reachable})
            )


def test_a_socket_that_is_open_to_others_is_found() -> None:
    with (
        pytest.raises(AssertionError, match=r"address='0\.0\.0\.0'"),
        overheard() as heard,
        socket.create_server(("0.0.0.0", 0)),
    ):
        time.sleep(5 * LOOK_S)
    assert heard


def test_a_store_listens_on_its_address_alone() -> None:
    store = serve_store("127.0.0.2")
    store.set("word", "told")
    assert dist.TCPStore("127.0.0.2", store.port, is_master=False).get("word") == b"told"
    (own,) = [one for one in listeners() if one.port == store.port]
    assert own.address == "127.0.0.2"
    with pytest.raises(OSError):
        socket.create_connection(("127.0.0.1", store.port), timeout=2)


class Bomb:
    """Writes a file where it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[object, tuple[object, ...]]:
        return Path.touch, (self.path,)


def _tell(rank: int, folder: Path) -> list[str]:
    value = {
        "rank": rank,
        "weights": torch.full((3,), float(rank)),
        "names": ["a", None],
        "shape": (2, 3),
    }
    every = object_collectives.all_gather(value | ({"more": "x" * 5000} if rank else {}))
    assert [part["rank"] for part in every] == [0, 1] and every[1]["more"] == "x" * 5000
    assert torch.equal(every[1]["weights"], torch.ones(3)) and every[0]["shape"] == (2, 3)
    first = object_collectives.gather(value)
    assert (first is None) == bool(rank) and (rank or [part["rank"] for part in first] == [0, 1])
    assert object_collectives.broadcast("x" if rank == 0 else None) == "x"
    with pytest.raises(pickle.UnpicklingError):
        object_collectives.all_gather(Bomb(folder / f"run-by-{rank}") if rank else value)
    return [path.name for path in folder.glob("run-by-*")]


def test_what_processes_tell_each_other_runs_no_code() -> None:
    assert answers(_tell, 2) == [[], []]


def test_a_line_runs_no_code(tmp_path: Path) -> None:
    ours, theirs = socket.socketpair()
    one, other = Line(ours.detach()), Line(theirs.detach())
    one.send(("start", {"rank": 1}))
    assert other.recv() == ["start", {"rank": 1}]
    one.send_bytes(pickle.dumps(Bomb(tmp_path / "run")))
    with pytest.raises(ValueError):
        other.recv()
    assert not list(tmp_path.iterdir())


@pytest.mark.skipif(
    importlib.util.find_spec("tensorflow") is None, reason="TensorFlow is not installed"
)
def test_open_ports_are_refused_where_there_is_no_private_network_unless_allowed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(private_network, "why_not", lambda: "Operation not permitted")
    monkeypatch.delenv(private_network.OPEN_PORTS, raising=False)
    servers = build_run(
        **SAMPLES
        | {
            "placement": "multi_worker",
            "processes": "per_device",
            "devices": 2,
            "optimizer": "adam",
        }
    )
    cluster = Cluster(hosts=2, per_host=1, network="1 Gbit/s", link="1-gbit-s")
    refused(
        "multi_worker.* every interface of this machine.*Operation not permitted.*set"
        " MULTIGPU_OPEN_PORTS=1",
        check_devices,
        servers,
    )
    refused("which must reach each other: set MULTIGPU_OPEN_PORTS=1", check_run, servers, cluster)
    monkeypatch.setenv(private_network.OPEN_PORTS, "1")
    check_devices(servers)
    check_run(servers, cluster)


def test_a_notebook_listens_to_nobody_outside(tmp_path: Path) -> None:
    """Sweeps are listened to where they are struck (`launched.strike`), as are collectives,
    synchrony and Ray in their own tests.
    """
    page = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell("import time; time.sleep(1)")])
    page.metadata["kernelspec"] = {
        "name": "python3",
        "display_name": "Python 3",
        "language": "python",
    }
    nbformat.write(page, tmp_path / "page.ipynb")
    with overheard() as heard:
        subprocess.run(
            [
                sys.executable,
                "-m",
                "papermill",
                tmp_path / "page.ipynb",
                tmp_path / "out.ipynb",
                "--no-progress-bar",
            ],
            check=True,
        )
    assert heard
