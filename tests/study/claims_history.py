"""Recomputes the history of the claims' tests from the repository: `python -m
tests.study.claims_history COMMIT` prints rows of the ledger.

Every commit up to COMMIT that touched the claims is unpacked and its claims are imported there; a
row is a claim's test that the commit before lacked. What data there was, the Records that decide
the claim today tell: "existed" if one older than the test names a commit of the history; "not
    known" if all older ones name commits that are gone, or if the test's commit brought Records of
    its kind as well.
"""

import csv
import io
import json
import os
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

from multigpu import paths
from multigpu.analysis.verify import raw_records
from multigpu_study.claims.core import Claim, digest_of
from multigpu_study.claims.ledger import Entry

DUMP = """
import json, sys
try:
    from multigpu_study.claims import all_claims
except ModuleNotFoundError:  # before the study was a package of its own
    from multigpu.claims import all_claims
tests = {}
for claim in all_claims():
    every = ([claim.predicate] if claim.predicate else []) + list(getattr(claim, "further", ()))
    tests[claim.number] = [
        {"kind": getattr(one, "of", type(one).__name__), **one.model_dump(mode="json")}
        for one in every
    ]
json.dump(tests, sys.stdout)
"""


def git(*words: str) -> str:
    return subprocess.check_output(["git", *words], cwd=paths.REPOSITORY, text=True)


def unwritten(claims: Iterable[Claim], ledger: Mapping[str, Sequence[Entry]]) -> list[str]:
    """The claims whose test is not the last one in the ledger, with its digest: such a test was
    changed without saying so.
    """
    tested = [claim for claim in claims if claim.predicates]
    return [
        f"{one.number} {one.digest}"
        for one in tested
        if [e.digest for e in ledger.get(one.number, ())][-1:] != [one.digest]
    ]


FOLDERS = {
    "SynchronyPredicate": "synchrony",
    "CollectivePredicate": "hosts",
    "TrainingPredicate": "training",
}
FOLDERS |= {name: name for name in FOLDERS.values()}
"""Where the Records of a kind of predicate, by its class of old or its name, lie below data/; of
all others, in runs.
"""


def tests_of(commit: str) -> dict[str, tuple[str, str]]:
    """Of every claim as a commit has it, the digest of its test ("" without one) and the folder of
    its Records.
    """
    packed = subprocess.check_output(
        ["git", "archive", commit, "src", "pyproject.toml"], cwd=paths.REPOSITORY
    )
    with tempfile.TemporaryDirectory() as folder:
        with tarfile.open(fileobj=io.BytesIO(packed)) as tar:
            tar.extractall(folder, filter="data")
        own = os.environ | {"PYTHONPATH": str(Path(folder, "src")), "MULTIGPU_HOME": folder}
        text = subprocess.check_output([sys.executable, "-c", DUMP], cwd=folder, env=own, text=True)
    found = json.loads(text).items()
    return {
        number: (digest_of(every), FOLDERS.get(every[0]["kind"], "runs")) if every else ("", "")
        for number, every in found
    }


def history(commit: str) -> list[tuple[str, str, str, str, bool]]:
    """(claim, digest, written, commit, whether it brought Records too) of every test that a commit
    was the first to have, by claim.
    """
    found: list[tuple[str, str, str, str, bool]] = []
    last: dict[str, str] = {}
    for line in git(
        "log",
        "--reverse",
        "--format=%h %at",
        "--abbrev=7",
        commit,
        "--",
        "src/multigpu/claims",
        "src/multigpu_study/claims",
    ).splitlines():
        name, seconds = line.split()
        added = git("show", "--format=", "--name-only", "--diff-filter=A", name, "--", "data")
        for number, (digest, folder) in tests_of(name).items():
            if digest and last.get(number) != digest:
                found.append(
                    (
                        number,
                        digest,
                        datetime.fromtimestamp(int(seconds), UTC).isoformat(),
                        name,
                        f"data/{folder}/" in added,
                    )
                )
            last[number] = digest
    return sorted(found, key=lambda row: (int(row[0][1:]), row[2]))


def state(written: str, records: list[tuple[str, str]], known: frozenset[str]) -> str:
    """What data there was: records are (measured_at, commit) of those that decide the claim."""
    older = [commit for date, commit in records if date < written]
    return (
        "none"
        if not older
        else "existed"
        if any(commit[:7] in known for commit in older)
        else "not known"
    )


def rows(commit: str, keys: dict[str, list[str]]) -> list[Entry]:
    """The history as entries of the ledger; keys: of the Records that decide each claim."""
    known = frozenset(name[:7] for name in git("log", "--format=%H", commit).split())
    at = {
        raw.key: (raw.record["measured_at"], raw.record["commit"])
        for raw in raw_records(paths.REPOSITORY / "data")
        if raw.record
    }
    found = []
    for number, digest, written, name, both in history(commit):
        data = state(written, [at[key] for key in keys.get(number, []) if key in at], known)
        data = "not known" if both and data == "none" else data
        found.append(
            Entry(
                number,
                digest,
                written,
                name,
                data,
                "first test" if not any(e.claim == number for e in found) else "changed",
            )
        )
    return found


if __name__ == "__main__":
    decided = json.loads(
        subprocess.check_output([sys.executable, "-m", "multigpu", "claims", "--format", "json"])
    )
    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow(Entry._fields)
    writer.writerows(
        rows(
            sys.argv[1] if len(sys.argv) > 1 else "HEAD",
            {one["claim"]["number"]: one["record_keys"] for one in decided},
        )
    )
