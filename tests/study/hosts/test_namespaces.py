"""Hosts made as network namespaces: their links limit and count what they carry, also of
all-reduces, and nothing is left behind.
"""

import os
import signal
import subprocess
import sys

import psutil
import pytest
from benchmarks import namespaces
from benchmarks.namespaces import SimulatedHosts, remove_left, why_not

from multigpu.machine.machine import this_machine
from multigpu.paths import REPOSITORY
from multigpu.records.collective import CollectiveRecord, CollectiveStore
from multigpu.spec.collective import CollectiveRun
from multigpu_study.collectives.experiment import measure
from tests.multigpu.hosts.failing import Hosts
from tests.patience import PATIENCE_S
from tests.refusals import refused

needs_hosts = pytest.mark.skipif(why_not() is not None, reason=why_not() or "")
SIZE, RATE_MBIT, DEVICES = 2**20, 100.0, 3
SLEPT_MS = 300


@needs_hosts
def test_hosts_of_a_killed_process_are_removed_by_the_next() -> None:
    program = (
        "import subprocess, time\nfrom benchmarks.namespaces import Hosts\n"
        "with Hosts(2) as hosts:\n"
        "    sleeper = subprocess.Popen([*hosts.prefix(1), 'sleep', '600'])\n"
        "    print(sleeper.pid, *hosts.names, flush=True)\n    time.sleep(600)\n"
    )
    maker = subprocess.Popen(
        [sys.executable, "-c", program], cwd=REPOSITORY, stdout=subprocess.PIPE, text=True
    )
    assert maker.stdout
    sleeper, *names = maker.stdout.readline().split()
    assert set(names) <= set(namespaces._names()) and not set(names) & set(remove_left()), (
        "a living process keeps its hosts"
    )
    os.kill(maker.pid, signal.SIGKILL)
    maker.wait()
    with Hosts(1) as hosts:
        assert not set(names) & set(namespaces._names())
        psutil.wait_procs(
            [psutil.Process(int(sleeper))] if psutil.pid_exists(int(sleeper)) else [],
            timeout=PATIENCE_S,
        )
        assert (
            not psutil.pid_exists(int(sleeper))
            or psutil.Process(int(sleeper)).status() == psutil.STATUS_ZOMBIE
        )
        assert hosts.names[0] in namespaces._names()


@needs_hosts
def test_an_error_inside_leaves_nothing() -> None:
    with pytest.raises(RuntimeError), Hosts(2) as hosts:
        child = subprocess.Popen([*hosts.prefix(0), "sleep", "600"])
        raise RuntimeError
    assert child.wait(5) == -signal.SIGKILL and not set(hosts.names) & set(namespaces._names())


@pytest.mark.parametrize(("count", "rate"), [(0, 1.0), (65, 1.0), (2, 0.0), (2, float("inf"))])
def test_what_cannot_be_made_is_refused(count: int, rate: float) -> None:
    refused("cannot be made", Hosts, count, rate)


def test_why_not_names_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(namespaces.shutil, "which", lambda tool: None)
    assert (
        why_not.__wrapped__()
        == "no command ip and no tc and no nsenter here: install iproute2 and util-linux"
    )
    monkeypatch.setattr(namespaces.shutil, "which", lambda tool: tool)
    monkeypatch.setattr(namespaces.os, "geteuid", lambda: 1000)
    assert why_not.__wrapped__() == "network namespaces need root"


@pytest.fixture(scope="module")
def records(
    tmp_path_factory: pytest.TempPathFactory,
) -> dict[tuple[str, int, int], CollectiveRecord]:
    """method, delay_us and compute_ms -> its Record; one launch on three hosts for all."""
    common = {"devices": DEVICES, "device_type": "cpu", "warmup_calls": 1, "calls": 1, "samples": 3}
    asked = [(method, SIZE, 0, 0) for method in ("ring", "central_server", "gloo")]
    asked += [
        ("ring", 1024, 20_000, 0),
        ("central_server", 1024, 20_000, 0),
        ("ring", SIZE, 0, SLEPT_MS),
    ]
    runs = [
        CollectiveRun.built(method=m, bytes=size, delay_us=late, compute_ms=slept, **common)
        for m, size, late, slept in asked
    ]
    store = CollectiveStore(tmp_path_factory.mktemp("hosts"))
    with Hosts(DEVICES, RATE_MBIT) as hosts:
        summary = measure(runs, store, budget_s=100, progress=False, spread=SimulatedHosts(hosts))
    assert dict(summary.statuses) == {"ok": len(runs)}, summary
    return {
        (record.run.method, record.run.delay_us, record.run.compute_ms): record for record in store
    }


@needs_hosts
def test_interfaces_carry_what_the_formulas_predict(
    records: dict[tuple[str, int, int], CollectiveRecord],
) -> None:
    for method in ("ring", "central_server"):
        measured = records[method, 0, 0].measurement
        assert measured and measured.predicted and measured.interface_bytes and measured.flags == []
        sent, received = zip(*measured.interface_bytes, strict=True)
        # headers are 4% of a full packet; acknowledgements and one barrier come on top
        way, total = measured.predicted.busiest_way_bytes, measured.predicted.total_bytes
        assert all(way <= found <= 1.08 * way + 20_000 for found in (max(sent), max(received)))
        assert total <= sum(sent) <= 1.08 * total + 60_000
    for machine in (record.machine for record in records.values()):
        assert (machine.hosts, machine.processes_per_host) == (3, 1)
        assert machine.network == "100 Mbit/s each way, network namespaces of one machine"
        assert machine.name == f"1-a-host-100-mbit-{this_machine().name}"


@needs_hosts
def test_times_are_those_of_links_messages_and_what_is_computed_before(
    records: dict[tuple[str, int, int], CollectiveRecord],
) -> None:
    second = 8 / (RATE_MBIT * 1e6)
    ring, server = (records[method, 0, 0].time_s for method in ("ring", "central_server"))
    assert ring > 0.9 * (2 * SIZE * 2 / 3) * second, "2N(P-1)/P on every link"
    assert server > 0.9 * 2 * (SIZE * 2) * second and server > 2 * ring, (
        "N(P-1) in, then N(P-1) out"
    )
    far_ring, far_server = (
        records[method, 20_000, 0].time_s for method in ("ring", "central_server")
    )
    assert far_ring > 4 * 0.020 and far_server > 2 * 0.020
    assert far_ring > 1.4 * far_server, "2(P-1) messages that follow each other, against 2"
    assert (
        SLEPT_MS * 1e-3 + 0.6 * ring
        < records["ring", 0, SLEPT_MS].time_s
        < SLEPT_MS * 1e-3 + 3 * ring
    )
