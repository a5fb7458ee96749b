"""Advice and explanations: the fastest of one machine, no figure that another machine's Records made, nothing noise could have done."""

import json
from statistics import median

import pytest

from multigpu import paths
from multigpu.analysis.advise import Advice, advise, advised, rankings, sentences
from multigpu.analysis.asked import SAME, by_machine, run_of, semantics
from multigpu.analysis.compare import best_single
from multigpu.analysis.explain import explain_fields, explain_key
from multigpu.analysis.explain_text import explained
from multigpu.analysis.explain_text import sentences as explanation
from multigpu.analysis.frame import frame_of
from multigpu.analysis.points import points, usual, where
from multigpu.analysis.read import frames, records_of
from multigpu.record import Record, RecordStore
from tests.analysis.planted import study
from tests.factory import make_machine, make_point, make_record, plant
from tests.refusals import refused

STUDY = frames(paths.RUNS)[1]


def test_the_best_is_the_plain_maximum_of_each_machines_medians_for_every_job() -> None:
    """Medians of raw Records' rates, by machine; of repeated ways that train the joined batch's model, the largest is the advice."""
    rates: dict[str, float] = {}
    for record in records_of(paths.RUNS):
        if record.status == "ok" and record.measurement:
            rates[record.key] = record.measurement.units / record.measurement.wall_s
    table, singles, jobs = usual(STUDY), best_single(STUDY, form=()), 0
    for _, job in table[table["n"] > 0].groupby(list(SAME), dropna=False, sort=False):
        rows = [row for _, row in where(job, n=[*range(2, 99)]).iterrows() if semantics(row).facts.is_equal_training]
        if not rows:
            continue
        advice = advise(job, singles)
        medians = {row["keys"]: median(rates[key] for key in row["keys"].split(", ") if key in rates) for row in rows}
        best = max(medians.values())
        assert advice.best is not None and advice.best["machine"] == job["machine"].iloc[0]
        # pooled rate and median may order near-equals differently, by what repeats vary
        assert medians[advice.best["keys"]] >= best * 0.97
        jobs += 1
    assert jobs > 50


def advice_of(records: list[Record], **fields: object) -> Advice:
    """Of planted Records, for the translator."""
    return rankings(points(frame_of(records)), {"workload": "nmt", **fields})[0][0]


def test_another_machines_records_change_no_advice() -> None:
    """The same job, ten times as fast elsewhere: this machine's ranking stays what it was."""
    here = study()
    there = make_point([9e9] * 5, placement="exp2", machine=make_machine(4, name="elsewhere"))
    alone, both = points(frame_of(here)), points(frame_of([*here, *there]))
    fields = {"workload": "nmt", "devices": 2}
    first = [sentences(one) for one in rankings(alone, fields, machine="8x-nvidia-h200")[0]]
    assert [sentences(one) for one in rankings(both, fields, machine="8x-nvidia-h200")[0]] == first


def test_one_gpu_is_advised_where_two_are_slower_and_neither_a_single_run_nor_another_training() -> None:
    shares = {"ddp": (1.0, 0.4, 0.1), "independent": (1.0, 0.99, 0.98)}
    assert sentences(advice_of(study(shares=shares), devices=2))[0].startswith("Take one GPU")
    advice = advice_of([*study(), make_record("exp3", 2, units_per_s=5e6)], devices=2)
    assert advice.best is not None and advice.best["placement"] == "ddp"
    standing = advice.ranked.set_index("placement")["standing"]
    assert standing[["exp3", "independent"]].tolist() == ["faster, single run", "not the same training"]
    assert "repeat it" in " ".join(sentences(advice))


def test_this_machine_speaks_before_others_and_the_one_with_most_repeats_before_the_rest() -> None:
    two, four = make_machine(2), make_machine(4)
    table = points(frame_of([*make_point([1e6] * 2, machine=two), make_record("exp4", machine=two), *make_point([1e6] * 5, machine=four)]))
    assert by_machine(table)[0]["machine"].iloc[0] == two.name  # one repeated point each, and more points
    assert by_machine(table, four.name)[0]["machine"].iloc[0] == four.name


