"""Machine translation: the LSTM encoder-decoder of documents 000 and 004."""

from multigpu.later import later
from multigpu.workloads.base import Workload
from multigpu.workloads.nmt.description import MODELS

WORKLOAD = Workload(
    name="nmt",
    unit="words",
    models=MODELS,
    inputs={
        "synthetic": later("multigpu.inputs.drawn_text:synthetic_text"),
        "lengths_000": later("multigpu.inputs.drawn_text:lengths_000"),
        "bucket_means_000": later("multigpu.inputs.drawn_text:bucket_means_000"),
        "pieces": later("multigpu.inputs.pieces:pieces"),
        "pieces_package": later("multigpu.inputs.pieces:pieces"),
        "pieces_short": later("multigpu.inputs.pieces:pieces"),
        "catalogs": later("multigpu.inputs.text:catalogs"),
        "text_files": later("multigpu.inputs.text:text_files"),
    },
)
