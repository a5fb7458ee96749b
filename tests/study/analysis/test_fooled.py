"""What fooled the study is found where it is planted, and nowhere else."""

import pandas as pd
import pytest

from multigpu.analysis.compare import scaling
from multigpu.analysis.frame import frame_of
from multigpu.analysis.points import points
from multigpu.records.record import Record
from multigpu_study.analysis.fooled import days_apart, over_library, pooled_advice, share_missed
from tests.factory import make_machine, make_record

ONE, TWO = make_machine(1), make_machine(2)


def repeats(rate: float, boot: str = "", machine=TWO, n: int = 3, **fields) -> list[Record]:
    """So many repeats, 0.1% apart."""
    return [
        make_record(
            units_per_s=rate * (1 + at / 1000),
            repeat=at,
            launch_id=f"{boot}{at}",
            machine=machine,
            boot=boot,
            **fields,
        )
        for at in range(n)
    ]


@pytest.mark.parametrize("moved, missed", [(1.3, True), (1.0, False)])
def test_two_days_that_differ_are_told_apart(moved: float, missed: bool) -> None:
    frame = frame_of([*repeats(1e5, "monday"), *repeats(1e5 * moved, "tuesday")])
    (pair,) = days_apart(frame).to_dict("records")
    assert pair["missed"] is missed and pair["ratio"] == pytest.approx(moved)
    assert pair["n"] == 6 and pair["form"] == "eager"
    share = share_missed(days_apart(frame)).iloc[0]
    assert share["share"] == missed and share["share_low"] <= missed <= share["share_high"]
    assert days_apart(frame_of(repeats(1e5, "monday"))).empty, "one day is no pair"


def test_pooled_machines_advise_what_no_machine_says() -> None:
    captured = repeats(9e5, machine=ONE, devices=1, execution="captured")
    eager = [*repeats(3e5, devices=1), *repeats(5.7e5, devices=2)]
    rows = pooled_advice(points(frame_of([*captured, *eager])))
    assert dict(zip(rows["read"], rows["ratio"], strict=True)) == pytest.approx(
        {"machines pooled": 0.633, "within one machine": 1.9}, rel=1e-2
    )
    alike = [*captured, *repeats(9.5e5, machine=TWO, devices=2, execution="captured"), *eager]
    assert pooled_advice(points(frame_of(alike))).empty, "two are faster in the pool, too"


def test_faster_kernels_are_credited_to_further_gpus() -> None:
    plain = repeats(1e5, devices=1, execution="captured")
    fast = repeats(3.6e5, devices=2, execution="captured", recurrence="persistent")
    table: pd.DataFrame = points(frame_of([*plain, *fast]))
    (over,) = over_library(table)["over"]
    assert over == pytest.approx(1.8) and scaling(table)["efficiency_like"].max() <= 1
    alone = repeats(1.9e5, devices=1, execution="captured", recurrence="persistent")
    same = scaling(points(frame_of([*plain, *fast, *alone])))
    assert same.loc[same["devices"].eq(2), "efficiency_like"].iloc[0] == pytest.approx(
        0.947, abs=2e-3
    )