def test_advice_as_text_and_json_say_the_same(tmp_path) -> None:
    plant(RecordStore(tmp_path / "runs"), study())
    fields = {"workload": "cnn", "devices": 8, "batch_size": 64}
    said = json.loads(advised(tmp_path / "runs", fields, form="json"))["jobs"][0]
    text = advised(tmp_path / "runs", fields)
    assert text.replace("\n", " ").startswith(said["advice"])
    assert [row["point"]["placement"] for row in said["ranked"]] == ["independent", "ddp", "exp4", "exp2"]
    refused("unknown model 'resnet'", advised, tmp_path / "runs", {"workload": "cnn", "model": "resnet"})
    assert "devices = 4 (measured are 1, 2, 8)" in advised(tmp_path / "runs", fields | {"devices": 4})


def test_every_point_is_its_runs() -> None:
    """The Run that a point's fields build has the digest of its Records' Run, paths of data and seed aside."""
    digests = {record.key: record.run.model_copy(update={"data": None, "seed": 0}).digest for record in records_of(paths.RUNS)}
    for _, row in STUDY[STUDY["n"] > 0].iloc[::25].iterrows():
        if row["inputs"] in ("synthetic", "lengths_000"):
            assert run_of(row).digest == digests[row["keys"].split(", ")[0]]


def test_explanations_of_all_traced_points_add_up() -> None:
    """Parts add up to the step, none is negative or larger than it; what is lost is said only where an interval says it."""
    frame, table = frames(paths.RUNS)
    traced = [record for record in records_of(paths.RUNS) if record.run.traced_steps and record.status == "ok"]
    for record in traced[::12]:
        found, why, _ = explain_key(paths.RUNS, record.key)
        one = found[0]
        assert not why and one.parts is not None
        assert sum(one.parts.values()) == pytest.approx(one.step_s, rel=1e-6)
        assert min(one.parts.values()) >= -1e-9 and max(one.parts.values()) <= one.step_s * (1 + 1e-9)
        assert all(seconds <= one.step_s for _, seconds in one.causes())
    assert len(traced) > 100 and len(frame) > len(table)


def test_noise_is_called_noise(tmp_path) -> None:
    """Four GPUs at 1.01 of four times one, within the spread of repeats: no cause is named."""
    records = [*make_point([1e6, 1.03e6, 0.97e6], devices=1), *make_point([4.1e6, 4.0e6, 3.95e6], devices=4)]
    plant(RecordStore(tmp_path / "runs"), records)
    one = explain_fields(tmp_path / "runs", {"workload": "nmt", "devices": 4})[0][0]
    assert not one.lost and not any("ms" in line for line in explanation(one)[:2])


def test_what_was_not_traced_names_the_command_and_what_is_faster(tmp_path) -> None:
    plant(RecordStore(tmp_path / "runs"), study())
    text = explained(tmp_path / "runs", ["workload=nmt", "placement=exp2", "devices=8"], details=True)
    assert "traced_steps=3" in text and "slower than one" in text and "placement ddp instead of exp2" in text
    refused("no Record is called 'zzz'", explained, tmp_path / "runs", ["zzz"])


def test_the_machine_that_holds_the_point_speaks(tmp_path) -> None:
    larger = [make_record("ddp", count, machine=make_machine(8)) for count in (1, 2, 8)]
    plant(RecordStore(tmp_path / "runs"), [*larger, *make_point([1e6] * 3, placement="exp3", devices=2, machine=make_machine(2))])
    found, why, _ = explain_fields(tmp_path / "runs", {"workload": "nmt", "placement": "exp3"})
    assert not why and found[0].row["machine"] == "2x-nvidia-h200"
