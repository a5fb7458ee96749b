"""What `make` installs has hashes that are in the tree, and every package a licence."""

import csv
import re

from multigpu.paths import REPOSITORY

LOCKS = REPOSITORY / "locks"


def pinned(text: str) -> dict[str, int]:
    """Package with its version -> how many hashes follow it."""
    found = {}
    for entry in re.split(r"^(?=\w)", text, flags=re.MULTILINE)[1:]:
        found[entry.split()[0]] = len(re.findall(r"--hash=sha256:[0-9a-f]{64}\b", entry))
    return found


def test_no_command_of_make_installs_a_package_without_its_hash() -> None:
    installs = [
        line
        for line in (REPOSITORY / "Makefile").read_text().splitlines()
        if re.search(r"\bpip\b.* install ", line)
    ]
    assert len(installs) == 2 and all("--require-hashes" in line for line in installs), installs
    for line in installs:
        (file,) = re.findall(r"-r (\S+)", line)
        assert all(pinned((REPOSITORY / file).read_text()).values()), file


def test_the_tools_are_those_that_are_named_with_all_that_they_need() -> None:
    named = set((LOCKS / "tools.in").read_text().split())
    locked = pinned((LOCKS / "tools.txt").read_text())
    assert named < set(locked) and all(locked.values())
    assert {"uv", "pip-audit", "pip-licenses"} == {name.partition("==")[0] for name in named}


def test_every_package_has_a_licence_that_is_known() -> None:
    with (LOCKS / "licences.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) > 150
    assert not [row["Name"] for row in rows if row["License"] in ("", "UNKNOWN")]
    locked = {
        name.lower().partition("==")[0]: name.partition("==")[2]
        for file in ("all", "lab", "tensorflow-cpu")
        for name in pinned((LOCKS / f"{file}.txt").read_text())
    }
    listed = {row["Name"].lower().replace("_", "-"): row["Version"] for row in rows}
    assert not {name for name, version in locked.items() if listed.get(name, version) != version}
