"""Nothing outside a host reaches a launch on it: every kind of launch is started, and every socket that listens meanwhile is tried."""

from __future__ import annotations

import importlib.util
import ipaddress
import json
import os
import pickle
import re
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing

from multigpu.engines.tensorflow.far import Line
from multigpu.engines.torch import told
from multigpu.hosts import namespaces
from multigpu.hosts.cluster import Cluster
from multigpu.hosts.launching import check_run
from multigpu.measure import private_network
from multigpu.measure.store import serve_store
from multigpu.measure.timed import check_devices
from multigpu.run import build_run
from tests.measure.launched import PATHS, REVIEWS

LISTEN = "0A"
WORLD = ["workload=nmt", "model=nmt_tiny", "device_type=cpu", "batch_size=4", "sequence_length=5", "devices=2"]
LONG = ["warmup_steps=2", "timed_steps=10"]
SMALL = ["workload=deepconn", "model=deepconn_tiny", "device_type=cpu", "batch_size=4", "optimizer=adam", "framework=tensorflow"]
SERVED = [*SMALL, "devices=2", "processes=per_device", "execution=graph", *LONG]
RAY = """
from multigpu.synchrony.over_ray import run_over_ray
from tests.synchrony.test_over_ray import asked
run_over_ray(asked("sync", updates=50), num_cpus=0)
"""
REAL = """
import sys
from pathlib import Path
from multigpu.synchrony.real import run_real
from tests.synchrony.test_real import experiment
run_real(experiment("sync"), Path(sys.argv[1]) / "run")
"""

needs_tensorflow = pytest.mark.skipif(importlib.util.find_spec("tensorflow") is None, reason="TensorFlow is not installed")
needs_ray = pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="Ray is not installed")


@dataclass(frozen=True)
class Listener:
    """A socket that listens, and the network it is in, by its inode."""

    address: str
    port: int
    network: int
    pid: int

    @property
    def local(self) -> bool:
        return ipaddress.ip_address(self.address).is_loopback


def address_of(text: str) -> tuple[str, int]:
    """An address as /proc/net/tcp writes it: words of 32 bits in the order of this machine's bytes."""
    address, _, port = text.partition(":")
    words = [struct.pack("=I", int(address[start : start + 8], 16)) for start in range(0, len(address), 8)]
    found = ipaddress.ip_address(b"".join(words))
    mapped = getattr(found, "ipv4_mapped", None)
    return str(mapped or found), int(port, 16)


def listeners(root: int) -> set[Listener]:
    """What listens now of a process and all that it has started, whatever network they are in."""
    found: set[Listener] = set()
    tables: dict[int, dict[str, tuple[str, int]]] = {}  # of every network: the address of each socket that listens
    with suppress(psutil.NoSuchProcess):
        for process in [psutil.Process(root), *psutil.Process(root).children(recursive=True)]:
            with suppress(OSError, psutil.NoSuchProcess):
                own = Path(f"/proc/{process.pid}")
                network = (own / "ns" / "net").stat().st_ino
                if network not in tables:
                    lines = [line.split() for table in ("tcp", "tcp6") for line in (own / "net" / table).read_text().splitlines()[1:]]
                    tables[network] = {f"socket:[{words[9]}]": address_of(words[1]) for words in lines if words[3] == LISTEN}
                for number in os.listdir(own / "fd") if tables[network] else ():
                    with suppress(OSError):  # closed since
                        if address := tables[network].get(os.readlink(own / "fd" / number)):
                            found.add(Listener(*address, network, process.pid))
    return found


def interfaces_of(pid: int) -> set[str]:
    """The network interfaces that a process sees."""
    return {line.split(":")[0].strip() for line in Path(f"/proc/{pid}/net/dev").read_text().splitlines()[2:]}


@pytest.fixture(scope="module")
def hosts() -> Iterator[namespaces.Hosts | None]:
    """Two hosts where they can be made: launches run on the first, and the second tries to reach them."""
    with ExitStack() as stack:
        yield None if namespaces.why_not() else stack.enter_context(namespaces.Hosts(2))


def answers(hosts: namespaces.Hosts, port: int) -> bool:
    """Whether something on the first host answers the second at this port."""
    connect = f"import socket; socket.create_connection(({hosts.address(0)!r}, {port}), 5)"
    return subprocess.run([*hosts.prefix(1), sys.executable, "-I", "-S", "-c", connect], capture_output=True).returncode == 0


def measured(tmp_path: Path, *words: str) -> list[str]:
    return ["-m", "multigpu", "--records", str(tmp_path), "measure", "--quiet", *words]


RECORDED = {"torch, a process a device", "torch, one process", "tensorflow, workers", "tensorflow, a server"}
"""Launches that print how many Runs were measured."""

LAUNCHES = {
    "torch, a process a device": lambda folder: measured(folder, *WORLD, "placement=ddp", *LONG),
    "torch, one process": lambda folder: measured(folder, *WORLD, "placement=exp1", "processes=one", *LONG),
    "collectives": lambda folder: [
        *["-m", "multigpu", "collectives", "--devices", "2", "--sizes", "4K", "--budget-s", "100", "--quiet", "--out", str(folder)]
    ],
    "synchrony": lambda folder: ["-c", REAL, str(folder)],
    "a notebook": lambda folder: ["-m", "papermill", str(folder / "page.ipynb"), str(folder / "executed.ipynb"), "--no-progress-bar"],
    "tensorflow, one process": lambda folder: measured(
        folder, *SMALL, "placement=replicated_allreduce", "processes=one", "devices=2", "execution=graph"
    ),
    "tensorflow, workers": lambda folder: measured(folder, *SERVED, "placement=multi_worker"),
    "tensorflow, a server": lambda folder: measured(folder, *SERVED, "placement=parameter_server_async"),
    "ray": lambda folder: ["-c", RAY],
}
EXPECTED = {"torch, a process a device", "collectives", "a notebook", "tensorflow, workers", "tensorflow, a server", "ray"}
"""Launches whose processes must listen for each other: seeing none would mean that the look came too late."""


