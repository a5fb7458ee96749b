"""Planted Records flip every decidable verdict in every direction, and nothing else decides."""

import re

import numpy as np
import pandas as pd
import pytest

from multigpu_study.claims import Contrast, Term, all_claims, find_claim
from multigpu_study.claims.core import LEVEL
from multigpu_study.claims.figures import figure
from multigpu_study.claims.parts import UNMATCHED_SIDES
from multigpu_study.claims.statistics import student
from multigpu_study.claims.wording import titled
from tests.further import but
from tests.study.claims.cases import CASES, CNN, IN_GRAPH, at, on, scaling
from tests.study.claims.planted import LOUD, QUIET, repeats, result_of

SLOWER = "words/s of Exp2 over Exp4: 0.820x at 8 GPUs (95% 0.816-0.824), n = 5 over 2 launches"
"""What C2's planted rows read when it holds."""
NUMBERS = [
    claim.number for claim in all_claims() if claim.predicate and claim.predicate.of == "runs"
]
each_case = pytest.mark.parametrize("number", NUMBERS)


def verdict(number: str, rows: list[dict]) -> str:
    return result_of(number, rows).verdict


@each_case
def test_it_holds_and_does_not_hold(number):
    result = result_of(number, CASES[number].rows("holds"))
    assert result.verdict == "holds", result.why
    assert result.record_keys and re.search(r"\d.* \(95% .*n (=|>=) 5", result.figure)
    refuted = "does not hold here" if find_claim(number).refuted_on else "does not hold"
    assert verdict(number, CASES[number].rows("fails")) == refuted


@each_case
@pytest.mark.parametrize("outcome", but(["holds"], ["holds", "fails"]))
def test_noise_is_inconclusive(number, outcome):
    if number == "C41":
        pytest.skip("its repeats are pooled by a law that says how they spread")
    rows = CASES[number].rows(outcome, LOUD)
    if number == "C24":  # a ratio within one Record: its own times are the noise
        for index, row in enumerate(rows):
            row["warmup_s"] *= LOUD[index % 5]
    if number == "C23":  # repeats are compared with their like: what both sides share is no noise
        assert verdict(number, rows) == ("holds" if outcome == "holds" else "does not hold")
        rows = rows[:5] + [
            row | {"parameter_change": other["parameter_change"]}
            for row, other in zip(rows[5:], rows[:4:-1], strict=True)
        ]
    assert verdict(number, rows) == "inconclusive"


UNFIT = (
    {"device_type": "cpu", "gpu": ""},
    {"device_type": "cpu"},
    {"gpu": ""},
    {"gpu": None},
    {"warmup_steps": 2},
    {"timed_steps": 5},
)
"""What makes a Record one that decides nothing: were one of them admitted, it would decide."""


@pytest.mark.parametrize("number", but(NUMBERS[::2], NUMBERS))
def test_too_little_never_decides(number):
    """Of seeds of their own one repeat, one launch and four repeats; what is unfit or failed;
    nothing.
    """
    rows = CASES[number].rows
    few = [
        *rows("holds", (1.0,)),
        *rows("holds", launches="aaaaa", seed=1),
        *rows("holds", QUIET[:4], seed=2),
    ]
    unfit = [row for unfit in UNFIT for row in rows("holds", **unfit)] + rows(
        "holds", status="out_of_memory"
    )
    for made, said in (
        (few, "inconclusive"),
        (unfit, "not yet measured"),
        ([], "not yet measured"),
    ):
        result = result_of(number, made)
        assert result.verdict == said and not any(setting.enough for setting in result.settings)
        assert {"inconclusive": "are needed on each side"}.get(
            said, "tried: out_of_memory" if made else ""
        ) in result.why


def apart(number: str, field: str) -> list[dict]:
    """The rows when the claim holds, those of each side with a value of their own in this field."""
    values = [
        index + 1 if field in ("timing_version", "seed") else f"other {index}"
        for index in range(len(CASES[number].runs))
    ]
    rows = CASES[number].rows("holds")
    return [
        row | {field: value}
        for index, value in enumerate(values)
        for row in rows[5 * index : 5 * index + 5]
    ]


