"""A random sample of Records, measured once more on this machine: do they agree with what was committed?"""

import math
import random
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import pandas as pd

from multigpu.analysis.statistics import half_width, log_samples
from multigpu.measure.machine import gpu_count, this_machine
from multigpu.measure.point import Point
from multigpu.measure.sweep import measure
from multigpu.record import Record, RecordStore
from multigpu.synchrony.record import SynchronyRecord, summarise
from multigpu.synchrony.simulate import simulate
from multigpu.verify import kind_of, raw_records

Again = Record | SynchronyRecord


def measured_again(root: Path, count: int, seed: int = 0) -> Iterator[tuple[str, bool]]:
    """For each of `count` Records that this machine can measure, what came out, and whether it agrees.

    A Run agrees if its rate lies where one more repeat of the point is expected (95%). Seconds of the virtual clock and what is trained on
    it depend on no machine: such a Record agrees if it ends with the same parameters, or at the same time and loss to a millionth.

    Raises:
        ValueError: the folder holds none.
    """
    every = list(possible_here(root))
    if not every:
        raise ValueError(f"{root} holds no Record that this machine could measure again: it has {gpu_count()} GPUs")
    chosen = random.Random(seed).sample(every, min(count, len(every)))
    runs = [record for record in chosen if isinstance(record, Record)]
    yield from (_simulated(record) for record in chosen if isinstance(record, SynchronyRecord))
    if runs:
        yield from _timed(runs, [record for record in every if isinstance(record, Record)])


def possible_here(root: Path) -> Iterator[Again]:
    """The measured Records that this machine can make: of the virtual clock any, of Runs those on its kind and number of devices."""
    here, gpus = this_machine(), gpu_count()
    for raw in raw_records(root):
        if raw.record is None or raw.record.get("status") != "ok":
            continue
        if raw.record.get("experiment", {}).get("clock") == "virtual" and "result" in raw.record:
            yield SynchronyRecord.model_validate(raw.record, strict=False)
        elif kind_of(raw.record) is Record:
            record = Record.model_validate(raw.record, strict=False)
            same = record.machine.gpus[:1] == here.gpus[:1] if record.run.device_type == "cuda" else True
            fits = record.run.devices <= (gpus if record.run.device_type == "cuda" else here.cores)
            if same and fits and not record.run.traced_steps and record.machine.hosts == 1 and record.run.data is None:
                yield record


def _simulated(record: SynchronyRecord) -> tuple[str, bool]:
    result = summarise(simulate(record.experiment))
    assert record.result is not None
    old = record.result
    same = result.fingerprint == old.fingerprint
    losses = [(point.loss, other.loss) for point, other in zip(result.curve[-1:], old.curve[-1:], strict=True)]
    near = math.isclose(result.end_s, old.end_s, rel_tol=1e-6) and all(math.isclose(a, b, rel_tol=1e-6) for a, b in losses)
    how = "the same bits" if same else "the same to a millionth" if near else f"ends at {result.end_s:.6g} s, not {old.end_s:.6g}"
    return f"{record.key}: {how}", same or near


def _timed(runs: Sequence[Record], every: Sequence[Record]) -> Iterator[tuple[str, bool]]:
    with tempfile.TemporaryDirectory() as folder:
        store = RecordStore(Path(folder))
        measure([Point(record.run, 0, 0) for record in runs], store, progress=False)
        new = {record.run.digest: record for record in store}
    for record in runs:
        found = new.get(record.run.digest)
        if found is None or found.measurement is None:
            yield f"{record.key}: not measured here ({found.reason if found else 'no Record'})", False
            continue
        own = [r for r in every if r.run.digest == record.run.digest and r.machine.name == record.machine.name and r.measurement]
        rates = [r.measurement.units / r.measurement.wall_s for r in own if r.measurement]
        rate = found.measurement.units / found.measurement.wall_s
        low, high = expected(rates, [r.launch_id for r in own])
        yield f"{record.key}: {rate:,.4g} units/s, expected {low:,.4g} to {high:,.4g} of {len(rates)} repeats", low <= rate <= high


def expected(rates: Sequence[float], launches: Sequence[str]) -> tuple[float, float]:
    """Where one more repeat of a point lies with 95%: Student's t on logarithms; within 20% where there is a single one."""
    middle, variance, freedom = log_samples(pd.Series(rates), pd.Series(0, range(len(rates))), pd.Series(launches)).iloc[0]
    if math.isnan(variance):
        return rates[0] / 1.2, rates[0] * 1.2
    half = float(half_width(variance * (len(rates) + 1), freedom))
    return math.exp(middle - half), math.exp(middle + half)
