"""What the pages say, from planted Records whose times follow the formulas, and where there is none."""

from __future__ import annotations

import itertools
import math
from pathlib import Path

import pandas as pd
import pytest

from multigpu.analysis import document_004, document_004_page, hosts, hosts_findings, hosts_steps, hosts_tables
from multigpu.analysis.figure_hosts import figure_document, figure_growth
from multigpu.analysis.frame import frame_of, load_frame
from multigpu.analysis.style import look
from multigpu.claims import evaluate, find_claim
from multigpu.cli import parse_fields
from multigpu.collectives import algorithms
from multigpu.collectives.record import CollectiveMeasurement, CollectiveRecord
from multigpu.collectives.run import CollectiveRun
from multigpu.grid import cost_s, find_grid
from multigpu.hosts import steps
from multigpu.hosts.cluster import Cluster, as_machine
from multigpu.hosts.grid import COMPUTE_MS, PARTS, Part, find_parts
from multigpu.hosts.launching import check_run
from multigpu.hosts.measure import main
from multigpu.hosts.namespaces import Hosts
from multigpu.measure.launch import check_devices
from multigpu.record import Record, RecordStore
from multigpu.run import Run
from tests.collectives.planted import machine, make_record
from tests.factory import make_machine
from tests.factory import make_record as make_run_record


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
    records = [record_of(run, part.per_host, part.rate_mbit) for part in find_parts() if isinstance(part, Part) for run in part.runs]
    return hosts.hosts_frame(records)


def test_growth_is_the_formulas(frame) -> None:
    table = hosts.growth(frame).set_index(["method", "devices"])
    assert table["ratio"].round(6).eq(1).all()
    assert table.loc[("central_server", 8), "time_s"] / table.loc[("central_server", 2), "time_s"] == pytest.approx(7)
    assert table.loc[("ring", 8), "time_s"] / table.loc[("ring", 2), "time_s"] == pytest.approx(1.75)
    said = hosts_findings.growth_finding(frame)
    assert (
        said
        and said.endswith("(1.75 times), one Record a point (screening)")
        and said.startswith("From 2 to 8 hosts with links of 200 Mbit/s")
    )
    assert "1 MiB takes 7.00 times as long through a central server" in said and "and 1.75 times in a ring" in said and "**" not in said


def repeated_part(ring_8: list[float]) -> list[CollectiveRecord]:
    """The repeated part of C25, a launch a repeat, whose ring on 8 hosts takes these seconds; the rest 1 s, and the server's 7 s on 8."""
    records = []
    for run in PARTS["growth_repeated"]().runs:  # type: ignore[union-attr]
        for repeat in range(len(ring_8)):
            seconds = ring_8[repeat] if (run.method, run.devices) == ("ring", 8) else 7.0 if run.devices == 8 else 1.0
            made = record_of(run, 1, 50.0)
            measured = made.measurement.model_copy(update={"time_s": [seconds] * 3})  # type: ignore[union-attr]
            more = {"key": f"{made.key}{repeat}", "repeat": repeat, "launch_id": f"{repeat}", "measurement": measured}
            records.append(made.model_copy(update=more))
    return records


