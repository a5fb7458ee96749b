"""Advice in words: which numbers of GPUs have no Record, and a table whose cells are short."""

from __future__ import annotations

import re

from multigpu.analysis.choose import advice_table, unmeasured_sentence
from multigpu.analysis.frame import frame_of
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


def test_advice_says_times_and_shares_without_repeating_its_headings() -> None:
    rates = [1e6, 1.01e6, 0.99e6, 1e6, 1e6]
    records = [record for name, share in (("ddp", 1.0), ("exp2", 0.5)) for record in make_point([share * r for r in rates], placement=name)]
    html = advice_table(frame_of(records)).html
    text = " ".join(re.sub(r"<style>.*?</style>|<[^>]+>", " ", html, flags=re.DOTALL).split())
    assert "Exp2: 50%" in text and " times" not in text.split("The best single GPU")[0] and "in whatever way it was done" in text
    assert "translation, each job on its most GPUs" in text and "<details>" not in html


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
    assert shown.count(">ddp<") == 2 and "4.00 M" in shown and "2.00 M" not in shown
    assert folded.startswith("<summary>2 jobs on every number of GPUs</summary>") and folded.count(">ddp<") == 4
