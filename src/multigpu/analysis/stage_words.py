"""Where the stages of one model are, in words."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import groupby
from typing import Any

from multigpu.analysis.wording import joined
from multigpu.stages.graph import StageGraph, parse_places
from multigpu.workloads import find_model
from multigpu.workloads.deepconn.stages import stage_graph


def stages_text(row: Mapping[str, Any]) -> str:
    """What a Run with `stage_devices` does not put on the first GPU (`other_gpus_text`)."""
    graph = stage_graph(find_model("deepconn", row["model"]), strings=str(row["feed"]) == "strings")
    return other_gpus_text(graph, row["stage_devices"])


def other_gpus_text(graph: StageGraph, stage_devices: str) -> str:
    """What is not on the first GPU, neighbours of one tower joined: "user conv to dense and rating on GPU 1"; "all on one GPU".

    GPUs count as they come, since equal ones can change places.
    """
    places = parse_places(graph, stage_devices)
    said = []
    for number, device in enumerate(dict.fromkeys(places[stage.name] for stage in graph.placed)):
        parts = groupby(graph.placed, key=lambda stage: (places[stage.name], stage.tower))
        runs = [[stage.name for stage in stages] for (place, _), stages in parts if place == device]
        words = [one[0].replace("_", " ") + (f" to {one[-1].split('_')[-1]}" if len(one) > 1 else "") for one in runs]
        said += [f"{joined(words)} on GPU {number}"] if number else []
    return "; ".join(said) or "all on one GPU"
