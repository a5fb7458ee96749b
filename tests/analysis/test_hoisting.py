"""What all rows share is said once, what was not measured is named, and results stay; on tables made by hand."""

import re

import pandas as pd
import pytest

from multigpu import paths
from multigpu.analysis.hoisting import hoisted
from multigpu.analysis.table_look import FIGURE, PAGE_LETTERS, SIZES, label_room, letters, size_of
from multigpu.analysis.tables import table_html, tables_by


def made(**columns):
    return pd.DataFrame(columns)


def test_settings_that_all_rows_share_are_told_once():
    data = made(
        placement=["ddp", "Exp2", "Exp4"],
        Machine=["2x-cpu-amd-epyc"] * 3,
        Execution=["eager"] * 3,
        GPUs=["4"] * 3,
        N=["2"] * 3,
        n=["5 over 1"] * 3,
        rate=["1", "2", "3"],
    )
    table, said = hoisted(data, ["GPUs", "N", "n", "rate"])
    assert list(table) == ["placement", "rate"]
    assert said == "Every row: machine 2x-cpu-amd-epyc, eager, 4 GPUs, N = 2, n = 5 over 1 launch."


@pytest.mark.parametrize(
    ("heading", "cell", "told"),
    [
        ("n", "1, screening", "n = 1 (screening)"),
        ("n", "8 over 5", "n = 8 over 5 launches"),
        ("devices", "1 GPU", "1 GPU"),
        ("devices", "2 CPU processes", "2 CPU processes"),
        ("Devices", "1", "1 device"),
        ("Seeds", "5", "5 seeds"),
        ("parameters", "25.56 M", "25.56 M parameters"),
        ("host cores", "all", "host cores: all"),
    ],
)
def test_a_setting_is_told_in_words(heading, cell, told):
    assert hoisted(pd.DataFrame({"placement": ["a", "b", "c"], heading: [cell] * 3}))[1] == f"Every row: {told}."


def test_values_with_commas_are_parted_by_semicolons():
    data = made(placement=["a", "b", "c"], model=["ResNet-50, batch 64"] * 3, execution=["eager"] * 3)
    assert hoisted(data)[1] == "Every row: ResNet-50, batch 64; eager."


def test_results_stay_though_they_are_equal():
    data = made(placement=["a", "b", "c"], **{"same curve": ["yes"] * 3, "update (ms)": ["0.0"] * 3, "as predicted": ["yes"] * 3})
    table, said = hoisted(data, ["update (ms)"])
    assert list(table) == list(data) and said == ""


def test_two_rows_keep_their_settings_and_differing_ones_stay():
    assert list(hoisted(made(placement=["a", "b"], machine=["m"] * 2))[0]) == ["placement", "machine"]
    assert list(hoisted(made(placement=["a", "b", "c"], machine=["m", "m", "k"]))[0]) == ["placement", "machine"]


def test_the_first_column_stays_where_it_is_the_only_label():
    table, said = hoisted(made(placement=["ddp"] * 3, GPUs=["1", "2", "4"], rate=["1", "2", "3"]), ["GPUs", "rate"])
    assert list(table) == ["placement", "GPUs", "rate"] and said == ""
    table, said = hoisted(made(model=["ResNet-50"] * 3, placement=["a", "b", "c"], rate=["1", "2", "3"]), ["rate"])
    assert list(table) == ["placement", "rate"] and said == "Every row: ResNet-50."


def test_columns_without_a_figure_go_and_are_named_unless_they_are_dashes():
    data = made(placement=["a", "b"], cost=["not measured", "–"], power=["not measured"] * 2, over=["no baseline"] * 2, bound=["–"] * 2)
    table, said = hoisted(data.assign(rate=["1", "not measured"]))
    assert list(table) == ["placement", "rate"]
    assert said == "Not measured: cost, power. No baseline: over."


def test_a_table_of_nothing_but_absent_figures_keeps_its_labels():
    table, said = hoisted(made(placement=["–", "–"], rate=["–", "–"]))
    assert list(table) == ["placement"] and said == ""


