"""What another installed package adds, as CONTRIBUTING says: commands find it, workers train it;
what cannot be used stops nothing else.
"""

import json
import re
from pathlib import Path

import pytest

from multigpu.placements import placements
from multigpu.workloads import workloads
from tests.plugins import DECLARED, FILES, JOB, Installed, check_wrong

pytestmark = pytest.mark.slow


def test_a_package_adds_a_placement_and_a_workload(tmp_path: Path) -> None:
    study = Installed(tmp_path)
    study.install("example", DECLARED, **{f"example/{name}": text for name, text in FILES.items()})
    reading = (
        f"explain {JOB} placement=by_copy",
        f"advise {JOB}",
        "records --export listed.csv",
        "doctor",
    )
    measure = (
        f"measure {JOB} device_type=cpu placement=by_copy warmup_steps=2 timed_steps=3 --repeats 2"
    )
    said, left_out = study(measure, *reading, "records --share shared")
    assert "imported: []" in said and all(f"0 is the end of {line}" in said for line in reading)
    assert (
        "placement   by_copy: torch, per_device process, eager" in said
        and "workload    blobs: blobs_tiny; inputs synthetic" in said
    )
    assert (study.folder / "listed.csv").read_text().count("by_copy") == 2
    assert (
        "left out: 2 Records that of a placement or a workload of another package, which others may"
        " not have" in said + left_out
    )
    with (study.site / "example" / "placements.py").open("a") as file:
        file.write("# another state\n")
    other = study()[0]
    # without it, its Records are named and the rest of the study is read
    lines, unread = study("records", installed=False)
    assert len({text.splitlines()[0] for text in (said, other, lines)}) == 3, (
        "what is kept of results depends on what is installed"
    )
    assert "no Record matches\n0 is the end of records" in lines
    assert (
        f"unknown workload 'blobs': choose one of {', '.join(workloads())}, or install the package"
        " that adds it" in unread
    )


WRONG = {
    "placements": {
        "ddp": ("wrong.rows:GOOD", "multigpu itself has that name"),
        "odd": ("wrong.rows:ODD", "it is of type dict and must be a Placement"),
        "gone": ("wrong.nowhere:ROW", "No module named 'wrong.nowhere'"),
        "ill": ("wrong.ill:ROW", "ill: variables at 'replica' cannot be updated at 'host'"),
        "loud": ("wrong.loud:ROW", "division by zero"),
    },
    "workloads": {
        "cnn": ("wrong.work:WORKLOAD", "multigpu itself has that name"),
        "half": (
            "wrong.work:WORKLOAD",
            "it is built in torch, tensorflow, and wrong.work has no module 'torch'",
        ),
    },
}
"""Kind -> name -> what is named, and what is wrong with it."""

ROW = FILES["placements.py"].replace("BY_COPY", "GOOD").replace("by_copy", "good")
WRONG_FILES = {
    "__init__.py": "",
    "rows.py": f"{ROW}\nODD = {{}}\n",
    "ill.py": (
        ROW.replace("GOOD", "ROW")
        .replace('"good"', '"ill"')
        .replace('update="replica"', 'update="host"')
    ),
    "loud.py": "ROW = 1 / 0\n",
    "work/__init__.py": (
        """
from multigpu.workloads.base import Workload
WORKLOAD = Workload(name="half", unit="samples", models={}, inputs={})
"""
    ),
}
ASKED = """
import contextlib, io, json
from multigpu.placements import find_placement, placements
from multigpu.workloads import workloads
said = io.StringIO()
with contextlib.redirect_stderr(said):
    names = [list(placements()), list(workloads())]
    placements(), list(workloads())
print(json.dumps([names, said.getvalue().splitlines()]))
find_placement("twice")
"""


def test_what_cannot_be_used_says_why_and_stops_nothing_else(tmp_path: Path) -> None:
    study = Installed(tmp_path)
    twice = {"twice": "wrong.rows:GOOD"}
    declared = {
        f"multigpu.{kind}": {name: value for name, (value, _) in own.items()}
        for kind, own in WRONG.items()
    }
    declared["multigpu.placements"] |= twice
    study.install("wrong", declared)
    study.install(
        "second",
        {"multigpu.placements": twice},
        **{f"wrong/{name}": text for name, text in WRONG_FILES.items()},
    )
    asked = study.run("-c", ASKED)
    names, said = json.loads(asked[0])
    assert names == [list(placements()), list(workloads())], "what this study has is there"
    assert len(said) == sum(map(len, WRONG.values())) + 1, said
    check_wrong(WRONG, said)
    of_both = (
        r"placement 'twice' of (wrong|second) \(wrong.rows:GOOD\) .*(wrong|second)"
        r" \(wrong.rows:GOOD\).*one name cannot stand for two"
    )
    assert re.search(of_both, asked[1].splitlines()[-1])
    out, err = study(
        "records", "measure workload=cnn model=lenet batch_size=4 device_type=cpu placement=gone"
    )
    assert (
        "no Record matches" in out
        and "placement 'gone' of wrong (wrong.nowhere:ROW) cannot be used: " in err
        and "Traceback" not in err
    )


def test_a_distribution_whose_entry_points_cannot_be_read_is_named_and_hides_no_other(
    tmp_path: Path,
) -> None:
    study = Installed(tmp_path)
    study.install("example", DECLARED, **{f"example/{name}": text for name, text in FILES.items()})
    study.install("torn", {})
    (study.site / "torn-1.0.dist-info" / "entry_points.txt").write_bytes(b"[a]\nno equals\n")
    study.install("odd", {})
    (study.site / "odd-1.0.dist-info" / "METADATA").write_bytes(b"Name: odd\nVersion: \xff\n")
    for words in (("doctor",), ("records",)):
        out, err = study.run("-m", "multigpu", *words)
        for name in ("torn", "odd-1.0.dist-info"):
            assert re.search(rf"the entry_points.txt of {name} in \S+/site cannot be read \(", err)
        assert "Traceback" not in err and ("no Record matches" in out or "by_copy" in out)
    assert (
        "packages    the entry_points.txt of torn in " in study.run("-m", "multigpu", "doctor")[0]
    )
    stopped = study.run("-m", "multigpu", "measure", *JOB.split(), "device_type=cpu")[1]
    assert "the entry_points.txt of torn" in stopped and "Traceback" not in stopped
