"""What documents printed of a point stands beside our figures of it."""

import pytest

from multigpu.spec.run import Run
from multigpu_study.published import load_published, published_of


def translator(placement: str) -> Run:
    """Document 000's translator on two devices, with sentences of 100 words."""
    return Run(
        workload="nmt",
        model="nmt000",
        placement=placement,
        devices=2,
        batch_size=128,
        sequence_length=100,
        precision="bf16",
    )


def test_a_documents_point_stands_beside_ours() -> None:
    table = load_published("000_experiments")
    exp5 = table[
        (table["experiment"] == "Exp5") & (table["batch_size"] == 128) & (table["gpus"] == 2)
    ]
    assert published_of(translator("exp4"))["rate"].tolist() == exp5["words_per_s"].tolist() != []
    steps = published_of(
        Run(workload="nmt", model="nmt004", placement="ddp", batch_size=64, devices=8)
    )
    assert steps["step_time_s"].tolist() == pytest.approx([0.680]) and steps["rate"].isna().all()
    assert published_of(translator("ddp")).empty