def test_growth_rests_on_what_was_repeated(frame) -> None:
    """The figure's 1 MiB were measured once; C25 is decided by 4 MiB over links of 50 Mbit/s, each in several launches."""
    twice = repeated_part([1.7, 1.8])
    once = [record_of(run, 1, 200.0) for run in PARTS["growth"]().runs]  # type: ignore[union-attr]
    both = hosts.hosts_frame([*once, *twice])
    table = hosts.repeated_growth(both).set_index("method")
    assert table.loc["central_server", "ratio"] == pytest.approx(7) and table.loc["central_server", "formula"] == pytest.approx(7)
    # half a difference of logarithms is the error of two, and t of one degree of freedom 12.7
    half = 12.7062 * math.log(1.8 / 1.7) / 2
    assert table.loc["ring", "ratio"] == pytest.approx(math.sqrt(1.7 * 1.8))
    assert table.loc["ring", "high"] == pytest.approx(math.sqrt(1.7 * 1.8) * math.exp(half), rel=1e-4)
    said = hosts_findings.growth_finding(both) or ""
    assert said.startswith("From 2 to 8 hosts with links of 50 Mbit/s an all-reduce of 4 MiB takes **7.00 times")
    assert "and **1.75 times (1.22 to 2.52)** in a ring (formula: 1.75 times), n = 2 over 2 launches. Smaller and over faster links" in said
    assert said.count("**") == 4 and said.endswith("one Record a point (screening)")
    assert hosts_findings.growth_finding(hosts.hosts_frame([*once, *repeated_part([1.7])])) == hosts_findings.growth_finding(
        hosts.hosts_frame(once)
    ), "one repeat is none"
    assert "links of 200 Mbit/s each way" in figure_growth(frame).caption


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
    assert "halving and doubling " in said and "halving, doubling" not in said, "a comma would end its name in the list"
    assert "grew by 140 ms from 4 to 16 GPUs" in (hosts_findings.transfer_finding(frame, 4) or "")


def test_figures_and_tables_say_what_was_drawn(frame) -> None:
    picture = figure_growth(frame)
    assert set(picture.data["devices"]) == {2, 4, 8} and picture.alt and "7.00 times" in picture.finding
    picture = figure_document(frame, 4, 1)
    assert "Compute is a stand-in" in picture.caption and set(picture.data["per_host"]) == {1, 4}
    assert "1.000" in str(hosts_tables.growth_table(frame))
    step = hosts_tables.document_table(frame, 4).html
    first = step[step.index(">document 004<") :].split("</tr>")[0]
    assert "16 on 4 hosts" in step and "2 on 1 host<" in step and ">700<" in first and "%" not in first
    assert "has been measured" in hosts_tables.document_table(hosts.hosts_frame([]), 4).html
    assert ", 70<" in hosts_tables.latency_table(frame).html, "a ring of 8: 14 messages of 5 ms"


def test_late_messages_are_said_of_the_server_and_the_ring(frame) -> None:
    """The planted server takes 8 times the ring's time; one of a hundredth of its time takes 0.08 times the ring's."""
    assert (hosts_findings.latency_finding(frame) or "").endswith("; the ring takes 0.125 times the central server's")
    server = frame["method"] == "central_server"
    quick = frame.assign(**{end: frame[end].where(~server, frame[end] / 100) for end in ("time_s", "median_low_s", "median_high_s")})
    assert (hosts_findings.latency_finding(quick) or "").endswith("; the central server takes 0.0800 times the ring's")


def late(frame, method: str, slowest: float):
    """The frame with one method's slowest sample so many times the median."""
    own = frame.copy()
    own.loc[own["method"] == method, "time_high_s"] = slowest * own["time_s"]
    return own


def test_how_steady_it_was_is_computed(frame) -> None:
    total = len(frame)
    said = hosts_findings.steadiness_finding(frame)
    assert said and said.startswith(f"In 0 of {total} measurements") and f"Of {total} points {total} were measured once" in said
    torus = late(frame[frame["bytes"] == 2**20], "torus", 3.0)
    said = hosts_findings.steadiness_finding(torus)
    assert said and said.startswith("In 3 of 30 measurements") and "the most, 3.00 times, with 2-D torus on" in said
    twice = pd.concat([torus, torus.assign(key=torus["key"] + "again", repeat=1)])
    assert "Of 30 points 0 were measured once" in (hosts_findings.steadiness_finding(twice) or "")


def step_record(framework: str, hosts: int, step_s: float, repeat: int = 0, rate_mbit: float = 200.0) -> Record:
    """A training step of 20 timed ones that took so long."""
    run = next(run for run in PARTS["steps"]().runs if (run.framework, run.devices) == (framework, hosts))  # type: ignore[union-attr]
    cluster = Cluster(hosts=hosts, per_host=1, network=f"{rate_mbit:g} Mbit/s each way", link="wire")
    rate = hosts * run.batch_size * 2 * (run.sequence_length or 0) / step_s
    return make_run_record(units_per_s=rate, repeat=repeat, machine=as_machine(make_machine(0), cluster), **run.model_dump())


