"""Claims are data, each decidable or not for a reason; results are computed once; tables and the
scoreboard lose nothing, escaped.
"""

import json
import math
import re
from collections import Counter
from html import unescape
from pathlib import Path
from xml.etree import ElementTree

import pandas as pd
import pytest
from pydantic import ValidationError
from scipy import special

from multigpu import paths
from multigpu.placements import placements
from multigpu.placements.stage_split import SPLIT
from multigpu.records import cache as module
from multigpu.records.cache import cached_on_disk
from multigpu_study.claims import (
    Claim,
    ClaimResult,
    Contrast,
    Predicate,
    Term,
    all_claims,
    evaluate_all,
    find_claim,
    html,
    to_json,
    wording,
)
from multigpu_study.claims.core import VERDICTS
from multigpu_study.claims.figures import figure, figure_of
from multigpu_study.claims.html import claims_table, page_title, scoreboard, tally
from multigpu_study.claims.reading import KNOWN, selection
from multigpu_study.claims.results import Setting
from multigpu_study.claims.statistics import repeats_needed
from multigpu_study.claims.wording import SYMBOLS, stated
from tests.refusals import refused
from tests.study.claims.cases import CASES
from tests.study.claims.planted import result_of

CLAIMS = all_claims()


def test_claims_are_numbered_sentences_whose_pages_exist_and_documents_are_named():
    assert [claim.number for claim in CLAIMS] == [f"C{n}" for n in range(1, len(CLAIMS) + 1)]
    assert all(claim.sentence.endswith(".") and claim.sentence[0].isupper() for claim in CLAIMS)
    written = (paths.REPOSITORY / "report" / "claims.md").read_text()
    assert all(
        f"**{document}**" in written for claim in all_claims() for document in claim.documents
    )
    for page in {claim.page for claim in all_claims() if claim.page}:
        assert (paths.REPOSITORY / "notebooks" / f"{page}.ipynb").exists() and page_title(
            page
        ) != page


def test_predicates_are_data_and_state_scope_and_least_data_and_name_what_exists():
    for predicate in (one for claim in CLAIMS for one in claim.predicates):
        assert Predicate.model_validate_json(predicate.model_dump_json()) == predicate
        assert predicate.scope and predicate.protocol and predicate.min_n >= 5, predicate
        if predicate.of == "runs":
            assert (
                predicate.machines == "gpu"
                and predicate.min_launches >= 2
                and predicate.warmup_steps >= 10
            ), predicate
        for contrast in predicate.contrasts:
            for chosen in (
                predicate.where,
                contrast.where,
                *(term.select for term in contrast.terms),
            ):
                assert {*dict(chosen).get("placement", ())} <= {*placements(), *SPLIT}


def test_what_cannot_work_is_refused():
    assert find_claim("c5").number == "C5"
    refused(f"unknown claim 'C0': choose one of C1 to C{len(CLAIMS)}", find_claim, "C0")
    for of, (known, what) in KNOWN.items():
        refused(
            f"{what} has no field colour: choose among {known[0]}", selection, {"colour": "red"}, of
        )
    refused(
        r"no column .*timing_version",
        evaluate_all,
        runs=pd.DataFrame([{"key": "a", "status": "ok"}]),
    )
    predicate = find_claim("C5").predicate
    for why, fields in (
        ("must have a predicate", {}),
        ("must have a predicate", {"decides": "Runs", "seconds": 5, "untestable": "old cards"}),
        ("each must be of another kind", {"predicate": predicate, "further": (predicate,)}),
        (
            "each must be of another kind",
            {"decides": "Runs", "seconds": 5, "further": (predicate,)},
        ),
        ("together with the seconds and gpus", {"decides": "Runs"}),
    ):
        with pytest.raises(ValidationError, match=why):
            Claim(number="C1", sentence="A.", documents=("000",), figure="1", **fields)
    with pytest.raises(ValidationError, match="needs a bound above 1"):
        Contrast(label="equal", over=(Term(),), direction="within", bound=0.95)
    with pytest.raises(ValidationError):
        Predicate(contrasts=(Contrast(label="rate", over=(Term(),)),), min_n=1)


