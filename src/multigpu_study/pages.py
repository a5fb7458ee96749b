"""Export the names that a page of the study uses, for `from multigpu_study.pages import *`: all of
`multigpu.report.pages`, the documents' tables and the study's own Records.
"""

from __future__ import annotations

from collections.abc import MutableMapping
from typing import Any

from multigpu.report import pages
from multigpu.report.pages import *
from multigpu_study.analysis.batching import as_published, batching_frame, counted_units
from multigpu_study.analysis.curves import same_curve_table
from multigpu_study.analysis.fooled import days_apart, over_library, pooled_advice, share_missed
from multigpu_study.analysis.forecast import article_held_out, foretold
from multigpu_study.analysis.interference import launch_gaps, launch_ratios
from multigpu_study.analysis.levers import banner, best, levers, staircase
from multigpu_study.analysis.matrix_plot import heat
from multigpu_study.analysis.read import DocumentStudy
from multigpu_study.analysis.servers import devices_frame, downpour_frame, large_batch_frame, paper
from multigpu_study.analysis.step_traces import (
    document_replicas,
    document_whole,
    replicas_frame,
    whole_frame,
)
from multigpu_study.analysis.synchrony import curves_frame as synchrony_curves
from multigpu_study.analysis.synchrony import memory_frame, ratio_frame
from multigpu_study.analysis.training import curves_frame, differences, reach_frame
from multigpu_study.published import beside_records, load_published, published_value
from multigpu_study.stages.record import StageStore
from multigpu_study.synchrony.protocol import PROTOCOLS
from multigpu_study.synchrony.simulate import simulated_pace
from multigpu_study.synchrony.store import SynchronyStore
from multigpu_study.training.record import TrainingStore
from multigpu_study.workloads.deepconn.description import epoch_steps


def page(  # type: ignore[no-redef] # in place of the tool's
    namespace: MutableMapping[str, Any], **more: Any
) -> DocumentStudy:
    """The study as `multigpu.report.pages.page` chooses it, with its Records of synchrony."""
    study = pages.page(namespace, **more)
    return DocumentStudy(study.data, study.machine)
