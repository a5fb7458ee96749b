"""Which method wins, and what a transfer takes, from planted Records."""

import pytest

from multigpu.analysis.collectives import collectives_frame, points
from multigpu.records.collective import CollectiveRecord
from multigpu_study.analysis.collectives import transfer, winners
from tests.multigpu.analysis.test_all_reduce import N, timed


def steady(method: str, size: int, seconds: float, devices: int = 8) -> CollectiveRecord:
    """Ten samples within half a percent."""
    return timed(
        method,
        size,
        [seconds * (1 + 0.001 * step) for step in (-5, -4, -3, -2, -1, 1, 2, 3, 4, 5)],
        devices,
    )


def test_a_transfer_is_measured_or_in_proportion() -> None:
    table = points(
        collectives_frame([steady("nccl", size, 1e-3 + size / 400e9, 2) for size in (2**28, 2**30)])
    )
    between = transfer(table, "nccl", 717_668_352)
    assert between is not None
    assert (
        between.value == pytest.approx(1e-3 + 717_668_352 / 400e9)
        and between.low < between.value < between.high
    )
    assert (
        transfer(table, "nccl", 2**31) is None
        and transfer(table, "nccl", 4) is None
        and transfer(table, "ring", 2**29) is None
    )


@pytest.mark.parametrize(
    ("other", "ring_s", "first"),
    # beside rounded sums it is alone
    [
        ("nccl", 2.0, "nccl"),
        ("nccl", 0.5, "ring"),
        ("nccl", 1.001, None),
        ("everyone_bf16", 2.0, None),
    ],
)
def test_a_winner_needs_intervals_apart_and_exact_sums(
    other: str, ring_s: float, first: str | None
) -> None:
    assert winners(
        points(collectives_frame([steady(other, N, 1.0), steady("ring", N, ring_s)]))
    ) == [(N, first)]


def test_nobody_wins_where_a_rival_of_the_next_size_was_not_measured() -> None:
    """Two-shot wins at 4 B and ties with NCCL at 16 B; at 64 B it has no Record, and at 256 B it
    loses.
    """
    both = [(4, 2.0, 1.0), (16, 1.0, 1.001), (256, 1.0, 2.0)]
    made = [
        record
        for size, nccl, shot in both
        for record in (steady("nccl", size, nccl), steady("two_shot", size, shot))
    ]
    made += [steady("nccl", 64, 1.0), steady("ring", 64, 3.0)]
    assert winners(points(collectives_frame(made))) == [
        (4, "two_shot"),
        (16, None),
        (64, None),
        (256, "nccl"),
    ]
    # a method that loses next door may be missing, and so may one that was measured alone there
    beside = [*made, steady("two_shot", 64, 4.0), steady("ring", 1024, 1.0)]
    assert winners(points(collectives_frame(beside)))[2:] == [
        (64, "nccl"),
        (256, "nccl"),
        (1024, None),
    ]
