"""What is measured between hosts, what they refuse, who gets which plan, and what their Records are
read as.
"""

import math
from pathlib import Path

import pytest
from benchmarks.between_hosts import PARTS, find_parts, main, measure_part
from benchmarks.namespaces import Hosts, SimulatedHosts

from multigpu.analysis.collectives import collectives_frame
from multigpu.grids import find_grid
from multigpu.grids.planned import cost_s
from multigpu.machine.cluster import CLUSTER_VARIABLE, Cluster, as_machine
from multigpu.machine.private_network import OPEN_PORTS
from multigpu.records.collective import CollectiveStore
from multigpu.runner.hosts.launching import PORT, check_run
from multigpu.runner.point import Point
from multigpu.runner.sweep import make_plan
from multigpu.runner.timed import TIMED, check_devices
from multigpu.spec.run import Run
from multigpu_study.analysis.collectives import WIRE_SHARE, host_points
from tests.multigpu.collectives.planted import machine, make_record
from tests.refusals import refused


def wired(hosts: int, per_host: int) -> Cluster:
    return Cluster(hosts=hosts, per_host=per_host, network="a wire", link="wire")


JOINED = {"framework": "tensorflow", "placement": "multi_worker", "execution": "graph"}
SMALL = {
    "workload": "nmt",
    "model": "nmt_tiny",
    "placement": "ddp",
    "device_type": "cpu",
    "batch_size": 4,
}


def test_points_between_hosts_know_their_links_formula() -> None:
    """A ring's 2N(P-1)/P, taken for a library's too, and a server's 2N(P-1), over 200 Mbit/s less
    headers.
    """
    there = {
        "machine": as_machine(
            machine(0), wired(8, 1).model_copy(update={"network": "200 Mbit/s each way"})
        )
    }
    planted = [
        make_record(method, 2**20, 8, "eager", gpus=0)
        for method in ("ring", "gloo", "central_server")
    ]
    carried = [
        one.measurement.model_copy(update={"interface_bytes": [(70, 50), (80, 90)]})
        for one in planted
    ]
    records = [
        one.model_copy(update=there | {"measurement": own})
        for one, own in zip(planted, carried, strict=True)
    ]
    table = host_points(collectives_frame(records)).set_index("method")
    one_way_s = 8 * 2**20 / (200e6 * WIRE_SHARE)
    assert (table["link_s"] / one_way_s).to_dict() == pytest.approx(
        {"ring": 1.75, "gloo": 1.75, "central_server": 14}
    )
    assert table["latency_terms"]["ring"] == 14 and math.isnan(table["latency_terms"]["gloo"])
    assert set(table["hosts"]) == {8} and host_points(collectives_frame([])).empty


SERVED = {"framework": "tensorflow", "placement": "parameter_server_async", "execution": "graph"}


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"devices": 5}, "5 devices were asked for and 2 hosts of 2 have 4"),
        ({"host_cores": 100_000}, r"host_cores 100000 were asked for and this machine has \d+: "),
        ({"device_type": "cuda", "device_ids": "4,0"}, "'4,0' .* this machine has 0 to 3"),
        ({"placement": "exp1"}, "uses memory that one host's processes share"),
        (SERVED, "several hosts run PyTorch .*, or .* 'multi_worker', not nmt_tiny param"),
        (JOINED, "framework 'tensorflow' is not installed here"),
    ],
)
def test_what_several_hosts_cannot_run(
    fields: dict, sentence: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("multigpu.runner.hosts.launching.gpu_count", lambda: 4)
    monkeypatch.setattr(
        "multigpu.runner.hosts.launching.framework_version",
        lambda framework: "none" if framework == "tensorflow" else "2.13",
    )
    refused(sentence, check_run, Run(**(SMALL | {"devices": 2} | fields)), wired(2, 2))


def test_a_host_alone_or_one_of_several_may_have_so_many_processes_on_cpus() -> None:
    run = Run(**SMALL, devices=34)
    check_run(run, wired(3, 16))
    refused("34 CPU processes were asked for and at most 16 are allowed", check_devices, run)
    refused(
        "17 CPU processes were asked for and at most 16 are allowed", check_run, run, wired(2, 17)
    )


def test_tensorflows_workers_may_be_on_several_hosts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(OPEN_PORTS, "1")
    monkeypatch.setattr(
        "multigpu.runner.hosts.launching.framework_version", lambda framework: "2.21"
    )
    check_run(Run(**SMALL | JOINED, devices=2), wired(2, 1))


def test_each_host_gets_an_agent_and_the_plan_of_all(tmp_path: Path) -> None:
    """Three processes, two a host: the second host has one of them, and Records know two hosts of
    the four.
    """
    hosts = Hosts(4, 200)
    hosts.names = ["one", "two", "three", "four"]
    spread = SimulatedHosts(hosts, 2)
    plan = make_plan(
        TIMED,
        [Point(Run(**SMALL, devices=3))],
        tmp_path,
        tmp_path,
        tmp_path,
        machine=spread.machine(3),
    )[0]
    plan = spread.offer(plan)
    assert (plan.hosts, plan.workers, plan.rendezvous) == (2, 2, f"10.77.0.1:{PORT}")
    assert Cluster.model_validate_json(plan.environment[CLUSTER_VARIABLE]).hosts == 2
    (first, own), (second, other) = spread.agents(plan)
    assert (
        first == ["nsenter", "--net=/run/netns/one", "--"] and second[1] == "--net=/run/netns/two"
    )
    assert (own.host, own.address, other.host, other.address) == (0, "10.77.0.1", 1, "10.77.0.2")
    refused("9 processes, 2 a host, need 5 hosts and there are 4", spread.cluster, 9)


def test_a_framework_that_is_missing_is_left_out_with_a_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("benchmarks.between_hosts.framework_version", lambda framework: "none")
    (part,) = find_parts(["steps"])
    summary = measure_part(part, CollectiveStore(tmp_path), 10, 1)
    assert (
        len(summary.troubles) == 6
        and all("is not installed here" in text for text in summary.troubles)
        and not summary.statuses
    )


def test_parts_state_their_hosts_and_bad_ones_end_with_one_sentence(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert cost_s(find_grid("document_004", [1, 2, 4])) < 480
    assert [
        part.hosts for part in find_parts(["growth", "document_004", "document_004_apart"])
    ] == [8, 4, 16]
    assert main(["--parts", "shrinkage"]) == 2
    assert (
        capsys.readouterr().err
        == f"multigpu: unknown part 'shrinkage': choose among {', '.join(PARTS)}\n"
    )
    assert (
        main(["--dry-run", "--parts", "small"]) == 0 and "2 hosts of 1" in capsys.readouterr().out
    )