# C24 compares within a Record; C44 compares frameworks, and with them their versions.
@pytest.mark.parametrize("number", [number for number in NUMBERS if number != "C24"])
def test_sides_of_different_context_are_never_compared(number):
    """All at once: were one not compared, its sides would meet; each timer on a host of its own, as
    of several the newest alone counts.
    """
    fields = [
        field
        for field in ("machine", "gpu", "framework_version", "seed")
        if (number, field) != ("C44", "framework_version")
    ]
    rows = [row for field in fields for row in apart(number, field)]
    rows += [row | {"machine": "timed"} for row in apart(number, "timing_version")]
    assert verdict(number, rows) == "not yet measured"


OTHER = {
    "batch_size": 77,
    "inputs": "catalogs",
    "precision": "fp32",
    "execution": "captured",
    "optimizer": "sgd",
    "scaling": "weak",
}


@pytest.mark.parametrize("field", OTHER)
def test_sides_of_different_runs_are_never_compared(field):
    """C40 fixes none of these fields but the last: they must be equal all the same."""
    rows = [
        row | ({field: OTHER[field]} if row["devices"] == 1 else {})
        for row in CASES["C40"].rows("holds")
    ]
    assert verdict("C40", rows) == "not yet measured"


C2, TENSORFLOW = CASES["C2"], {"framework": "tensorflow", **IN_GRAPH}
HOLDS = C2.rows("holds")
SLOW, OLD = HOLDS[:5], [row | {"units_per_s": 1.0} for row in HOLDS[5:]]
NEW = [row | {"attempt": 1} for row in HOLDS[5:]]
ON_FOUR = C2.rows("fails", devices=4)
DIFFER = "words/s of Exp2 over Exp4: shown in 1 of 2 settings of LSTM translator, refuted in 1"
SCREENING = (
    "words/s of Exp2 over Exp4: one repeat is screening; 5 repeats over 2 launches are needed on"
    " each side"
)
APART = "frameworks differ: PyTorch holds, TensorFlow does not hold"
ALONE = "decided by PyTorch, inconclusive in TensorFlow"
"""So that no reader of "holds" takes it for a verdict on both."""


MACHINES_AGREE = [*HOLDS, *C2.rows("holds", machine="other")]
MACHINES_DIFFER = [*HOLDS, *C2.rows("fails", machine="other")]
NEWER_TIMER = [*HOLDS, *C2.rows("fails", timing_version=2)]
FOUR_REPEATED = [HOLDS[0], HOLDS[5], *ON_FOUR]
SCREENED = [*HOLDS, *C2.rows("fails", (1.0,), seed=1)]
AGREE = [*HOLDS, *C2.rows("holds", **TENSORFLOW)]
DISAGREE = [*HOLDS, *C2.rows("fails", **TENSORFLOW)]
LOUD_BESIDE = [*HOLDS, *C2.rows("holds", LOUD, **TENSORFLOW)]
BESIDE_EACH_OTHER = {
    "one framework alone": (HOLDS, "holds", 1, "", SLOWER),
    "one repeat": (HOLDS[::5], "inconclusive", 1, SCREENING, ""),
    "two machines that agree": (MACHINES_AGREE, "holds", 2, "", ""),
    "two machines that differ": (MACHINES_DIFFER, "inconclusive", 2, DIFFER, ""),
    "a newer timer replaces": (NEWER_TIMER, "does not hold", 1, "", ""),
    "the latest attempt counts, in any order": ([*SLOW, *NEW, *OLD], "holds", 1, "", ""),
    "the highest count decides": ([*HOLDS, *ON_FOUR], "holds", 1, "", SLOWER),
    "the highest repeated count": (FOUR_REPEATED, "does not hold", 1, "", "0.99x at 4 GPUs"),
    "screening beside": (SCREENED, "holds", 2, None, "0.820x at 8 GPUs, seed 0"),
    "frameworks agree": (AGREE, "holds", 2, "", ""),
    "frameworks differ": (DISAGREE, "inconclusive", 2, APART, ""),
    "a framework that decides alone is named": (LOUD_BESIDE, "holds", 2, ALONE, ""),
}


@pytest.mark.parametrize(
    ("rows", "expected", "settings", "why", "figure"),
    BESIDE_EACH_OTHER.values(),
    ids=BESIDE_EACH_OTHER,
)
def test_settings_that_stand_beside_each_other(rows, expected, settings, why, figure):
    result = result_of("C2", rows)
    assert (
        (result.verdict, len(result.settings)) == (expected, settings)
        and why in (None, result.why)
        and figure in result.figure
    )
    assert result.settings[0].fields["timing_version"] == max(row["timing_version"] for row in rows)
    if all(row["framework"] == "torch" for row in rows):
        assert result.by_framework["tensorflow"].verdict == "not yet measured"
    if why == ALONE:
        assert titled(result)[1].startswith("TensorFlow: inconclusive, words/s of Exp2 over Exp4: ")