@pytest.mark.slow
@pytest.mark.timeout(400)
@pytest.mark.parametrize(
    "kind", [pytest.param(kind, marks=[needs_tensorflow] * ("tensorflow" in kind) + [needs_ray] * (kind == "ray")) for kind in LAUNCHES]
)
def test_nothing_that_listens_is_reached_from_another_host(kind: str, hosts: namespaces.Hosts | None, tmp_path: Path) -> None:
    import nbformat

    page = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell("import time; time.sleep(1)")])
    page.metadata["kernelspec"] = {"name": "python3", "display_name": "Python 3", "language": "python"}
    nbformat.write(page, tmp_path / "page.ipynb")
    command = [*(hosts.prefix(0) if hosts else []), sys.executable, *LAUNCHES[kind](tmp_path)]
    environment = {k: v for k, v in os.environ.items() if k != private_network.OPEN_PORTS} | {"PYTHONPATH": PATHS}
    launch = psutil.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    seen: set[Listener] = set()
    open_to_others, networks = [], {}
    while launch.poll() is None:
        for new in listeners(launch.pid) - seen:
            seen.add(new)
            with suppress(OSError):
                networks[new.network] = interfaces_of(new.pid)
            if (not new.local and networks.get(new.network) != {"lo"}) or (hosts and answers(hosts, new.port)):
                open_to_others.append(new)
        time.sleep(0.05)
    said = launch.stdout.read()
    assert launch.returncode == 0 and (kind not in RECORDED or re.search(r"^\d+ ok; 0 measured", said, re.M)), said
    assert not open_to_others
    assert seen or kind not in EXPECTED


def test_a_store_listens_on_its_address_alone() -> None:
    store = serve_store("127.0.0.2")
    store.set("word", "told")
    assert dist.TCPStore("127.0.0.2", store.port, is_master=False).get("word") == b"told"
    (own,) = [one for one in listeners(os.getpid()) if one.port == store.port]
    assert own.address == "127.0.0.2"
    with pytest.raises(OSError):
        socket.create_connection(("127.0.0.1", store.port), timeout=2)


class Bomb:
    """Writes a file where it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[object, tuple[object, ...]]:
        return Path.touch, (self.path,)


def _tell(rank: int, folder: str) -> None:
    store = dist.FileStore(f"{folder}/store", 2)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=2)
    value = {"rank": rank, "weights": torch.full((3,), float(rank)), "names": ["a", None], "shape": (2, 3)}
    every = told.everyone(value | ({"more": "x" * 5000} if rank else {}))
    assert [part["rank"] for part in every] == [0, 1] and every[1]["more"] == "x" * 5000
    assert torch.equal(every[1]["weights"], torch.ones(3)) and every[0]["shape"] == (2, 3)
    first = told.to_first(value)
    assert (first is None) == bool(rank) and (rank or [part["rank"] for part in first] == [0, 1])
    assert told.from_first("x" if rank == 0 else None) == "x"
    held = Bomb(Path(folder) / f"run-by-{rank}") if rank else value
    try:
        told.everyone(held)
    except pickle.UnpicklingError:
        Path(folder, f"refused-by-{rank}").touch()
    dist.destroy_process_group()


def test_what_processes_tell_each_other_runs_no_code(tmp_path: Path) -> None:
    torch.multiprocessing.spawn(_tell, (str(tmp_path),), nprocs=2)
    assert {path.name for path in tmp_path.iterdir()} - {"store"} == {"refused-by-0", "refused-by-1"}


def test_a_line_runs_no_code(tmp_path: Path) -> None:
    ours, theirs = socket.socketpair()
    one, other = Line(ours.detach()), Line(theirs.detach())
    one.send(("start", {"rank": 1}))
    assert other.recv() == ["start", {"rank": 1}]
    one.send_bytes(pickle.dumps(Bomb(tmp_path / "run")))
    with pytest.raises(ValueError):
        other.recv()
    assert not list(tmp_path.iterdir())


SERVERS = build_run(**REVIEWS | {"placement": "multi_worker", "processes": "per_device", "devices": 2, "optimizer": "adam"})


@needs_tensorflow
def test_open_ports_are_refused_where_there_is_no_private_network_unless_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(private_network, "why_not", lambda: "Operation not permitted")
    monkeypatch.delenv(private_network.OPEN_PORTS, raising=False)
    sentence = "multi_worker.* every interface of this machine.*Operation not permitted.*set MULTIGPU_OPEN_PORTS=1"
    with pytest.raises(ValueError, match=sentence):
        check_devices(SERVERS)
    cluster = Cluster(hosts=2, per_host=1, network="1 Gbit/s", link="1-gbit-s")
    with pytest.raises(ValueError, match="which must reach each other: set MULTIGPU_OPEN_PORTS=1"):
        check_run(SERVERS, cluster)
    monkeypatch.setenv(private_network.OPEN_PORTS, "1")
    check_devices(SERVERS)
    check_run(SERVERS, cluster)


@pytest.mark.skipif(private_network.why_not() is not None, reason=private_network.why_not() or "")
def test_a_private_network_has_a_loopback_and_nothing_else() -> None:
    command = [*private_network.prefix(), sys.executable, "-c", "import json, psutil; print(json.dumps(psutil.net_if_addrs()))"]
    found = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    assert list(found) == ["lo"] and found["lo"][0][1] == "127.0.0.1"
