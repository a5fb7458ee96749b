"""The step of CI that compares figures/ with a fresh build: what it lets pass and what it names."""

import importlib.util
import subprocess
from pathlib import Path

import pytest

from multigpu.paths import REPOSITORY

SPEC = importlib.util.spec_from_file_location("ci_figures", REPOSITORY / ".ci" / "figures.py")
assert SPEC and SPEC.loader
CI = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(CI)

LINE = '<path d="M 48.23 217.42 L -3.5 9" style="stroke: #1a2b3c"/>'


@pytest.mark.parametrize(
    ("other", "alike"),
    [
        (LINE.replace("217.42", "217.43"), True),
        (LINE.replace("217.42", "217.5"), False),
        (LINE.replace("#1a2b3c", "#1a2b3d"), False),
        (LINE.replace("stroke", "fill"), False),
        (LINE.replace(" L", ""), False),
        (f"{LINE}\n{LINE}", False),
    ],
)
def test_coordinates_may_differ_by_what_is_not_seen(other: str, alike: bool) -> None:
    assert (CI.difference(LINE, other, ".svg") == "") == alike


@pytest.mark.parametrize(
    ("row", "alike"),
    [
        ("a,2,0.994714,,357549d83c178aaf9abe", True),
        ("a,2,0.9948,,357549d83c178aaf9abe", False),
        ("a,3,0.994713,,357549d83c178aaf9abe", False),
        ("b,2,0.994713,,357549d83c178aaf9abe", False),
        ("a,2,0.994713,,357549d83c178aaf9abd", False),
    ],
)
def test_values_may_differ_in_their_last_digit(row: str, alike: bool) -> None:
    assert (CI.difference("a,2,0.994713,,357549d83c178aaf9abe", row, ".csv") == "") == alike


def test_each_file_that_differs_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "figures").mkdir()
    for name in ("same.svg", "moved.svg", "gone.csv"):
        (tmp_path / "figures" / name).write_text(f"{LINE}\n")
    author = ["-c", "user.name=x", "-c", "user.email=x@example.com"]
    for words in (["init", "-q"], ["add", "."], [*author, "commit", "-q", "-m", "x"]):
        subprocess.run(["git", *words], cwd=tmp_path, check=True)
    monkeypatch.chdir(tmp_path)
    assert CI.main() == 0
    (tmp_path / "figures" / "same.svg").write_text(LINE.replace("48.23", "48.24") + "\n")
    assert CI.main() == 0
    (tmp_path / "figures" / "moved.svg").write_text(LINE.replace("48.23", "58.23") + "\n")
    (tmp_path / "figures" / "gone.csv").unlink()
    (tmp_path / "figures" / "new.csv").touch()
    capsys.readouterr()
    assert CI.main() == 1
    said = capsys.readouterr().out.splitlines()
    assert [line.partition(":")[0] for line in said] == [
        "figures/gone.csv",
        "figures/moved.svg",
        "figures/new.csv",
    ]
