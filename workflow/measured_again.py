"""Measure a random sample of Records once more on this machine: do they come out again?

`PYTHONPATH=src python workflow/measured_again.py 20` draws among the study's Records, with
`--records FOLDER` among others' (`python -m multigpu verify FOLDER` checks them first). It prints a
line a Record, and ends with 1 where one differs.
"""

import math
import random
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from multigpu import paths
from multigpu.analysis.statistics import half_width, log_samples
from multigpu.analysis.verify import kind_of, raw_records
from multigpu.cli.command import Parser, answered, count
from multigpu.machine.machine import gpu_count, this_machine
from multigpu.records.record import Record, RecordStore
from multigpu.runner.point import Point
from multigpu.runner.sweep import measure
from multigpu_study.synchrony.record import SynchronyRecord, summarise
from multigpu_study.synchrony.simulate import simulate


def measured_again(root: Path, number: int, seed: int = 0) -> Iterator[tuple[str, bool]]:
    """For each of `number` Records that this machine can measure, what came out, and whether it
    agrees; a ValueError if there is none. A Run agrees if its rate lies where one more repeat of
    the point is expected (95%). What is of the virtual clock, and depends on no machine, agrees if
    it ends the same (`simulated_again`).
    """
    every = list(possible_here(root))
    if not every:
        raise ValueError(
            f"{root} holds no Record that this machine could measure again: it has {gpu_count()}"
            " GPUs"
        )
    chosen = random.Random(seed).sample(every, min(number, len(every)))
    for record in chosen:
        if isinstance(record, SynchronyRecord):
            yield simulated_again(record)
    if runs := [record for record in chosen if isinstance(record, Record)]:
        yield from _timed(runs, [record for record in every if isinstance(record, Record)])


def of_the_virtual_clock(record: Mapping[str, Any]) -> bool:
    """Whether a Record's seconds, and what was trained in them, depend on no machine."""
    return record.get("experiment", {}).get("clock") == "virtual" and "result" in record


def simulated_again(record: SynchronyRecord) -> tuple[str, bool]:
    """Simulate once more: a line, and whether it ends the same, to the bit or a millionth."""
    result, old = summarise(simulate(record.experiment)), record.result
    assert old is not None
    same = result.fingerprint == old.fingerprint
    ends = [
        (result.end_s, old.end_s),
        *((new.loss, was.loss) for new, was in zip(result.curve[-1:], old.curve[-1:], strict=True)),
    ]
    near = all(math.isclose(new, was, rel_tol=1e-6) for new, was in ends)
    if same:
        how = "the same bits"
    elif near:
        how = "the same to a millionth"
    else:
        how = f"ends at {result.end_s:.6g} s, not {old.end_s:.6g}"
    return f"{record.key}: {how}", same or near


def possible_here(root: Path) -> Iterator[Record | SynchronyRecord]:
    """The measured Records that this machine can make: those that depend on no machine, and Runs on
    its kind and number of devices.
    """
    here, gpus = this_machine(), gpu_count()
    for raw in raw_records(root):
        if (content := raw.record) is None or content.get("status") != "ok":
            continue
        if of_the_virtual_clock(content):
            yield SynchronyRecord.model_validate(content, strict=False)
        elif kind_of(content) is Record:
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
                yield record


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


@answered
def main(words: Sequence[str] | None = None) -> int:
    """Measure the sample; returns the exit code: 1 if one differs, 2 for bad input."""
    parser = Parser(prog="measured_again", description=__doc__.partition("\n\n")[0])
    parser.add_argument("number", type=count(), help="of Records")
    parser.add_argument("--records", type=Path, default=paths.DATA, metavar="FOLDER")
    parser.add_argument("--seed", type=int, default=0, help="of the sample")
    arguments = parser.parse_args(words)
    disagree = 0
    for line, agrees in measured_again(arguments.records, arguments.number, arguments.seed):
        print(f"{'agrees' if agrees else 'differs'}: {line}", flush=True)
        disagree += not agrees
    return 1 if disagree else 0


if __name__ == "__main__":
    sys.exit(main())
