"""Document 001's questions: each has a page that exists and an answer that follows the Records and verdicts, which are planted here."""

from __future__ import annotations

import re
from typing import Any

import pandas as pd
import pytest

from multigpu.analysis import cnn_questions, cnn_scaling
from multigpu.analysis.cnn_questions import Known, answers, question_table
from multigpu.analysis.frame import frame_of
from multigpu.analysis.startup import warmup_rows
from multigpu.analysis.warmup import warmup_frame
from multigpu.claims import Result, find_claim
from multigpu.paths import REPOSITORY
from tests.analysis.test_cnn_pages import NOTHING, point
from tests.factory import make_point, make_record

NONE_TRAINED = pd.DataFrame({"same": []})
NONE_WARM = warmup_rows(NOTHING, warmup_frame([]))


def result(number: str, verdict: Any) -> Result:
    return Result(claim=find_claim(number), verdict=verdict, figure="", why="", record_keys=[], by_framework={})


def known(ours: pd.DataFrame = NOTHING, same: pd.DataFrame = NONE_TRAINED, warm: pd.DataFrame = NONE_WARM, **verdicts: str) -> Known:
    return Known(ours, ours, {number: result(number, verdict) for number, verdict in verdicts.items()}, same, warm)


def answer(asked: str, told: Known) -> str:
    (found,) = [row["answer"] for _, row in answers(told).iterrows() if asked in row["asked"]]
    return str(found)


def test_without_records_no_question_is_answered_by_accident() -> None:
    table = answers(known())
    assert len(table) == len(cnn_questions.QUESTIONS) and table["asked"].is_unique
    claims = table["answer"].str.contains(r"not (?:yet )?measured|not decided|no Record|no interval")
    assert claims.all(), list(table.loc[~claims, "answer"])


def test_every_page_exists_and_is_linked_as_in_the_built_report() -> None:
    html = question_table(NOTHING, NOTHING, [result("C16", "does not hold")], NONE_TRAINED, NONE_WARM).html
    pages = set(re.findall(r'href="([^".#]+)\.html"', html))
    assert pages == {page for one in cnn_questions.QUESTIONS for page in one.pages} - {cnn_questions.OWN_PAGE}
    assert all((REPOSITORY / "notebooks" / f"{page}.ipynb").is_file() for page in pages)
    assert html.startswith("<details>") and '<a href="../claims.html#C16">C16</a> does not hold' in html
    assert html.count("<tr>") == 1 + len(cnn_questions.QUESTIONS)


def test_answers_follow_verdicts() -> None:
    assert answer("concat predictions", known(C23="holds")).startswith("no, both train the same (C23 holds)")
    assert answer("concat predictions", known(C23="does not hold")).startswith("yes, they differ (C23 does not hold)")
    assert answer("concat predictions", known(C23="inconclusive")).startswith("not decided (C23 is inconclusive)")
    said = answer("seven GTX", known(**dict.fromkeys(("C49", "C50", "C19", "C20"), "cannot be tested here")))
    assert said == "C49, C50, C19 and C20 cannot be tested here"
    assert (
        known(C1="holds", C2="holds", C3="inconclusive").verdict("C1", "C2", "C3", "C5")
        == "C1 and C2 hold, C3 is inconclusive and C5 is not yet measured"
    )
    few = known(C14="holds", C16="holds")
    few.results["C14"] = few.results["C14"].model_copy(update={"why": "speedup: the verdict rests on 1 of 20 settings, while the others"})
    assert few.verdict("C14", "C16") == "C14 (by 1 of 20 settings) and C16 hold"


