"""What another installed package adds to the study: claims, which verdicts judge; those that cannot
be used stop no other.
"""

import json
from pathlib import Path

import pytest

from multigpu_study.claims import all_claims
from tests.plugins import DECLARED, Installed, check_wrong
from tests.study.claims.planted import ENTRY, NEW

pytestmark = pytest.mark.slow

FILES = {
    "example/__init__.py": "",
    "example/claims/__init__.py": "",
    "example/claims/900.yaml": (
        ENTRY.replace(NEW, "C900").replace("'004'", "'900'").replace("04-all-reduce", "''")
    ),
}
CLAIMS = {"multigpu.claims": DECLARED["multigpu.claims"]}


def test_a_package_adds_a_claim(tmp_path: Path) -> None:
    study = Installed(tmp_path)
    study.install("example", CLAIMS, **FILES)
    said, _ = study("claims")
    assert "imported: []" in said and "0 is the end of claims" in said
    (line,) = [line for line in said.splitlines() if line.startswith("C900")]
    assert "not yet measured" in line and "Planted sentences hold." in line
    with (study.site / "example" / "claims" / "900.yaml").open("a") as file:
        file.write("# another state\n")
    other = study()[0]
    # without it the other claims are read
    lines, unread = study("claims", "claims C900", installed=False)
    assert len({text.splitlines()[0] for text in (said, other, lines)}) == 3, (
        "what is kept of results depends on what is installed"
    )
    assert "0 is the end of claims\n" in lines and "C900:" not in lines
    assert (
        "unknown claim 'C900': choose one of C1 to " in unread
        and "2 is the end of claims C900" in lines
    )


WRONG = {
    "claims": {
        "none": ("wrong", "holds no *.yaml with claims"),
        "taken": ("wrong.taken", "two claims are called C1"),
        "unfit": ("wrong.unfit", "a Run has no field speed: choose among workload"),
    }
}
"""Kind -> name -> what is named, and what is wrong with it."""
WRONG_FILES = {
    "__init__.py": "",
    "taken/__init__.py": "",
    "taken/a.yaml": ENTRY.replace(NEW, "C1"),
    "unfit/__init__.py": "",
    "unfit/a.yaml": ENTRY.replace(NEW, "C901").replace("{model: nmt004}", "{speed: 1}"),
}
ASKED = """
import contextlib, io, json
from multigpu_study.claims import all_claims
said = io.StringIO()
with contextlib.redirect_stderr(said):
    names = [claim.number for claim in all_claims()]
print(json.dumps([names, said.getvalue().splitlines()]))
"""


def test_what_cannot_be_used_says_why_and_stops_nothing_else(tmp_path: Path) -> None:
    study = Installed(tmp_path)
    declared = {name: value for name, (value, _) in WRONG["claims"].items()}
    files = {f"wrong/{name}": text for name, text in WRONG_FILES.items()}
    study.install("wrong", {"multigpu.claims": declared}, **files)
    names, said = json.loads(study.run("-c", ASKED)[0])
    assert names == [claim.number for claim in all_claims()], "what this study has is there"
    assert len(said) == len(WRONG["claims"]), said
    check_wrong(WRONG, said)