def test_training_steps_between_hosts() -> None:
    times = {("torch", 1): 0.1, ("torch", 2): 0.3, ("torch", 4): 0.4, ("tensorflow", 1): 0.2, ("tensorflow", 4): 0.5}
    records = [
        step_record(*point, step_s=seconds * factor, repeat=i)
        for point, seconds in times.items()
        for i, factor in enumerate((1.1, 1.0, 0.8))
    ]
    frame = hosts_steps.steps_frame([*records, make_run_record()])
    assert len(frame) == 15, "a Record of one host alone is none of these"
    table = hosts_steps.steps_summary(frame).set_index(["framework", "hosts"])
    ratio = table.loc[("torch", 4), "time_s"] / table.loc[("torch", 1), "time_s"]
    assert ratio == pytest.approx(4) and table.loc[("torch", 4), "n"] == 3
    assert table.loc[("torch", 4), "high_s"] / table.loc[("torch", 4), "low_s"] == pytest.approx(1.1 / 0.8)
    # 2N(P-1)/P of 1,102,336 parameters in fp32 at 25 MB/s, less headers
    assert table.loc[("torch", 4), "link_s"] == pytest.approx(2 * 4 * 1_102_336 * 3 / 4 / 25e6 / hosts.WIRE_SHARE, rel=1e-3)
    assert table.loc[("torch", 1), "link_s"] == 0
    said = hosts_steps.steps_finding(frame) or ""
    assert said.startswith("On 4 hosts with links of 200 Mbit/s a step of the NMT")
    # repeats take 0.8 to 1.1 times the median on either side; 276 ms of 2N(P-1)/P bytes
    assert "with PyTorch's ddp (4.00 times the 100 ms on one host, by repeats 2.9 to 5.5; the links alone need 277 ms, 69% of it)" in said
    assert "TensorFlow's multi-worker (2.50 times the 200 ms" in said
    picture = hosts_steps.figure_steps(frame)
    assert picture.finding == (
        "On 4 hosts with links of 200 Mbit/s a step takes 400 ms with PyTorch's ddp and 500 ms with TensorFlow's multi-worker; "
        "the links alone need 277 ms"
    )
    assert "the median of 3 Records" in picture.caption and set(picture.data["hosts"]) == {1, 2, 4}
    assert "not measured" in str(hosts_steps.steps_table(frame)), "TensorFlow's step on 2 hosts"


def ways_frame(step_ms: dict[tuple[str, int], list[float]]) -> pd.DataFrame:
    """Document 004's Runs by way and number of GPUs, a repeat (and launch) for each of these steps."""
    records = []
    for entry in find_grid("document_004", [1, 2, 4]):
        run = entry.run
        if run.precision == "fp32" and run.bucket_mib is None and run.execution == "eager" and not run.traced_steps:
            words = 64 * 2 * 55 * run.devices
            for repeat, step in enumerate(step_ms.get((run.placement, run.devices), [])):
                made = run.model_dump()
                records.append(make_run_record(units_per_s=1000 * words / step, repeat=repeat, launch_id=f"{repeat}", **made))
    return frame_of(records)


WAYS_MS = {
    ("independent", 1): [100.0, 100.0],
    ("independent", 2): [101.0, 101.0],
    ("ddp", 1): [102.0, 102.0],
    ("ddp", 2): [104.0, 104.0],
    ("replicated_allreduce", 1): [103.0, 103.0],
    ("replicated_allreduce", 2): [108.0, 108.0],
}


def test_document_004s_ways_are_compared_with_their_own_step_on_one_gpu() -> None:
    """All-reduce after backward takes 103 ms on one GPU already, where nothing is exchanged: 108 is 5 more, and 7 more than 101."""
    (row,) = document_004.parts(ways_frame(WAYS_MS)).to_dict("records")
    found = [1000 * row[name] for name in ("alone", "after_grows", "during_grows", "after", "during")]
    assert found == pytest.approx([1, 5, 2, 4, 1]) and row["hidden"] == pytest.approx(0.75)
    assert row["after_low"] == pytest.approx(row["after"]) == pytest.approx(row["after_high"]), "repeats without spread"
    said = document_004_page.communication_finding(ways_frame(WAYS_MS)) or ""
    assert "**5.0 ms (5.0 to 5.0)** when gradients are summed after" in said and "communication costs, 4.0 ms (4.0 to 4.0) on 2" in said


