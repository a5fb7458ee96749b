"""Answers in a notebook: what they say as HTML is what the commands say as text."""

import re
from html import unescape
from pathlib import Path

import pandas as pd
import pytest

from multigpu.analysis.advise_text import advised
from multigpu.analysis.answers import advising, explanation
from multigpu.analysis.estimate import Estimate
from multigpu.analysis.explain_text import PART_NAMES, explained
from multigpu.analysis.parts import shown_parts, traced_step
from multigpu.analysis.prose import say
from multigpu.analysis.read import Study
from multigpu.analysis.show import table
from multigpu.records.record import RecordStore
from multigpu.records.trace import SIX_PARTS, ReplicaTrace, StepTrace, TraceSummary
from tests.factory import make_record, plant
from tests.multigpu.analysis.planted import trace_of

RATES = {("ddp", 1): 1.0e6, ("ddp", 2): 1.6e6, ("exp4", 2): 1.9e6, ("independent", 2): 2.1e6}
FIELDS = ["workload=nmt", "placement=ddp", "devices=2"]


@pytest.fixture
def study(tmp_path: Path) -> Study:
    """Five repeats of a few points, and a trace of one of them."""
    store = RecordStore(tmp_path / "runs")
    records = [
        make_record(placement, devices, rate * (1 + 0.001 * repeat), repeat, f"launch {repeat}")
        for (placement, devices), rate in RATES.items()
        for repeat in range(5)
    ]
    trace = {"trace": trace_of(2, 0.1, 0.05, sparse_ms=1.5)}
    plant(store, [*records, make_record("ddp", 2, 1.6e6, traced_steps=2, measurement=trace)])
    return Study.of_runs(store.root)


def words(html: str) -> str:
    return " ".join(unescape(re.sub(r"<[^>]+>", " ", html)).split())


def test_an_explanation_is_sentences_bars_and_tables_and_its_text_the_commands(
    study: Study,
) -> None:
    found = explanation(study, FIELDS)
    told = explained(study, FIELDS, details=True)
    assert repr(found) == str(found.text) == told
    shown = words(found.html)
    for sentence in told.partition("\n\n")[0].splitlines():
        assert sentence in shown, sentence
    assert found.html.count("<table") == 2 and "exp4" in shown
    assert all(name in found.html for name in (PART_NAMES["compute"], "display:flex"))
    none = explanation(study, ["workload=nmt", "placement=exp2", "devices=2"])
    assert "<pre>" in none.html and none.text in unescape(none.html)


def test_advice_is_sentences_a_figure_and_a_table(study: Study) -> None:
    asked = {"workload": "nmt", "devices": 2}
    found, told = advising(study, asked), advised(study, asked)
    assert repr(found) == told and "<svg" in found.html
    assert told.partition("\n")[0] in words(found.html) and "take Exp4" in told
    rows = re.findall(r"<tr>(.*?)</tr>", found.html)
    assert len(rows) == 1 + 3 and "best" in words(rows[2]) and "not the same" in words(rows[1])
    assert found.html == advising(study, asked).html


def test_a_table_and_a_sentence_are_text_where_no_html_is_shown() -> None:
    shown = table(
        pd.DataFrame({"placement": ["ddp", "exp4"], "n": [5, 12]}), "placement | n", note="Twice."
    )
    assert repr(shown).splitlines() == ["placement  n", "ddp        5", "Exp4       12", "Twice."]
    assert repr(say("A **rate**.")) == "A **rate**."


def test_six_parts_are_of_the_rank_that_waits_most_and_add_up_to_the_step() -> None:
    def step(**parts: float) -> StepTrace:
        spans = dict.fromkeys(SIX_PARTS, 0.0) | parts
        counts = {"kernels": 7, "launches": 7, "communication": [], "phases": {}}
        zero = dict.fromkeys(
            ("start_s", "host_s", "busy_s", "communication_s", "exposed_s", "exposed_copies_s"), 0.0
        )
        return StepTrace.model_validate({"end_s": 1.0, "parts": spans, **zero, **counts})

    waits, last = step(computing=0.4, waiting=0.5, input=0.1), step(computing=0.9, input=0.1)
    replicas = [
        ReplicaTrace(rank=rank, steps=[own], copies=[]) for rank, own in enumerate((waits, last))
    ]
    trace = TraceSummary(source="kineto", replicas=replicas, kernels=[])
    found = traced_step([trace], 2.0)
    assert found and found.last == 1 and found.largest == "waiting"
    assert found.parts["waiting"] == pytest.approx(1.0) and sum(found.parts.values()) == 2.0
    fed = traced_step([trace], 2.0, input_s=1.1)
    assert fed and fed.parts["input"] == 1.1 and sum(fed.parts.values()) == pytest.approx(2.0)
    assert traced_step([], 2.0) is None
    shown = shown_parts({"ddp": {"a": 0.3, "b": 0.1}})
    assert "flex:0.7500" in shown.html and shown.text.splitlines() == [
        "ddp: 400 ms a step",
        "  300 ms (75%) a",
        "  100 ms (25%) b",
    ]


def test_an_interval_that_says_nothing_is_called_too_few_repeats() -> None:
    wide, told = Estimate(1000.0, 1.0, 1.48e6, unit="words"), Estimate(1000.0, 300.0, 2900.0)
    assert f"{wide:rate interval}" == "1,000 words (too few repeats)"
    assert f"{told:rate interval}" == "1,000 (300 to 2,900)"
    assert f"{Estimate(0.02, 0.001, 0.05):percent interval}" == "2.0% (0.1 to 5.0%)"
