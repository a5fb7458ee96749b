"""Tables: every figure with its interval, every missing one with its reason."""

import re

import pandas as pd
import pytest

from multigpu.analysis.findings import panels
from multigpu.analysis.frame import frame_of
from multigpu.analysis.metrics import scaling_table
from multigpu.analysis.tables import beside_document, scaling_gt, table_html
from tests.analysis.planted import screening, study
from tests.factory import make_record

PUBLISHED = pd.DataFrame(
    {
        "experiment": ["Exp5", "Exp5"],
        "batch_size": [128, 128],
        "gpus": [1, 4],
        "total_time_s": [44.5, 92.6],
        "words_per_s": [28_895.5, 55_550.5],
        "speedup": [None, 1.92],
    }
)


@pytest.fixture(scope="module")
def frame():
    return frame_of(study())


def text_of(html):
    return " ".join(re.sub(r"<style>.*?</style>|<[^>]+>", " ", html, flags=re.DOTALL).split())


def test_scaling_has_three_baselines_intervals_and_reasons(frame):
    html = scaling_gt(frame).html
    text = text_of(html)
    for heading in ("against itself on 1", "against the best single", "of independent replicas", "95% interval", "Weak scaling"):
        assert heading in text
    assert "out of memory" in text and "150 GiB wanted, 128 there" in text
    assert "5 over 2" in text and "screening" not in text and "M words/s" in text
    assert html.count("gt_table sortable") == 3
    assert re.search(r"font-weight: bold[^>]*>3\.\d{3}<", html)


def test_screening_is_marked():
    text = text_of(scaling_gt(frame_of(screening())).html)
    assert "Every row: n = 1 (screening)." in text and "no intervals" in text


def test_beside_the_document(frame):
    text = text_of(beside_document(frame, "Exp5", PUBLISHED).html)
    assert "28,896" in text and "1.92" in text  # theirs
    assert "587,995" in text  # ours on one GPU: 0.98 of 600,000, pooled
    assert "not measured" in text  # four GPUs
    assert "another machine and framework" in text


def test_beside_the_document_without_ours():
    text = text_of(beside_document(frame_of([]), "Exp5", PUBLISHED).html)
    assert "28,896" in text and "Ours is not yet measured." in text


def test_other_lengths_stand_in_and_are_named(frame):
    text = text_of(beside_document(frame, "Exp2", PUBLISHED.assign(experiment="Exp2")).html)
    assert "100 words a sentence" in text and "299,998" in text


def test_an_unknown_experiment_is_refused(frame):
    with pytest.raises(ValueError, match="no experiment 'Exp9': choose one of Exp5"):
        beside_document(frame, "Exp9", PUBLISHED)


def test_no_record_is_a_sentence():
    empty = frame_of([])
    assert "nothing has been measured yet" in scaling_gt(empty).html


def test_a_table_fits_any_page_and_keeps_its_style_to_itself():
    table = table_html(pd.DataFrame({"name": ["<b>", "x"], "value": ["1.0", "2.0"], "why": ["", ""]}), "Title", "Note", ["value"])
    html = table._repr_html_()
    assert (
        html == table_html(pd.DataFrame({"name": ["<b>", "x"], "value": ["1.0", "2.0"], "why": ["", ""]}), "Title", "Note", ["value"]).html
    )
    assert "&lt;b&gt;" in html and "why" not in text_of(html)
    assert "tabular-nums" in html and "\n\n" not in html and "#1a1b1c" not in html
    rules = re.search(r"<style>(.*?)</style>", html, re.DOTALL).group(1)
    selectors = [line.split("{")[0].strip() for line in rules.splitlines() if "{" in line]
    assert all(part.strip().startswith("#table-") for selector in selectors for part in selector.split(","))


def test_two_versions_of_a_framework_share_no_table_and_no_panel() -> None:
    versions = ({"torch": "2.11.0"}, {"torch": "2.13.0"})
    records = [make_record(devices=count, versions=version, units_per_s=count * 1e6) for version in versions for count in (1, 2)]
    tensorflow = [make_record("replicated_copy", devices=count, framework="tensorflow", processes="one") for count in (1, 2)]
    table = scaling_table(frame_of([*records, *tensorflow]))
    named = dict(panels(table))
    assert {name: sorted(set(panel["framework_version"])) for name, panel in named.items()} and len(named) >= 2
    for name, panel in named.items():
        assert (panel.groupby("framework")["framework_version"].nunique() == 1).all(), name
    assert {name for name in named if "PyTorch 2.11.0" in name} and {name for name in named if "PyTorch 2.13.0" in name}
    one = dict(panels(scaling_table(frame_of([*records[:2], *tensorflow]))))
    assert not any("2.11.0" in name for name in one), "one version of each framework is not said in every name"
    beside = beside_document(frame_of([make_record("exp4", devices=count, versions=version) for version in versions for count in (1, 2)]))
    assert "2.13.0" in beside.html and "2.11.0" in beside.html