def test_document_004s_differences_have_intervals() -> None:
    """Of one point alone that varies, 104 -+ 1 ms: its logarithms' standard error is 0.0096 and t of one degree of freedom 12.7."""
    (row,) = document_004.parts(ways_frame(WAYS_MS | {("ddp", 2): [103.0, 105.0]})).to_dict("records")
    half = 12.7062 * 0.104 * math.log(105 / 103) / 2
    assert row["during_high"] - row["during"] == pytest.approx(half, rel=1e-3)
    assert row["hidden_high"] - row["hidden"] == pytest.approx(half / 0.004, rel=1e-3), "the part hidden is 1 less 1 ms of 4"
    assert row["after_high"] == pytest.approx(row["after"])
    (row,) = document_004.parts(ways_frame({point: steps[:1] for point, steps in WAYS_MS.items()})).to_dict("records")
    assert row["hidden"] == pytest.approx(0.75) and math.isnan(row["after_low"]), "measured once: no interval"
    less = ways_frame({point: steps for point, steps in WAYS_MS.items() if point != ("ddp", 1)})
    assert math.isnan(document_004.parts(less).loc[0, "during"]) and document_004_page.communication_finding(less) is None


def test_traced_steps_are_compared_with_what_timed_steps_grow_by() -> None:
    def traces(after_s: float, during_s: float) -> pd.DataFrame:
        rows = [{"placement": way, "exposed_s": s} for way, s in (("replicated_allreduce", after_s), ("ddp", during_s))]
        common = {"model": "nmt004", "execution": "eager", "precision": "fp32", "devices": 2}
        more = dict.fromkeys(("communication_s", "pure_communication_s", "host_s", "timed_step_s"), 0.0)
        return pd.DataFrame([row | common | more for row in rows])

    frame = ways_frame(WAYS_MS | {("ddp", 2): [103.9, 104.1], ("replicated_allreduce", 2): [107.99, 108.01]})
    said = document_004_page.traces_finding(frame, traces(0.0041, 0.0015)) or ""
    assert said.startswith("Traced steps tell the same. ") and said.count("within") == 2
    said = document_004_page.traces_finding(frame, traces(0.0045, 0.0015)) or ""
    assert (
        said.startswith("Traced steps agree in 1 of 2 cases. ")
        and "4.5 ms after backward on 2 GPUs, outside the 4.0 ms (3.9 to 4.1)" in said
    )
    assert document_004_page.traces_finding(frame, traces(0.004, 0.001).iloc[:0]) is None


def test_document_004s_own_ways_have_a_panel_on_which_they_can_be_told_apart() -> None:
    """Over one GPU's step, on an axis to the document's 16 GPUs, three ways that grow by 1 to 5% shared a twentieth of the panel."""
    frame = ways_frame(WAYS_MS)
    ways, beside = document_004_page.figure_steps(frame).axes
    low, high = ways.get_ylim()
    assert (low, high) == (98, 109) and ways.get_ylabel() == "ms", "of 100 to 108"
    assert {line.get_color() for line in ways.lines} == {look(name).colour for name in ("ddp", "replicated_allreduce", "independent")}
    ends = {round(float(line.get_ydata()[-1]), 2) for line in beside.lines}
    assert ends == {1.02, 1.94} and beside.get_ylim()[0] == 0
    across = {text.get_text(): text.get_position()[0] for text in beside.texts}
    assert across["ours"] < 0.4 < 1 < across["document 004"], "named where the line stops"
    assert "n = 2 over 2 launches" in document_004_page.figure_steps(frame).caption
    assert document_004_page.step_finding(frame).endswith("; on 4 and 8 GPUs it was **not measured**")


