"""Traces of scripts with planted causes, each alone and mixed: what `explain --trace` says is what
was planted.
"""

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from multigpu.cli.main import main
from multigpu.user_model.script_trace import PARTS, explain_trace, told

KERNEL, NCCL = (
    "void at::native::gemm_kernel<float>(float)",
    "ncclDevKernel_AllReduce_Sum_f32_RING_LL",
)
DATA = Path(__file__).parents[2] / "data"
# what it is, when it begins and how long it takes, in µs of a step
Stretch = tuple[str, float, float]


def write(
    path: Path, stretches: list[Stretch], step_us: float, rank: int = 0, steps: int = 3
) -> Path:
    """A trace in the profiler's format: so many equal steps of these stretches; by a .gz packed."""
    kinds = {
        "compute": {"cat": "kernel", "name": KERNEL, "args": {"device": rank}},
        "nccl": {"cat": "kernel", "name": NCCL, "args": {"device": rank}},
        "copy": {
            "cat": "gpu_memcpy",
            "name": "Memcpy HtoD (Pageable -> Device)",
            "args": {"device": rank, "bytes": 4096},
        },
        "input": {
            "cat": "user_annotation",
            "name": "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__",
        },
    }
    events: list[dict[str, Any]] = []
    for step in range(steps):
        start = 1e6 + step * step_us
        events.append(
            {
                "ph": "X",
                "cat": "user_annotation",
                "name": f"ProfilerStep#{step}",
                "ts": start,
                "dur": step_us,
                "tid": 1,
            }
        )
        events += [
            {"ph": "X", "ts": start + at, "dur": took, "tid": 1, **kinds[kind]}
            for kind, at, took in stretches
        ]
    trace = {
        "baseTimeNanoseconds": 7_000_000,
        "distributedInfo": {"rank": rank},
        "traceEvents": events,
    }
    text = json.dumps(trace).encode()
    path.write_bytes(gzip.compress(text) if path.suffix == ".gz" else text)
    return path


ALONE: dict[str, list[list[Stretch]]] = {
    # 60% computes and 40% is lost to one cause, on each of two ranks, in steps of 1,000 µs
    "communication": [[("compute", 0, 600), ("nccl", 600, 400)]] * 2,
    "copies": [[("copy", 0, 400), ("compute", 400, 600)]] * 2,
    "input": [[("input", 0, 400), ("compute", 400, 600)]] * 2,
    "host_dispatch": [[("compute", at, 60) for at in range(0, 1000, 100)]] * 2,
}


@pytest.mark.parametrize("cause", ALONE)
def test_one_cause_alone(cause: str, tmp_path: Path) -> None:
    found = explain_trace(
        [
            write(tmp_path / f"{rank}.json.gz", own, 1000, rank)
            for rank, own in enumerate(ALONE[cause])
        ]
    )
    for shares in found.shares.values():
        expected = dict.fromkeys(PARTS, 0.0) | {"computing": 0.6, cause: 0.4}
        assert shares == pytest.approx(expected, abs=0.02)
    assert found.largest == cause
    assert found.kernels[0][0].startswith("gemm_kernel") and found.kernels[0][2] == pytest.approx(
        2 * 3 * 600e-6
    )


def test_a_late_rank_makes_the_other_wait(tmp_path: Path) -> None:
    early: list[Stretch] = [("compute", 0, 500), ("nccl", 500, 500)]
    late: list[Stretch] = [("input", 0, 300), ("compute", 300, 500), ("nccl", 800, 200)]
    found = explain_trace(
        [write(tmp_path / "a.json", early, 1000), write(tmp_path / "b.json", late, 1000, 1)]
    )
    assert found.skew_s == pytest.approx(300e-6) and found.late == (1, "input")
    alone = explain_trace([tmp_path / "a.json"])
    assert (
        alone.shares[0]["communication"] == pytest.approx(0.5)
        and alone.skew_s is None
        and "every rank's file" in "".join(told(alone))
    )


