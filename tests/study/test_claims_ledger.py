"""The ledger of this study's claims: every test is in it, what it says of the order agrees with the Records and with the history."""

import argparse
import re
import subprocess
from collections import Counter
from datetime import UTC, datetime

import pytest

from multigpu import paths
from multigpu.claims import all_claims, find_claim
from multigpu.claims.ledger import AFTER, BEFORE, STATES, UNKNOWN, Entry, changes, entries, order
from multigpu.cli_measure import claim_results
from tests.study import claims_history


def test_every_test_is_the_last_one_of_its_claim_in_the_ledger():
    assert claims_history.unwritten(all_claims(), entries()) == []


def test_a_changed_test_without_a_row_is_found():
    claim = find_claim("C1")
    contrast = claim.predicate.contrasts[0]
    moved = claim.predicate.model_copy(update={"contrasts": (contrast.model_copy(update={"bound": contrast.bound + 0.01}),)})
    reworded = claim.predicate.model_copy(update={"contrasts": (contrast.model_copy(update={"label": "other words"}),), "scope": ""})
    changed = claim.model_copy(update={"predicate": moved})
    assert claims_history.unwritten([changed], entries()) == [f"C1 {changed.digest}"] != [f"C1 {claim.digest}"]
    assert claims_history.unwritten([claim.model_copy(update={"predicate": reworded})], entries()) == []
    assert claims_history.unwritten([claim], {}) == [f"C1 {claim.digest}"]


def test_rows_only_grow_in_time_and_say_why():
    for rows in entries().values():
        assert [row.written for row in rows] == sorted(row.written for row in rows)
        assert all(row.reason for row in rows)
        assert all(count == 1 for count in Counter((row.digest, row.written) for row in rows).values())


def test_order():
    test = Entry("C1", "0", "2026-11-22T00:00:00+00:00", "abc", "none", "first test")
    early, late = "2026-11-21T23:00:00+00:00", "2026-11-22T01:00:00+00:00"
    assert order(test, []) == order(test, [late]) == BEFORE
    assert order(test, [early]) == AFTER
    assert order(test, [early, late, late]) == f"{AFTER} (1 of 3 Records are older)"
    assert order(test._replace(data="existed"), [late]) == AFTER
    assert order(test._replace(data="not known"), [late]) == order(test._replace(data="not known"), [early]) == UNKNOWN


def test_what_data_there_was():
    known = frozenset({"1111111"})
    early, late = "2026-11-21", "2026-11-23"
    assert claims_history.state("2026-11-22", [(late, "1111111")], known) == "none"
    assert claims_history.state("2026-11-22", [(early, "2222222"), (late, "1111111")], known) == "not known"
    assert claims_history.state("2026-11-22", [(early, "2222222"), (early, "1111111abc")], known) == "existed"
    assert set(STATES) == {"none", "not known", "existed"}


@pytest.mark.parametrize("commit", ["3823640", "feaa135", "8e29e61"])
def test_the_history_has_the_tests_that_the_ledger_tells(commit):
    shown = subprocess.run(["git", "show", "-s", "--format=%at", commit], cwd=paths.REPOSITORY, capture_output=True, text=True)
    if shown.returncode:
        pytest.skip("the history is not here")
    then = datetime.fromtimestamp(int(shown.stdout), UTC).isoformat()
    told = {number: [row.digest for row in rows if row.commit and row.written <= then][-1:] for number, rows in entries().items()}
    found = claims_history.tests_of(commit)
    assert {number: [digest] for number, (digest, _) in found.items() if digest} == {n: digests for n, digests in told.items() if digests}


def test_changed_verdicts_are_what_the_records_say_now(results):
    now = {result.claim.number: result.verdict for result in results}
    last = {change.claim: change for change in changes()}
    assert {number: change.after for number, change in last.items()} == {number: now[number] for number in last}
    assert all(change.why and change.before != change.after for change in changes())


def test_no_row_says_that_there_was_no_data_while_deciding_records_are_older(results):
    for result in results:
        for row in entries().get(result.claim.number, ())[-1:]:
            assert row.data != "none" or not [date for date in result.measured_at if date < row.written], result.claim.number


def test_what_holds_here_only_says_where_and_what_is_open_says_what_decides_it(results):
    for result in results:
        assert bool(result.scope) == (result.verdict == "holds here only"), result.claim.number
        assert result.why or result.verdict.startswith(("holds", "does not")), result.claim.number
        if result.verdict in ("inconclusive", "not yet measured"):
            assert re.search(r"about [\d,]+ (GPU )?s", result.why), f"{result.claim.number}: what decides it, and what that takes?"


@pytest.fixture(scope="module")
def results():
    return claim_results(argparse.Namespace(records=None))
