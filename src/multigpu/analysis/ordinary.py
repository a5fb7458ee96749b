"""Which Records are of the study's ordinary Runs, and which answer a question that has a page of its own."""

from __future__ import annotations

from typing import Any

import pandas as pd

from multigpu.older_programs import WHOLE_SINCE

COMPILED = ("compiled", "compiled_captured")
"""Forms of execution in which torch.compile makes the kernels."""

SPECIAL = ("input_workers", "staging", "image_dtype", "device_ids", "peer_access", "energy_window_s", "host_cores")
"""Fields of a Run that ask for something besides training: how it is fed, on which GPUs and how many cores, with which counters."""

BUCKETS = ("bucket_mib", "bucket_update", "bucket_send")
"""Fields of a Run that say how the buckets of an overlapped all-reduce are made, sent and updated."""

USUAL_BUCKETS: dict[str, Any] = dict.fromkeys(BUCKETS)
"""As the library makes them."""

BATCHED = ("bucket_means_000",)
"""Inputs that are compared with other ways of batching."""

FED = ("synthetic_host", "jpeg_folder")
"""Inputs that are compared with what stays on the device."""


def usual_buckets(frame: pd.DataFrame) -> pd.DataFrame:
    """The rows whose buckets are the library's in size, form and time of update."""
    return frame[frame[list(BUCKETS)].isna().all(axis=1)]


def in_blocks(frame: pd.DataFrame) -> pd.Series:
    """Which rows are of image models of whose layers torch.compile had the blocks alone (`older_programs.compiled_in_blocks`)."""
    return frame["workload"].eq("cnn") & frame["execution"].isin(COMPILED) & frame["measured_at"].lt(WHOLE_SINCE)


def of_today(frame: pd.DataFrame) -> pd.DataFrame:
    """The rows without those of an older program under the same Run (`in_blocks`), which are not compared with today's."""
    return frame[~in_blocks(frame)]


def ordinary(frame: pd.DataFrame, family: bool = False) -> pd.DataFrame:
    """The rows that pages about placements, models and batches speak of: a Run that was fed, pinned to GPUs or watched by a counter is
    another one of the same name, so is one whose sentences share a step otherwise than the document's, and members of the made-up
    family are no model of the documents. PyTorch's loop of cells is there to be slow, on the page about 2018's lost speed, and persistent
    cells, which one kind of GPU has, are compared with the library's in a grid of their own.

    family: whether the page is about the family.
    """
    special = frame[[name for name in SPECIAL if name in frame]].notna().any(axis=1)
    fed = frame["inputs"].isin(FED) if "inputs" in frame else False
    made_up = frame["model"].str.startswith("family_").fillna(False) if "model" in frame and not family else False
    batched = frame["batching"].isin(("shared", "fixed")) | frame["shuffle"] if {"batching", "shuffle"} <= set(frame) else False
    drawn = frame["inputs"].isin(BATCHED) if "inputs" in frame else False
    cells: Any = False
    if {"recurrence", "framework", "workload"} <= set(frame):
        cells = frame["recurrence"].isin(("stepwise", "persistent")) & frame["framework"].eq("torch") & frame["workload"].eq("nmt")
    return frame[~(special | fed | made_up | batched | drawn | cells)]
