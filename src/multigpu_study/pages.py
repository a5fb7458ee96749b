"""Export the names that a page of the report uses, for `from multigpu_study.pages import *`: no
framework is loaded; each thing is documented where it is made.
"""

from collections.abc import MutableMapping
from itertools import product
from typing import Any

import altair as alt
import numpy as np
import pandas as pd

from multigpu.analysis.advise_text import advised
from multigpu.analysis.collectives import collectives_frame
from multigpu.analysis.compare import (
    also,
    beside,
    compared,
    ratio_columns,
    records_with,
    repeated,
    scaling,
    stacked,
    versus,
)
from multigpu.analysis.estimate import Estimate, estimate, keys_in
from multigpu.analysis.explain_text import explained
from multigpu.analysis.fields import LENGTH
from multigpu.analysis.forecast_lines import assumed_links, lines_of
from multigpu.analysis.limits import ceilings, mfu_of
from multigpu.analysis.machines import machines_frame
from multigpu.analysis.matrix import FRAMEWORKS, TableJob, matrix
from multigpu.analysis.plots import STEP, bars, dots, lines, timeline
from multigpu.analysis.points import CHANGED, as_it_comes, one, one_length, points, usual, where
from multigpu.analysis.prose import each_cell_is_a_finding, finding, linked, require, say, show
from multigpu.analysis.read import Study, need, read_study, records_of
from multigpu.analysis.show import PAGE_MACHINE, folded, points_query, sources, table, text
from multigpu.analysis.step_traces import trace_summary, trace_table
from multigpu.analysis.traces import with_untraced_steps
from multigpu.analysis.words import WORDS
from multigpu.build import build_run
from multigpu.collectives import algorithms
from multigpu.inputs.drawn_text import bucket_shares, mean_words
from multigpu.machine.ceilings import read_ceilings
from multigpu.spec.parameters import check_parameters
from multigpu.workloads import find_model
from multigpu.workloads.cnn.description import FOR_CIFAR
from multigpu_study.analysis.batching import as_published, batching_frame, counted_units
from multigpu_study.analysis.collectives import sample_ends, transfer, winners
from multigpu_study.analysis.curves import same_curve_table
from multigpu_study.analysis.fooled import days_apart, over_library, pooled_advice, share_missed
from multigpu_study.analysis.forecast import article_held_out, foretold
from multigpu_study.analysis.forecast_accuracy import (
    accuracy,
    ahead_table,
    forecast_lines,
    from_one,
    from_several,
    held_out_table,
)
from multigpu_study.analysis.interference import launch_gaps, launch_ratios
from multigpu_study.analysis.levers import banner, best, levers, staircase
from multigpu_study.analysis.machines import ceilings_frame, energy_points, gpu_points
from multigpu_study.analysis.matrix_plot import heat
from multigpu_study.analysis.memory import crossing_batch, largest, link_bounds, peaks_beside
from multigpu_study.analysis.merge_cost import committed as committed_merges
from multigpu_study.analysis.points import averages
from multigpu_study.analysis.read import DocumentStudy
from multigpu_study.analysis.servers import devices_frame, downpour_frame, large_batch_frame, paper
from multigpu_study.analysis.step_traces import (
    document_replicas,
    document_whole,
    replicas_frame,
    whole_frame,
)
from multigpu_study.analysis.steps import knee, parity, step_times, warmup_frame, with_waits
from multigpu_study.analysis.synchrony import curves_frame as synchrony_curves
from multigpu_study.analysis.synchrony import memory_frame, ratio_frame
from multigpu_study.analysis.training import curves_frame, differences, reach_frame
from multigpu_study.published import beside_records, load_published, published_value
from multigpu_study.report.calculator import calculator
from multigpu_study.report.explorer import choosing, explorable, explorer
from multigpu_study.stages.record import StageStore
from multigpu_study.synchrony.protocol import PROTOCOLS
from multigpu_study.synchrony.simulate import simulated_pace
from multigpu_study.synchrony.store import SynchronyStore
from multigpu_study.training.record import TrainingStore
from multigpu_study.workloads.deepconn.description import epoch_steps


def page(namespace: MutableMapping[str, Any], **more: Any) -> DocumentStudy:
    """The study as the page's parameters, in its `globals()`, choose it; a page of one machine says
    so in a line. Every later cell is a
    finding (`prose`). more: further parameters and their types; raises as `check_parameters`, or a
        ValueError if there is no such folder.
    """
    of_a_machine = {"machine": str} if "machine" in namespace else {}
    check_parameters(namespace, records=str, **of_a_machine, **more)
    study = read_study(namespace["records"], namespace.get("machine", ""))
    each_cell_is_a_finding()
    PAGE_MACHINE[:] = [study.machine] if of_a_machine else []
    if of_a_machine:
        show(say(study.header()))
    return DocumentStudy(study.data, study.machine)
