"""The proof of where an update ran: what counts as proof, and TensorFlow's own answer for Exp1 and Exp2."""

from __future__ import annotations

import copy
import importlib.util
from typing import Any

import pytest

from multigpu.analysis import op_places
from multigpu.analysis.frame import frame_of
from tests.factory import make_record

HERE = importlib.util.find_spec("tensorflow") is not None


def proof(update: int, found: list[int] | None = None) -> dict[str, Any]:
    """Two variables on the host, updated at `update`."""
    places = [update] if found is None else found
    return {
        "placement": "exp1" if update >= 0 else "exp2",
        "devices": 2,
        "counted": {"host_to_device": 8},
        "predicted": {"host_to_device": 8},
        "variables": [
            {
                "name": name,
                "kind": kind,
                "asked": {"home": -1, "lookup": -1, "update": update},
                "found": {"read": [-1], "lookup": [-1] if kind == "embedding" else [], "merge": [update], "update": places},
            }
            for name, kind in (("table", "embedding"), ("kernel", "kernel"))
        ],
    }


def test_what_ran_elsewhere_is_named() -> None:
    assert op_places.as_asked(proof(0)) == [] and op_places.as_asked(proof(0, [-1])) == ["table", "kernel"]
    lost = copy.deepcopy(proof(0))
    lost["variables"][1]["found"]["update"] = []
    assert op_places.as_asked(lost) == ["kernel"], "an update that is not found proves nothing"
    merged = copy.deepcopy(proof(0))
    merged["variables"][1]["found"]["merge"] = []
    assert op_places.as_asked(merged) == [], "of two equal sums one is left"


def test_the_sentence_says_what_the_graphs_say() -> None:
    said = op_places.proof_sentence([proof(0), proof(-1)])
    assert "Exp1 updates on device 0 and Exp2 updates on host: all 2 variables ran where" in said and "are those that the row" in said
    silently = op_places.proof_sentence([proof(0, [-1]) | {"counted": {}}])
    assert "Exp1 updates on host" in silently and "table under Exp1" in silently and "differ from those" in silently
    html = op_places.proof_gt([proof(0), proof(-1)]).html
    assert "Exp1: update" in html and "device 0" in html and "host" in html


def test_an_unknown_placement_is_refused_before_anything_starts() -> None:
    with pytest.raises(ValueError, match="unknown placement 'none'"):
        op_places.ask_tensorflow(["none"])


def test_without_tensorflow_the_page_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert op_places.ask_tensorflow() is None
    assert op_places.proof_sentence(None) == op_places.ABSENT and op_places.ABSENT in op_places.proof_gt(None).html


@pytest.mark.skipif(not HERE, reason="TensorFlow is not installed")
@pytest.mark.slow
def test_exp1_and_exp2_differ_in_the_proof() -> None:
    proofs = op_places.ask_tensorflow()
    assert proofs is not None and [op_places.updates(one) for one in proofs] == [[0, 1], [-1]]
    assert all(op_places.as_asked(one) == [] and one["counted"] == one["predicted"] for one in proofs)


def test_bytes_of_every_tensorflow_record_are_compared() -> None:
    form: dict[str, Any] = {"framework": "tensorflow", "processes": "one", "execution": "graph", "precision": "tf32", "devices": 2}
    right = make_record("exp2", **form)
    assert right.measurement
    off = right.measurement.moved_bytes | {"host_to_device": 1}
    wrong = make_record("exp4", measurement={"moved_bytes": off}, **form)
    html = op_places.bytes_gt(frame_of([right, wrong, make_record("ddp", devices=2)])).html
    assert "1 of 2 points" in html and html.count("1 of 1") == 1 and html.count("0 of 1") == 1 and "ddp" not in html


def test_forms_that_move_the_same_share_a_row_on_the_most_gpus() -> None:
    form: dict[str, Any] = {"framework": "tensorflow", "processes": "one", "execution": "graph", "precision": "tf32"}

    def point(devices: int, moved: int, **more: Any) -> Any:
        bytes_ = {"device_to_device": moved}
        return make_record("exp4", devices, measurement={"moved_bytes": bytes_, "predicted_bytes": bytes_}, **form | more)

    records = [point(2, 100 << 20), point(4, 300 << 20), point(4, 300 << 20, recurrence="stepwise"), point(4, 300 << 20, precision="fp32")]
    records.append(point(4, 290 << 20, embedding_gradients="sparse"))
    html = op_places.bytes_gt(frame_of(records)).html
    assert html.count("300 MiB") == 1 and "100 MiB" not in html and "290 MiB" in html and "sparse" in html
    assert html.count("5 of 5") >= 2 and "5 of 5 points" in html
