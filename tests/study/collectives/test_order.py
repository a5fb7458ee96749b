"""An all-reduce to be timed: what cannot be, how often it is repeated, and what comes first."""

from typing import Any

import pytest

from multigpu.spec.collective import CollectiveRun, repetition, size_text
from multigpu_study.collectives.order import parse_size, runs_in_order, sizes_in_order
from tests.refusals import cases_beside, refused

KIB, MIB = 2**10, 2**20


def made(**more: Any) -> CollectiveRun:
    return CollectiveRun.built(**{"method": "ring", "bytes": 64 * KIB, "devices": 4} | more)


@pytest.mark.parametrize(("words", "why"), cases_beside(__file__, "refused.csv"))
def test_what_cannot_be_timed_is_refused(words: str, why: str) -> None:
    fields = dict(word.split("=") for word in words.split())
    numbers = {name: int(value) for name, value in fields.items() if value.isdigit()}
    refused(why, made, **fields | numbers)


def test_what_can_be_timed_says_what_it_is() -> None:
    assert made(bytes=4).elements == 1 and made(devices=3).chosen_devices == (0, 1, 2)
    assert made().label() == "ring 64 KiB x4 fp32 eager"
    slept = made(device_type="cpu", delay_us=7, compute_ms=3, devices=2)
    assert slept.label() == "ring 64 KiB x2 fp32 eager after 3 ms delayed by 7 us"
    for fields in (
        {"method": "gloo", "device_type": "cpu", "compute_ms": 3, "devices": 1},
        {"method": "nccl", "execution": "captured"},
        {"method": "two_shot", "devices": 16},
    ):
        assert made(**fields).devices == fields.get("devices", 4)


def test_sizes_are_read_as_they_are_written() -> None:
    texts = {4: "4 B", 1023: "1023 B", KIB: "1 KiB", 1536: "1.5 KiB", MIB: "1 MiB", 2**30: "1 GiB"}
    assert {size: size_text(size) for size in texts} == texts
    assert [parse_size(text) for size, text in texts.items() if size != 1536] == [
        size for size in texts if size != 1536
    ]
    assert parse_size(" 064k ") == 64 * KIB and parse_size("16Mb") == 16 * MIB
    for text in ("0", "1.5K", "", "-4", "4 4", "4T"):
        refused("is no size", parse_size, text)


def test_the_most_informative_sizes_come_first() -> None:
    """What the study quotes, the ends, then the middle of the widest gap in powers."""
    assert sizes_in_order([4, 16, 4, 64]) == [4, 64, 16]
    given = [2**power for power in (2, 4, 8, 14, 16, 20, 25, 28, 30)]
    first = [2**30, MIB, 2**16, 4]
    # 2^8 is six powers from 4, 2^25 five from 1 MiB and 1 GiB, 2^14, 2^28 and 16 two from others
    assert sizes_in_order(given) == [*first, 2**8, 2**25, 2**4, 2**14, 2**28]


@pytest.mark.parametrize(
    ("device_type", "often", "fewer", "fewest"),
    [("cuda", MIB, 32 * MIB, 32 * MIB + 4), ("cpu", 64 * KIB, MIB, MIB + 4)],
)
def test_small_messages_are_repeated_more_often_than_large_ones(
    device_type: Any, often: int, fewer: int, fewest: int
) -> None:
    calls = [
        repetition(size, device_type)["calls"] for size in (4, often, often + 4, fewer, fewest)
    ]
    assert calls[0] == calls[1] == 20 and calls[2] == calls[3]
    assert 20 > calls[2] > calls[4] > 1, "and a sample of one call would tell of no calls"
    warm = [repetition(size, device_type)["warmup_calls"] for size in (4, fewer, fewest)]
    assert warm[0] == warm[1] > warm[2] >= 1
    for size in (4, fewest):
        run = made(bytes=size, device_type=device_type, **repetition(size, device_type))
        assert run.samples == {"cuda": 10, "cpu": 5}[device_type]


def test_runs_come_by_size_then_form_then_method() -> None:
    runs = runs_in_order(4, "cuda", [4, MIB], ["ring", "nccl"])
    assert [(run.bytes, run.execution, run.method) for run in runs] == [
        (size, form, method)
        for size in (MIB, 4)
        for form in ("captured", "eager")
        for method in ("ring", "nccl")
    ]
    for device_type, largest, libraries in (
        ("cuda", 2**30, ["nccl", "two_shot"]),
        ("cpu", 16 * MIB, ["gloo"]),
    ):
        every = runs_in_order(2, device_type)
        assert {run.bytes for run in every} == {
            4**power for power in range(1, 20) if 4**power <= largest
        }
        methods = list(dict.fromkeys(run.method for run in every))
        assert methods[: len(libraries) + 2] == [*libraries, "ring", "central_server"]
        assert len(every) == len(set(every)) and {run.devices for run in every} == {2}
    assert {run.execution for run in runs_in_order(2, "cpu")} == {"eager"}
    assert [run.execution for run in runs_in_order(2, "cuda", [4], ["ring"], ["eager"])] == [
        "eager"
    ]
