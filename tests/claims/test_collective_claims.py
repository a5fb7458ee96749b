"""Claims about all-reduces between hosts: planted CollectiveRecords decide C25 in every direction, and nothing else does."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from multigpu.analysis.collectives import collectives_frame
from multigpu.claims import evaluate, find_claim
from multigpu.collectives.record import CollectiveRecord
from multigpu.hosts.cluster import Cluster, as_machine
from multigpu.hosts.grid import find_parts
from tests.collectives.planted import make_record

QUIET = (1.0, 1.004, 0.996, 1.003, 0.997)
SO = {
    ("ring", 2): 3.4,
    ("ring", 4): 5.1,
    ("ring", 8): 5.95,
    ("central_server", 2): 6.6,
    ("central_server", 4): 19.5,
    ("central_server", 8): 46.0,
}
"""Milliseconds by which the claim holds: 2N(P-1)/P and 2N(P-1), nearly."""
CLAIM = find_claim("C25")
SLOW_BYTES = find_parts(["growth_repeated"])[0].runs[0].bytes  # type: ignore[union-attr]


def planted(
    times: dict[tuple[str, int], float], noise: Sequence[float] = QUIET, launches: str = "aaabb", **more: object
) -> list[CollectiveRecord]:
    """Repeats of each method on each number of hosts, in milliseconds. mbit: of their links; slept: fields of the Runs."""
    mbit, slept = more.pop("mbit", 50), more.pop("slept", {})
    fields = {"size": SLOW_BYTES, "gpus": 0, "execution": "eager"} | more
    records = []
    for (method, devices), time_ms in times.items():
        for repeat, (factor, launch) in enumerate(zip(noise, launches, strict=False)):
            record = make_record(method, devices=devices, repeat=repeat, time_s=time_ms * factor / 1e3, **fields)  # type: ignore[arg-type]
            assert record.measurement is not None or record.status != "ok"
            if record.measurement:
                samples = [time_ms * factor / 1e3] * 20
                record = record.model_copy(update={"measurement": record.measurement.model_copy(update={"time_s": samples})})
            where = Cluster(hosts=devices, per_host=1, network=f"{mbit} Mbit/s each way", link=f"{mbit} mbit")
            run = record.run.model_copy(update=slept)
            records.append(record.model_copy(update={"launch_id": launch, "machine": as_machine(record.machine, where), "run": run}))
    return records


def verdict(records: list[CollectiveRecord]) -> str:
    return evaluate(CLAIM, collectives_frame(records)).verdict


def test_it_holds_and_names_its_records() -> None:
    records = planted(SO)
    result = evaluate(CLAIM, collectives_frame(records))
    assert result.verdict == "holds", result.why
    assert set(result.record_keys) == {record.key for record in records} and set(result.by_framework) == {"torch"}
    assert "growth of the central server's time from 2 to 8 hosts over the ring's: 3.98x (95%" in result.figure


@pytest.mark.parametrize(
    "other",
    [
        {("ring", 8): 3.4 * 4},
        {("central_server", 8): 6.6 * 3},
    ],
)
def test_a_ring_that_grows_or_a_server_that_does_not_refute_it(other: dict[tuple[str, int], float]) -> None:
    assert verdict(planted(SO | other)) == "does not hold"


def test_noise_is_inconclusive() -> None:
    assert verdict(planted(SO, (1.0, 6.0, 1 / 6, 4.0, 1 / 4))) == "inconclusive"


def test_without_eight_hosts_it_is_not_yet_measured_and_says_so() -> None:
    result = evaluate(CLAIM, collectives_frame(planted({key: time for key, time in SO.items() if key[1] < 8})))
    assert result.verdict == "not yet measured"
    assert "central server on 8 hosts; ring on 8 hosts" in result.why


def test_one_repeat_or_one_launch_never_decides() -> None:
    for records in (planted(SO, (1.0,)), planted(SO, launches="aaaaa"), planted(SO, QUIET[:4])):
        assert verdict(records) == "inconclusive"


@pytest.mark.parametrize(
    "more", [{"size": 2**20}, {"status": "out_of_memory"}, {"gpus": 8}, {"slept": {"delay_us": 5}}, {"slept": {"compute_ms": 360}}]
)
def test_other_messages_failures_gpus_and_what_slept_never_decide(more: dict[str, object]) -> None:
    assert verdict(planted(SO, **more)) == "not yet measured"


def test_processes_of_one_host_never_decide() -> None:
    alone = [make_record(method, SLOW_BYTES, devices, "eager", gpus=0, repeat=i) for method, devices in SO for i in range(5)]
    assert verdict(alone) == "not yet measured"


def test_sides_over_different_links_are_never_compared() -> None:
    few = planted({key: time for key, time in SO.items() if key[1] == 2}, mbit=200)
    assert verdict(few + planted({key: time for key, time in SO.items() if key[1] > 2})) == "not yet measured"
