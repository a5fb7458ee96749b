"""What the pages say, from planted Records whose times follow the formulas, and where there is none."""

from __future__ import annotations

from pathlib import Path

import pytest

from multigpu.analysis import document_004, document_004_page, hosts, hosts_findings, hosts_tables
from multigpu.analysis.figure_hosts import figure_document, figure_growth
from multigpu.analysis.frame import load_frame
from multigpu.claims import evaluate, find_claim
from multigpu.collectives import algorithms
from multigpu.collectives.record import CollectiveMeasurement, CollectiveRecord
from multigpu.collectives.run import CollectiveRun
from multigpu.grid import cost_s, find_grid
from multigpu.hosts.cluster import Cluster, as_machine
from multigpu.hosts.grid import COMPUTE_MS, PARTS, find_parts
from multigpu.hosts.launching import check_run
from multigpu.hosts.measure import main
from multigpu.record import RecordStore
from multigpu.run import Run
from tests.collectives.planted import machine, make_record


def record_of(run: CollectiveRun, per_host: int, rate_mbit: float) -> CollectiveRecord:
    """A Record whose time is exactly what the bytes that follow each other take."""
    cluster = Cluster(hosts=-(-run.devices // per_host), per_host=per_host, network=f"{rate_mbit:g} Mbit/s each way", link=f"{rate_mbit:g}")
    cost = algorithms()[run.method].cost(run.elements, 4, run.devices) if run.method in algorithms() else None
    seconds = run.compute_ms * 1e-3
    if run.devices > 1:
        seconds += hosts.link_time_s(run.method, run.bytes, run.devices, rate_mbit * 1e6 / 8)
    way = int(cost.busiest_way_bytes) if cost else run.bytes
    planted = make_record(run.method, run.bytes, max(2, run.devices), "eager", gpus=0)
    return planted.model_copy(
        update={
            "key": run.digest + str(per_host),
            "run": run,
            "machine": as_machine(machine(0), cluster),
            "measurement": CollectiveMeasurement(
                time_s=[seconds] * 10, counted=cost, predicted=cost, total_s=1.0, interface_bytes=[(way, way)] * run.devices
            ),
        }
    )


@pytest.fixture(scope="module")
def frame():
    records = [record_of(run, part.per_host, part.rate_mbit) for part in find_parts() for run in part.runs]
    return hosts.hosts_frame(records)


def test_growth_is_the_formulas(frame) -> None:
    table = hosts.growth(frame).set_index(["method", "devices"])
    assert table["ratio"].round(6).eq(1).all()
    assert table.loc[("central_server", 8), "time_s"] / table.loc[("central_server", 2), "time_s"] == pytest.approx(7)
    assert table.loc[("ring", 8), "time_s"] / table.loc[("ring", 2), "time_s"] == pytest.approx(1.75)
    said = hosts_findings.growth_finding(frame)
    assert said and "**7.00 times**" in said and "**1.75 times**" in said and "the server takes 8.00 times the ring's time" in said


def test_the_documents_step(frame) -> None:
    table = hosts.document_steps(frame, 4).set_index(["method", "devices"])
    # N of 717.67 MB at 100 Gbit/s is 57.4 ms, and headers take 4.4% of a link
    ring = table.loc[("ring", 16)]
    assert ring["communication_s"] == pytest.approx(2 * 0.0574 * 15 / 16 / hosts.WIRE_SHARE, rel=1e-3)
    assert ring["document_s"] == pytest.approx(0.7) and ring["hosts"] == 4
    assert ring["efficiency"] == pytest.approx(0.36 / ring["time_s"]) and ring["speedup"] == pytest.approx(16 * ring["efficiency"])
    assert table.loc[("ring", 1), "time_s"] == COMPUTE_MS * 1e-3
    said = hosts_findings.document_finding(frame, 4)
    assert said and "the document's was 700 ms (8.2x)" in said
    assert "grew by 140 ms from 4 to 16 GPUs" in (hosts_findings.transfer_finding(frame, 4) or "")


def test_figures_and_tables_say_what_was_drawn(frame) -> None:
    picture = figure_growth(frame)
    assert set(picture.data["devices"]) == {2, 4, 8} and picture.alt and "7.00 times" in picture.finding
    picture = figure_document(frame, 4, 1)
    assert "Compute is a stand-in" in picture.caption and set(picture.data["per_host"]) == {1, 4}
    assert "1.000" in str(hosts_tables.growth_table(frame)) and "700" in str(hosts_tables.document_table(frame, 4))
    assert "delays 70" in str(hosts_tables.latency_table(frame)), "a ring of 8: 14 messages of 5 ms"


def test_without_records_pages_say_so(tmp_path: Path) -> None:
    none = hosts.hosts_frame([])
    findings = (hosts_findings.growth_finding, hosts_findings.interface_finding, hosts_findings.latency_finding)
    assert [finding(none) for finding in findings] == [None] * 3
    assert hosts_findings.document_finding(none, 4) is None and hosts_findings.transfer_finding(none, 4) is None
    assert "has not been measured" in figure_document(none, 4).alt and "has been measured" in figure_growth(none).alt
    frame = load_frame(RecordStore(tmp_path))
    assert "not been measured" in document_004_page.step_finding(frame) and document_004_page.communication_finding(frame) is None
    assert "not been measured" in document_004_page.figure_steps(frame).alt
    assert "80 of the 90 ms" in document_004_page.transfer_finding()
    assert document_004.parts(frame).empty and document_004.buckets(frame).empty
    assert evaluate(find_claim("C39"), frame).verdict == "not yet measured"


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
        ({"placement": "exp1"}, "uses memory that one host's processes share"),
        (
            {"framework": "tensorflow", "placement": "multi_worker", "execution": "graph"},
            "several hosts run PyTorch with a process a device",
        ),
    ],
)
def test_what_several_hosts_cannot_run(fields: dict, sentence: str) -> None:
    common = {"workload": "nmt", "model": "nmt_tiny", "placement": "ddp", "device_type": "cpu", "devices": 2, "batch_size": 4}
    with pytest.raises(ValueError, match=sentence):
        check_run(Run(**(common | fields)), Cluster(hosts=2, per_host=2, network="a wire", link="wire"))


def test_bad_parts_end_with_one_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--parts", "shrinkage"]) == 2
    assert capsys.readouterr().err == f"multigpu: unknown part 'shrinkage': choose among {', '.join(PARTS)}\n"
    assert main(["--dry-run", "--parts", "small"]) == 0 and "2 hosts of 1" in capsys.readouterr().out
