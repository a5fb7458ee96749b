"""Transformers: GPT-2 as published, and small ones of its form."""

from multigpu.lazy import lazy
from multigpu.workloads.base import Workload
from multigpu.workloads.gpt.description import MODELS

WORKLOAD = Workload(
    name="gpt",
    unit="tokens",
    models=MODELS,
    inputs={
        "synthetic": lazy("multigpu.inputs.tokens:DrawnTokens"),
        "pieces": lazy("multigpu.inputs.tokens:pieces"),
        "pieces_package": lazy("multigpu.inputs.tokens:pieces"),
    },
)
