"""The front page says what Records support, and nothing else."""

from pathlib import Path

import pandas as pd
import pytest

from multigpu import paths
from multigpu.analysis import front
from multigpu.analysis.frame import frame_of
from multigpu.analysis.wording import field_text
from multigpu.record import RecordStore
from multigpu.study import measured_here, plain, published
from tests.analysis.planted import NOISE, SHARES, screening, study
from tests.factory import make_machine, make_point, make_record, plant


@pytest.fixture(scope="module")
def frame():
    return frame_of([*study(), *screening()])


def test_three_findings_with_figures_and_intervals(frame):
    found = front.findings_of(frame)
    assert len(found) == 3
    assert "NMT of 000 5.76 times (" in found[0] and ", 3.46 M words/s (" in found[0]
    assert "Exp2 (variables, embeddings and update on the CPU)" in found[1] and "may cost 89% of the speed" in found[1]
    assert "72% (" in found[2] and "90% (" in found[2] and "batch 64 a GPU" in found[2]
    assert all(" to " in sentence for sentence in found)


def test_a_finding_begins_with_its_subject_and_ends_with_the_setting(frame):
    gain, price, _ = front.findings_of(frame)
    assert gain.startswith("**8 GPUs train 5.76 to 7.20 times as fast as the best single GPU:** ResNet-50 v1.5 7.20 times (")
    assert ", 32,4" in gain and "; NMT of 000 5.76 times (" in gain, "what scales best first"
    assert " with ddp (batch 256 a GPU)" in gain
    assert price.startswith("**A placement may cost 89% of the speed:** ") and " on 8 GPUs trains " in price
    assert ", batch" not in gain + price
    assert front.subject("fully connected, 42 M, batch 1024 in all, bf16", "mlp42m") == (
        "fully connected, 42 M",
        " (batch 1024 in all, bf16)",
    )
    assert front.subject("NMT of 000", "nmt000") == ("NMT of 000", "") and front.subject("batch 64 a GPU", "vgg16") == (
        "VGG-16",
        " (batch 64 a GPU)",
    )


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
    assert found.startswith("**Launching a step kernel by kernel may cost a factor of 1.5:** ")
    assert " so, and " in found and "as one captured graph" in found and " to " in found
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


def test_the_headline_pictures_baseline_is_the_fastest_single_gpu_of_any_tier():
    """A captured graph was measured once on one GPU, 300 units/s: 180 on two eager GPUs are 30% of perfect scaling, not 90%."""
    records = [
        record
        for name, count, rate in (("ddp", 1, 100.0), ("ddp", 2, 180.0), ("exp2", 1, 90.0), ("exp2", 2, 150.0), ("independent", 2, 186.0))
        for record in make_point([rate * wobble for wobble in NOISE], placement=name, devices=count)
    ]
    eager = front.headline_picture(frame_of(records))
    assert dict(zip(eager.data["placement"], eager.data["efficiency"].round(3), strict=True))["ddp"] == pytest.approx(0.9, abs=0.001)
    assert "another form" not in eager.caption and "(independent replicas 93%), Exp2 75%" in eager.finding
    picture = front.headline_picture(frame_of([*records, make_record("ddp", 1, 300.0, execution="captured")]))
    shares = dict(zip(picture.data["placement"], picture.data["efficiency"], strict=True))
    assert {name: round(share, 4) for name, share in shares.items()} == {"independent": 0.31, "ddp": 0.3, "exp2": 0.25}
    assert set(picture.data["execution"]) == {"eager"} and set(picture.data["best_single"]) == {"ddp, torch, captured"}
    assert "For 3 of 3 marks that way is another form of execution (captured)" in picture.caption
    assert picture.data["efficiency_low"].isna().all() and "they or their baseline were measured once" in picture.caption


def test_an_older_program_is_no_baseline() -> None:
    """A compiled image model of a time when blocks alone were compiled trained 300 images/s on one GPU; today's steps 100 and 180."""
    records = [
        record
        for name, count, rate in (("ddp", 1, 100.0), ("ddp", 2, 180.0), ("exp2", 1, 90.0), ("exp2", 2, 150.0))
        for record in make_point([rate * wobble for wobble in NOISE], placement=name, devices=count, workload="cnn")
    ]
    compiled = make_record("ddp", 1, 300.0, workload="cnn", execution="compiled_captured")  # planted Records are of January
    picture = front.headline_picture(frame_of([*records, compiled]))
    assert dict(zip(picture.data["placement"], picture.data["efficiency"].round(3), strict=True))["ddp"] == pytest.approx(0.9, abs=0.001)
    today = compiled.model_copy(update={"measured_at": "2026-12-01T00:00:00+00:00"})
    later = front.headline_picture(frame_of([*records, today]))
    assert dict(zip(later.data["placement"], later.data["efficiency"].round(3), strict=True))["ddp"] == pytest.approx(0.3, abs=0.001)


def test_without_a_headline_point_the_picture_shows_all_and_what_is_missing():
    records = [make_record(name, count, 100.0 * count) for name in ("ddp", "exp2") for count in (1, 2)]
    lost = make_record("exp4", 2, status="out_of_memory", reason="150 GiB wanted")
    picture = front.headline_picture(frame_of([*records, lost]))
    assert set(picture.data["tier"]) == {"screening"} and "Missing: Exp4 on 2 GPUs" in picture.caption


@pytest.mark.parametrize(
    ("field", "value"),
    [("cross_entropy", "fused"), ("bucket_update", "in_backward"), ("bucket_send", "grouped"), ("batch_norm", "persistent")],
)
def test_what_a_setting_is_called_stands_in_the_glossary(field, value):
    words = field_text({field: value}, field)
    assert f"\n{words}\n: " in (Path(__file__).parents[2] / "report" / "glossary.md").read_text()


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
    assert front.claims().startswith('<p class="tally">Of 51 claims '), "how many hold stands above the table"
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
