"""What all-reduces between hosts are read as, from planted Records whose times follow the formulas."""

import math
from pathlib import Path

import pytest

from multigpu.analysis.collectives import WIRE_SHARE, collectives_frame, host_points, link_time_s
from multigpu.collectives import algorithms
from multigpu.collectives.record import CollectiveMeasurement, CollectiveRecord, CollectiveStore
from multigpu.collectives.run import CollectiveRun
from multigpu.grid import cost_s, find_grid
from multigpu.hosts.cluster import CLUSTER_VARIABLE, Cluster, as_machine
from multigpu.hosts.launching import PORT, check_run
from multigpu.hosts.measure import PARTS, find_parts, main, measure_part
from multigpu.hosts.namespaces import Hosts, Spread
from multigpu.measure.point import Point
from multigpu.measure.private_network import OPEN_PORTS
from multigpu.measure.sweep import make_plan
from multigpu.measure.timed import TIMED, check_devices, item_of
from multigpu.run import Run
from tests.collectives.planted import machine, make_record
from tests.refusals import refused


def wired(hosts: int, per_host: int) -> Cluster:
    return Cluster(hosts=hosts, per_host=per_host, network="a wire", link="wire")


SMALL = {"workload": "nmt", "model": "nmt_tiny", "placement": "ddp", "device_type": "cpu", "batch_size": 4}


