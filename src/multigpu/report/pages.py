"""Export the names that a page of the report uses, for `from multigpu.report.pages import *`: no
framework is loaded; each thing is documented where it is made.
"""

from __future__ import annotations

from collections.abc import MutableMapping
from itertools import product
from typing import Any

import numpy as np
import pandas as pd

from multigpu.analysis.advise_text import advised
from multigpu.analysis.answers import advising, explanation
from multigpu.analysis.collectives import collectives_frame, sample_ends, transfer, winners
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
from multigpu.analysis.forecast_accuracy import accuracy, from_one, from_several
from multigpu.analysis.forecast_lines import (
    ahead_table,
    assumed_links,
    forecast_lines,
    held_out_table,
    lines_of,
)
from multigpu.analysis.frame import step_times
from multigpu.analysis.limits import ceilings, crossing_batch, link_bounds, mfu_of
from multigpu.analysis.machines import ceilings_frame, energy_points, gpu_points, machines_frame
from multigpu.analysis.matrix import FRAMEWORKS, TableJob, matrix
from multigpu.analysis.memory import largest, peaks_beside
from multigpu.analysis.merge_cost import committed as committed_merges
from multigpu.analysis.parts import shown_parts
from multigpu.analysis.plots import STEP, bars, dots, lines, timeline
from multigpu.analysis.points import (
    CHANGED,
    Missing,
    as_it_comes,
    averages,
    one,
    one_length,
    points,
    usual,
    where,
)
from multigpu.analysis.prose import each_cell_is_a_finding, finding, linked, require, say, show
from multigpu.analysis.read import Study, need, read_study, records_of
from multigpu.analysis.show import PAGE_MACHINE, folded, points_query, sources, table, text
from multigpu.analysis.step_traces import trace_summary, trace_table
from multigpu.analysis.steps import knee, parity, warmup_frame, with_waits
from multigpu.analysis.traces import causes_frame, phases_frame, with_untraced_steps
from multigpu.analysis.words import WORDS, devices_text
from multigpu.build import build_run
from multigpu.collectives import algorithms
from multigpu.inputs.drawn_text import bucket_shares, mean_words
from multigpu.machine.ceilings import read_ceilings
from multigpu.paths import RUNS
from multigpu.report.calculator import calculator
from multigpu.report.explorer import explorable, explorer
from multigpu.spec.parameters import check_parameters
from multigpu.workloads import find_model
from multigpu.workloads.cnn.description import FOR_CIFAR


def page(namespace: MutableMapping[str, Any], **more: Any) -> Study:
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
    return study
