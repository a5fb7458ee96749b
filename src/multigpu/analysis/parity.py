"""Whether a faster Run trained as the plain one did: losses beside those of the same job in fp32.

A rate is worth nothing if the step computes something else. The first steps of a Run are compared, for later ones amplify
rounding: two placements in the same precision part as far then as two precisions do.
"""

from collections.abc import Iterable
from statistics import fmean

import pandas as pd

from multigpu.placements import find_placement
from multigpu.record import Record

STEPS = 10
"""Steps whose losses are averaged."""

JOB = ("model", "batch_size", "devices", "scaling", "inputs", "sequence_length", "optimizer", "seed")
WAY = (
    *("framework", "precision", "execution", "processes", "cross_entropy", "recurrence", "embedding_gradients"),
    *("batch_norm", "stem", "weight_casts"),
)

DRAWN = ("cnn", "stacks")
"""Workloads whose synthetic batches each framework draws by its own generator."""


PLAIN = {"framework": "torch", "placement": "ddp", "execution": "eager", "precision": "fp32"}
"""Of the Run that gives a job's reference."""


def learning_losses(record: Record) -> list[float]:
    """The losses of a measured Record's steps without those whose update was left out because a gradient overflowed (fp16, its scale being
    found): after such a step the same batch has the same loss once more, by which it is known. As many are passed over as were counted.
    """
    assert record.measurement
    every, left = record.measurement.loss, sum(record.measurement.skipped_steps or ())
    kept = []
    for index, loss in enumerate(every):
        if left and index + 1 < len(every) and every[index + 1] == loss:
            left -= 1
        else:
            kept.append(loss)
    return kept


def parity(records: Iterable[Record]) -> pd.DataFrame:
    """A row for each measured Record whose job has a fp32 reference: `JOB`, placement, `WAY`, staged, key and difference.

    difference: mean loss of the first `STEPS` steps that updated (`learning_losses`) over the reference's, minus 1. Independent replicas
    on several devices learn other things than the joined batch, and TensorFlow draws other synthetic images and samples, so both are
    left out.
    staged: whether the placement computes with variables that are one update old, which is other training by its meaning.
    """
    names = (*JOB, *WAY, "placement")
    rows = []
    for record in records:
        run = record.run
        apart = (run.placement == "independent" and run.devices > 1) or (run.workload in DRAWN and run.framework != "torch")
        if record.measurement and len(record.measurement.loss) >= STEPS and not apart:
            own = {"key": record.key, "loss": fmean(learning_losses(record)[:STEPS]), "staged": find_placement(run.placement).staged}
            rows.append({name: getattr(run, name) for name in names} | own)
    table = pd.DataFrame(rows, columns=[*names, "staged", "key", "loss"])
    plain = table[table[list(PLAIN)].eq(list(PLAIN.values())).all(axis=1)].drop_duplicates(JOB, keep="last")
    found = table.merge(plain[[*JOB, "loss"]], on=list(JOB), suffixes=("", "_plain"))
    return found.drop(columns=["loss", "loss_plain"]).assign(difference=found["loss"] / found["loss_plain"] - 1)
