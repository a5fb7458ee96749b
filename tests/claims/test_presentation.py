"""Tables and the scoreboard: complete, valid, escaped, readable without colour."""

import json
import math
import re
from collections import Counter
from html import unescape
from xml.etree import ElementTree

import pandas as pd
import pytest
from scipy import special

from multigpu import paths
from multigpu.claims import all_claims, evaluate_all, find_claim, html, to_json, wording
from multigpu.claims.core import VERDICTS, Contrast, Term
from multigpu.claims.html import claims_table, page_title, scoreboard, tally
from multigpu.claims.results import Setting
from multigpu.claims.statistics import repeats_needed
from multigpu.claims.wording import SYMBOLS, figure, figure_of, stated
from tests.claims.cases import CASES
from tests.claims.planted import result_of

ROWS = CASES["C2"].rows("holds") + CASES["C5"].rows("fails") + CASES["C15"].rows("holds", (1.0,))


@pytest.fixture(scope="module")
def results():
    return evaluate_all(runs=pd.DataFrame(ROWS))


def planted(contrast: Contrast, **figures: float) -> Setting:
    common = {"fields": {"device_type": "cuda"}, "devices": 8, "n": 5, "launches": 2, "enough": True, "record_keys": ()}
    return Setting(framework="torch", contrast=contrast.label, verdict="inconclusive", **common, **figures)


def test_a_line_a_claim_fits_the_terminal(results):
    for width in (40, 80, 200):
        *lines, blank, total = wording.overview(results, width).split("\n", len(results) + 1)
        for line, result in zip(lines, results, strict=True):
            assert line.startswith(result.claim.number) and result.verdict in line and len(line) <= width
            assert result.claim.sentence.startswith(line.split("  ")[-1].rstrip("…").strip()) or width == 40
        counts = Counter(result.verdict for result in results)
        assert not blank and all(f"{count} {verdict}" in " ".join(total.split()) for verdict, count in counts.items())


def test_a_claim_in_full_loses_nothing(results):
    for result in results:
        text = wording.in_full(result, 72)
        assert max(map(len, text.splitlines())) <= 72
        test = wording.tested(result).removeprefix("Test: ")
        for part in (result.claim.sentence, result.claim.figure, result.why, result.scope, test, *result.record_keys):
            assert "".join(part.split()) in "".join(text.split())


def test_repeats_that_would_decide():
    """A ratio of 1.10 whose repeats scatter by 2%, against a margin of 1.05: the textbook's sample size for 80%."""
    contrast = Contrast(label="ratio", over=(Term(),))
    setting = planted(contrast, estimate=1.10, low=1.10 / math.exp(0.0555), high=1.10 * math.exp(0.0555))  # t(4) x 0.0447 / sqrt(5)
    n = repeats_needed(contrast, setting)
    gap, scatter = math.log(1.10 / 1.05), 0.0555 / special.stdtrit(4, 0.975) * math.sqrt(5)
    assert n and n == pytest.approx(((1.96 + 0.84) * scatter / gap) ** 2, rel=0.5) and n > 5
    assert repeats_needed(contrast, setting, looks=20) > n
    for other in ({"estimate": 1.05}, {"low": None}):  # at the margin no number decides
        assert repeats_needed(contrast, setting.model_copy(update=other)) is None


def test_an_interval_that_says_nothing_is_not_shown():
    """Bounds more than a hundredfold apart come of two launches that differ."""
    contrast = find_claim("C2").predicate.contrasts[0]
    setting = planted(contrast, estimate=1.5, low=0.9, high=2.5)
    wide = setting.model_copy(update={"low": 0.01, "high": 300.0})
    assert figure_of(setting, contrast) == "1.50x at 8 GPUs (95% 0.90-2.50), n = 5 over 2 launches"
    assert figure_of(wide, contrast) == "1.50x at 8 GPUs (launches differ too much for an interval), n = 5 over 2 launches"
    many = [setting.model_copy(update={"fields": {"device_type": "cuda", "batch_size": batch}}) for batch in range(9)]
    assert "(95% intervals from 0.90 to 2.50) in 9 settings" in figure(many, contrast)
    said = figure([*many, wide], contrast)
    assert "from 0.90 to 2.50, in 1 setting launches differ too much for one) in 10 settings" in said


def test_json_says_everything_and_no_nan(results):
    items = json.loads(to_json(results), parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))
    assert len(items) == len(all_claims())
    second = items[1]
    assert second["claim"]["number"] == "C2" and second["verdict"] == "holds"
    assert second["by_framework"]["torch"]["record_keys"] == second["record_keys"]
    assert second["predicate_digest"] == find_claim("C2").digest


def told(cell: ElementTree.Element) -> str:
    """A cell's text without blanks and without the words that open what is folded."""
    for parent in list(cell.iter()):
        for summary in parent.findall("summary"):
            summary.text = ""
    return "".join(cell.itertext()).replace(" ", "")