def record_of(run: CollectiveRun, per_host: int, rate_mbit: float) -> CollectiveRecord:
    """A Record whose time is exactly what the bytes that follow each other take."""
    cluster = Cluster(hosts=-(-run.devices // per_host), per_host=per_host, network=f"{rate_mbit:g} Mbit/s each way", link=f"{rate_mbit:g}")
    cost = algorithms()[run.method].cost(run.elements, 4, run.devices) if run.method in algorithms() else None
    seconds = run.compute_ms * 1e-3
    if run.devices > 1:
        seconds += link_time_s(run.method, run.bytes, run.devices, rate_mbit * 1e6 / 8)
    way = int(cost.busiest_way_bytes) if cost else run.bytes
    planted = make_record(run.method, run.bytes, max(2, run.devices), "eager", gpus=0)
    carried = {"counted": cost, "predicted": cost, "interface_bytes": [(way, way)] * run.devices}
    measured = CollectiveMeasurement(time_s=[seconds] * 10, total_s=1.0, **carried)
    own = {"key": run.digest + str(per_host), "run": run, "machine": as_machine(machine(0), cluster), "measurement": measured}
    return planted.model_copy(update=own)


@pytest.fixture(scope="module")
def frame():
    records = [
        record_of(run, part.per_host, part.rate_mbit) for part in find_parts() for run in part.runs if isinstance(run, CollectiveRun)
    ]
    return collectives_frame(records)


def test_times_that_follow_the_formulas_are_the_links(frame) -> None:
    table = host_points(frame)
    known = table[table["link_s"].notna() & (table["compute_ms"] == 0) & (table["delay_us"] == 0)].set_index(["method", "bytes", "devices"])
    assert (known["time_s"] / known["link_s"]).round(6).eq(1).all() and len(known) > 20
    ends = [known.loc[(method, 2**20, 8), "time_s"] / known.loc[(method, 2**20, 2), "time_s"] for method in ("central_server", "ring")]
    assert ends == pytest.approx([7, 1.75]), "2N(P-1) and 2N(P-1)/P"
    assert known.loc[("ring", 2**20, 8), "latency_terms"] == 14 and known.loc[("gloo", 2**20, 8), "latency_terms"] != 14
    assert known.loc[("ring", 2**20, 8), "sent_bytes"] == pytest.approx(1.75 * 2**20)
    assert host_points(collectives_frame([])).empty


def test_the_documents_network_explains_so_much_of_its_step(frame) -> None:
    """N of 717.67 MB at 100 Gbit/s is 57.4 ms, and headers take 4.4% of a link: both a 500th, so the time is the document's."""
    slept = host_points(frame)
    row = slept[(slept["method"] == "ring") & (slept["devices"] == 16) & (slept["per_host"] == 4)].iloc[0]
    assert row["time_s"] - 1e-3 * row["compute_ms"] == pytest.approx(2 * 0.0574 * 15 / 16 / WIRE_SHARE, rel=1e-3)
    assert row["hosts"] == 4 and math.isnan(row["link_s"]), "processes of one host meet in its memory: no formula of one link a process"


def test_grids_state_their_cost() -> None:
    assert cost_s(find_grid("document_004", [1, 2, 4])) < 480
    planned = find_grid("document_004", [1, 2, 4, 8])
    assert all(entry.run.model == "nmt004" and entry.run.batch_size == 64 for entry in planned)
    assert {entry.run.bucket_mib for entry in planned} >= {1, 256}
    assert [part.hosts for part in find_parts(["growth", "document_004", "document_004_apart"])] == [8, 4, 16]


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"devices": 5}, "5 devices were asked for and 2 hosts of 2 have 4"),
        ({"host_cores": 100_000}, r"host_cores 100000 were asked for and this machine has \d+: choose at most"),
        ({"device_type": "cuda", "device_ids": "4,0"}, "device_ids '4,0' names GPUs that are not here: this machine has 0 to 3"),
        ({"placement": "exp1"}, "uses memory that one host's processes share"),
        (
            {"framework": "tensorflow", "placement": "parameter_server_async", "execution": "graph"},
            "several hosts run PyTorch with a process a device, or TensorFlow's placement 'multi_worker', not nmt_tiny param",
        ),
    ],
)
def test_what_several_hosts_cannot_run(fields: dict, sentence: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("multigpu.hosts.launching.gpu_count", lambda: 4)
    refused(sentence, check_run, Run(**(SMALL | {"devices": 2} | fields)), wired(2, 2))


def test_a_host_may_have_so_many_processes_on_cpus_whether_it_is_alone_or_one_of_several() -> None:
    run = Run(**SMALL, devices=34)
    check_run(run, wired(3, 16))
    refused("34 CPU processes were asked for and at most 16 are allowed", check_devices, run)
    refused("17 CPU processes were asked for and at most 16 are allowed", check_run, run, wired(2, 17))


def test_tensorflows_workers_may_be_on_several_hosts(monkeypatch: pytest.MonkeyPatch) -> None:
    run = Run(**SMALL | {"devices": 2, "framework": "tensorflow", "placement": "multi_worker", "execution": "graph"})
    monkeypatch.setenv(OPEN_PORTS, "1")
    monkeypatch.setattr("multigpu.hosts.launching.framework_version", lambda framework: "2.21")
    check_run(run, wired(2, 1))
    monkeypatch.setattr("multigpu.hosts.launching.framework_version", lambda framework: "none")
    refused("framework 'tensorflow' is not installed here", check_run, run, wired(2, 1))


def test_each_host_gets_an_agent_and_the_plan_of_all(tmp_path: Path) -> None:
    """Three processes, two a host: the second host has one of them, and Records know two hosts of the four."""
    hosts = Hosts(4, 200)
    hosts.names = ["one", "two", "three", "four"]
    spread = Spread(hosts, 2)
    plan = make_plan(TIMED, [item_of(Point(Run(**SMALL, devices=3)))], tmp_path, tmp_path, tmp_path, machine=spread.machine(3))[0]
    plan = spread.offer(plan)
    assert (plan.hosts, plan.workers, plan.rendezvous) == (2, 2, f"10.77.0.1:{PORT}")
    assert Cluster.model_validate_json(plan.environment[CLUSTER_VARIABLE]).hosts == 2
    (first, own), (second, other) = spread.agents(plan)
    assert first == ["nsenter", "--net=/run/netns/one", "--"] and second[1] == "--net=/run/netns/two"
    assert (own.host, own.address, other.host, other.address) == (0, "10.77.0.1", 1, "10.77.0.2")
    refused("9 processes, 2 a host, need 5 hosts and there are 4", spread.cluster, 9)


def test_a_framework_that_is_missing_is_left_out_with_a_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("multigpu.hosts.measure.framework_version", lambda framework: "none")
    (part,) = find_parts(["steps"])
    summary = measure_part(part, CollectiveStore(tmp_path), 10, 1)
    assert len(summary.troubles) == 6 and all("is not installed here" in text for text in summary.troubles) and not summary.statuses


def test_bad_parts_end_with_one_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--parts", "shrinkage"]) == 2
    assert capsys.readouterr().err == f"multigpu: unknown part 'shrinkage': choose among {', '.join(PARTS)}\n"
    assert main(["--dry-run", "--parts", "small"]) == 0 and "2 hosts of 1" in capsys.readouterr().out
