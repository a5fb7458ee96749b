"""Whether a faster Run trained as the plain one did: losses beside those of the same job in fp32.

A rate is worth nothing if the step computes something else. The first steps of a Run are compared, for later ones amplify
rounding: two placements in the same precision part as far then as two precisions do.
"""

from __future__ import annotations

from collections.abc import Iterable
from statistics import fmean

import pandas as pd

from multigpu.analysis.tables import Shown, table_html
from multigpu.analysis.wording import FRAMEWORK_NAMES, MODEL_NAMES, plural
from multigpu.record import Record

STEPS = 10
"""Steps whose losses are averaged."""

TOLERANCE = 0.01
"""The average may differ from the reference's by this share."""

JOB = ("model", "batch_size", "devices", "scaling", "inputs", "sequence_length", "optimizer", "seed")
WAY = ("framework", "precision", "execution", "processes", "cross_entropy", "recurrence", "embedding_gradients")

DRAWN = ("cnn", "stacks")
"""Workloads whose synthetic batches each framework draws by its own generator."""


def reference_of(records: Iterable[Record]) -> dict[tuple[object, ...], float]:
    """Job -> the mean of the first losses of its plain Run: PyTorch, ddp, eager, fp32."""
    found = {}
    for record in records:
        run = record.run
        plain = (run.framework, run.placement, run.execution, run.precision) == ("torch", "ddp", "eager", "fp32")
        if plain and record.measurement and len(record.measurement.loss) >= STEPS:
            found[tuple(getattr(run, name) for name in JOB)] = fmean(record.measurement.loss[:STEPS])
    return found


def parity(records: Iterable[Record]) -> pd.DataFrame:
    """A row for each measured Record whose job has a fp32 reference: `JOB`, placement, `WAY`, key and difference.

    difference: mean loss of the first `STEPS` steps over the reference's, minus 1. Independent replicas on several devices
    learn other things than the joined batch, and TensorFlow draws other synthetic images and samples, so both are left out.
    """
    records = list(records)
    reference = reference_of(records)
    rows = []
    for record in records:
        run = record.run
        job = tuple(getattr(run, name) for name in JOB)
        apart = run.placement == "independent" and run.devices > 1
        apart |= run.workload in DRAWN and run.framework != "torch"
        if record.status != "ok" or not record.measurement or job not in reference or apart or len(record.measurement.loss) < STEPS:
            continue
        difference = fmean(record.measurement.loss[:STEPS]) / reference[job] - 1
        way = {name: getattr(run, name) for name in WAY}
        rows.append(dict(zip(JOB, job, strict=True)) | way | {"placement": run.placement, "key": record.key, "difference": difference})
    return pd.DataFrame(rows, columns=[*JOB, *WAY, "placement", "key", "difference"])


def parity_table(records: Iterable[Record]) -> Shown:
    """Each way of running a job with the largest difference of its Records, and whether that is within `TOLERANCE`."""
    table = parity(records)
    rows = []
    by = ["model", "batch_size", "devices", "framework", "precision", "execution", "cross_entropy", "recurrence"]
    for key, group in table.groupby(by, dropna=False, sort=True):
        model, batch, devices, framework, precision, execution, loss, recurrence = key
        worst = max(group["difference"], key=abs)
        form = [str(execution).replace("_", " and ")]
        form += ["loss in one piece"] if loss == "fused" else []
        form += ["stepwise"] if recurrence == "stepwise" else []
        rows.append(
            {
                "job": f"{MODEL_NAMES.get(str(model), str(model))}, batch {batch}",
                "GPUs": str(devices),
                "way": f"{FRAMEWORK_NAMES.get(str(framework), str(framework))}, {precision}, {', '.join(form)}",
                "Records": str(len(group)),
                "largest difference": f"{100 * worst:+.2f}%",
                "same training": "yes" if abs(worst) <= TOLERANCE else "no",
            }
        )
    note = (
        f"Mean loss of the first {plural(STEPS, 'step')} beside PyTorch's ddp in fp32; the same if within {100 * TOLERANCE:.0f}%."
        if rows
        else "No job has a Record in fp32 to compare with."
    )
    return table_html(pd.DataFrame(rows), right=["GPUs", "Records", "largest difference"], note=note)