def test_html(results):
    root = ElementTree.fromstring(claims_table(results))
    rows = root.findall("tbody/tr")
    assert [row.get("id") for row in rows] == [claim.number for claim in all_claims()]
    assert {len(row) for row in rows} == {5}
    for row, result in zip(rows, results, strict=True):
        cell = row[3]
        assert cell.get("class") == "verdict-" + result.verdict.replace(" ", "-")
        assert SYMBOLS[result.verdict] in cell[0].text
        assert result.claim.figure in "".join(row[1].itertext())
        figures = wording.titled(result)
        assert all(text.replace(" ", "") in told(row[2]) for text in figures), "nothing is lost"
        assert result.why.replace(" ", "") in told(cell)
    assert len(rows[1].findall("td/details/code")) == 10


def test_every_claim_has_the_page_that_shows_it_and_their_page_names_every_document():
    written = (paths.REPOSITORY / "report" / "claims.md").read_text()
    assert all(f"**{document}**" in written for claim in all_claims() for document in claim.documents)
    for page in {claim.page for claim in all_claims() if claim.page}:
        assert (paths.REPOSITORY / "notebooks" / f"{page}.ipynb").exists() and page_title(page) != page


def row_of(number: str, rows: list) -> str:
    """A claim's row on the page, of planted Runs."""
    (row,) = re.findall(f'<tr id="{number}">.*', claims_table([result_of(number, rows)]))
    return row


def test_a_long_title_is_cut_at_its_colon_and_told_whole_when_pointed_at(monkeypatch: pytest.MonkeyPatch):
    """A row is as high as its highest cell: a title of 110 letters made every row of a page one of twelve lines."""
    page = find_claim("C13").page
    assert f'<a href="{page}.html">{page_title(page)}</a>' in row_of("C13", [])
    long = f"Of it: what {60 * 'long '}title <says>"
    monkeypatch.setattr(html, "page_title", lambda page: long)
    whole, short = re.search(f'<a href="{page}.html" title="([^"]*)">([^<]*)</a>', row_of("C13", [])).groups()
    assert unescape(whole) == long and short == "Of it"


def test_what_decides_is_not_folded(results):
    """C29's deciding setting and those beside it stand open; of several contrasts, the first one whole; C44 compares frameworks."""
    row = row_of("C29", CASES["C29"].rows("fails") + CASES["C29"].rows("holds", (1.0,), batch_size=32))
    open_text = row.split("<details><summary>more")[0]
    assert "batch 64 (95%" in open_text and "1 further setting measured once: 1.13x" in open_text
    many = row_of("C10", CASES["C10"].rows("holds"))
    shown = many.split("</td>")[1].split("<details>")[0]
    assert "n = 5 over 2 launches;" in shown and "<summary>more" in many
    wordy = claims_table([results[0].model_copy(update={"why": f"{300 * 'x'}; the rest"})])
    assert f"{300 * 'x'};<details><summary>more</summary>the rest</details>" in wordy, "what is too long by itself still ends somewhere"
    both = row_of("C44", CASES["C44"].rows("fails"))
    assert both.count("n = 5 over 2 launches") == 1 and "<div>PyTorch and TensorFlow: step time in TensorFlow over PyTorch" in both


def test_a_test_in_words_says_how_it_is_measured_where_that_is_not_as_usual(results):
    """C41's figure has no unit: what it is stands in its protocol."""
    assert stated(find_claim("C14").predicate.contrasts[0]) == "speedup at batch 64 over that at batch 32 within 0.95x to 1.05x"
    said = {result.claim.number: wording.tested(result) for result in results}
    assert "Ljung and Box's Q over 20 lags, divided by 20" in said["C41"]
    assert "Warm-up left out; units over host time" not in said["C2"]
    assert stated(find_claim("C26").predicate.contrasts[-2]).endswith("P = 256 at most 1,774x"), "large bounds are rounded"
    for result in results:  # no name of the code, but for a placement of document 001; grids go by their names
        why = result.why.split("decided by ")[0].replace("make_parallel", "")
        assert not re.search(r"\w_\w", why), why


def test_text_is_escaped(results):
    planted = results[0].claim.model_copy(update={"sentence": "<script>&", "figure": "a | b"})
    changed = [results[0].model_copy(update={"claim": planted, "why": "<b>"})]
    assert "<script>" not in claims_table(changed) and "&lt;script&gt;&amp;" in claims_table(changed)
    assert "<script>" not in scoreboard(changed) and "&lt;script&gt;" in scoreboard(changed)


def test_the_scoreboard_has_a_cell_a_claim_with_its_verdicts_own_sign(results):
    assert set(SYMBOLS) == set(VERDICTS) and len(set(SYMBOLS.values())) == len(VERDICTS)
    root = ElementTree.fromstring(scoreboard(results))
    cells = {cell.get("href"): cell for cell in root.iter("a")}
    assert set(cells) == {f"#{claim.number}" for claim in all_claims()}
    for result in results:
        cell = cells[f"#{result.claim.number}"]
        assert cell.get("class") == "verdict-" + result.verdict.replace(" ", "-") and SYMBOLS[result.verdict] in "".join(cell.itertext())
    told, counts = "".join(ElementTree.fromstring(tally(results)).itertext()).strip(), Counter(result.verdict for result in results)
    assert told.startswith(f"Of {len(all_claims())} claims ")
    assert [int(number) for number in re.findall(r"\S+ (\d+) ", told.split("claims ")[1])] == [counts[verdict] for verdict in VERDICTS]
