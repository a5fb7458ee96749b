"""Where TensorFlow truly ran each part of a step: its partitioned graphs against what the placement's row asks for."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from typing import Any

import pytest

from multigpu.paths import REPOSITORY
from multigpu.placements.traffic import HOST

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(importlib.util.find_spec("tensorflow") is None, reason="TensorFlow is not installed"),
]


@pytest.fixture(scope="module")
def proofs() -> dict[str, dict[str, Any]]:
    """What the graphs of Exp1 and Exp2 say, each on two logical CPU devices."""
    command = [sys.executable, "-m", "multigpu.engines.tensorflow.proof", "exp1", "exp2"]
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY / "src"), "TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": "-1"}
    result = subprocess.run(command, capture_output=True, text=True, timeout=100, env=environment)
    assert result.returncode == 0, result.stderr[-2000:]
    return {proof["placement"]: proof for proof in json.loads(result.stdout.splitlines()[-1])}


@pytest.mark.parametrize("placement", ["exp1", "exp2"])
def test_every_part_ran_where_the_row_asks(proofs: dict[str, dict[str, Any]], placement: str) -> None:
    """In 2018 Exp1 silently became Exp2: a fused update runs where its variable lives, whatever `tf.device` says.

    Of equal sums that were made one, or of nothing to look up, no operation is left; an update must be found.
    """
    variables = proofs[placement]["variables"]
    assert len(variables) > 5
    for variable in variables:
        asked, found = variable["asked"], variable["found"]
        assert found["update"] == [asked["update"]], variable["name"]
        assert found["merge"] in ([], [asked["update"]]) and found["read"] in ([], [asked["home"]]), variable["name"]
        assert variable["kind"] != "embedding" or found["lookup"] == [asked["lookup"]], variable["name"]


def test_updates_of_exp1_are_the_devices_and_those_of_exp2_the_hosts(proofs: dict[str, dict[str, Any]]) -> None:
    places = {name: {place for part in proof["variables"] for place in part["found"]["update"]} for name, proof in proofs.items()}
    assert places == {"exp1": {0, 1}, "exp2": {HOST}}


@pytest.mark.parametrize("placement", ["exp1", "exp2"])
def test_bytes_counted_from_sends_are_those_that_the_row_predicts(proofs: dict[str, dict[str, Any]], placement: str) -> None:
    counted = proofs[placement]["counted"]
    assert counted == proofs[placement]["predicted"] and sum(counted.values()) > 0
