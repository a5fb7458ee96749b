"""All-reduces between hosts: what their interfaces carry, and what their links' rate makes of it."""

import pytest

from multigpu.collectives.experiment import measure
from multigpu.collectives.record import CollectiveRecord, CollectiveStore
from multigpu.collectives.run import CollectiveRun
from multigpu.hosts.namespaces import Hosts, Spread, why_not
from multigpu.measure.machine import this_machine

SIZE, RATE_MBIT, DEVICES = 2**20, 100.0, 3
SLEPT_MS = 300


def run_of(method: str, size: int = SIZE, **fields: int) -> object:
    return CollectiveRun.built(method=method, bytes=size, devices=DEVICES, device_type="cpu", warmup_calls=1, calls=1, samples=3, **fields)


@pytest.fixture(scope="module")
def records(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, int, int], CollectiveRecord]:
    """method, delay_us and compute_ms -> its Record; one launch on three hosts for all."""
    if why_not():
        pytest.skip(why_not() or "")
    runs = [run_of(method) for method in ("ring", "central_server", "gloo")]
    runs += [run_of("ring", 1024, delay_us=20_000), run_of("central_server", 1024, delay_us=20_000), run_of("ring", compute_ms=SLEPT_MS)]
    store = CollectiveStore(tmp_path_factory.mktemp("hosts"))
    with Hosts(DEVICES, RATE_MBIT) as hosts:
        summary = measure(runs, store, budget_s=100, progress=False, spread=Spread(hosts))  # type: ignore[arg-type]
    assert dict(summary.statuses) == {"ok": len(runs)}, summary
    return {(record.run.method, record.run.delay_us, record.run.compute_ms): record for record in store}


def test_interfaces_carry_what_the_formulas_predict(records: dict[tuple[str, int, int], CollectiveRecord]) -> None:
    for method in ("ring", "central_server"):
        measured = records[method, 0, 0].measurement
        assert measured and measured.predicted and measured.interface_bytes and measured.flags == []
        sent, received = zip(*measured.interface_bytes, strict=True)
        # headers are 4% of a full packet; acknowledgements and one barrier come on top
        room = 1.08 * measured.predicted.busiest_way_bytes + 20_000
        assert measured.predicted.busiest_way_bytes <= max(sent) <= room
        assert measured.predicted.busiest_way_bytes <= max(received) <= room
        assert measured.predicted.total_bytes <= sum(sent) <= 1.08 * measured.predicted.total_bytes + 60_000


def test_the_server_pays_for_its_link_and_the_ring_does_not(records: dict[tuple[str, int, int], CollectiveRecord]) -> None:
    second = 8 / (RATE_MBIT * 1e6)
    ring, server = (records[method, 0, 0].time_s or 0 for method in ("ring", "central_server"))
    assert ring > 0.9 * (2 * SIZE * 2 / 3) * second, "2N(P-1)/P on every link"
    assert server > 0.9 * 2 * (SIZE * 2) * second, "N(P-1) in, then N(P-1) out"
    assert server > 2 * ring


def test_a_distant_host_costs_a_ring_more_messages(records: dict[tuple[str, int, int], CollectiveRecord]) -> None:
    ring, server = (records[method, 20_000, 0].time_s or 0 for method in ("ring", "central_server"))
    assert ring > 4 * 0.020 and server > 2 * 0.020
    assert ring > 1.4 * server, "2(P-1) messages that follow each other, against 2"


def test_compute_stands_before_every_call(records: dict[tuple[str, int, int], CollectiveRecord]) -> None:
    plain, step = (records["ring", 0, compute].time_s or 0 for compute in (0, SLEPT_MS))
    assert SLEPT_MS * 1e-3 + 0.6 * plain < step < SLEPT_MS * 1e-3 + 3 * plain


def test_a_record_says_how_many_hosts_and_which_links(records: dict[tuple[str, int, int], CollectiveRecord]) -> None:
    for record in records.values():
        machine = record.machine
        assert (machine.hosts, machine.processes_per_host) == (3, 1)
        assert machine.network == "100 Mbit/s each way, network namespaces of one machine"
        assert machine.name == f"1-a-host-100-mbit-{this_machine().name}"
