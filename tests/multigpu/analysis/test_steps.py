"""What steps tell of waiting for batches, on planted numbers."""

from typing import Any

import pytest

from multigpu.analysis import steps as tell
from multigpu.records.record import Record
from tests.factory import make_record


def fed(waits: list[list[float]], **more: Any) -> Record:
    """A Record of ResNet-50 on one GPU that waited so for its batches."""
    common: dict[str, Any] = {
        "inputs": "jpeg_folder",
        "input_workers": 4,
        "prefetch": 1,
        "warmup_steps": 4,
        "timed_steps": 10,
    }
    return make_record(
        measurement={"input_wait_s": waits}, **{"workload": "cnn", "devices": 1} | common | more
    )


def test_a_wait_is_of_all_timed_steps_and_a_points_the_mean_of_its_records() -> None:
    """Of the replica that waited most, warm-up left out; what was recorded counts, also where the
    inputs need not have been waited for.
    """
    ranks = [[9.0] * 4 + [0.0] * 5 + [0.044] * 5, [9.0] * 4 + [0.0] * 5 + [0.05] * 5]
    assert tell.waited_s(fed(ranks)) == pytest.approx(0.025)
    short = {"warmup_steps": 3, "timed_steps": 3}
    assert tell.waited_s(fed([[9.0] * 3 + [0.02] * 3], **short)) == pytest.approx(0.02)
    drawn = {"inputs": "synthetic", "input_workers": None, "prefetch": 0}
    assert tell.waited_s(fed([], **drawn)) == 0.0
    assert tell.waited_s(fed(ranks, **drawn)) == pytest.approx(0.025)
    assert tell.wait_of([fed(ranks), fed([])]) == pytest.approx(0.025)
    assert tell.wait_of([fed([])]) == 0.0
