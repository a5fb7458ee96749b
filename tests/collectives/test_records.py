"""CollectiveRuns and their Records: what cannot work is refused, order tells most first, files are whole and kept apart."""

import pytest

from multigpu.collectives import algorithms
from multigpu.collectives.record import CollectiveStore, bus_factor
from multigpu.collectives.run import CollectiveRun, methods_for, parse_size, runs_in_order, size_text, sizes_in_order
from tests.collectives.planted import make_record
from tests.refusals import refused


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"method": "star"}, "unknown method 'star': choose one of nccl, gloo, two_shot, central_server"),
        ({"bytes": 6}, "6 bytes are no whole number of fp32 elements: choose a multiple of 4"),
        ({"devices": 0}, "devices = 0: input should be greater than or equal to 1"),
        ({"devices": 1}, "one process has nothing to reduce: choose at least 2 devices, or compute_ms for a step without messages"),
        ({"delay_us": 5}, "delay_us and compute_ms are slept by the host, which a GPU does not wait for"),
        ({"delay_us": 5, "device_type": "cpu", "method": "gloo"}, "delay_us 5 is slept between our own messages"),
        ({"devices": 17}, "devices = 17: input should be less than or equal to 16"),
        ({"method": "nccl", "device_type": "cpu"}, "method 'nccl' exists on GPUs only"),
        ({"method": "gloo"}, "method 'gloo' is measured on CPUs only"),
        ({"execution": "captured", "device_type": "cpu"}, "execution 'captured' exists on GPUs only"),
        ({"dtype": "bf16"}, "dtype = 'bf16': input should be 'fp32'"),
        ({"calls": 21}, "calls = 21: input should be less than or equal to 20"),
        ({"warm": 1}, "warm is no field that this version knows"),
    ],
)
def test_what_cannot_work_is_refused_in_one_sentence(fields, sentence) -> None:  # type: ignore[no-untyped-def]
    refused(sentence, CollectiveRun.built, **({"method": "ring", "bytes": 1024, "devices": 2} | fields))


def test_sizes_in_words_and_back() -> None:
    for text, count in (("4", 4), ("64K", 65536), ("64KiB", 65536), ("1g", 2**30), ("3MB", 3 * 2**20), ("7 B", 7)):
        assert parse_size(text) == count
    assert [size_text(n) for n in (4, 1024, 3 * 2**19, 2**30)] == ["4 B", "1 KiB", "1.5 MiB", "1 GiB"]
    for text in ("", "K", "1.5M", "-4", "0", "four"):
        refused("is no size", parse_size, text)


def test_the_most_informative_sizes_come_first() -> None:
    order = sizes_in_order([4**k for k in range(1, 16)])
    assert order[:5] == [2**30, 2**20, 2**16, 2**22, 4]  # quoted in the study; then the end
    assert order[5] == 2**10 or order[5] == 2**8  # in the middle of the widest gap
    assert sorted(order) == [4**k for k in range(1, 16)]
    assert sizes_in_order([8]) == [8]


def test_every_method_is_planned_and_libraries_first() -> None:
    runs = runs_in_order(4, "cuda", sizes=[4, 2**20])
    assert len(runs) == 2 * 2 * (2 + len(algorithms())) == len({run.digest for run in runs})
    assert {(run.bytes, run.execution) for run in runs[:3]} == {(2**20, "captured")}
    assert [run.method for run in runs[:3]] == ["nccl", "two_shot", "ring"]
    assert {run.method for run in runs_in_order(2, "cpu")} == {"gloo", *algorithms()} == set(methods_for("cpu"))


def test_a_record_survives_its_file(tmp_path) -> None:  # type: ignore[no-untyped-def]
    store, record = CollectiveStore(tmp_path), make_record()
    path = store.write(record)
    assert list(store) == [record] == [store.find(record.machine.name, record.key)]
    assert path.stat().st_size < 1200, "a sweep has hundreds"
    (path.parent / "bad.0.json.gz").write_bytes(b"no gzip")
    (fault,) = store.unreadable()
    assert "bad.0.json.gz is not a CollectiveRecord of this version" in fault


def test_bandwidths_by_hand() -> None:
    """1 GiB on 8 GPUs in 5 ms: 214.7 GB/s, times 2 x 7/8 is 375.8 GB/s (nccl-tests, PERFORMANCE.md)."""
    record = make_record("nccl", 2**30, 8, time_s=0.005)
    assert record.bus_bandwidth == pytest.approx(375.809e9, rel=1e-5)
    assert [bus_factor(p) for p in (2, 4, 8)] == [1.0, 1.5, 1.75]
    assert make_record(status="failed").bus_bandwidth is None
