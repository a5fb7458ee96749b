"""Measure a random sample of Records once more on this machine: do they come out again?"""

import math
import random
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from multigpu.analysis.statistics import half_width, log_samples
from multigpu.analysis.verify import kind_of, raw_records, repeatable_kind
from multigpu.machine.machine import gpu_count, this_machine
from multigpu.records.record import Record, RecordStore
from multigpu.records.store import RecordKind
from multigpu.runner.point import Point
from multigpu.runner.sweep import measure


def measured_again(root: Path, count: int, seed: int = 0) -> Iterator[tuple[str, bool]]:
    """For each of `count` Records that this machine can measure, what came out, and whether it
    agrees; a ValueError if there is none. A Run agrees if its rate lies where one more repeat of
    the point is expected (95%). What depends on no machine agrees as its kind says
    (`RecordKind.again`).
    """
    every = list(possible_here(root))
    if not every:
        raise ValueError(
            f"{root} holds no Record that this machine could measure again: it has {gpu_count()}"
            " GPUs"
        )
    chosen = random.Random(seed).sample(every, min(count, len(every)))
    for kind, record in chosen:
        if kind is not None and kind.again is not None:
            yield kind.again(record)
    if runs := [record for kind, record in chosen if kind is None]:
        yield from _timed(runs, [record for kind, record in every if kind is None])


def possible_here(root: Path) -> Iterator[tuple[RecordKind | None, Any]]:
    """The measured Records that this machine can make: those that depend on no machine, with their
    kind, and Runs (None) on its kind and number of devices.
    """
    here, gpus = this_machine(), gpu_count()
    for raw in raw_records(root):
        if (content := raw.record) is None or content.get("status") != "ok":
            continue
        of = kind_of(content)
        if (kind := repeatable_kind(content)) is not None and of is not None:
            yield kind, of.model_validate(content, strict=False)
        elif of is Record:
            record = Record.model_validate(content, strict=False)
            on_gpus = record.run.device_type == "cuda"
            fits = record.run.devices <= (gpus if on_gpus else here.cores) and not (
                on_gpus and record.machine.gpus[:1] != here.gpus[:1]
            )
            if (
                fits
                and not record.run.traced_steps
                and record.machine.hosts == 1
                and record.run.data is None
            ):
                yield None, record


def _timed(runs: Sequence[Record], every: Sequence[Record]) -> Iterator[tuple[str, bool]]:
    with tempfile.TemporaryDirectory() as folder:
        store = RecordStore(Path(folder))
        measure([Point(record.run, 0, 0) for record in runs], store, progress=False)
        new = {record.run.digest: record for record in store}
    for record in runs:
        found = new.get(record.run.digest)
        if found is None or found.measurement is None:
            yield (
                f"{record.key}: not measured here ({found.reason if found else 'no Record'})",
                False,
            )
            continue
        own = [
            one
            for one in every
            if one.run.digest == record.run.digest and one.machine.name == record.machine.name
        ]
        rates = [one.measurement.units / one.measurement.wall_s for one in own if one.measurement]
        rate = found.measurement.units / found.measurement.wall_s
        low, high = expected(rates, [one.launch_id for one in own if one.measurement])
        yield (
            (
                f"{record.key}: {rate:,.4g} units/s, expected {low:,.4g} to {high:,.4g} of"
                f" {len(rates)} repeats"
            ),
            low <= rate <= high,
        )


def expected(rates: Sequence[float], launches: Sequence[str]) -> tuple[float, float]:
    """Where one more repeat of a point lies with 95%: Student's t on logarithms; within 20% where
    there is a single one.
    """
    middle, variance, freedom = log_samples(
        pd.Series(rates), pd.Series(0, range(len(rates))), pd.Series(launches)
    ).iloc[0]
    if math.isnan(variance):
        return rates[0] / 1.2, rates[0] * 1.2
    half = float(half_width(variance * (len(rates) + 1), freedom))
    return math.exp(middle - half), math.exp(middle + half)
