"""Traces of scripts with planted causes, each alone and mixed: what `explain --trace` says is what
was planted.
"""

import csv
import gzip
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from multigpu.cli.main import main
from multigpu.user_model.script_trace import PARTS, explain_trace, told
from tests.patience import slowness

KERNEL = "void at::native::gemm_kernel<float>(float)"
NCCL = "ncclDevKernel_AllReduce_Sum_f32_RING_LL"
DATA = Path(__file__).parents[2] / "data"
# what it is, when it begins and how long it takes, in µs of a step
Stretch = tuple[str, float, float]


def write(
    path: Path, stretches: list[Stretch], step_us: float, rank: int = 0, steps: int = 3
) -> Path:
    """A trace in the profiler's format: so many equal steps of these stretches; by a .gz packed."""
    kinds: dict[str, dict[str, Any]] = {
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
    assert alone.shares[0]["communication"] == pytest.approx(0.5) and alone.skew_s is None
    assert "every rank's file" in "".join(told(alone))


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
    assert even.late is None and even.largest == "computing"
    late = explain_trace([DATA / f"late-{rank}.json.gz" for rank in range(2)])
    waited = [late.shares[rank]["waiting_for_others"] for rank in range(2)]
    assert late.late == (1, "host_dispatch") and waited[0] > 0.05 > 0.02 > waited[1]
    slept = 4 * 0.015 / late.window_s[1]
    assert late.shares[1]["host_dispatch"] - even.shares[1]["host_dispatch"] == pytest.approx(
        slept, abs=0.02
    )
    first, second, *_ = told(late)
    assert "Rank 1 comes late" in first and "that rank's host" in second


@pytest.mark.parametrize("row", list(csv.DictReader((DATA / "holistic.csv").open())))
def test_shares_are_those_of_holistic_trace_analysis(row: dict[str, str]) -> None:
    found = explain_trace([DATA / f"{name}.json.gz" for name in row["traces"].split()])
    rank = int(row["rank"])
    own = found.shares[rank]
    idle = own["input"] + own["host_dispatch"]
    for part, share in (("computing", own["computing"]), ("idle", idle)):
        assert share == pytest.approx(float(row[part]), abs=0.02)
    assert 1 - own["computing"] - idle == pytest.approx(float(row["others"]), abs=0.01)
    if row["overlap"]:
        assert found.overlap[rank] == pytest.approx(float(row["overlap"]), abs=0.05)


def test_a_real_script_on_one_gpu() -> None:
    """Its host launches 160 small kernels a step; or wide layers hide a loader that takes 30 ms for
    what trains in 85.
    """
    found = {
        cause: explain_trace([DATA / f"alone-{cause}.json.gz"])
        for cause in ("none", "host", "input")
    }
    shares = {cause: one.shares[0] for cause, one in found.items()}
    assert shares["host"]["host_dispatch"] > 0.5
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


GOOD = {
    "ph": "X",
    "cat": "kernel",
    "name": "gemm",
    "ts": 1.0,
    "dur": 2.0,
    "args": {"device": 0, "stream": 7},
}
STEP = {"ph": "X", "cat": "user_annotation", "name": "ProfilerStep#0", "ts": 1.0, "dur": 5.0}


def traced(*events: Any, **more: Any) -> bytes:
    return json.dumps({"traceEvents": [GOOD, *events]} | more).encode()


def but(**changed: Any) -> bytes:
    """A trace in which one event is as it cannot be; `...` leaves a field out."""
    event = {name: value for name, value in {**GOOD, **changed}.items() if value is not ...}
    return traced(event)


MALFORMED: dict[str, bytes] = {
    "empty": b"",
    "zeros": b"\0" * 4096,
    "text": b"Traceback (most recent call last)",
    "number": b"7",
    "list": b"[]",
    "null": b"null",
    "no_events": b"{}",
    "events_null": b'{"traceEvents": null}',
    "events_object": b'{"traceEvents": {}}',
    "no_device": b'{"traceEvents": []}',
    "event_number": traced(3),
    "event_list": traced([GOOD]),
    "event_null": traced(None),
    "event_text": traced("kernel"),
    "no_ts": but(ts=...),
    "ts_null": but(ts=None),
    "ts_text": but(ts="soon"),
    "ts_list": but(ts=[1]),
    "ts_nan": but(ts=float("nan")),
    "ts_infinite": but(ts=float("inf")),
    "ts_huge": traced(GOOD).replace(b'"ts": 1.0', b'"ts": 1e999'),
    "dur_null": but(dur=None),
    "dur_nan": but(dur="NaN"),
    "dur_negative": but(dur=-5),
    "no_name": but(name=...),
    "name_number": but(name=3),
    "args_list": but(args=[1]),
    "args_null": but(args=None),
    "device_text": but(args={"device": "first"}),
    "device_list": but(args={"device": [0]}),
    "step_without_ts": traced({**STEP, "ts": None}),
    "steps_of_no_time": traced({**STEP, "dur": 0}),
    "base_text": traced(baseTimeNanoseconds="x"),
    "base_list": traced(baseTimeNanoseconds=[1]),
    "rank_text": traced(distributedInfo={"rank": "first"}),
    "cut": traced(STEP)[:-30],
    "cut_in_a_text": b'{"traceEvents": [{"name": "abc',
    "key_number": b'{3: "traceEvents"}',
    "no_comma": traced(STEP).replace(b"}, {", b"} {"),
    "deep": b'{"traceEvents": ' + b"[" * 100_000,
    "gzip_cut": gzip.compress(traced(STEP) * 99)[:-20],
    "gzip_damaged": gzip.compress(traced(STEP))[:-30] + b"x" * 30,
    "gzip_bomb": gzip.compress(b'{"traceEvents": [' + b" " * (200 * 2**20)),
}


@pytest.mark.parametrize("name", MALFORMED)
def test_a_malformed_file_is_a_sentence(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / f"{name}.json"
    path.write_bytes(MALFORMED[name])
    assert main(["explain", "--trace", str(path)]) == 2
    said = capsys.readouterr().err
    assert path.name in said and said.count("\n") == 1 and len(said) < 400 + len(str(tmp_path))


def test_a_file_that_unpacks_to_much_more_costs_little_memory(tmp_path: Path) -> None:
    """86 MB of events in less than 1 MB: refused, under 1 GiB."""
    bomb = tmp_path / "bomb.json.gz"
    with gzip.open(bomb, "wb", compresslevel=1) as file:
        file.write(b'{"traceEvents": [')
        for _ in range(120):
            file.write((json.dumps(STEP).encode() + b",") * 8000)
    code = (
        "import resource, sys; from multigpu.cli.main import main;"
        " resource.setrlimit(resource.RLIMIT_AS, (2**31, 2**31));"
        " code = main(['explain', '--trace', sys.argv[1]]);"
        " lines = open('/proc/self/status').read().splitlines();"
        " print(code, next(line.split()[1] for line in lines if line.startswith('VmHWM')))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(bomb)], capture_output=True, text=True, timeout=120
    )
    exit_code, peak_kib = map(int, done.stdout.split())
    assert exit_code == 2 and peak_kib < 2**20, done.stderr


def test_63_mb_are_read_in_5_s_of_this_process(tmp_path: Path) -> None:
    host = {"ph": "X", "cat": "cpu_op", "name": "aten::addmm", "dur": 3.0, "tid": 1} | {
        "args": {"External id": 7, "Input Dims": [[128, 1024], [1024, 1024]], "Ev Idx": 7}
    }
    events = []
    for number in range(90_000):
        at = 10.0 * number
        events += [
            {**host, "ts": at},
            {**GOOD, "name": f"void at::native::kernel<{number % 50}>(int, float)", "ts": at},
        ]
    path = tmp_path / "big.json"
    path.write_text(json.dumps({"traceEvents": events}, indent=1))
    size = path.stat().st_size
    assert size > 30e6
    begun = time.process_time()
    found = explain_trace([path])
    took = time.process_time() - begun
    assert took * 63e6 / size < 5 * slowness(), took
    assert found.mean["computing"] == pytest.approx(0.2, abs=0.01)


def kernel(name: str, at: float, took: float, **arguments: Any) -> dict[str, Any]:
    return {**GOOD, "name": name, "ts": at, "dur": took, "args": {"device": 0, **arguments}}


@pytest.mark.parametrize(
    ("sent", "graph", "advice"),
    [
        ("ncclDevKernel_AllGather_RING_LL", False, "gathering"),
        ("ncclDevKernel_ReduceScatter_Sum_f32", False, "gathering"),
        ("ncclDevKernel_SendRecv", False, "stages"),
        ("ncclDevKernel_AllReduce_Sum_f32", False, "communication"),
        (None, True, "between_graphs"),
        (None, False, "host_dispatch"),
    ],
)
def test_cut_variables_stages_and_captured_steps_are_known(
    sent: str | None, graph: bool, advice: str, tmp_path: Path
) -> None:
    """40% computes; the rest is one kernel of NCCL's, or nothing, launched by a graph or not."""
    node = {"graph node id": 5} if graph else {}
    events = [kernel("gemm", 100 * step, 40, **node) for step in range(20)]
    events += [kernel(sent, 100 * step + 40, 60) for step in range(20)] if sent else []
    step = {**STEP, "ts": 0, "dur": 2000}
    path = tmp_path / "a.json"
    path.write_text(json.dumps({"traceEvents": [step, *events]}))
    found = explain_trace([path])
    assert found.advice == advice and found.captured is graph
    assert found.mean["communication"] == pytest.approx(0.6 if sent else 0)
    assert sum(found.mean.values()) == pytest.approx(1)


def test_stages_send_unlike_numbers_of_messages_and_gathers_are_paired_all_the_same(
    tmp_path: Path,
) -> None:
    gather = "ncclDevKernel_AllGather_RING_LL"
    files = []
    for rank, late in enumerate((0, 20)):
        events = [kernel(gather, 50 + late, 50 - late)] + [
            kernel("ncclDevKernel_SendRecv", 10 * at, 5) for at in range(rank + 1)
        ]
        step = {**STEP, "ts": 0, "dur": 100}
        path = tmp_path / f"{rank}.json"
        path.write_text(
            json.dumps({"distributedInfo": {"rank": rank}, "traceEvents": [step, *events]})
        )
        files.append(path)
    found = explain_trace(files)
    assert found.skew_s == pytest.approx(20e-6)
    assert found.shares[0]["waiting_for_others"] == pytest.approx(0.2)


def test_two_traces_of_one_script(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The step grew from 1.0 to 1.3 ms by a slower reduction; another number of steps was traced,
    which changes nothing.
    """
    before = write(tmp_path / "b.json", [("compute", 0, 600), ("nccl", 600, 400)], 1000, steps=5)
    after = write(tmp_path / "a.json", [("compute", 0, 600), ("nccl", 600, 700)], 1300, steps=3)
    assert main(["explain", "--trace", str(after), "--against", str(before)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("A step takes 1.30 ms where it took 1.00 (+30%).")
    assert "communication: +0.30 ms" in lines[0]
    assert any(line.split()[:2] == ["+0.30", "(0.40"] and "AllReduce" in line for line in lines)
    assert main(["explain", "--against", str(before), "nmt"]) == 2
    assert "--against FILE" in capsys.readouterr().err
