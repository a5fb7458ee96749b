"""Run a function in several processes that form a group over gloo."""

import os
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from tests.forked import forking


def run(function: Callable[..., Any], count: int, folder: Path, *arguments: Any) -> list[Any]:
    """What `function(rank, *arguments)` gives in each process; a failure's text is raised here."""
    folder.mkdir(exist_ok=True)
    context = forking()
    members = [
        context.Process(target=member, args=(function, rank, count, folder, arguments), daemon=True)
        for rank in range(count)
    ]
    for each in members:
        each.start()
    for each in members:
        each.join(100)
        if each.is_alive():
            each.kill()
    failures = [path.read_text() for path in sorted(folder.glob("*.error"))]
    assert not failures, "\n".join(failures)
    return [torch.load(folder / f"{rank}.pt", weights_only=False) for rank in range(count)]


def member(
    function: Callable[..., Any], rank: int, count: int, folder: Path, arguments: tuple[Any, ...]
) -> None:
    """One process's part."""
    os.environ["OMP_NUM_THREADS"] = "1"
    torch.set_num_threads(1)
    try:
        dist.init_process_group(
            "gloo", init_method=f"file://{folder / 'meeting'}", rank=rank, world_size=count
        )
        given = function(rank, *arguments)
        torch.save(given, folder / f"{rank}.pt")
        dist.destroy_process_group()
    except BaseException:
        (folder / f"{rank}.error").write_text(traceback.format_exc())
        raise