def test_all_causes_mixed_and_communication_that_is_hidden(tmp_path: Path) -> None:
    early: list[Stretch] = [
        ("input", 0, 100),
        ("copy", 100, 50),
        ("compute", 200, 400),
        ("nccl", 500, 300),
        ("compute", 850, 100),
    ]
    late: list[Stretch] = [
        ("input", 0, 150),
        ("copy", 150, 50),
        ("compute", 250, 400),
        ("nccl", 700, 100),
        ("compute", 850, 100),
    ]
    found = explain_trace(
        [write(tmp_path / "a.json", early, 1000), write(tmp_path / "b.json", late, 1000, 1)]
    )
    # rank 0: of 300 µs in the collective 100 are hidden, 100 more were waited for the other; idle
    # 100 + 50 + 50 + 50
    expected = {
        "computing": 0.5,
        "waiting_for_others": 0.1,
        "communication": 0.1,
        "copies": 0.05,
        "input": 0.1,
        "host_dispatch": 0.15,
    }
    assert found.shares[0] == pytest.approx(expected, abs=0.02)
    expected = {
        "computing": 0.5,
        "waiting_for_others": 0.0,
        "communication": 0.1,
        "copies": 0.05,
        "input": 0.15,
        "host_dispatch": 0.2,
    }
    assert found.shares[1] == pytest.approx(expected, abs=0.02)
    assert found.overlap[0] == pytest.approx(100 / 350) and found.overlap[1] == pytest.approx(0)
    assert all(sum(shares.values()) == pytest.approx(1) for shares in found.shares.values())


def test_a_real_script_on_two_gpus() -> None:
    even = explain_trace([DATA / f"none-{rank}.json.gz" for rank in range(2)])
    assert (
        even.late is None
        and even.largest == "computing"
        and min(shares["computing"] for shares in even.shares.values()) > 0.95
    )
    late = explain_trace([DATA / f"late-{rank}.json.gz" for rank in range(2)])
    assert (
        late.late == (1, "host_dispatch")
        and late.shares[0]["waiting_for_others"]
        > 0.05
        > 0.02
        > late.shares[1]["waiting_for_others"]
    )
    slept = 4 * 0.015 / late.window_s[1]
    assert late.shares[1]["host_dispatch"] - even.shares[1]["host_dispatch"] == pytest.approx(
        slept, abs=0.02
    )
    first, second, *_ = told(late)
    assert "Rank 1 comes late" in first and "that rank's host" in second


def test_a_real_script_on_one_gpu() -> None:
    """Its host launches 160 small kernels a step; or wide layers hide a loader that takes 30 ms for
    what trains in 85.
    """
    found = {
        cause: explain_trace([DATA / f"alone-{cause}.json.gz"])
        for cause in ("none", "host", "input")
    }
    shares = {cause: one.shares[0] for cause, one in found.items()}
    assert shares["host"]["host_dispatch"] > 0.5 > 0.3 > shares["host"]["computing"] > 0.05
    assert min(shares[cause]["computing"] for cause in ("none", "input")) > 0.95
    assert all(own["communication"] == own["waiting_for_others"] == 0 for own in shares.values())
    assert "every rank's file" not in "".join(told(found["host"]))


def test_the_command_answers_in_two_lines_first(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(tmp_path / "a.json", ALONE["input"][0], 1000)
    assert main(["explain", "--trace", str(tmp_path / "a.json")]) == 0
    first, second, *_ = capsys.readouterr().out.splitlines()
    assert (
        "compute 60% of the time" in first
        and "input (40%)" in first
        and "DataLoader workers" in second
    )
    assert main(["explain", "--format", "json", "--trace", str(tmp_path / "a.json")]) == 0
    assert json.loads(capsys.readouterr().out)["shares"]["0"]["input"] == pytest.approx(0.4)


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (None, "cannot be read"),
        (b"{", "is no trace in Chrome's format"),
        (b"\x1f\x8bxx", "is no trace in Chrome's format"),
        (b"{}", "holds no traceEvents"),
        (b'{"traceEvents": []}', "holds nothing that a GPU did"),
    ],
)
def test_what_is_no_trace_is_refused(
    content: bytes | None, why: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if content is not None:
        (tmp_path / "a.json").write_bytes(content)
    assert main(["explain", "--trace", str(tmp_path / "a.json")]) == 2
    said = capsys.readouterr().err
    assert why in said and said.count("\n") == 1
    assert main(["explain"]) == 2
    assert "what is to be explained?" in capsys.readouterr().err
