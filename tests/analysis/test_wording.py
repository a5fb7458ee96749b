"""Numbers and Runs in words."""

import math

import pandas as pd
import pytest

from multigpu.analysis import wording as w
from multigpu.analysis.frame import frame_of
from multigpu.analysis.metrics import summary
from multigpu.analysis.picture import paragraphs
from tests.factory import make_point, make_record


@pytest.mark.parametrize(
    ("args", "text"),
    [
        ((3.851e6, 3.7996e6, 3.9e6, "words"), "3.85 M words/s (3.80 to 3.90)"),
        ((296_698, 293_576, 299_853, "words"), "297,000 words/s (294,000 to 300,000)"),
        ((12.34, math.nan, math.nan, "images"), "12.3 images/s"),
        ((math.nan, math.nan, math.nan, "words"), "not measured"),
    ],
)
def test_rates(args, text):
    assert w.rate_text(*args) == text


def test_shares_ratios_and_bytes():
    assert w.percent_text(0.934, 0.921, 0.944) == "93% (92 to 94%)"
    assert w.percent_text(0.064) == "6.4%"
    assert w.ratio_text(6.914, 6.85, 6.97) == "6.91 times (6.85 to 6.97)"
    assert [w.bytes_text(x) for x in (512, 3 * 2**20, 2.5 * 2**30)] == ["512 B", "3.00 MiB", "2.50 GiB"]


def test_devices():
    assert [w.devices_text(1, "cuda"), w.devices_text(8, "cuda"), w.devices_text(2, "cpu")] == ["1 GPU", "8 GPUs", "2 CPU processes"]


def test_a_missing_cell_says_why():
    assert w.why_missing(None) == "not measured"
    assert w.why_missing({"status": "out_of_memory", "reason": "150 GiB wanted"}) == "out of memory: 150 GiB wanted"
    assert w.why_missing({"status": pd.NA, "reason": pd.NA}) == "not measured"


def test_the_fewest_fields_tell_panels_apart():
    table = summary(frame_of([make_record(batch_size=128), make_record(batch_size=360), make_record(workload="cnn")]))
    fields = w.telling(table)
    assert fields == {"nmt000": ["model", "batch_size"], "resnet50_v1.5": ["model"]}
    assert w.describe(table.iloc[0], fields["nmt000"]) == "NMT of 000, batch 128 a GPU"
    assert "bf16" in w.constants(table) and "weak scaling" in w.constants(table)


def test_strong_scaling_names_the_joined_batch():
    row = summary(frame_of([make_record(scaling="strong")])).iloc[0]
    assert w.describe(row, ["batch_size"]) == "batch 128 in all"


def test_captions_state_repeats_and_screening():
    assert w.repeats_text(summary(frame_of(make_point([1e6] * 5)))) == "n = 5 over 2 launches; intervals 95%"
    assert "screening" in w.repeats_text(summary(frame_of([make_record()])))
    mixed = summary(frame_of([*make_point([1e6] * 5), make_record(devices=4)]))
    assert w.repeats_text(mixed) == "n = 1 to 5 over 1 to 2 launches; intervals 95%; points without one were measured once (screening)"
    assert w.joined(["a", "b", "c"]) == "a, b and c" and w.joined(["a"]) == "a" and w.joined([]) == ""


def test_paragraphs_escape_what_they_are_told_and_leave_nothing_empty() -> None:
    html = paragraphs("a **bold** <b>", "", None).html
    assert html == '<div class="answer"><p>a <strong>bold</strong> &lt;b&gt;</p></div>'
    assert paragraphs("a", "b", kind="said").html == '<div class="said"><p>a</p><p>b</p></div>'
