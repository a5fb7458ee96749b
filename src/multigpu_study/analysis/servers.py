"""Read Records of parameter servers on devices, of Downpour and of large batches as tables."""

from collections.abc import Iterable
from statistics import fmean
from typing import Any

import pandas as pd

from multigpu_study.analysis.columns import columns
from multigpu_study.analysis.synchrony import problem_name
from multigpu_study.published import published_value
from multigpu_study.synchrony.downpour import DownpourRecord, first_time_s
from multigpu_study.synchrony.experiment import ConstantRate, ProtocolExperiment
from multigpu_study.synchrony.grid import read_grid
from multigpu_study.synchrony.protocol import PROTOCOLS
from multigpu_study.synchrony.record import Measured, SynchronyRecord
from multigpu_study.synchrony.theory import predict

TARGET_ERROR = 0.05
"""Test error, the time to which tells how fast Downpour SGD learns."""

SERVERS = ("host", "cpu", "cuda")
"""Where a server holds its parameters: the host's memory, a CPU tensor, the first GPU."""

ALIKE = ("machine", "problem", "workers", "server_device")
"""What a run has in common with the one that its prediction begins from."""

DEVICE_COLUMNS = list(columns("servers"))


def devices_frame(records: Iterable[SynchronyRecord]) -> pd.DataFrame:
    """A row a real run whose step times were measured, not injected; on GPUs alone, where there are
    any.
    straggler_s: seconds added to every batch of the last worker. gradients_per_s: applied;
        predicted_per_s: as simulated from the step times of sync with nothing injected and the same
        server (Record `base`). server_busy: part of the time that it handled gradients.
    """
    every = [
        r
        for r in records
        if r.experiment.law.kind == "computed" and r.status == "ok" and r.result is not None
    ]
    found = [r for r in every if getattr(r.experiment.problem, "device", "cpu") == "cuda"] or every
    bases = {
        _alike(r): r for r in found if r.experiment.protocol == "sync" and not r.experiment.delays_s
    }
    rows = []
    for record in found:
        e, result, base = record.experiment, record.result, bases.get(_alike(record))
        assert result is not None
        row = dict(zip(ALIKE, _alike(record), strict=True)) | {
            "key": record.key,
            "protocol": e.protocol,
            "gradients_per_update": e.gradients_per_update,
            "straggler_s": max(e.delays_s or (0.0,)),
            "update_time_s": result.update_time_s,
            "staleness": result.staleness.mean,
            "gradients_per_s": e.gradients_per_update / result.update_time_s,
            "server_busy": (result.server_time_s or 0.0) * result.accounts.received / result.end_s,
        }
        if base is not None and base.result is not None and any(base.result.batch_times_s):
            row["predicted_per_s"] = e.gradients_per_update / predict(e, base).update_time_s
            row["base"] = base.key
        rows.append(row)
    places = ("machine", "problem", "workers", "straggler_s")
    rows.sort(
        key=lambda row: [
            *(row[name] for name in places),
            PROTOCOLS.index(row["protocol"]),
            SERVERS.index(row["server_device"]),
        ]
    )
    return pd.DataFrame(rows, columns=DEVICE_COLUMNS)


def _alike(record: SynchronyRecord) -> tuple[str, str, int, str]:
    """The values of `ALIKE`."""
    e = record.experiment
    return (
        record.machine.name,
        problem_name(e.problem) if e.problem else "",
        e.workers,
        e.server_device,
    )


def downpour_frame(records: Iterable[Measured[Any]]) -> pd.DataFrame:
    """A row a run of Downpour SGD whose features are not read apart; every: batches between two
    fetches and two pushes.
    time_to_error_s: `TARGET_ERROR` first reached, missing if never. staleness: mean over shards;
        own-fetch updates, and those that pass while messages travel, are not in it. spread: mean
        difference between the most and least updated shard of a vector.
    """
    rows = []
    for record in records:
        if isinstance(record, DownpourRecord) and not record.parameters:
            e, curve = record.experiment, record.curve
            back = any(outage.until_s is not None for outage in e.outages)
            found = (
                "none" if not e.outages else "return" if back else "leave",
                first_time_s(curve, TARGET_ERROR),
                curve[-1].error,
            )
            ages = (fmean(shard.mean for shard in record.staleness), record.spread.mean)
            asked = (e.replicas, e.rule, e.push_every, e.time_s)
            rows.append((record.key, *asked, *found, record.batches, *ages))
    return pd.DataFrame(rows, columns=list(columns("downpour")))


def large_batch_frame(records: Iterable[SynchronyRecord]) -> pd.DataFrame:
    """A row a run of the grid `large_batch`: batch = k n, the rule of the rate, share of test rows
    wrong at the end, virtual s an epoch.
    """
    rows = []
    asked = [
        e
        for e in (entry.run for entry in read_grid("large_batch"))
        if isinstance(e, ProtocolExperiment)
    ]
    bases = {
        (e.problem, e.law, e.protocol): e.rate.rate
        for e in asked
        if e.workers == 1 and isinstance(e.rate, ConstantRate)
    }
    for record in records:
        e, result = record.experiment, record.result
        base = bases.get((e.problem, e.law, e.protocol))
        if base is None or result is None or e.rate is None or e.problem is None:
            continue
        rate, batch = getattr(e.rate, "rate", 0.0), e.workers * e.problem.batch_size
        rule = "warm_up" if e.rate.kind == "warm_up" else "one" if rate == base else "scaled"
        who = (record.key, problem_name(e.problem), e.workers, batch, rule, rate, e.seed)
        epoch_s = result.update_time_s * e.problem.rows / batch
        rows.append((*who, result.curve[-1].error, epoch_s, result.diverged))
    return pd.DataFrame(rows, columns=list(columns("large_batch")))


def paper() -> dict[str, float]:
    """Return the paper's figures: images_per_s, of one GPU, and s an epoch on 002's most GPUs."""
    said = {
        name: published_value("002_large_minibatch", name)
        for name in ("epochs", "gpus", "hours", "training_images")
    }
    rate = said["epochs"] * said["training_images"] / (3600 * said["hours"])
    most = published_value("002_statements", "most_gpus")
    each = rate / said["gpus"]
    return {
        **said,
        "images_per_s": rate,
        "of_one": each,
        "most": most,
        "epoch_s": said["training_images"] / (each * most),
    }
