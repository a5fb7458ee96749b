"""The proof of where each part of a TensorFlow step ran, asked of TensorFlow while a page is built, and the bytes Records counted."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from multigpu.analysis.picture import Shown
from multigpu.analysis.style import look
from multigpu.analysis.tables import table_html, tables_by
from multigpu.analysis.wording import MODEL_NAMES, bytes_text, describe, joined, missing, plural
from multigpu.measure.process import NO_KERAS
from multigpu.placements import find_placement
from multigpu.placements.traffic import HOST, KINDS

ABSENT = "TensorFlow is not installed where this page was built, so the graph could not be asked: `pip install -e .[tensorflow]` brings it."
PARTS = {"read": "lives", "lookup": "look-up", "merge": "merge", "update": "update"}
SENT = {
    "host_to_device": "host to device",
    "device_to_host": "device to host",
    "device_to_device": "device to device",
    "all_reduce": "all-reduce",
    "all_gather": "all-gather",
    "reduce_scatter": "reduce-scatter",
}

Proof = Mapping[str, Any]
"""Of one placement, what `engines.tensorflow.proof.proof` returns."""


def ask_tensorflow(placements: Sequence[str] = ("exp1", "exp2"), timeout_s: float = 300.0) -> list[Proof] | None:
    """Train one step of a tiny model under each placement in a process of its own and read the partitioned graphs; None without TensorFlow.

    Raises:
        ValueError: no such placement; the sentence names the known ones.
        RuntimeError: TensorFlow is there and failed; the sentence ends with its last line.
    """
    for name in placements:
        find_placement(name)
    if importlib.util.find_spec("tensorflow") is None:
        return None
    command = [sys.executable, "-m", "multigpu.engines.tensorflow.proof", *placements]
    environment = {
        **os.environ,
        "CUDA_VISIBLE_DEVICES": "-1",
        "TF_CPP_MIN_LOG_LEVEL": "3",
        **NO_KERAS,
        "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
    }
    result = subprocess.run(command, capture_output=True, text=True, timeout=timeout_s, env=environment)
    if result.returncode:
        last = next((line for line in reversed(result.stderr.splitlines()) if line.strip()), "it gave no reason")
        raise RuntimeError(f"TensorFlow could not say where operations of {', '.join(placements)} run: {last.strip()}")
    found: list[Proof] = json.loads(result.stdout.splitlines()[-1])
    return found


def place_name(place: int) -> str:
    """A place in words."""
    return "host" if place == HOST else f"device {place}"


def as_asked(proof: Proof) -> list[str]:
    """Names of the variables of which some part ran elsewhere than the placement's row says; empty where all is as asked.

    A look-up or merge of which no operation is left (nothing to look up; equal sums that were made one) proves nothing and breaks
    nothing. The update must be found.
    """
    wrong = []
    for variable in proof["variables"]:
        asked, found = variable["asked"], variable["found"]
        fits = (
            found["update"] == [asked["update"]]
            and found["merge"] in ([], [asked["update"]])
            and found["read"] in ([], [asked["home"]])
            and (variable["kind"] != "embedding" or found["lookup"] == [asked["lookup"]])
        )
        if not fits:
            wrong.append(str(variable["name"]))
    return wrong


def updates(proof: Proof) -> list[int]:
    """Every place on which an update of this placement ran."""
    return sorted({place for variable in proof["variables"] for place in variable["found"]["update"]})


def proof_sentence(proofs: Sequence[Proof] | None) -> str:
    """What the graphs prove, in two sentences; why nothing is proved where TensorFlow is absent."""
    if proofs is None:
        return ABSENT
    parts = [f"{look(proof['placement']).label} updates on {joined([place_name(place) for place in updates(proof)])}" for proof in proofs]
    wrong = [f"{name} under {look(proof['placement']).label}" for proof in proofs for name in as_asked(proof)]
    count = plural(len(proofs[0]["variables"]), "variable")
    fits = f"all {count} ran where the placement's row says" if not wrong else f"elsewhere than the row says ran parts of {joined(wrong)}"
    bytes_fit = all(proof["counted"] == proof["predicted"] for proof in proofs)
    counted = "are those" if bytes_fit else "differ from those"
    first = f"In the graphs that TensorFlow partitioned, {joined(parts)}: {fits}."
    return f"{first} Bytes counted from their sends {counted} that the row predicts."


def proof_gt(proofs: Sequence[Proof] | None) -> Shown:
    """A variable a row: where it lives, where rows are looked up, where gradients are merged and where it is updated, by placement."""
    if proofs is None:
        return Shown(f'<p class="muted">{ABSENT}</p>')
    rows = []
    for index, variable in enumerate(proofs[0]["variables"]):
        row = {"variable": str(variable["name"]).replace("_", " ")}
        for proof in proofs:
            found = proof["variables"][index]["found"]
            lives = found["read"] or found["lookup"]  # a table that is looked up at home is never read as a whole
            places = {**found, "read": lives}
            for part, word in PARTS.items():
                row[f"{look(proof['placement']).label}: {word}"] = joined([place_name(place) for place in places[part]]) or "–"
        rows.append(row)
    note = (
        "Read from the graphs that TensorFlow made of one step while this page was built: a tiny model, one process, two logical CPU "
        "devices in place of GPUs, soft placement off. –: no such operation (only tables are looked up)."
    )
    return table_html(pd.DataFrame(rows), "", note)


FORM = ["inputs", "batching", "sequence_length", "recurrence", "embedding_gradients", "precision", "layout", "execution"]
"""By which points of one placement and count differ; those of the main job come first."""
MAIN = {"inputs": "synthetic", "recurrence": None, "embedding_gradients": None, "execution": "graph"}


def bytes_gt(frame: pd.DataFrame) -> Shown:
    """Bytes counted in a step by kind on the most GPUs of each TensorFlow placement, and how many of its points move what its row predicts.

    A form of the job that moves just what another moves (a loop of cells, another precision) has no row of its own.
    """
    own = frame[(frame["framework"] == "tensorflow") & (frame["status"] == "ok")]
    own = own.assign(order=own["placement"].map(lambda name: look(name).order), other=[_differs(row) for _, row in own.iterrows()])
    rows, fit, points = [], 0, 0
    for (model, _, placement), group in own.groupby(["model", "order", "placement"], sort=True):
        forms = [form for _, form in group.sort_values("other", kind="stable").groupby([*FORM, "devices"], dropna=False, sort=False)]
        right = sum(all(bool((form[f"moved_bytes_{kind}"] == form[f"predicted_bytes_{kind}"]).all()) for kind in KINDS) for form in forms)
        fit, points = fit + right, points + len(forms)
        told: set[tuple[float, ...]] = set()
        for form in forms:
            first = form.iloc[0]
            moved = tuple(0.0 if missing(value) else float(value) for value in (first[f"moved_bytes_{kind}"] for kind in KINDS))
            if first["devices"] != group["devices"].max() or moved in told or first["workload"] == "stacks":  # which move nothing
                continue
            told.add(moved)
            real = first["inputs"] != "synthetic"
            what = describe(first, [*(["input_label", "batching"] if real else []), "recurrence", "embedding_gradients"])
            rows.append(
                {
                    "model": MODEL_NAMES.get(str(model), str(model)),
                    "placement": look(str(placement)).label,
                    "what": what.removeprefix("synthetic ") if first["other"] else "",
                    "GPUs": str(first["devices"]),
                    "points as predicted": f"{right} of {len(forms)}",
                    **{SENT[kind]: bytes_text(value) if value else "0" for kind, value in zip(KINDS, moved, strict=True)},
                }
            )
    note = (
        f"{fit} of {points} points moved what their placement's row predicts, byte for byte, on every number of GPUs. Of all GPUs "
        "together, in one step, counted from the sends and collectives of the partitioned graph on the GPU host itself; shown on the "
        "most GPUs. Forms of the job that move the same (a loop of cells, another precision) share a row. all-reduce: what replicas hand "
        "to the library."
    )
    moved_so = [heading for heading in SENT.values() if any(row[heading] != "0" for row in rows)]
    unused = [heading for heading in SENT.values() if heading not in moved_so]
    note += f" Nothing went by {joined(unused)}." if unused and moved_so else ""
    rows = [{name: cell for name, cell in row.items() if name not in unused or not moved_so} for row in rows]
    right_aligned = ["GPUs", "points as predicted", *SENT.values()]
    return tables_by(pd.DataFrame(rows), "model", note if rows else "No TensorFlow Record yet.", right_aligned)


def _differs(row: Any) -> int:
    """In how many fields a point differs from the main job's."""
    return sum(row[name] != value if value is not None else not missing(row[name]) for name, value in MAIN.items())
