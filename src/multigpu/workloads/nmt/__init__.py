"""Machine translation: the LSTM encoder-decoder of documents 000 and 004."""

from multigpu.lazy import lazy
from multigpu.workloads.base import Workload
from multigpu.workloads.nmt.description import MODELS

WORKLOAD = Workload(
    name="nmt",
    unit="words",
    models=MODELS,
    inputs={
        "synthetic": lazy("multigpu.inputs.drawn_text:synthetic_text"),
        "lengths_000": lazy("multigpu.inputs.drawn_text:lengths_000"),
        "bucket_means_000": lazy("multigpu.inputs.drawn_text:bucket_means_000"),
        "pieces": lazy("multigpu.inputs.pieces:pieces"),
        "pieces_package": lazy("multigpu.inputs.pieces:pieces"),
        "pieces_short": lazy("multigpu.inputs.pieces:pieces"),
        "catalogs": lazy("multigpu.inputs.text:catalogs"),
        "text_files": lazy("multigpu.inputs.text:text_files"),
    },
)
