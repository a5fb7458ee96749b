"""A job is told from one that looks alike: what was measured of that is not its own."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import multigpu as mg
from multigpu.user_model.code import code_of, code_of_file
from multigpu.workloads.own.job import load_job
from tests.multigpu.user_model.causes import samples

RECOMPUTED = False


class Net(nn.Module):
    """One layer, whose flag changes how it computes and not what."""

    def __init__(self, recomputed: bool = False) -> None:
        super().__init__()
        self.layer, self.recomputed = nn.Linear(64, 10), recomputed

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.layer(x) if not (self.recomputed or RECOMPUTED) else self.layer(x * 1)
        return found


def closed(recomputed: bool) -> Callable[[], nn.Module]:
    return lambda: Net(recomputed)


def code(model: Any, batch: Any = samples) -> bytes:
    return code_of(mg.Job(model, batch, F.cross_entropy))


@pytest.mark.parametrize(
    ("one", "same", "other"),
    [
        (partial(Net, False), partial(Net, False), partial(Net, True)),
        (partial(Net, recomputed=False), partial(Net, recomputed=False), partial(Net)),
        (closed(False), closed(False), closed(True)),
        (Net(False), Net(False), Net(True)),
    ],
    ids=["bound", "named", "closed over", "given"],
)
def test_a_flag_that_changes_no_loss_makes_another_job(one: Any, same: Any, other: Any) -> None:
    assert code(one) == code(same) != code(other)


def test_a_value_of_the_module_that_a_class_reads_makes_another_job(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    before = code(Net)
    monkeypatch.setitem(globals(), "RECOMPUTED", True)
    assert code(Net) != before


def drawing(source: object) -> Callable[..., Any]:
    def batch(n: int, generator: torch.Generator) -> Any:
        assert source is not None
        return samples(n, generator)

    return batch


def test_what_has_no_text_of_its_own_changes_nothing() -> None:
    """Objects' addresses differ from process to process."""
    first, second = code(Net, drawing(object())), code(Net, drawing(object()))
    assert first == second and b" at 0x" not in first
    assert first != code(Net, drawing("a word"))


def test_a_helper_that_the_text_names_belongs_to_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def other(recomputed: bool) -> nn.Module:
        return Net(not recomputed)

    def made() -> nn.Module:
        return HELPER(False)

    before = code(made)
    other.__module__ = __name__
    monkeypatch.setitem(globals(), "HELPER", other)
    assert code(made) != before


def helper(recomputed: bool) -> nn.Module:
    return Net(recomputed)


HELPER = helper


def test_a_changed_module_that_a_file_imports_makes_another_job(tmp_path: Path) -> None:
    """Directly or through another; what is installed, or unrelated, makes none."""
    (tmp_path / "own_layers_of_a_test.py").write_text("WIDTH = 4\n")
    (tmp_path / "own_model_of_a_test.py").write_text("from own_layers_of_a_test import WIDTH\n")
    (tmp_path / "unrelated.py").write_text("A = 1\n")
    text = "from torch import nn\nfrom torch.nn.functional import cross_entropy\n"
    text += "import multigpu as mg\nimport own_model_of_a_test as own\n"
    text += "def batch(n, generator):\n    pass\n"
    text += "job = mg.Job(lambda: nn.Linear(own.WIDTH, 2), batch, cross_entropy)\n"
    named = f"{tmp_path / 'own_job_of_a_test.py'}:job"
    Path(named[:-4]).write_text(text)
    codes = []
    for change in ({}, {"unrelated": "A = 2\n"}, {"own_layers_of_a_test": "WIDTH = 5\n"}):
        for name, content in change.items():
            (tmp_path / f"{name}.py").write_text(content)
        job = load_job(named)
        codes.append((code_of_file(named), code_of(job)))
    assert codes[0] == codes[1] and b"class Linear" not in codes[0][0]
    assert codes[0][0] != codes[2][0] and codes[0][1] != codes[2][1]
