"""The front page says what Records support, and nothing else."""

import pandas as pd
import pytest

from multigpu import paths
from multigpu.analysis import front
from multigpu.analysis.frame import frame_of
from multigpu.record import RecordStore
from multigpu.study import measured_here, plain, published
from tests.analysis.planted import SHARES, screening, study
from tests.factory import make_machine, make_record, plant


@pytest.fixture(scope="module")
def frame():
    return frame_of([*study(), *screening()])


def test_three_findings_with_figures_and_intervals(frame):
    found = front.findings_of(frame)
    assert len(found) == 3
    assert "NMT of 000: 3.46 M words/s (" in found[0] and "5.76 times (" in found[0]
    assert "Exp2 (variables, embeddings and update on the CPU)" in found[1] and "11% of the speed" in found[1]
    assert "72% (" in found[2] and "90% (" in found[2] and "batch 64 a GPU" in found[2]
    assert all(" to " in sentence for sentence in found)


def test_findings_follow_the_data():
    turned = {**SHARES, "exp2": SHARES["ddp"], "ddp": SHARES["exp2"]}
    assert "with Exp2" in front.findings_of(frame_of(study(shares=turned)))[0]


@pytest.mark.parametrize("records", [[], screening(), study(repeats=4)])
def test_too_few_repeats_make_no_finding(records):
    frame = frame_of(records)
    assert front.findings_of(frame) == []
    parts = front.fragments(frame)
    assert parts["findings"] == front.NO_FINDING
    assert parts["missing"]


def test_the_price_of_merging_needs_the_ceiling(frame):
    table = front.headline_table(front.front_frame(frame))
    assert "92% (" in front.merging(table)
    assert front.merging(table[table["placement"] != "independent"].assign(ceiling_ratio_low=float("nan"))) is None


def test_what_the_host_costs_is_said_where_intervals_part():
    def table(gain: float) -> pd.DataFrame:
        shares = {"ddp": (1.0, 0.95, 0.9), "exp4": (0.98, 0.75, 0.5)}
        faster = {name: tuple(gain * x for x in values) for name, values in shares.items()}
        records = [*study(shares=shares), *study(shares=faster, execution="captured")]
        return front.headline_table(front.front_frame(frame_of(records)))

    found = front.host(table(1.5))
    assert "launched kernel by kernel" in found and "one captured graph" in found and " to " in found
    assert front.host(table(1.0)) is None
    assert front.host(table(0.7)) is None


def test_the_plain_way_leaves_every_other_out():
    ways = [{}, {"execution": "captured"}, {"cross_entropy": "fused"}, {"bucket_mib": 100}]
    records = [make_record(workload="nmt", placement="ddp", devices=2, batch_size=128, repeat=0, **way) for way in ways]
    frame = frame_of(records)
    kept = plain(frame)
    assert list(kept["key"]) == [records[0].key]


def test_fragments(frame):
    parts = front.fragments(frame)
    assert list(parts) == ["findings", "headline_figure", "machine", "missing"]
    assert parts["findings"].startswith("1. **")
    assert "<svg" in parts["headline_figure"] and "best single GPU" in parts["headline_figure"]
    assert "NVIDIA H200" in parts["machine"]
    assert parts["missing"] == "1 point of 36 without a figure (out of memory)."


def test_gpus_come_before_cpus(frame):
    assert set(front.front_frame(frame)["device_type"]) == {"cuda"}
    assert set(front.front_frame(frame_of(screening()))["device_type"]) == {"cpu"}


def test_a_page_speaks_of_each_models_machine():
    two, eight = make_machine(2), make_machine(8)
    nmt = [make_record(machine=eight, repeat=repeat) for repeat in range(3)]
    stages = {"workload": "deepconn", "processes": "one", "scaling": "strong"}
    deepconn = [make_record("single", 1, machine=two, repeat=repeat, **stages) for repeat in range(2)]
    frame = frame_of([*nmt, *deepconn, make_record("single", 1, machine=eight, **stages)])
    assert {(row["workload"], row["machine"]) for _, row in published(frame).iterrows()} == {("nmt", eight.name), ("deepconn", two.name)}
    assert set(published(frame, "nmt")["machine"]) == {eight.name}
    assert set(published(frame, "deepconn")["machine"]) == {two.name}
    pair = frame_of([*nmt, make_record(devices=2, machine=two, workload="cnn"), make_record(devices=8, machine=eight, workload="cnn")])
    assert set(published(pair, "cnn", ["resnet50_v1.5"], most_devices=2)["machine"]) == {two.name}
    assert published(pair, "cnn", ["vgg16"]).empty


def test_what_failed_everywhere_is_still_told():
    two = make_machine(2)
    failed = [make_record(devices=2, machine=two, workload="cnn", status="failed", reason="planted")]
    assert set(front.front_machine(frame_of(failed))["machine"]) == {two.name}, "nothing measured: what was tried"
    some = frame_of([*failed, make_record(devices=2, machine=make_machine(8))])
    assert set(front.front_machine(some)["machine"]) == {two.name, "8x-nvidia-h200"} and "without a figure (failed)" in front.missing_of(
        some
    )
    assert front.front_machine(frame_of([])).empty


def test_what_the_report_asks_for(tmp_path, monkeypatch):
    monkeypatch.setattr(paths, "RUNS", tmp_path)
    assert [front.machine(), front.findings(), front.headline()] == [None, None, None]
    assert "<svg" in front.scoreboard() and "<table" in front.claims()
    plant(RecordStore(tmp_path), [*study(), *screening()])
    assert front.machine().startswith("Measured on 8 x NVIDIA H200") and "2x-cpu-planted" in front.machine()
    assert front.findings().startswith("1. **") and "{.muted}" in front.findings()
    assert "<figure" in front.headline()


@pytest.mark.parametrize("name", ["RUNS", "HOSTS", "SYNCHRONY", "TRAINING"])
def test_a_new_file_of_any_kind_that_claims_rest_on_is_noticed(name, tmp_path, monkeypatch):
    monkeypatch.setattr(paths, name, tmp_path)
    before = front._stamp()
    (tmp_path / "a-machine").mkdir()
    (tmp_path / "a-machine" / "key.0.json.gz").write_bytes(b"")
    assert len(front._stamp()) == len(before) + 1


def test_this_computers_own_records_are_shown_beside_models_told_on_another(monkeypatch: pytest.MonkeyPatch) -> None:
    two = make_machine(2, gpu="NVIDIA A100")
    told_elsewhere = [make_record(workload="cnn", devices=devices, machine=make_machine(machine)) for devices, machine in ((1, 8), (8, 8))]
    own = [make_record(workload="cnn", devices=devices, machine=two) for devices in (1, 2)]
    alone = [make_record(workload="cnn", model="vgg16", devices=devices, machine=two) for devices in (1, 2)]
    frame = frame_of([*told_elsewhere, *own, *alone])
    shown = {}
    for name in (two.name, "8x-nvidia-h200", "elsewhere"):
        monkeypatch.setattr("multigpu.study.this_machine", lambda name=name: make_machine(2, name=name))
        shown[name] = sorted(measured_here(frame, "cnn")["key"])
    assert shown == {two.name: sorted(record.key for record in own), "8x-nvidia-h200": [], "elsewhere": []}