def test_without_records_pages_say_so(tmp_path: Path) -> None:
    none = hosts.hosts_frame([])
    findings = (hosts_findings.growth_finding, hosts_findings.interface_finding, hosts_findings.latency_finding)
    assert [finding(none) for finding in findings] == [None] * 3
    assert hosts_findings.document_finding(none, 4) is None and hosts_findings.transfer_finding(none, 4) is None
    assert "has not been measured" in figure_document(none, 4).alt and "has been measured" in figure_growth(none).alt
    frame = load_frame(RecordStore(tmp_path))
    assert hosts_findings.steadiness_finding(none) is None
    nothing = hosts_steps.steps_frame([])
    assert hosts_steps.steps_finding(nothing) is None and "has been measured" in hosts_steps.figure_steps(nothing).alt
    assert "has been measured" in str(hosts_steps.steps_table(nothing))
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
    common = {"workload": "nmt", "model": "nmt_tiny", "placement": "ddp", "device_type": "cpu", "devices": 2, "batch_size": 4}
    with pytest.raises(ValueError, match=sentence):
        check_run(Run(**(common | fields)), Cluster(hosts=2, per_host=2, network="a wire", link="wire"))


def test_a_host_may_have_so_many_processes_on_cpus_whether_it_is_alone_or_one_of_several() -> None:
    run = Run(workload="nmt", model="nmt_tiny", placement="ddp", device_type="cpu", devices=34, batch_size=4)
    check_run(run, Cluster(hosts=3, per_host=16, network="a wire", link="wire"))
    for check in (check_devices, lambda run: check_run(run, Cluster(hosts=2, per_host=17, network="a wire", link="wire"))):
        with pytest.raises(ValueError, match=r"(34|17) CPU processes were asked for and at most 16 are allowed"):
            check(run)


def test_tensorflows_workers_may_be_on_several_hosts(monkeypatch: pytest.MonkeyPatch) -> None:
    fields = {"workload": "nmt", "model": "nmt_tiny", "device_type": "cpu", "devices": 2, "batch_size": 4, "execution": "graph"}
    run = Run(**fields, framework="tensorflow", placement="multi_worker")
    cluster = Cluster(hosts=2, per_host=1, network="a wire", link="wire")
    monkeypatch.setattr("multigpu.hosts.launching.framework_version", lambda framework: "2.21")
    check_run(run, cluster)
    monkeypatch.setattr("multigpu.hosts.launching.framework_version", lambda framework: "none")
    with pytest.raises(ValueError, match="framework 'tensorflow' is not installed here"):
        check_run(run, cluster)


def test_each_host_gets_the_command_of_its_run() -> None:
    hosts = Hosts(2, 200)
    hosts.names = ["one", "two"]
    run = next(run for run in PARTS["steps"]().runs if run.framework == "tensorflow" and run.devices == 2)
    words = steps.command(run, RecordStore(Path("somewhere")), hosts, 1, 3, ["failed"], 120)  # type: ignore[arg-type]
    assert words[:3] == ["nsenter", "--net=/run/netns/two", "--"]
    options = dict(itertools.pairwise(words))
    assert (options["--nnodes"], options["--node-rank"], options["--rendezvous"], options["--per-host"]) == ("2", "1", "10.77.0.1", "1")
    assert options["--network"] == "200 Mbit/s each way, network namespaces of one machine"
    assert (options["--repeats"], options["--retry"]) == ("3", "failed")
    fields = words[words.index("measure") + 1 : words.index("--nnodes")]
    assert Run(**parse_fields(fields)) == run


def test_a_framework_that_is_missing_is_left_out_with_a_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(steps, "framework_version", lambda framework: "none")
    summary = steps.measure_steps(PARTS["steps"](), RecordStore(tmp_path), 10)  # type: ignore[arg-type]
    assert len(summary.troubles) == 6 and all("is not installed here" in text for text in summary.troubles) and not summary.statuses


def test_bad_parts_end_with_one_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--parts", "shrinkage"]) == 2
    assert capsys.readouterr().err == f"multigpu: unknown part 'shrinkage': choose among {', '.join(PARTS)}\n"
    assert main(["--dry-run", "--parts", "small"]) == 0 and "2 hosts of 1" in capsys.readouterr().out
