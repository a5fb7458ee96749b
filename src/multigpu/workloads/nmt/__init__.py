"""Machine translation: the LSTM encoder-decoder of documents 000 and 004."""

from __future__ import annotations

from typing import TYPE_CHECKING

from multigpu.workloads.base import Model, Workload
from multigpu.workloads.nmt.description import MODELS

if TYPE_CHECKING:
    from multigpu.inputs.batch import Source
    from multigpu.run import Run

# Inputs are imported when one is made: a Run can then be checked without reading a corpus's code.


def _synthetic(run: Run, model: Model) -> Source:
    from multigpu.inputs.text import synthetic_text

    return synthetic_text(run, model)


def _lengths_000(run: Run, model: Model) -> Source:
    from multigpu.inputs.text import lengths_000

    return lengths_000(run, model)


def _bucket_means_000(run: Run, model: Model) -> Source:
    from multigpu.inputs.text import bucket_means_000

    return bucket_means_000(run, model)


def _pieces(run: Run, model: Model) -> Source:
    from multigpu.inputs.pieces import pieces

    return pieces(run, model)


def _catalogs(run: Run, model: Model) -> Source:
    from multigpu.inputs.text import catalogs

    return catalogs(run, model)


def _text_files(run: Run, model: Model) -> Source:
    from multigpu.inputs.text import text_files

    return text_files(run, model)


WORKLOAD = Workload(
    name="nmt",
    unit="words",
    models=MODELS,
    inputs={
        "synthetic": _synthetic,
        "lengths_000": _lengths_000,
        "bucket_means_000": _bucket_means_000,
        "pieces": _pieces,
        "pieces_package": _pieces,
        "pieces_short": _pieces,
        "catalogs": _catalogs,
        "text_files": _text_files,
    },
)
