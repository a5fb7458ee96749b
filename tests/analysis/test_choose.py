"""Advice in words: which numbers of GPUs have no Record, and a table whose cells are short."""

from __future__ import annotations

import re

import pytest

from multigpu.analysis.choose import advice, advice_sentence, advice_table, bound_table, unmeasured_sentence
from multigpu.analysis.frame import frame_of
from multigpu.record import Record
from tests.factory import make_point, make_record


def test_counts_without_a_record_are_named_with_the_command_that_measures_them() -> None:
    records = [make_record(devices=count) for count in (1, 2, 4)]
    said = unmeasured_sentence(frame_of(records))
    assert said is not None and said.startswith("Nothing here says what 8 GPUs do: these Records are of 1, 2 and 4 GPUs.")
    assert "`python -m multigpu measure --grid headline --devices 8`" in said
    failed = make_record(devices=8, status="failed", reason="planted")
    assert unmeasured_sentence(frame_of([*records, failed])) == said, "what failed was not measured"
    two = unmeasured_sentence(frame_of(records[:1]), grid="tensorflow_nmt")
    assert two is not None and "what 2, 4 and 8 GPUs do: these Records are of 1 GPU." in two and "--devices 2,4,8`" in two


def test_where_all_counts_were_measured_nothing_is_said() -> None:
    assert unmeasured_sentence(frame_of([make_record(devices=count) for count in (1, 2, 4, 8)])) is None
    on_cpus = unmeasured_sentence(frame_of([make_record(devices=8, device_type="cpu")]))
    assert on_cpus is not None and "no Record is of a GPU" in on_cpus


def text_of(html: str) -> str:
    return " ".join(re.sub(r"<style>.*?</style>|<[^>]+>", " ", html, flags=re.DOTALL).split())


def test_advice_says_times_and_shares_without_repeating_its_headings() -> None:
    rates = [1e6, 1.01e6, 0.99e6, 1e6, 1e6]
    records = [record for name, share in (("ddp", 1.0), ("exp2", 0.5)) for record in make_point([share * r for r in rates], placement=name)]
    text = text_of(advice_table(frame_of(records)).html)
    assert "Exp2, eager: 50%" in text and " times" not in text.split("Fastest:")[0]
    assert "translation, words/s" in text and "1,000,000" in text and "1,000,000 words/s" not in text, "the heading says the unit"
    mixed = text_of(advice_table(frame_of([*records, make_record("ddp", 2, 5e6, batch_size=256), make_record("ddp", 1, 3e6)])).html)
    assert "translation, M words/s" in mixed and "1.00" in mixed and "3.00" in mixed, "one unit a table: a click on the heading sorts"
    assert "the best single GPU" in text and advice_table(frame_of([])).html.count("<table") == 0


def test_every_job_stands_once_with_the_rest_folded_below() -> None:
    records = [
        record
        for batch in (64, 128)
        for devices in (2, 4)
        for name, rate in (("ddp", 1e6), ("exp2", 5e5))
        for record in make_point(
            [devices * rate * wobble for wobble in (1, 1.01, 0.99, 1, 1)], placement=name, devices=devices, batch_size=batch
        )
    ]
    shown, folded = advice_table(frame_of(records)).html.split("<details>")
    assert shown.count("ddp, eager") == 2 and "4.00" in shown and "2.00" not in shown
    assert folded.startswith("<summary>2 jobs on every number of GPUs, with the slowest way</summary>")
    assert folded.count("ddp, eager") == 4


def ways() -> list[Record]:
    """A job on one and two GPUs: eager in five repeats (100 and 150 units/s), captured on one GPU once (300)."""
    eager = [(1, "ddp", 100.0), (2, "ddp", 150.0), (2, "exp2", 75.0), (2, "independent", 900.0)]
    records = [
        record
        for count, name, rate in eager
        for record in make_point([rate * wobble for wobble in (1, 1.01, 0.99, 1, 1)], placement=name, devices=count)
    ]
    return [*records, make_record("ddp", 1, 300.0, execution="captured")]


def test_the_fastest_way_is_sought_among_all_however_often_they_were_measured_and_one_gpu_may_win() -> None:
    """No interval, no second placement: the captured graph on one GPU is twice as fast as the best of two GPUs, captured there at 120."""
    frame = frame_of([*ways(), make_record("ddp", 2, 120.0, execution="captured")])
    table = advice(frame).set_index("devices")
    assert list(table["best"]) == [True, False] and list(table["way"]) == ["ddp, captured", "ddp, eager"]
    assert list(table["once"]) == [True, False] and list(table["single"]) == ["ddp, captured"] * 2
    assert table.loc[2, "over_own"] == pytest.approx(1.5, abs=1e-3), "eager over eager, and not over captured"
    assert table.loc[2, "over_own_low"] < 1.5 < table.loc[2, "over_own_high"] and table.loc[2, "single_rate"] == pytest.approx(300, abs=0.1)
    assert table.loc[2, "slowest"] == "Exp2, eager" and table.loc[2, "slowest_share"] == pytest.approx(0.5, abs=1e-3)
    text = text_of(advice_table(frame).html)
    assert "one GPU wins: ddp, captured 300 (once) the same 1.00" in text
    said = advice_sentence(frame)
    assert said is not None and "1 job (a model, batch, input and precision) ran on several GPUs." in said
    assert "**In 1 of them one GPU alone is fastest**: NMT of 000." in said and "The fastest of 1 was measured once" in said
    assert "nothing says" not in said
    faster = frame_of([*ways(), make_record("ddp", 2, 580.0, execution="captured")])
    assert "In none of them one GPU alone is known to be fastest." in str(advice_sentence(faster))
    assert "ddp, captured 580 (once) the same way: 300 1.93" in text_of(advice_table(faster).html)
    assert advice_sentence(frame_of([make_record("ddp", 1)])) is None, "on one GPU there is nothing to choose"


