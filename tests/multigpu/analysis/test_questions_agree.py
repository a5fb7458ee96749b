"""Asked for random committed points, and for planted ones of CPUs, `explain` and `advise` never
contradict the Records.
"""

import json
import math
import random
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from multigpu import paths
from multigpu.analysis.advise import advise
from multigpu.analysis.advise_text import as_dict as advice_dict
from multigpu.analysis.advise_text import sentences as advice
from multigpu.analysis.estimate import estimate
from multigpu.analysis.explain import Explanation, baselines, faster
from multigpu.analysis.explain_text import as_dict, sentences
from multigpu.analysis.fields import SAME
from multigpu.analysis.points import where
from multigpu.analysis.query import alike
from multigpu.analysis.read import frames
from multigpu.cli.main import main
from multigpu.records.record import RecordStore
from tests.factory import make_record, plant
from tests.further import but

DRAWN = 200
ROUNDED = 1e-9


def explained(table: pd.DataFrame, row: pd.Series) -> Explanation:
    """The explanation without traces, which have a test of their own."""
    beside, rivals = baselines(table, row), faster(table, row)
    return Explanation(row, beside, None, (), 0.0, {}, rivals, "not traced")


def levels(frame: pd.DataFrame, keys: str) -> list[float]:
    """A point's level in each boot (a logarithm), once as the mean of its repeats and once of its
    launches.
    """
    own = frame[frame["key"].isin(keys.split(", ")) & frame["status"].eq("ok")]
    logs = own.assign(level=np.log(own["units_per_s"]))
    launches = logs.groupby(["boot", "launch_id"])["level"].mean()
    return [*logs.groupby("boot")["level"].mean(), *launches.groupby("boot").mean()]


def holds(frame: pd.DataFrame, ratio: float, own: pd.Series, base: pd.Series) -> None:
    """A ratio weighs the boots of both points, by their launches or repeats: it lies among what a
    boot of the one gives over a boot of the other, and is that where each has one.
    """
    mine, others = levels(frame, own["keys"]), levels(frame, base["keys"])
    low, high = min(mine) - max(others), max(mine) - min(others)
    assert low - ROUNDED <= math.log(ratio) <= high + ROUNDED, (ratio, low, high)


def agree(frame: pd.DataFrame, table: pd.DataFrame, row: pd.Series) -> None:
    """What both say of a point is what the table of points holds."""
    one = explained(table, row)
    said = as_dict(one)
    assert said["point"]["rate"] == pytest.approx(row["rate"])
    text = sentences(one)
    for base in said["baselines"].values():
        keys = ", ".join(base["point"]["keys"])
        holds(frame, base["ratio"], row, table[table["keys"].eq(keys)].iloc[0])
    if row["devices"] > 1 and (base := one.base) is not None and base["devices"] == 1:
        times = row["rate"] / base["rate"]
        assert times < 1 if "are slower than one" in text[0] else True
        assert times > 1 if " reach " in text[0] else True
    same = alike(table, row, SAME)
    rivals = same[same["n"] > 0]
    if "Nothing measured" in text[2]:
        clear = rivals[(rivals["n"] > 1) & (rivals["rate_low"] > 1.05 * row["rate_high"])]
        assert clear[clear["placement"].eq(row["placement"])].empty
    else:
        assert one.faster["ratio"].iloc[0] > 1
        assert one.faster["precision"].eq(row["precision"]).all()
    ranked = advise(same, table)
    if ranked.best is not None:
        best = ranked.best
        assert estimate(best, "rate").value == pytest.approx(best["rate"])
        equal = ranked.ranked[ranked.ranked["standing"].ne("not the same training")]
        sure = equal[equal["rate_low"].notna() & (equal["rate_low"] > best["rate_high"])]
        assert sure[sure["tier"].eq(best["tier"])].empty
        assert ranked.ranked["precision"].nunique() == 1
        if ranked.single is not None:
            over = advice_dict(ranked)["over_one_best"]
            holds(frame, over["ratio"], best, ranked.single)
            if over["_high"] is not None:
                assert ("Take one" in advice(ranked)[0]) is (over["_high"] < 1)


PARTS = 8


@pytest.mark.timeout(600)
@pytest.mark.parametrize("part", but(range(2), range(PARTS)))
def test_200_random_committed_points(part: int) -> None:
    frame, every = frames(paths.RUNS)
    measured = every[every["n"] > 0]
    rows = measured.loc[random.Random(50).sample(list(measured.index), DRAWN)].iloc[part::PARTS]
    tables = {name: where(every, machine=name) for name in rows["machine"].unique()}
    for _, row in rows.iterrows():
        agree(frame, tables[row["machine"]], row)


def test_points_of_cpus_have_their_one_process_and_what_is_faster(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A machine without a GPU has none to name; two processes reach 1.5 times one, and Exp3 has 2/3
    of that.
    """
    rates = {("ddp", 1): 100.0, ("ddp", 2): 150.0, ("exp3", 2): 100.0}
    records = [
        make_record(
            device_type="cpu",
            placement=placement,
            devices=devices,
            units_per_s=rate * (1 + 0.002 * repeat),
            repeat=repeat,
            launch_id=str(repeat),
        )
        for (placement, devices), rate in rates.items()
        for repeat in range(5)
    ]
    plant(RecordStore(tmp_path / "runs"), records)
    frame, every = frames(tmp_path / "runs")
    for _, row in every.iterrows():
        agree(frame, every, row)
    model = records[0].run.model
    asked = ["workload=nmt", f"model={model}", "devices=2"]
    assert main(["--records", str(tmp_path / "runs"), "explain", *asked, "placement=exp3"]) == 0
    said = capsys.readouterr().out
    assert "was not measured on one" not in said and "Nothing measured" not in said
    assert "placement ddp instead of exp3" in said
    assert main(["--records", str(tmp_path / "runs"), "advise", *asked, "--format", "json"]) == 0
    (job,) = json.loads(capsys.readouterr().out)["jobs"]
    assert job["over_one_best"]["ratio"] == pytest.approx(1.5, rel=0.01)
    assert "2 CPU processes take ddp" in job["advice"]