def test_results_are_computed_once_and_again_where_anything_is_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A Record, the program, the file itself."""
    results, calls = evaluate_all(), []
    for name in ("records/machine", "source"):
        (tmp_path / name).mkdir(parents=True)
    assert Path(module.__file__) in module.plugins.files()
    source = tmp_path / "source"
    monkeypatch.setattr(module.plugins, "files", lambda: [*source.iterdir()])

    def told(folder: str = "cache") -> list[ClaimResult]:
        return cached_on_disk(
            "claims", [tmp_path / "records"], lambda: calls.append(1) or results, tmp_path / folder
        )

    assert told() == told() == results and len(calls) == 1
    for count, (name, content) in enumerate(
        {"records/machine/abc.0.json.gz": b"new", "source/claims.py": b"changed = True\n"}.items(),
        2,
    ):
        (tmp_path / name).write_bytes(content)
        told()
        assert len(calls) == count
        (kept,) = (tmp_path / "cache").iterdir()  # the old file is gone
    kept.write_bytes(b"broken")
    told()
    assert len(calls) == 4
    (tmp_path / "file").write_text("")
    assert told("file") == results, "a folder that cannot be written is done without"


@pytest.fixture(scope="module")
def results():
    return evaluate_all(
        runs=pd.DataFrame(
            CASES["C2"].rows("holds")
            + CASES["C5"].rows("fails")
            + CASES["C15"].rows("holds", (1.0,))
        )
    )


def planted(contrast: Contrast, **figures: float) -> Setting:
    common = {
        "fields": {"device_type": "cuda"},
        "devices": 8,
        "n": 5,
        "launches": 2,
        "enough": True,
        "record_keys": (),
    }
    return Setting(
        framework="torch", contrast=contrast.label, verdict="inconclusive", **common, **figures
    )


def test_a_line_a_claim_fits_the_terminal_and_in_full_loses_nothing(results):
    for width in (40, 80, 200):
        *lines, blank, total = wording.overview(results, width).split("\n", len(results) + 1)
        for line, result in zip(lines, results, strict=True):
            assert (
                line.startswith(result.claim.number)
                and result.verdict in line
                and len(line) <= width
            )
            assert (
                result.claim.sentence.startswith(line.split("  ")[-1].rstrip("…").strip())
                or width == 40
            )
        counts = Counter(result.verdict for result in results)
        assert not blank and all(
            f"{count} {verdict}" in " ".join(total.split()) for verdict, count in counts.items()
        )
    for result in results:
        text = wording.in_full(result, 72)
        assert max(map(len, text.splitlines())) <= 72
        test = wording.tested(result).removeprefix("Test: ")
        for part in (
            result.claim.sentence,
            result.claim.figure,
            result.why,
            result.scope,
            test,
            *result.record_keys,
        ):
            assert "".join(part.split()) in "".join(text.split())


def test_repeats_that_would_decide_and_an_interval_that_says_nothing_is_not_shown():
    """A ratio of 1.10 whose repeats scatter by 2%, against a margin of 1.05: the textbook's sample
    size for 80%.
    """
    contrast = Contrast(label="ratio", over=(Term(),))
    # t(4) x 0.0447 / sqrt(5)
    setting = planted(
        contrast, estimate=1.10, low=1.10 / math.exp(0.0555), high=1.10 * math.exp(0.0555)
    )
    n = repeats_needed(contrast, setting)
    gap, scatter = math.log(1.10 / 1.05), 0.0555 / special.stdtrit(4, 0.975) * math.sqrt(5)
    assert n and n == pytest.approx(((1.96 + 0.84) * scatter / gap) ** 2, rel=0.5) and n > 5
    assert repeats_needed(contrast, setting, looks=20) > n
    for other in ({"estimate": 1.05}, {"low": None}):  # at the margin no number decides
        assert repeats_needed(contrast, setting.model_copy(update=other)) is None
    contrast = find_claim("C2").predicate.contrasts[0]
    setting = planted(contrast, estimate=1.5, low=0.9, high=2.5)
    wide = setting.model_copy(update={"low": 0.01, "high": 300.0})
    for one, said in (
        (setting, "95% 0.90-2.50"),
        (wide, "launches differ too much for an interval"),
    ):
        assert figure_of(one, contrast) == f"1.50x at 8 GPUs ({said}), n = 5 over 2 launches"
    many = [
        setting.model_copy(update={"fields": {"device_type": "cuda", "batch_size": batch}})
        for batch in range(9)
    ]
    assert "(95% intervals from 0.90 to 2.50) in 9 settings" in figure(many, contrast)
    assert (
        "from 0.90 to 2.50, in 1 setting launches differ too much for one) in 10 settings"
        in figure([*many, wide], contrast)
    )


def test_json_says_everything_and_no_nan(results):
    items = json.loads(
        to_json(results), parse_constant=lambda name: pytest.fail(f"{name} is no JSON")
    )
    assert len(items) == len(all_claims()) and (
        items[1]["claim"]["number"],
        items[1]["verdict"],
    ) == ("C2", "holds")
    assert (
        items[1]["by_framework"]["torch"]["record_keys"]
        and items[1]["predicate_digest"] == find_claim("C2").digest
    )


def told(cell: ElementTree.Element) -> str:
    """A cell's text without blanks and without the words that open what is folded."""
    for summary in cell.iter("summary"):
        summary.text = ""
    return "".join(cell.itertext()).replace(" ", "")


