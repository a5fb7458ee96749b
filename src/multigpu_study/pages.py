"""What a page of the study uses, for `from multigpu_study.pages import *`: all of `multigpu.pages`,
the documents' tables and the study's own Records.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from multigpu import pages
from multigpu.analysis.forecast_lines import article_held_out
from multigpu.analysis.step_traces import document_replicas, document_whole
from multigpu.analysis.synchrony import curves_frame as synchrony_curves
from multigpu.analysis.synchrony import (
    devices_frame,
    downpour_frame,
    large_batch_frame,
    memory_frame,
    paper,
    ratio_frame,
)
from multigpu.pages import *
from multigpu.published import beside_records, load_published, published_value
from multigpu.stages.record import StageStore
from multigpu.synchrony.protocol import PROTOCOLS
from multigpu.synchrony.simulate import simulated_pace
from multigpu.synchrony.store import SynchronyStore
from multigpu.workloads.deepconn.description import epoch_steps
from multigpu_study.analysis.read import DocumentStudy


def page(  # type: ignore[no-redef] # in place of the tool's
    namespace: Mapping[str, Any], **more: Any
) -> DocumentStudy:
    """The study as `multigpu.pages.page` chooses it, with its Records of synchrony."""
    study = pages.page(namespace, **more)
    return DocumentStudy(study.data, study.machine)
