"""Jobs that cannot be trained: one sentence with the user's own line and exit code 2, before any
process is started.
"""

from pathlib import Path
from typing import Any

import pytest

from multigpu.cli.main import main
from multigpu.user_model import compare

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

BAD = {
    "a tuple where a tensor is due": (
        "return self.two(self.one(x))",
        "return self.two(self.one(x)), x",
        "return (output",
        "TypeError",
    ),
    "a loss that is no scalar": (
        ".square().mean()",
        ".square()",
        "job = ",
        "[2, 1] where one number is due",
    ),
    "a loss that is no tensor": (
        ".square().mean()",
        ".square().mean().item()",
        "job = ",
        "is a float where a tensor is due",
    ),
    "another batch size": ("torch.rand(n, 3", "torch.rand(n + 1, 3", "", "asked for 2 samples"),
    "too few samples": (
        "batch, loss,",
        "DataLoader(TensorDataset(torch.rand(3, 3)), 2), loss,",
        "",
        "and 2 devices with 2 each need 4",
    ),
    "not a number": (
        ".square().mean()",
        ".log().mean() * float('nan')",
        "job = ",
        "the first batch is nan",
    ),
    "an exception inside forward": (
        "self.two(self",
        "self.two(self.three(x), self",
        "return self.two(self.three",
        "attribute 'three'",
    ),
    "a shape that does not fit": (
        "nn.Linear(4, 1)",
        "nn.Linear(5, 1)",
        "return self.two(self.one",
        "shapes cannot be multiplied",
    ),
    "an exception in the model's making": (
        "nn.Linear(4, 1)",
        "nn.Linear(4, -1)",
        "self.two = ",
        "model 'Net' fails",
    ),
    "a model on the wrong device": (
        "nn.Linear(4, 1)",
        "nn.Linear(4, 1, device='meta')",
        "",
        "puts two.weight on meta",
    ),
    "a tensor on the wrong device": (
        "self.one(x)",
        "self.one(x.to('meta'))",
        "return self.two",
        "meta",
    ),
    "an exception in batch": (
        "return torch.rand(n, 3",
        "return missing(n, 3",
        "return missing",
        "batch fails with NameError",
    ),
    "a text where a tensor is due": (
        "torch.rand(n, 1, generator=generator)",
        "'yes'",
        "",
        "batch[1] is a str where a tensor is due",
    ),
    "no pair": (
        "generator), torch.rand(n, 1, generator=generator)",
        "generator)",
        "job = ",
        "batch gives no pair",
    ),
    "a syntax error": (
        "self.one = nn.Linear(3, 4)",
        "self.one = nn.Linear(3, 4",
        "self.one",
        "SyntaxError",
    ),
    "nothing to learn": (
        "self.two(self.one(x))",
        "self.two(self.one(x)).detach()",
        "job = ",
        "nothing can be learned",
    ),
    "no optimizer": ("mg.SGD(0.1)", "0.1", "job = ", "multigpu.SGD"),
    "no batch size": ("batch_size=2", "batch_size=0", "job = ", "batch_size = 0"),
    "another name": ("job = ", "other = ", "", "its jobs are other"),
}


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
    assert (
        main(
            [
                "compare",
                f"{tmp_path}/mine.py:job",
                "--device-type",
                "cpu",
                "--out",
                str(tmp_path / "out"),
                "--quiet",
            ]
        )
        == 2
    )
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
    asked = [
        "compare",
        f"{tmp_path}/mine.py:job",
        "--device-type",
        "cpu",
        "--out",
        str(tmp_path / "out"),
        "--quiet",
        *words,
    ]
    assert main(asked) == 2
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