def test_one_gpu_does_not_win_by_a_form_that_several_never_tried() -> None:
    """Captured on one GPU at 300, on two eager alone at 150, 1.5 times one GPU eager: two captured may be anything."""
    frame = frame_of(ways())
    table = advice(frame).set_index("devices")
    assert list(table["alone"]) == ["untried", ""] and table.loc[2, "over_own"] == pytest.approx(1.5, abs=1e-3)
    said = str(advice_sentence(frame))
    assert "In none of them one GPU alone is known to be fastest." in said and "is fastest**" not in said
    assert "In 1 the fastest form was measured on one GPU alone, so nothing says which number wins: NMT of 000." in said
    text = text_of(advice_table(frame).html)
    untried = "ddp, captured (this form was measured on one GPU alone; fastest on several: ddp, eager on 2 GPUs: 150) 300 (once) the same"
    assert untried in text and "one GPU wins" not in text


def test_the_frameworks_name_a_form_too() -> None:
    """TensorFlow's graph on one GPU at 300 beside PyTorch's steps on two."""
    graph = {"framework": "tensorflow", "processes": "one", "execution": "graph", "precision": "bf16"}
    records = [make_record("ddp", 1, 100.0), make_record("ddp", 2, 150.0), make_record("exp4", 1, 300.0, **graph)]
    assert list(advice(frame_of(records))["alone"]) == ["untried", ""]
    slower = make_record("exp4", 2, 250.0, **graph)
    assert list(advice(frame_of([*records, slower]))["alone"]) == ["wins", ""]


def test_one_gpu_does_not_win_where_intervals_do_not_tell() -> None:
    noisy = (1.0, 1.1, 0.9, 1.0, 1.0)
    records = [
        record
        for count, rate in ((1, 101.0), (2, 100.0))
        for record in make_point([rate * by for by in noisy], placement="ddp", devices=count)
    ]
    said = str(advice_sentence(frame_of(records)))
    assert "known to be fastest. In 1 intervals do not tell one GPU from several: NMT of 000." in said
    assert "one GPU, not told from several: ddp, eager" in text_of(advice_table(frame_of(records)).html)


def test_the_best_single_gpus_way_is_told_by_what_differs() -> None:
    alone = {"eager": 100.0, "captured": 200.0}
    records = [make_record("ddp", 1, rate, execution=execution) for execution, rate in alone.items()]
    text = text_of(advice_table(frame_of([*records, make_record("exp2", 2, 250.0)])).html)
    assert "Exp2, eager 250 (once) ddp, captured: 200† 2.50" in text, "two things differ; over one GPU eager"
    assert "ddp, eager 250 (once) the same, but captured: 200† 2.50" in text_of(
        advice_table(frame_of([*records, make_record("ddp", 2, 250.0)])).html
    )
    tensorflow = make_record("exp4", 2, 400.0, framework="tensorflow", processes="one", execution="graph", precision="bf16")
    assert "Exp4, TensorFlow, graph 400 (once) ddp, captured: 200†" in text_of(advice_table(frame_of([*records, tensorflow])).html)
    fused = make_record("ddp", 1, 300.0, execution="captured", cross_entropy="fused")
    both = frame_of([*records, fused, make_record("ddp", 2, 390.0, execution="captured")])
    assert "ddp, captured 390 (once) the same, with loss in one piece: 300 1.30" in text_of(advice_table(both).html)


def test_batches_of_a_gpu_and_batches_in_all_are_jobs_of_their_own_that_share_one_gpu() -> None:
    own = [make_record("ddp", count, 100.0 * count, scaling=scaling) for count, scaling in ((1, "weak"), (2, "weak"), (2, "strong"))]
    table = advice(frame_of(own))
    assert list(dict.fromkeys(table["job"])) == ["NMT of 000, batch 128 a GPU", "NMT of 000, batch 128 in all"]
    assert list(table["devices"]) == [1, 2, 1, 2]


def test_names_with_commas_are_parted_by_semicolons_and_only_what_is_told_apart_is_slowest() -> None:
    names = ("ddp", "replicated_allreduce", "replicated_copy", "exp4")
    near = [record for name in names for record in make_point([100.0, 120.0, 80.0, 100.0, 100.0], placement=name)]
    text = text_of(advice_table(frame_of(near)).html)
    assert text.count("eager (100%); ") >= 1 and "; 1 further" in text
    (row,) = advice(frame_of(near)).to_dict("records")
    assert len(row["equals"]) == 3 and row["slowest"] == "" and "all-reduce, no overlap, eager: " not in text


def test_bounds_stand_in_one_table_a_workload_with_slower_placements_folded() -> None:
    records = [
        record
        for batch in (64, 128)
        for name, rate in (("ddp", 1e6), ("exp2", 5e5))
        for index in range(5)
        for record in [make_record(name, 2, rate, repeat=index, launch_id="ab"[index % 2], batch_size=batch)]
    ]
    shown, folded = bound_table(frame_of(records)).html.split("<details>")
    assert shown.count("<table") == 1 and text_of(shown).count(" 1.00 ") == 2 and "placement ddp" in shown
    assert folded.startswith("<summary>2 slower points of the same jobs</summary>") and text_of(folded).count(" 0.500 ") == 2
    assert "No headline point yet." in bound_table(frame_of(records[:2])).html