def test_html_says_everything_escaped_with_a_sign_a_verdict(results):
    rows = ElementTree.fromstring(claims_table(results)).findall("tbody/tr")
    cells = {
        cell.get("href"): cell for cell in ElementTree.fromstring(scoreboard(results)).iter("a")
    }
    assert set(cells) == {f"#{claim.number}" for claim in all_claims()} and {
        len(row) for row in rows
    } == {5}
    for row, result in zip(rows, results, strict=True):
        assert row.get("id") == result.claim.number and result.claim.figure in "".join(
            row[1].itertext()
        )
        assert all(text.replace(" ", "") in told(row[2]) for text in wording.titled(result)), (
            "nothing is lost"
        )
        assert result.why.replace(" ", "") in told(row[3])
        for cell in (row[3], cells[f"#{result.claim.number}"]):
            assert cell.get("class") == "verdict-" + result.verdict.replace(" ", "-")
            assert SYMBOLS[result.verdict] in "".join(cell.itertext())
    assert len(rows[1].findall("td/details/code")) == 10
    planted = results[0].claim.model_copy(update={"sentence": "<script>&", "figure": "a | b"})
    changed = [results[0].model_copy(update={"claim": planted, "why": "<b>"})]
    assert "<script>" not in claims_table(changed) and "&lt;script&gt;&amp;" in claims_table(
        changed
    )
    assert "<script>" not in scoreboard(changed) and "&lt;script&gt;" in scoreboard(changed)
    assert set(SYMBOLS) == set(VERDICTS) and len(set(SYMBOLS.values())) == len(VERDICTS)
    said = "".join(ElementTree.fromstring(tally(results)).itertext()).strip()
    counts = Counter(result.verdict for result in results)
    assert said.startswith(f"Of {len(all_claims())} claims ")
    assert [
        int(number)
        for number in re.findall(r"\S+ (\d+) ", said.split("claims ")[1].split(". Of")[0])
    ] == [counts[verdict] for verdict in VERDICTS]


def row_of(number: str, rows: list) -> str:
    """A claim's row on the page, of planted Runs."""
    (row,) = re.findall(f'<tr id="{number}">.*', claims_table([result_of(number, rows)]))
    return row


def test_a_long_title_is_cut_at_its_colon_and_told_whole_when_pointed_at(
    monkeypatch: pytest.MonkeyPatch,
):
    """A row is as high as its highest cell: a title of 110 letters made every row of a page one of
    twelve lines.
    """
    page = find_claim("C13").page
    assert f'<a href="{page}.html">{page_title(page)}</a>' in row_of("C13", [])
    long = f"Of it: what {60 * 'long '}title <says>"
    monkeypatch.setattr(html, "page_title", lambda page: long)
    whole, short = re.search(
        f'<a href="{page}.html" title="([^"]*)">([^<]*)</a>', row_of("C13", [])
    ).groups()
    assert unescape(whole) == long and short == "Of it"


def test_what_decides_is_not_folded(results):
    """C29's deciding setting and those beside it stand open; of several contrasts, the first one
    whole; C44 compares frameworks.
    """
    row = row_of(
        "C29", CASES["C29"].rows("fails") + CASES["C29"].rows("holds", (1.0,), batch_size=32)
    ).split("<details><summary>more")[0]
    assert "batch 64 (95%" in row and "1 further setting measured once: 1.13x" in row
    many = row_of("C10", CASES["C10"].rows("holds"))
    assert (
        "n = 5 over 2 launches;" in many.split("</td>")[1].split("<details>")[0]
        and "<summary>more" in many
    )
    wordy = claims_table([results[0].model_copy(update={"why": f"{300 * 'x'}; the rest"})])
    assert f"{300 * 'x'};<details><summary>more</summary>the rest</details>" in wordy, (
        "what is too long by itself still ends somewhere"
    )
    both = row_of("C44", CASES["C44"].rows("fails"))
    assert (
        both.count("n = 5 over 2 launches") == 1
        and "<div>PyTorch and TensorFlow: step time in TensorFlow over PyTorch" in both
    )


def test_a_test_in_words_says_how_it_is_measured_where_that_is_not_as_usual(results):
    """C41's figure has no unit: what it is stands in its protocol."""
    assert (
        stated(find_claim("C14").predicate.contrasts[0])
        == "speedup at batch 64 over that at batch 32 within 0.95x to 1.05x"
    )
    said = {result.claim.number: wording.tested(result) for result in results}
    assert "Ljung and Box's Q over 20 lags, divided by 20" in said["C41"]
    assert "Warm-up left out; units over host time" not in said["C2"]
    assert stated(find_claim("C26").predicate.contrasts[-2]).endswith("P = 256 at most 1,774x"), (
        "large bounds are rounded"
    )
    # no name of the code, but for a placement of document 001; grids go by their names
    for result in results:
        why = result.why.split("decided by ")[0].replace("make_parallel", "")
        assert not re.search(r"\w_\w", why), why
