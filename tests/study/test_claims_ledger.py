"""The ledger of this study's claims: every test is in it, what it says of the order agrees with the
Records and with the history.
"""

import argparse
import json
import re
import subprocess
from datetime import UTC, datetime

import pytest

from multigpu import paths
from multigpu_study.claims import all_claims, find_claim
from multigpu_study.claims.command import claim_results
from multigpu_study.claims.html import tally
from multigpu_study.claims.joining import leans
from multigpu_study.claims.ledger import (
    AFTER,
    BEFORE,
    STATES,
    UNKNOWN,
    Entry,
    changes,
    decided_before_data,
    entries,
    order,
)
from multigpu_study.claims.statistics import repeats_needed
from tests.study import claims_history


def test_every_test_is_the_last_one_of_its_claim_in_the_ledger():
    """Rows only grow in time and say why; a changed test without a row is found, and other words
    are no change.
    """
    assert claims_history.unwritten(all_claims(), entries()) == []
    for rows in entries().values():
        assert [row.written for row in rows] == sorted(row.written for row in rows) and all(
            row.reason for row in rows
        )
        assert len({(row.digest, row.written) for row in rows}) == len(rows)
    claim = find_claim("C1")
    contrast = claim.predicate.contrasts[0]
    moved = claim.predicate.model_copy(
        update={"contrasts": (contrast.model_copy(update={"bound": contrast.bound + 0.01}),)}
    )
    reworded = claim.predicate.model_copy(
        update={"contrasts": (contrast.model_copy(update={"label": "other words"}),), "scope": ""}
    )
    changed = claim.model_copy(update={"predicate": moved})
    assert (
        claims_history.unwritten([changed], entries())
        == [f"C1 {changed.digest}"]
        != [f"C1 {claim.digest}"]
    )
    assert (
        claims_history.unwritten([claim.model_copy(update={"predicate": reworded})], entries())
        == []
    )
    assert claims_history.unwritten([claim], {}) == [f"C1 {claim.digest}"]


def test_what_data_there_was_and_which_came_first():
    written = "2026-11-22T00:00:00+00:00"
    early = "2026-11-21T23:00:00+00:00"
    late = "2026-11-22T01:00:00+00:00"
    known, here, gone = frozenset({"1111111"}), "1111111abc", "2222222"
    for records, data, found in (
        ([], "none", BEFORE),
        ([(late, here)], "none", BEFORE),
        (
            [(early, gone), (late, here), (late, here)],
            "not known",
            f"{AFTER} (1 of 3 Records are older)",
        ),
        ([(early, gone), (early, here)], "existed", AFTER),
    ):
        assert claims_history.state(written, records, known) == data in STATES
        test = Entry("C1", "0", written, "abc", "none", "first test")
        assert order(test, [date for date, _ in records]) == found
        assert (
            order(test._replace(data="existed"), [late]) == AFTER
            and order(test._replace(data="not known"), [late]) == UNKNOWN
        )


@pytest.mark.parametrize("commit", ["3823640", "feaa135", "8e29e61"])
def test_the_history_has_the_tests_that_the_ledger_tells(commit):
    shown = subprocess.run(
        ["git", "show", "-s", "--format=%at", commit],
        cwd=paths.REPOSITORY,
        capture_output=True,
        text=True,
    )
    if shown.returncode:
        pytest.skip("the history is not here")
    then = datetime.fromtimestamp(int(shown.stdout), UTC).isoformat()
    told = {
        number: [row.digest for row in rows if row.commit and row.written <= then][-1:]
        for number, rows in entries().items()
    }
    found = claims_history.tests_of(commit)
    assert {number: [digest] for number, (digest, _) in found.items() if digest} == {
        n: digests for n, digests in told.items() if digests
    }


def test_changed_verdicts_are_what_the_records_say_now(results):
    now = {result.claim.number: result.verdict for result in results}
    last = {change.claim: change for change in changes()}
    assert {number: change.after for number, change in last.items()} == {
        number: now[number] for number in last
    }
    assert all(change.why and change.before != change.after for change in changes())


def test_what_holds_here_only_says_where_and_what_is_open_says_what_decides_it(results):
    """And no row says that there was no data while deciding Records are older."""
    for result in results:
        for row in entries().get(result.claim.number, ())[-1:]:
            assert row.data != "none" or not [
                date for date in result.measured_at if date < row.written
            ], result.claim.number
        here = result.verdict in ("holds here only", "does not hold here")
        assert bool(result.scope) == here, result.claim.number
        assert result.why or result.verdict.startswith(("holds", "does not")), result.claim.number
        if result.verdict in ("inconclusive", "not yet measured"):
            assert re.search(r"about [\d,]+ (GPU )?s", result.why), (
                f"{result.claim.number}: what decides it, and what that takes?"
            )


@pytest.fixture(scope="module")
def results():
    return claim_results(argparse.Namespace(records=None))


def contrasts_of(result):
    """Each of its contrasts, with its settings."""
    for own in (own for test in result.claim.predicates for own in test.contrasts):
        yield own, [setting for setting in result.settings if setting.contrast == own.label]


def test_repeats_that_would_decide_are_those_that_settings_take_now(results):
    told = 0
    for one in results:
        taken = {
            repeats_needed(contrast, setting, one.looks)
            for contrast, settings in contrasts_of(one)
            for setting in settings
        }
        said = {int(count) for count in re.findall(r"(\d+) repeats a side", one.claim.decides)}
        assert said <= taken, f"{one.claim.number} says {said - taken}, its settings take {taken}"
        told += len(said)
    assert told >= 5


def test_no_verdict_rests_on_one_counterexample_among_open_settings(results):
    """Where one setting alone refutes, most of its contrast's others lean there as well."""
    against = "does not hold"
    for one in results:
        several = not one.verdict.startswith(against)
        for contrast, settings in contrasts_of(one):
            left = [leans(contrast, setting) for setting in settings if setting.verdict != against]
            fails = len(settings) - len(left)
            several |= fails > 1 or (fails == 1 and 2 * left.count(against) >= len(left))
        assert several, one.claim.number


def test_headlines_name_the_claims_that_they_lean_on(results):
    """A headline says "(C32: inconclusive)" behind what rests on a claim: it is that claim's
    verdict, and the claim's own page says so.
    """
    verdicts = {result.claim.number: result.verdict for result in results}
    told = {}
    for path in sorted((paths.REPOSITORY / "notebooks").glob("[0-9]*.ipynb")):
        headline = "".join(json.loads(path.read_text())["cells"][0]["source"])
        for number, verdict in re.findall(r"\((C\d+): ([a-z ]+)\)", headline):
            assert verdicts[number] == verdict, f"{path.stem} says that {number} {verdict}"
            told[number] = path.stem
    assert {"C12", "C21", "C32", "C35", "C36", "C54"} <= told.keys()
    assert all(find_claim(number).page == page for number, page in told.items())


def test_the_page_says_how_many_verdicts_had_their_test_before_data(results):
    before, decided = decided_before_data(results)
    chosen = [one for one in results if one.verdict.startswith(("holds", "does not hold"))]
    first = [
        one
        for one in chosen
        if entries()[one.claim.number][-1].data == "none"
        and min(one.measured_at) >= entries()[one.claim.number][-1].written
    ]
    assert (before, decided) == (len(first), len(chosen))
    assert f"{before} have their last test before all data" in tally(results)
