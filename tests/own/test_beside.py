"""A user's model beside the published job nearest to it, on the committed Records."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pandas as pd
import pytest

from multigpu.analysis.points import Missing
from multigpu.own.page import beside, shown_beside
from multigpu.run import Run


def found(model: str) -> Any:
    """A comparison of a model as large as this one, on two devices."""
    gains = {"one device": 1.0, "ddp": 1.8, "exp2": 1.2, "unpublished": 1.5}
    frame = pd.DataFrame({"name": [*gains], "speedup": [*gains.values()], "n": 5}).assign(speedup_low=1.0, speedup_high=2.0)
    run = Run(workload="cnn", model=model, placement="ddp", devices=2, batch_size=64)
    return SimpleNamespace(runs=[run], names=[*gains], frame=frame)


def test_the_nearest_published_job_is_one_of_the_models_own_size() -> None:
    rows = beside(found("vgg16"))
    here, there = rows[rows["place"] == "here"], rows[rows["place"] != "here"]
    assert dict(zip(here["name"], here["efficiency"], strict=True)) == {"ddp": 0.9, "exp2": 0.6}
    assert there["place"].nunique() == 1 and there["place"].str.startswith("vgg16, ").all() and set(there["name"]) == set(here["name"])
    assert (there["n"] > 1).all() and there["efficiency"].between(there["efficiency_low"], there["efficiency_high"]).all()
    assert "<svg" in shown_beside(found("vgg16"))


def test_nothing_is_shown_where_no_published_job_is_near() -> None:
    with pytest.raises(Missing, match="no published job on 2 GPUs"):
        beside(found("resnet_tiny"))
    assert shown_beside(found("resnet_tiny")) == ""
