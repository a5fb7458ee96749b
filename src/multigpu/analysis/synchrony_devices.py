"""Real runs of a model on devices as a tidy frame: what they did, and what the simulator predicted from sync's step times."""

from __future__ import annotations

from collections.abc import Iterable

import pandas as pd

from multigpu.analysis.synchrony import problem_name
from multigpu.synchrony.predict import predict
from multigpu.synchrony.protocol import PROTOCOLS
from multigpu.synchrony.record import SynchronyRecord

SERVERS = ("host", "cpu", "cuda")
"""Where a server holds its parameters: the host's memory, a CPU tensor, the first GPU."""
COLUMNS = [
    *("key", "machine", "problem", "workers", "server_device", "protocol", "gradients_per_update", "straggler_s", "update_time_s"),
    *("gradients_per_s", "predicted_per_s", "staleness", "server_busy", "base"),
]


def devices_frame(records: Iterable[SynchronyRecord]) -> pd.DataFrame:
    """A row a real run whose step times were measured, not injected; on GPUs alone, where there are any.

    straggler_s: seconds added to every batch of the last worker. gradients_per_s: applied. predicted_per_s: the same as simulated from the
    step times of sync with nothing injected and the same server (Record `base`; NaN without one). server_busy: part of the time that the
    server was handling gradients.
    """
    every = [r for r in records if r.experiment.law.kind == "computed" and r.status == "ok" and r.result is not None]
    found = [r for r in every if getattr(r.experiment.problem, "device", "cpu") == "cuda"] or every
    bases = {_alike(r): r for r in found if r.experiment.protocol == "sync" and not r.experiment.delays_s}
    rows = []
    for record in found:
        e, result, base = record.experiment, record.result, bases.get(_alike(record))
        assert result is not None
        row = dict(zip(("machine", "problem", "workers", "server_device"), _alike(record), strict=True)) | {
            "key": record.key,
            "protocol": e.protocol,
            "gradients_per_update": e.gradients_per_update,
            "straggler_s": max(e.delays_s or (0.0,)),
            "update_time_s": result.update_time_s,
            "gradients_per_s": e.gradients_per_update / result.update_time_s,
            "staleness": result.staleness.mean,
            "server_busy": (result.server_time_s or 0.0) * result.accounts.received / result.end_s,
        }
        if base is not None and base.result is not None and any(base.result.batch_times_s):
            row |= {"predicted_per_s": e.gradients_per_update / predict(e, base).update_time_s, "base": base.key}
        rows.append(row)
    table = pd.DataFrame(rows, columns=COLUMNS)
    order = table.assign(protocol=table["protocol"].map(PROTOCOLS.index), server_device=table["server_device"].map(SERVERS.index))
    by = ["machine", "problem", "workers", "straggler_s", "protocol", "server_device"]
    return table.loc[order.sort_values(by).index].reset_index(drop=True)


def _alike(record: SynchronyRecord) -> tuple[str, str, int, str]:
    """Machine, problem, workers, where the server is."""
    e = record.experiment
    return record.machine.name, problem_name(e.problem) if e.problem else "", e.workers, e.server_device
