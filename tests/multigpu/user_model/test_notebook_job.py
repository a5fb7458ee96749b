"""A job that is defined in a notebook's cells: compared with a live bar, stopped by the interrupt
button, gone on with, forecast and trained on.
"""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from jupyter_client.blocking.client import BlockingKernelClient
from jupyter_client.manager import KernelManager

from multigpu.report.kernels import this_interpreter
from multigpu.user_model.result import compared

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

DEFINED = """
import torch
from torch import nn
import multigpu

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(40, 8)
        self.out = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 1))

    def forward(self, ids):
        return self.out(self.words(ids).mean(1)).squeeze(1)

def batch(n, generator):
    ids = torch.randint(0, 40, (n, 5), generator=generator)
    return ids, ids.float().mean(1) / 40

job = multigpu.Job(Net, batch, nn.functional.mse_loss, multigpu.SGD(0.05), batch_size=16)
"""
COMPARED = """
result = multigpu.compare(job, placements=["ddp", "exp4"], budget_s=60, repeats=1, out="out")
result
"""
FORECAST = 'room = multigpu.fits(job, memory_gib=80, devices=2, names=["ddp", "exp4"])\nroom'
WRAPPED = """
import warnings
warnings.simplefilter("ignore")  # one process is one device
trainer = multigpu.wrap(Net(), nn.MSELoss(), multigpu.SGD(0.05))
made = batch(16, torch.Generator().manual_seed(0))
first = float(trainer.step(made))
for _ in range(20):
    last = float(trainer.step(made))
print("falls" if last < first else "does not fall", trainer.steps)
"""


class Notebook:
    """A kernel and its client, as a browser has them. said: what cells wrote and showed."""

    def __init__(self, manager: KernelManager, client: BlockingKernelClient) -> None:
        self.manager, self.client = manager, client

    def cell(self, source: str, stop_at: str = "") -> tuple[str, list[tuple[float, str]]]:
        """Execute a cell: how it ended, and what it showed after how many seconds; interrupted once
        it showed this.
        """
        began = time.monotonic()
        message = self.client.execute(source)
        shown: list[tuple[float, str]] = []
        while True:
            told = self.client.get_iopub_msg(timeout=120)
            if told["parent_header"].get("msg_id") != message:
                continue
            content: dict[str, Any] = told["content"]
            if told["msg_type"] == "status" and content["execution_state"] == "idle":
                break
            if text := content.get("text") or content.get("data", {}).get("text/html", ""):
                shown.append((time.monotonic() - began, text))
            if stop_at and stop_at in text:
                stop_at = ""
                self.manager.interrupt_kernel()
        return self.reply(message), shown

    def reply(self, message: str) -> str:
        """How the cell of this message ended: ok, or the name of what it raised."""
        while (told := self.client.get_shell_msg(timeout=60))["parent_header"]["msg_id"] != message:
            pass
        content = told["content"]
        return str(content.get("ename") or content["status"])


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("notebook")


@pytest.fixture(scope="module")
def notebook(folder: Path) -> Iterator[Notebook]:
    with this_interpreter():
        manager = KernelManager(kernel_name="python3")
        manager.start_kernel(cwd=str(folder))
        client = manager.client()
        client.start_channels()
        client.wait_for_ready(timeout=60)
        yield Notebook(manager, client)
        client.stop_channels()
        manager.shutdown_kernel(now=True)


def test_a_job_of_cells_is_compared_stopped_gone_on_with_forecast_and_trained(
    notebook: Notebook, folder: Path
) -> None:
    assert notebook.cell(DEFINED) == ("ok", [])
    ended, shown = notebook.cell(COMPARED, stop_at="2/")
    assert ended == "KeyboardInterrupt"
    records = set((folder / "out" / "records").glob("*/*.json.gz"))
    assert records, "what was measured before is kept"

    ended, shown = notebook.cell(COMPARED)
    assert ended == "ok"
    bars = [seconds for seconds, text in shown if "run" in text and "/" in text]
    assert len(bars) >= 3 and bars[-1] - bars[0] > 1, "the bar lives while Runs go on"
    assert any("ddp" in text and "<table" in text for _, text in shown), "the result shows itself"
    assert records <= set((folder / "out" / "records").glob("*/*.json.gz"))
    assert {"one device", "ddp", "exp4"} <= set(compared(folder / "out").names)

    ended, shown = notebook.cell(FORECAST)
    assert ended == "ok" and any("largest_batch" in text for _, text in shown)
    ended, shown = notebook.cell(WRAPPED)
    assert (ended, "".join(text for _, text in shown).strip()) == ("ok", "falls 21")


def test_a_mistake_in_a_cell_is_told_with_its_line(notebook: Notebook) -> None:
    broken = DEFINED.replace("self.words(ids).mean(1)", "self.words(ids).mean(1)[:, :3]")
    assert notebook.cell(broken) == ("ok", [])
    code = """
try:
    multigpu.compare(job, placements=["ddp"], budget_s=30, out="broken", progress=False)
except ValueError as error:
    print(error)
"""
    ended, shown = notebook.cell(code)
    said = "".join(text for _, text in shown)
    assert ended == "ok" and "shapes cannot be multiplied" in said
    assert "self.words(ids).mean(1)[:, :3]" in said, said
