"""Jobs that cannot be trained: one sentence with the user's own line and exit code 2, before any
process is started.
"""

from pathlib import Path
from typing import Any

import pytest

from multigpu.cli.main import main
from multigpu.user_model import compare
from tests.refusals import cases_beside

pytestmark = pytest.mark.usefixtures("examined_here")

GOOD = """
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
import multigpu as mg

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.one = nn.Linear(3, 4)
        self.two = nn.Linear(4, 1)

    def forward(self, x):
        return self.two(self.one(x))

def batch(n, generator):
    return torch.rand(n, 3, generator=generator), torch.rand(n, 1, generator=generator)

def loss(output, target):
    return (output - target).square().mean()

job = mg.Job(Net, batch, loss, mg.SGD(0.1), batch_size=2)
"""

BAD = {name: tuple(row) for name, *row in cases_beside(__file__, "bad_jobs.csv")}
"""Name -> a text of the good file, what stands there instead, the line that is told, and why."""


def asked(folder: Path) -> list[str]:
    """The command that compares the folder's job."""
    given = ["compare", f"{folder}/mine.py:job", "--device-type", "cpu", "--quiet"]
    return [*given, "--out", str(folder / "out")]


def refused(
    good: str, bad: tuple[str, str, str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> list[str]:
    """The lines that `compare` prints of the good file with one text for another; the last says
    why, and where the user's own line is.
    """
    old, new, line, why = bad
    assert good.count(old) == 1
    text = good.replace(old, new)
    (tmp_path / "mine.py").write_text(text)
    assert main(asked(tmp_path)) == 2
    said = capsys.readouterr().err.strip().splitlines()
    assert why in said[-1]
    if line:
        number = next(
            at for at, one in enumerate(text.splitlines(), 1) if one.strip().startswith(line)
        )
        assert f"mine.py, line {number}" in said[-1]
    return said


@pytest.mark.parametrize("name", BAD)
def test_a_bad_job_gets_one_sentence(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert len(refused(GOOD, BAD[name], tmp_path, capsys)) == 1


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["--budget-s", "3"], "budget_s = 3 is too short for one placement"),
        (["--placements", "ddp,unheard"], "unknown placement 'unheard'"),
        (["--placements", "make_parallel"], "gathers one prediction an image"),
        (["--devices", "1"], "placements are compared on 2 processes or more"),
    ],
)
def test_what_cannot_be_asked_for(
    words: list[str], why: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "mine.py").write_text(GOOD)
    assert main([*asked(tmp_path), *words]) == 2
    assert why in capsys.readouterr().err


def test_a_comparison_that_is_stopped_says_what_is_kept(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def stopped(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(compare, "compare", stopped)
    assert main(["compare", "mine.py:job", "--out", str(tmp_path)]) == 130
    said = capsys.readouterr().err.strip()
    assert said.startswith("multigpu: stopped; what was measured is kept") and str(tmp_path) in said
