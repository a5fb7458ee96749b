"""Real runs of a model on devices as a tidy frame: what they did, and what the simulator predicted from sync's step times."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pandas as pd

from multigpu.analysis.synchrony import problem_name
from multigpu.synchrony.predict import predict
from multigpu.synchrony.protocol import PROTOCOLS
from multigpu.synchrony.record import SynchronyRecord

SERVERS = {"host": "the host", "cpu": "a CPU tensor", "cuda": "GPU 0"}
"""Where a server holds its parameters, in words."""
COLUMNS = [
    *("key", "machine", "problem", "workers", "server_device", "protocol", "gradients_per_update", "straggler_s", "update_time_s"),
    *("predicted_s", "gradients_per_s", "over_host", "predicted_per_s", "ratio", "predicted_ratio", "staleness", "predicted_staleness"),
    *("server_busy", "base"),
]


def on_devices(records: Iterable[SynchronyRecord]) -> list[SynchronyRecord]:
    """Real runs whose step times were measured, not injected; those on GPUs alone, where there are any."""
    found = [r for r in records if r.experiment.law.kind == "computed" and r.status == "ok" and r.result is not None]
    gpus = [r for r in found if getattr(r.experiment.problem, "device", "cpu") == "cuda"]
    return gpus or found


def devices_frame(records: Iterable[SynchronyRecord]) -> pd.DataFrame:
    """A row a run, beside the simulator's prediction from the step times of sync with nothing injected (Record `base`).

    straggler_s: seconds added to every batch of the last worker. gradients_per_s: applied. ratio: of that to sync's with nothing
    injected and the same server. server_busy: part of the time that the server was handling gradients. Runs without such a base have no
    prediction. over_host: with the server on a device, gradients_per_s over that of the same run with the server on the host.
    """
    rows: list[dict[str, Any]] = []
    found = on_devices(records)
    bases = {_same(r): r for r in found if r.experiment.protocol == "sync" and not r.experiment.delays_s}
    for record in found:
        e, result, base = record.experiment, record.result, bases.get(_same(record))
        assert result is not None
        each = e.gradients_per_update
        row: dict[str, Any] = {
            "key": record.key,
            "machine": record.machine.name,
            "problem": problem_name(e.problem) if e.problem else "",
            "workers": e.workers,
            "server_device": e.server_device,
            "protocol": e.protocol,
            "gradients_per_update": each,
            "straggler_s": max(e.delays_s or (0.0,)),
            "update_time_s": result.update_time_s,
            "gradients_per_s": each / result.update_time_s,
            "staleness": result.staleness.mean,
            "server_busy": (result.server_time_s or 0.0) * result.accounts.received / result.end_s,
        }
        if base is not None and base.result is not None and any(base.result.batch_times_s):
            expected, first = predict(e, base), predict(base.experiment, base)
            of_base = base.experiment.workers / base.result.update_time_s
            row |= {
                "predicted_s": expected.update_time_s,
                "predicted_per_s": each / expected.update_time_s,
                "ratio": row["gradients_per_s"] / of_base,
                "predicted_ratio": each / expected.update_time_s / (base.experiment.workers / first.update_time_s),
                "predicted_staleness": expected.staleness,
                "base": base.key,
            }
        rows.append(row)
    table = _over_host(pd.DataFrame(rows, columns=COLUMNS))
    order = table["protocol"].map(lambda name: PROTOCOLS.index(name))
    place = table["server_device"].map(lambda name: list(SERVERS).index(name))
    by = ["machine", "problem", "workers", "straggler_s", "order", "place"]
    return table.assign(order=order, place=place).sort_values(by).reset_index(drop=True)


def _over_host(table: pd.DataFrame) -> pd.DataFrame:
    alike = ["machine", "problem", "workers", "protocol", "gradients_per_update", "straggler_s"]
    host = table[table["server_device"] == "host"].set_index(alike)["gradients_per_s"].to_dict()
    over = [
        row["gradients_per_s"] / host.get(tuple(row[name] for name in alike), float("nan")) if row["server_device"] != "host" else None
        for _, row in table.iterrows()
    ]
    return table.assign(over_host=pd.Series(over, index=table.index, dtype="float64"))


def _same(record: SynchronyRecord) -> tuple[str, str, int, str]:
    e = record.experiment
    return record.machine.name, problem_name(e.problem) if e.problem else "", e.workers, e.server_device
