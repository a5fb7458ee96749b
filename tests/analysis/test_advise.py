"""Rankings of planted jobs: what is best, what cannot be told from it, and what is no equal of it."""

from __future__ import annotations

import json
import shlex

import pytest

from multigpu.analysis.advise import advised, as_dict, as_text, rankings, sentence
from multigpu.arguments import parse_fields
from multigpu.record import Record, RecordStore
from multigpu.run import build_run
from tests.factory import make_point, make_record, plant

NOISE = (0.99, 1.01, 1.01, 0.99, 1.0)
"""Two launches (a, a, b, b, a) that agree."""


def point(rate: float, **fields) -> list[Record]:
    return make_point([rate * x for x in NOISE], **fields)


STUDY = [
    *point(1.3e6, placement="independent"),
    *point(1.1e6),
    *point(1.095e6, placement="exp4"),
    *point(0.5e6, placement="exp2"),
    make_record(placement="staged_gpu0", units_per_s=1.2e6),
    make_record(execution="captured", units_per_s=1.65e6),
    make_record(placement="ps_gpu0", units_per_s=1.07e6),
    make_record(placement="replicated_copy", units_per_s=1.0e6),
    make_record(placement="exp1", status="out_of_memory", reason="150 GiB wanted"),
    *point(0.66e6, devices=1),
]


def test_standings_of_a_ranking() -> None:
    (advice,), rest = rankings(STUDY, {"workload": "nmt"})
    assert rest == ""
    standing = {(row["placement"], row["execution"]): row["standing"] for _, row in advice.ranked.iterrows()}
    assert standing == {
        ("ddp", "captured"): "once",
        ("independent", "eager"): "other",
        ("staged_gpu0", "eager"): "other",
        ("ddp", "eager"): "best",
        ("exp4", "eager"): "equal",
        ("ps_gpu0", "eager"): "equal",
        ("replicated_copy", "eager"): "slower",
        ("exp2", "eager"): "slower",
    }
    assert list(advice.ranked["rate"]) == sorted(advice.ranked["rate"], reverse=True)
    said = sentence(advice)
    assert said.startswith("On 2 GPUs take ddp, eager: 1.10 M words/s (1.09 to 1.11), n = 5 over 2 launches")
    assert "; intervals (measured once: 5%) do not tell “Exp4, eager” and “server on GPU 0, eager” from it" in said
    assert "1.67 times (1.64 to 1.69) one GPU at its best" in said
    assert "“ddp, captured” was 1.50 times as fast, measured once: repeat it" in said
    assert "independent" not in said and "staged" not in said


def test_no_equal_without_saying_so() -> None:
    text = as_text(rankings(STUDY, {"workload": "nmt"})[0][0])
    assert "independent, eager: every device trains a model of its own, so it is no equal of the others" in text
    assert "computes with variables 1 step old (stale), so it is no equal of the others" in text
    assert "Exp1, eager: out of memory: 150 GiB wanted" in text
    assert "1.5" in next(line for line in text.splitlines() if line.startswith("ddp, eager")), "peak memory, GiB"


def test_the_command_repeats_what_was_measured_once() -> None:
    (advice,), _ = rankings(STUDY, {"workload": "nmt"})
    words = shlex.split(advice.again)
    assert words[-2:] == ["--repeats", "5"]
    run = build_run(**parse_fields(words[4:-2]))
    assert run.execution == "captured" and run.devices == 2


def test_one_device_that_is_faster_is_said() -> None:
    (advice,), _ = rankings([*point(0.5e6), *point(0.6e6, devices=1)], {"workload": "nmt"})
    said = sentence(advice)
    assert said.startswith(
        "Take one GPU (ddp, eager: 600,000 words/s (593,000 to 607,000)); fastest on 2 GPUs was ddp, eager: 500,000 words/s"
    )
    assert "n = 5 over 2 launches, 0.833 times (0.821 to 0.846) that" in said
    (advice,), _ = rankings([*point(0.6e6), *point(0.6e6, devices=1)], {"workload": "nmt"})
    assert "but it is not told apart from one GPU alone" in sentence(advice)


def test_nothing_is_advised_where_nothing_trains_the_joined_batch() -> None:
    (advice,), _ = rankings(point(1e6, placement="independent"), {"workload": "nmt"})
    assert advice.best is None and sentence(advice).startswith("None of what was measured trains one model")
    (advice,), _ = rankings(point(1e6, placement="independent", devices=1), {"workload": "nmt"})
    assert advice.best is not None, "one replica is the joined batch"


def test_most_devices_unless_named_and_jobs_apart() -> None:
    records = [*STUDY, *point(2e6, batch_size=256), *point(3e6, host_cores=4)]
    found, rest = rankings(records, {"workload": "nmt"}, most=1)
    assert set(found[0].ranked["devices"]) == {2} and set(found[0].ranked["batch_size"]) == {128}
    assert rest.splitlines()[0].startswith("1 further job") and "batch 256 a GPU" in rest, "pinned Runs are no job unless asked for"
    (one,), _ = rankings(records, {"workload": "nmt", "devices": 1})
    assert set(one.ranked["devices"]) == {1}
    (pinned,), _ = rankings(records, {"workload": "nmt", "host_cores": 4})
    assert pinned.ranked["rate"].iloc[0] == pytest.approx(3e6, rel=1e-3)


def test_as_json_and_refusals(tmp_path) -> None:
    store = plant(RecordStore(tmp_path), STUDY)
    data = json.loads(advised(store, {"workload": "nmt"}, form="json"))
    ranked = data["jobs"][0]["ranked"]
    assert [row["standing"] for row in ranked][:2] == ["once", "other"]
    assert ranked[1]["semantics"] == "independent" and ranked[0]["point"]["rate_low"] is None
    assert json.dumps(as_dict(rankings(STUDY, {"workload": "nmt"})[0][0]), allow_nan=False)
    assert "has devices = 64: measured are 1, 2" in advised(store, {"workload": "nmt", "devices": 64})
    assert "python -m multigpu measure workload=cnn" in advised(store, {"workload": "cnn"})
    for fields, words in (
        ({}, "which job is meant"),
        ({"workload": "tea"}, "unknown workload 'tea'"),
        ({"workload": "nmt", "data": "x"}, "data"),
    ):
        with pytest.raises(ValueError, match=words):
            advised(store, fields)
    with pytest.raises(ValueError, match="--limit 0"):
        advised(store, {"workload": "nmt"}, most=0)