def test_a_bold_cell_of_a_hoisted_column_is_no_error_and_the_note_stands_below():
    data = made(placement=["a", "b", "c"], GPUs=["4"] * 3, rate=["1.00 (0.59 to 1.69)"] * 3)
    html = table_html(data, "T", "As measured.", ["GPUs"], bold=[(0, "GPUs")]).html
    assert html.endswith('<p class="muted">As measured. Every row: 4 GPUs.</p>\n') and "gt_sourcenote" not in html
    assert html.count('gt_left whole">1.00 (0.59 to 1.69)<') == 3, "figures with intervals stay in one line"


def test_a_table_each_value_says_what_all_share_once():
    data = made(
        job=["A", "A", "A", "B"], placement=["a", "b", "c", "a"], machine=["m"] * 4, level=["1%", "1%", "1%", "2%"], rate=list("1234")
    )
    html = tables_by(data, "job", "Note.", ["rate"]).html
    assert html.count("gt_table sortable") == 2 and re.findall(r"gt_title[^>]*>([^<\n]+)<", html) == ["A", "B"]
    assert html.count("machine m") == 1 and html.endswith("Note. Every row: machine m.</p>\n")
    assert '<p class="muted">Every row: level 1%.</p>' in html and "job" not in re.sub(r"<style>.*?</style>", "", html, flags=re.DOTALL)
    assert "No Record" in tables_by(pd.DataFrame(), "job", "No Record.").html


@pytest.mark.parametrize(
    "cell", ["12", "1,004", "+0.3%", "1.94 (1.92 to 1.96)", "97.3% (96.6% to 98.3%)", "3.85 M", "390 MiB", "1, screening"]
)
def test_figures_are_not_broken(cell):
    assert FIGURE.match(cell)


@pytest.mark.parametrize(
    "cell", ["ResNet-50 v1.5, batch 64", "2-D torus, captured step", "–", "16 of 23 runs: equal bits", "no difference"]
)
def test_labels_may_break(cell):
    assert not FIGURE.match(cell)


def test_labels_break_into_two_lines_rather_than_four():
    data = made(job=["ResNet-50 v1.5, batch 256, bf16, captured"], placement=["ddp"], rate=["1"])  # 41 letters, 3 letters
    assert label_room(data, ["rate"]) == {"job": 25, "placement": 3}
    assert label_room(data, ["rate"], ["job"]) == {"placement": 3}


def test_a_wide_table_is_set_smaller():
    # label, space; twice a heading's word of 10 letters and one figure of 3; by hand: 3 + 2, then 10 + 2 each
    data = made(a=["ddp"], **{"b interval95": ["1.0"], "c interval95": ["2.0"]})
    assert letters(data, label_room(data, ["b interval95", "c interval95"])) == 5 + 12 + 12
    narrow = table_html(data, right=["b interval95", "c interval95"]).html
    many = pd.DataFrame({"a": ["ddp"], **{f"column-{i:02d}": ["1.00 (0.50 to 1.50)"] for i in range(9)}})
    assert PAGE_LETTERS < 9 * 21 and 'class="wide dense"' in table_html(many, right=list(many)[1:]).html and "dense" not in narrow
    fits = many.iloc[:, :5]  # 5 letters and four times 21
    assert len(fits.columns) == 5 and 'class="wide dense"' in table_html(fits, right=list(fits)[1:]).html


def test_a_table_that_fits_in_small_letters_only_has_them_and_one_that_scrolls_does_not():
    sizes = [size_of(round(share * PAGE_LETTERS)) for share in (0.9, 1.1, 1.3, 2.0)]
    assert [name for name, _ in sizes] == ["", "dense", "denser", "dense"]
    css = (paths.REPOSITORY / "report" / "_static" / "report.css").read_text()
    assert all(f".{name} .gt_table {{ font-size: {size}" in css for name, _, size in SIZES if name)


def test_the_mark_of_a_sorted_column_takes_room_beside_its_heading():
    data = made(**{name: ["1"] * 3 for name in ("milliseconds", "b c")})
    assert letters(data, {}) == 12 + 2 + 2 + 3 + 2 and letters(data.iloc[:2], {}) == 12 + 2 + 1 + 2
