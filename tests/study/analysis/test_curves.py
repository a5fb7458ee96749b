"""Curves are told apart on planted ones; committed placements follow one curve."""

import math
from functools import cache

import pandas as pd
import pytest

from multigpu import paths
from multigpu_study.analysis.curves import ALLOWED, curve_distance, same_curve_table
from multigpu_study.analysis.training import curves_frame, training_frame
from multigpu_study.training.grid import GRIDS, joined_placements
from multigpu_study.training.record import TrainingRecord, TrainingStore
from tests.study.training.planted import trained

LOSSES = [2.0 - 0.05 * step for step in range(20)]
STRONG = {"devices": 2, "batch_size": 64, "scaling": "strong", "base_rate": 0.05, "epochs": 4}


def shifted(by: float) -> list[float]:
    """The curve, its second half `by` times itself higher."""
    return [*LOSSES[:10], *(loss * (1 + by) for loss in LOSSES[10:])]


def panel(other: float = 0.01, other64: float = 0.0, replicas: float = 0.5):
    """ddp in fp64 is the truth, ddp in fp32 lies 1% from it, exp2 and independent replicas as
    asked.
    """
    exact = {"precision": "fp64"}
    runs = (
        (0.0, "ddp", exact),
        (0.01, "ddp", {}),
        (other, "exp2", {}),
        (other64, "exp2", exact),
        (replicas, "independent", {}),
    )
    return [
        trained(shifted(by), placement=placement, **STRONG, **precision)
        for by, placement, precision in runs
    ]


def told(records: list[TrainingRecord]) -> pd.DataFrame:
    return same_curve_table(training_frame(records), curves_frame(records))


def test_a_distance_by_hand():
    assert curve_distance(shifted(0.1), LOSSES) == pytest.approx(0.1)
    wobbling = [loss + (0.3 if step % 2 else -0.3) for step, loss in enumerate(LOSSES)]
    assert curve_distance(wobbling, LOSSES) == pytest.approx(0, abs=1e-12)
    assert curve_distance(LOSSES[:5], LOSSES) == math.inf


def test_what_cannot_miss_is_not_counted():
    """ddp beside itself lies at 0, and its drift within three times itself, whatever it does."""
    made = panel()
    table = told(made).set_index("key").loc[[one.key for one in made]]
    assert (
        table["role"].tolist() == ["reference", "yardstick", "compared", "compared", "free"]
        and table["same"][:2].isna().all()
    )
    assert told(made[:-1])["same"].isna().all(), (
        "without replicas nothing shows what the tolerance can tell"
    )


@pytest.mark.parametrize(
    ("asked", "point", "same"),
    [
        ({"other": 0.029}, ("exp2", "fp32"), True),  # the tolerance comes from the drift of fp32
        ({"other": 0.031}, ("exp2", "fp32"), False),
        # 2^-29 of 3% is 5.6e-11: what rounding can do there
        ({"other64": 5e-11}, ("exp2", "fp64"), True),
        ({"other64": 1e-6}, ("exp2", "fp64"), False),
        ({}, ("independent", "fp32"), None),  # independent replicas need not follow
        # within fp32's 3%, which then tells nothing, and not within fp64's
        ({"replicas": 0.02}, ("exp2", "fp32"), None),
        ({"replicas": 0.02}, ("exp2", "fp64"), True),
        # beyond even that tolerance it misses all the same
        ({"other": 0.031, "replicas": 0.02}, ("exp2", "fp32"), False),
        ({"replicas": 0.031}, ("exp2", "fp32"), True),
    ],
)
def test_a_curve_is_the_same_within_what_rounding_and_not_replicas_would_keep(asked, point, same):
    table = told(panel(**asked))
    assert table["drift"].to_list() == pytest.approx([0.01] * 5) and ALLOWED == 3
    assert {(row["placement"], row["precision"]): row["same"] for _, row in table.iterrows()}[
        point
    ] is same


TRAINED = {"ddp", "exp1", "exp2", "exp3", "exp4", "independent", "ps_gpu0"}
TRAINED |= {f"replicated_{way}" for way in ("allreduce", "copy", "ring", "server")}
"""Placements that Records compare at the gentle rate; one that is added joins them with its first
Record.
"""


@cache
def committed() -> dict[str, TrainingRecord]:
    return {
        record.training.digest: record
        for record in TrainingStore(paths.TRAINING)
        if record.status == "ok"
    }


def compared_of(planned) -> tuple[list[TrainingRecord], pd.DataFrame, pd.DataFrame]:
    """The committed Records of what is planned, none of which is missing, their table and what is
    compared, all of which is the same.
    """
    missing = [training.label() for training in planned if training.digest not in committed()]
    assert not missing, missing
    own = [committed()[training.digest] for training in planned]
    table = told(own)
    compared = table[table["role"] == "compared"]
    assert compared["same"].tolist() == [True] * len(compared), compared[
        ["placement", "precision", "distance", "tolerance"]
    ]
    return own, table, compared


def test_committed_placements_follow_one_curve_to_the_end_of_their_budget(monkeypatch):
    """Every Record of the two grids that compare placements at a rate where they can be: there, at
    its last step, the same curve.
    """
    records = committed()
    known = joined_placements(unit="words")
    assert set(known) >= TRAINED
    monkeypatch.setattr("multigpu_study.training.grid.gpu_count", lambda: 2)
    two = [entry.run for entry in GRIDS["translation_cpu"]() if entry.run.base_rate == 1e-3]
    whole = [entry.run for entry in GRIDS["translation_gpu"]() if entry.run.run.devices == 2]
    assert len(two) == 2 * len(known) - 1 and len(whole) == len(known)
    two, whole = (
        [t for t in planned if t.run.placement in TRAINED or t.digest in records]
        for planned in (two, whole)
    )
    for planned, drift, beyond in ((two, 1e-6, 1e4), (whole, 0.01, 1.0)):
        own, table, compared = compared_of(planned)
        for m, training in ((one.measurement, one.training) for one in own):
            assert m is not None and m.steps == training.budget(m.steps_per_epoch) > 150
        assert (
            curves_frame(own).groupby("key")["step"].max()
            == [r.measurement.steps for r in sorted(own, key=lambda r: r.key)]
        ).all()
        assert len(table) == len(planned) and table["panel"].nunique() == 1
        assert set(compared["placement"]) >= TRAINED - {"ddp", "independent"}
        # rounding is small, and far from what another result does
        assert (
            table["drift"].max() < drift
            and table["replicas"].min() > beyond * table["tolerance"].max()
        )
        assert table.loc[table["role"] == "free", "placement"].tolist() == ["independent"]


@pytest.mark.parametrize("grid", ["training_cpu", "training_cifar_cpu", "training_alexnet_cpu"])
def test_committed_image_models_follow_one_curve_under_every_placement_on_cpus(grid: str):
    """make_parallel too, whose one process has all devices: every comparison of these grids has its
    Record, and none misses.
    """
    planned = [entry.run for entry in GRIDS[grid]() if "the same curve" in entry.settings.question]
    _, table, compared = compared_of(planned)
    assert len(compared) == len(planned) - 3 * table["panel"].nunique(), (
        "all but reference, yardstick and independent replicas"
    )
    concatenated = compared[compared["processes"] == "one"]
    names = set(concatenated["placement"])
    assert names >= {"make_parallel", "make_parallel_cpu"}
    assert (
        len(concatenated) == 2 * len(names) * table["panel"].nunique()
        and (concatenated["replicas"] > concatenated["tolerance"]).all()
    )
    assert (concatenated.loc[concatenated["precision"] == "fp64", "distance"] < 1e-12).all()