def test_pairs_are_of_repeats_that_both_sides_have():
    """Of four common repeats too few; a fifth on one side alone is compared with nothing."""
    rows = CASES["C23"].rows("holds", LOUD)
    rows[-1] |= {"repeat": 7, "parameter_change": 1e9}
    result = result_of("C23", rows)
    assert (
        result.verdict == "inconclusive" and "n = 4" in result.figure and "1.005x" in result.figure
    )
    apart = [
        row | {"repeat": 100 + row["repeat"]} if index < 5 else row
        for index, row in enumerate(rows)
    ]
    none = result_of("C23", apart)
    assert (
        none.verdict == "not yet measured" and none.settings == () and UNMATCHED_SIDES in none.why
    )


def test_half_a_claim_is_not_yet_measured_and_one_model_is_too_few():
    for number, outcome in (("C12", "holds"), ("C42", "fails")):
        assert (
            verdict(number, [row for row in CASES[number].rows(outcome) if row["model"] != "vgg16"])
            == "inconclusive"
        )
    result = result_of("C30", [row for row in CASES["C30"].rows("holds") if row["devices"] == 1])
    assert result.verdict == "not yet measured"
    assert "0.400x" in result.figure and "4 or more GPUs" in result.why
    with_all = result_of("C12", CASES["C12"].rows("holds"))
    assert (
        "in 6 settings of ResNet-50 and VGG-16 at 2, 4 and 8 GPUs, n >= 5 each" in with_all.figure
    )


def test_frameworks_that_are_compared_have_one_verdict_and_flagged_records_are_named():
    several = CNN | {"boots": "vwxyz"}
    tensorflow = repeats(40.0, **several | at(1, framework="tensorflow", **IN_GRAPH))
    for processes in ("one", "per_device"):  # PyTorch's: on one device one process either way
        result = result_of(
            "C44", [*repeats(100.0, **several | at(1, processes=processes)), *tensorflow]
        )
        assert result.verdict == "does not hold" and "2.50x" in result.figure
    assert list(result.by_framework) == ["torch / tensorflow"]
    same = result_of("C44", CASES["C44"].rows("fails"))
    assert same.figure.startswith(
        "step time in TensorFlow over PyTorch, in every setting and in one setting: 2.22x,"
        " ResNet-50 (95%"
    )
    assert same.figure.count("n = 5") == 1
    rows = CASES["C2"].rows("holds", flags="host and device clocks differ")
    assert "10 Records are flagged (host and device clocks differ)" in result_of("C2", rows).why
    shares = [
        row | {"flags": f"clocks disagree by {share}%"}
        for row, share in zip(rows, ("1.0", "7.5", "2.6"), strict=False)
    ]
    some = [*shares, *({**row, "flags": ""} for row in rows[3:])]
    assert result_of("C2", some).why == "3 Records are flagged (clocks disagree by up to 7.5%)"
    first, *others = CASES["C10"].rows("holds")
    assert result_of("C10", [first | {"flags": "x"}, *others]).why == "1 Record is flagged (x)", (
        "though two contrasts use it"
    )


@pytest.mark.parametrize(
    ("direction", "ends", "said"),
    [
        ("above", [(1.06, 1.2), (1.01, 1.04), (0.7, 0.8), (1.0, 1.2)], "hffs"),
        ("below", [(0.5, 1.05), (1.06, 1.1), (1.0, 1.1)], "hfs"),
        ("within", [(0.96, 1.04), (0.8, 0.9), (0.9, 1.0)], "hfs"),
        ("outside", [(1.06, 1.1), (0.8, 0.9), (0.96, 1.04), (0.9, 1.1)], "hhfs"),
    ],
)
def test_intervals_against_the_margin(direction, ends, said):
    """Of many repeats: it holds, it fails, or it straddles."""
    contrast = Contrast(label="planted", over=(Term(),), direction=direction, bound=1.05)
    logs = pd.DataFrame(np.log(ends), columns=["low", "high"])
    half = (logs["high"] - logs["low"]) / 2
    found = student(
        contrast, logs["low"] + half, (half / 1.959964) ** 2, pd.Series(1e9, logs.index)
    )
    assert found[["low", "high"]].to_numpy() == pytest.approx(np.array(ends), rel=1e-6)
    decided = [(one.holding <= LEVEL, one.failing <= LEVEL) for one in found.itertuples()]
    assert decided == [(letter == "h", letter == "f") for letter in said]