def test_answers_are_computed_from_records() -> None:
    """Captured 4 times eager; ddp above Exp2, and not told apart from Exp4; NCHW 0.8 of NHWC; 760 of 800 without merging."""
    records = point(100, devices=1) + point(190.2) + point(100, "exp2") + point(190, "exp4")
    records += (
        point(400, devices=1, execution="captured") + point(760, execution="captured") + point(800, "independent", execution="captured")
    )
    records += point(80, "exp2", model="vgg16") + point(160, model="vgg16")
    records += point(152, precision="bf16", layout="channels_first")
    told = known(frame_of(records), pd.DataFrame({"same": [True, True, False, None]}), C12="holds", C16="inconclusive", C23="holds")
    assert answer("speedups", told) == "yes (C12 holds); ResNet-50 v1.5 1.90 (1.90 to 1.90) times one GPU's rate on 2 GPUs"
    assert answer("long training", told).startswith(
        "beside more GPUs, by a captured step: 4.00 (ResNet-50 v1.5, batch 64 a GPU, on 2 GPUs) times as fast as eager"
    )
    assert answer("variable update", told).startswith(
        "no update is faster than ddp in 2 of 2 jobs with intervals, and every other is slower in 1 of them;"
    )
    assert answer("data format", told) == "NCHW over NHWC bf16 0.80 (0.80 to 0.80) (ResNet-50 v1.5); C16 is inconclusive"
    good = "those that keep 90% with the whole interval, captured or within 10% to either side: "
    assert re.fullmatch(f"{re.escape(good)}ResNet-50 v1.5 95.0% \\(94.8 to 95.2%\\), captured on 2 GPUs", answer("good models", told))
    wide = make_point([90, 110, 100, 95, 105], "abcde", devices=1, placement="ddp", workload="cnn", model="resnet110", batch_size=128)
    wide += make_point([240, 260, 250, 235, 265], "abcde", placement="ddp", workload="cnn", model="resnet110", batch_size=128)
    points = cnn_scaling.scaled_points(frame_of(wide))
    assert points["efficiency_low"][0] > 0.9, "planted so that the whole interval keeps 90%"
    assert answer("good models", known(frame_of(wide))) == cnn_questions.NOT_YET, "an interval so wide is a host's"
    assert (
        answer("exchanging gradients", told)
        == "of replicas that send nothing, captured ResNet-50 keeps 95% (95 to 95%) at 64 a GPU on 2 GPUs"
    )
    assert answer("converge", told) == "2 of 3 runs keep to the loss of their reference within that page's tolerance"


def test_what_hosts_set_is_said_to_be() -> None:
    """CIFAR's models with variables on the CPU, eager, between launches that are 20% apart; a layout's interval as wide is left out."""
    wide = {"placement": "exp2", "workload": "cnn", "model": "resnet20", "batch_size": 128}
    records = make_point([90, 110, 100, 95, 105], "abcde", devices=1, **wide) + make_point([170, 214, 192, 182, 202], "abcde", **wide)
    told = known(frame_of(records))
    assert answer("CIFAR-10 usable", told).startswith(
        "1 model keeps 96% on 2 GPUs with variables on the CPU, 1 set by their hosts (eager);"
    )
    apart = make_point([90, 130, 100, 75, 105], "abcde", placement="ddp", workload="cnn", layout="channels_first")
    assert answer("data format", known(frame_of(apart + point(100)))).startswith("NCHW over NHWC not measured yet")


def test_the_warm_up_has_a_length_in_steps_and_seconds() -> None:
    """Three captured Records whose first 2, 4 and 6 steps take 40 ms, others 20 ms; an eager one is not counted."""
    curves = [[0.04] * slow + [0.02] * (40 - slow) for slow in (2, 4, 6)]
    more = {"workload": "cnn", "execution": "captured"}
    records = [make_record(seed=seed, measurement={"step_time_s": [curve]}, **more) for seed, curve in enumerate(curves)]
    records.append(make_record(workload="cnn", seed=9, measurement={"step_time_s": [[0.09] * 9 + [0.01] * 31]}))
    told = known(warm=warmup_rows(frame_of(records), warmup_frame(records)), C24="holds")
    assert answer("quantify the warm-up", told) == (
        "in steps and seconds, by a change point in each Record's step times: 4 steps and 0.16 s in the median of 3 captured Records (90% "
        "of them 0.09 to 0.23 s); C24 holds"
    )


@pytest.mark.parametrize("page", sorted({page for one in cnn_questions.QUESTIONS for page in one.pages}))
def test_pages_are_named_as_files_are(page: str) -> None:
    assert re.fullmatch(r"\d\d-[a-z0-9-]+", page)
