"""Hangs planted in real processes, and in dumps as NCCL's recorder writes them: `explain --stuck`
names the rank and the collective.
"""

import importlib
import json
import os
import pickle
import shutil
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from multigpu import paths
from multigpu.cli.main import main
from multigpu.user_model.stuck import find_stuck, told
from multigpu.user_model.stuck_dumps import read_dump
from tests.forked import forking
from tests.further import but

FRAMES = [
    {"name": "all_reduce", "filename": "/x/site-packages/torch/distributed_c10d.py", "line": 3},
    {"name": "train", "filename": "/project/train.py", "line": 41},
]


@pytest.fixture
def hangs(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The script that plants hangs; forked ranks find it by the same path."""
    monkeypatch.syspath_prepend(str(paths.REPOSITORY / "benchmarks"))
    return importlib.import_module("hangs")


NAMED: dict[str, tuple[str, int, str]] = {
    # case: what is said, the rank at fault, the collective
    "uneven": ("never_began", 1, "all_reduce"),
    "uneven_then_barrier": ("differs", 1, "barrier"),
    "skipped": ("never_began", 1, "all_reduce"),
    "skipped_for_another": ("differs", 1, "all_reduce"),
    "dead": ("no_dump", 1, "all_reduce"),
    "shapes_sent": ("differs", 1, "broadcast"),
    "dtypes": ("differs", 1, "broadcast"),
    "busy": ("never_began", 1, "all_reduce"),
    "subgroup": ("never_began", 1, "all_reduce"),
    "unsent": ("stands", 0, ""),
    "alone": ("differs", 1, "barrier"),
}


OFTEN = ("uneven", "dead", "shapes_sent", "subgroup")
"""Of real hangs, each of which takes seconds: those that `make test` plants."""


@pytest.mark.parametrize("case", but(OFTEN, [*NAMED]))
def test_a_hang_of_real_processes_is_named(
    case: str, hangs: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    hangs.planted(case, tmp_path, context=forking())
    files = sorted(tmp_path.glob("*_rank_*"))
    kind, rank, name = NAMED[case]
    found = find_stuck([read_dump(path) for path in files])
    assert (found[0].kind, found[0].ranks, found[0].name) == (kind, (rank,), name)
    assert main(["explain", "--stuck", *map(str, files)]) == 0
    said = capsys.readouterr().out
    assert f"ank {rank}" in said and "hangs.py:" in said.splitlines()[0] and "Try first" in said
    if kind in ("never_began", "differs", "no_dump"):
        only = [path for path in files if path.name.startswith("nccl")]
        assert find_stuck([read_dump(path) for path in only])[0].ranks == (rank,)


def entry(number: int, name: str = "nccl:all_reduce", **more: Any) -> dict[str, Any]:
    """One call as NCCL's recorder writes it."""
    return {
        "frames": FRAMES,
        "process_group": ("0", "default_pg"),
        "collective_seq_id": number,
        "p2p_seq_id": number,
        "profiling_name": name,
        "input_sizes": [[4]],
        "input_dtypes": ["Float"],
        "state": "completed",
        "retired": False,
        "is_p2p": False,
    } | more


def dumped(path: Path, entries: list[dict[str, Any]], ranks: str = "[0, 1]", **more: Any) -> Path:
    config = {"0": {"name": "0", "desc": "default_pg", "ranks": ranks}}
    found = {"version": "2.10", "pg_config": config, "entries": entries} | more
    path.write_bytes(
        json.dumps(found).encode() if path.suffix == ".json" else pickle.dumps(found, protocol=2)
    )
    return path


def said_of(*paths: Path) -> str:
    return "\n".join(told(find_stuck([read_dump(path) for path in paths])))


def test_a_message_that_is_never_sent_and_one_that_is_never_taken(tmp_path: Path) -> None:
    sent = {"is_p2p": True, "input_sizes": [[8]]}
    first = [entry(1, "nccl:send 0->1", **sent)]
    second = [entry(n, "nccl:recv 1<-0", **sent) for n in (1, 2)]
    second[1]["state"] = "scheduled"
    said = said_of(dumped(tmp_path / "rank_0", first), dumped(tmp_path / "rank_1", second))
    assert said.startswith("Rank 0 never began to send message 2 from rank 0 to rank 1")
    first = [entry(n, "nccl:send 0->1", **sent) for n in (1, 2)]
    first[1]["state"] = "started"
    said = said_of(dumped(tmp_path / "rank_0", first), dumped(tmp_path / "rank_1", second[:1]))
    assert said.startswith("Rank 1 never began to receive message 2")


def test_a_ring_buffer_that_forgot_the_beginning_and_json(tmp_path: Path) -> None:
    many = [entry(n) for n in range(1001, 1038)]
    many[-1]["state"] = "started"
    few = [entry(n) for n in range(900, 1037)]
    said = said_of(dumped(tmp_path / "0.json", many), dumped(tmp_path / "1.json", few))
    assert said.startswith("Rank 1 never began call 1037 (all_reduce of Float [4], train.py:41")
    assert "call 1036" in said


def test_all_there_is_no_skipped_call_and_an_ended_run_is_no_hang(tmp_path: Path) -> None:
    waiting = [entry(1), entry(2, state="started")]
    pair = [dumped(tmp_path / f"rank_{rank}", waiting) for rank in range(2)]
    assert "All ranks began call 2" in said_of(*pair) and "NCCL_DEBUG" in said_of(*pair)
    ended = [dumped(tmp_path / f"rank_{rank}", [entry(1)]) for rank in range(2)]
    assert "shows no call" in said_of(*ended)


PY_SPY = """Process 7: python train.py
Python v3.11

Thread 7 (idle): "MainThread"
    all_reduce (torch/distributed/distributed_c10d.py:3252)
    step (train.py:30)
Thread 9 (idle): "pin"
    wait (threading.py:300)
    loader (data.py:8)
"""


def test_stacks_as_py_spy_writes_them(tmp_path: Path) -> None:
    waits, loads = tmp_path / "stack0.txt", tmp_path / "stack1.txt"
    waits.write_text(PY_SPY.replace("torch/", "/x/site-packages/torch/"))
    loads.write_text('Thread 7 (active): "MainThread"\n    read (data.py:12)\n    main (t.py:1)\n')
    said = said_of(waits, loads)
    assert said.startswith("Rank 1 never began the collective in which others wait")
    assert "data.py:12 in read" in said and "train.py:30 in step" in said


class Evil:
    """What a pickle may ask for."""

    def __reduce__(self) -> Any:
        return os.mkdir, ("planted",)


BAD = {
    "evil_0": pickle.dumps({"entries": [Evil()]}),
    "cut_0": pickle.dumps({"entries": [entry(1)]})[:-40],
    "list_0": pickle.dumps([1, 2]),
    "no_entries_0": pickle.dumps({"pg_config": {}}),
    "odd_entry_0": pickle.dumps({"entries": [{"frames": 3}]}),
    "nan_0": pickle.dumps({"entries": [entry(1) | {"collective_seq_id": float("nan")}]}),
    "json_0": b'{"entries": 7}',
    "empty_0": b"",
    "binary_0": bytes(range(1, 90)),
    "noname": pickle.dumps({"entries": []}),
}


@pytest.mark.parametrize("name", [*BAD, "absent_0"])
def test_a_stranger_s_file_is_a_sentence_and_nothing_is_called(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    if name in BAD:
        (tmp_path / name).write_bytes(BAD[name])
    assert main(["explain", "--stuck", name]) == 2
    said = capsys.readouterr().err.strip()
    assert name in said and "\n" not in said and not (tmp_path / "planted").exists()


def test_one_file_of_a_kind_a_rank(tmp_path: Path) -> None:
    one = dumped(tmp_path / "rank_0", [entry(1)])
    other = tmp_path / "again_0"
    shutil.copy(one, other)
    with pytest.raises(ValueError, match="two files are of rank 0"):
        find_stuck([read_dump(one), read_dump(other)])