def test_what_decides_is_read_first_and_told_from_what_stands_beside():
    """One of four batches was repeated: a reader must see which, and that the others, measured
    once, point elsewhere.
    """
    case = CASES["C29"]
    beside = case.rows("holds", (1.0,), batch_size=32) + case.rows("fails", (1.0,), batch_size=256)
    result = result_of("C29", case.rows("fails") + beside)
    first, rest = result.figure.split("; ")
    assert (
        first.startswith("efficiency with overlap over that without: 1.0")
        and "at 8 GPUs, ResNet-50, batch 64 (95%" in first
    )
    assert rest == "2 further settings measured once: 1.01x to 1.13x"  # 6.8 / 6.7 and 7.6 / 6.7
    assert not {row["key"] for row in beside} & set(result.record_keys)
    often = result_of("C29", case.rows("fails") + case.rows("holds", QUIET[:2], batch_size=32))
    assert often.figure.endswith("; 1 further setting measured too seldom to decide: 1.13x")
    rows = CASES["C2"].rows("holds", machine="other", devices=4) + CASES["C2"].rows("holds")
    first, second = result_of("C2", rows).figure.split("; ")
    assert first.startswith("words/s of Exp2 over Exp4: 0.820x at 8 GPUs, on 8x-nvidia-h200 (")
    # another machine's highest count, not the same one's
    assert second.startswith("0.820x at 4 GPUs, on other (")
    small = {"batch_size": 32}
    rows = [*repeats(100.0, **CNN | on("exp2")), *repeats(50.0, **CNN | on("ddp"))]
    rows += [
        *repeats(100.0, **CNN | small | on("exp2", 4)),
        *repeats(400.0, **CNN | small | on("ddp", 4)),
    ]
    result = result_of("C21", rows)
    assert result.verdict == "does not hold here"
    assert re.search(
        r"over all-reduce: 0\.250?x at 4 GPUs, ResNet-50 .*; 2\.0+x at 8 GPUs", result.figure
    )
    runs = (
        *scaling({}, 2, 1.51),
        *scaling({"model": "resnet32"}, 2, 1.2),
        *scaling({"model": "resnet110"}, 2, 1.2),
    )
    planted = [
        row for fields, rate in runs for row in repeats(rate, **CASES["C17"].common | fields)
    ]
    refuted = result_of("C17", planted)
    assert refuted.verdict == "does not hold" and refuted.figure.startswith(
        "efficiency of larger models: "
    )
    setting = result_of("C2", CASES["C2"].rows("holds")).settings[0]
    contrast = find_claim("C2").predicate.contrasts[0]
    near = [
        setting.model_copy(
            update={"estimate": 0.961 + 0.001 * step, "fields": {"batch_size": step}}
        )
        for step in range(4)
    ]
    assert figure(near, contrast).startswith(
        "0.961x to 0.964x (95% intervals from 0.816 to 0.824) in 4 settings at 8 GPUs"
    )
    assert figure(
        [one.model_copy(update={"estimate": 0.9631}) for one in near], contrast
    ).startswith("0.96x (95%")


def test_a_verdict_on_fewer_device_counts_than_its_test_names_says_so():
    rows = CASES["C3"].rows("holds")
    one, eight = ([row for row in rows if row["devices"] == count] for count in (1, 8))
    said = result_of("C3", one)
    assert said.verdict == "holds here only" and (said.scope, said.why) == (
        "on 1 GPU",
        "8 GPUs not measured",
    )
    assert result_of("C3", eight).why == "1 GPU not measured"
    assert (
        result_of("C3", one + [row for row in eight if row["repeat"] == 0]).why
        == "8 GPUs measured too seldom to decide"
    )
    assert (
        result_of(
            "C12", [row for row in CASES["C12"].rows("holds") if row["devices"] in (1, 8)]
        ).why
        == "2 and 4 GPUs not measured"
    )
    # one counterexample refutes, whatever was not measured
    refuted = result_of("C3", [row for row in CASES["C3"].rows("fails") if row["devices"] == 1])
    assert refuted.verdict == "does not hold" and refuted.why == ""
