"""A process compares a way of training once, whatever is timed of it."""

from typing import Any

import pytest

from multigpu.engines.common import checked
from multigpu.records.record import Equivalence
from multigpu.spec.run import Run


@pytest.fixture(autouse=True)
def forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checked, "_known", {})
    monkeypatch.delenv(checked.EQUALITY_KNOWN, raising=False)


def run_of(**fields: Any) -> Run:
    plain = {"workload": "nmt", "model": "nmt_tiny", "placement": "ddp"}
    return Run(**plain | {"batch_size": 4, "devices": 2} | fields)


@pytest.mark.parametrize(
    ("changed", "again"),
    [
        ({"timed_steps": 3}, False),
        ({"traced_steps": 2}, False),
        ({"execution": "compiled"}, False),
        ({"framework": "tensorflow", "execution": "xla"}, True),
        ({"placement": "exp4"}, True),
        ({"micro_steps": 2}, True),
        ({"precision": "bf16"}, True),
        ({"devices": 3}, True),
    ],
)
def test_a_way_is_compared_once(changed: dict[str, Any], again: bool) -> None:
    asked: list[int] = []

    def compare() -> Equivalence:
        asked.append(1)
        return Equivalence(distance=0.1 * len(asked), tolerance=1.0, steps=3, precision="fp64")

    first = checked.told_once(run_of(), compare)
    second = checked.told_once(run_of(**changed), compare)
    assert len(asked) == 1 + again
    assert (first != second) == again


def test_what_an_earlier_launch_compared_is_not_compared_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Whatever its form: launched steps are compared of all."""

    def compare() -> Equivalence:
        return Equivalence(distance=0.1, tolerance=1.0, steps=3, precision="fp64")

    known = [checked.way_of(run_of(timed_steps=7)).digest, checked.way_of(run_of(devices=3)).digest]
    monkeypatch.setenv(checked.EQUALITY_KNOWN, ",".join(known))
    for same in ({"traced_steps": 2}, {"execution": "compiled"}):
        assert checked.told_once(run_of(**same), compare) == {"equivalence": None}
    for other in ({"micro_steps": 2}, {"placement": "exp4"}):
        found = checked.told_once(run_of(**other), compare)["equivalence"]
        assert found is not None and found["distance"] == 0.1
