"""Large batches: runs with linear rate scaling and warm-up as a tidy frame, and what the published figures of one hour give."""

from __future__ import annotations

from collections.abc import Iterable

import pandas as pd

from multigpu.analysis.synchrony import problem_name
from multigpu.published import published_value
from multigpu.synchrony.grid_training import LARGE, LARGE_LAW
from multigpu.synchrony.record import SynchronyRecord

COLUMNS = ["key", "problem", "workers", "batch", "rule", "rate", "seed", "error", "minibatch_s", "epoch_s", "diverged"]


def large_batch_frame(records: Iterable[SynchronyRecord]) -> pd.DataFrame:
    """A row a run: batch = k n, the rule of the rate, share of test rows wrong at the end, virtual seconds a minibatch and an epoch."""
    rows = []
    known = {problem: (count, base) for problem, count, base, *_ in LARGE}
    for record in records:
        e, result = record.experiment, record.result
        if e.law != LARGE_LAW or e.protocol != "sync" or e.problem not in known or result is None or e.rate is None:
            continue
        count, base = known[e.problem]
        rate, batch = getattr(e.rate, "rate", 0.0), e.workers * e.problem.batch_size
        rule = "warm_up" if e.rate.kind == "warm_up" else "one" if rate == base else "scaled"
        error, minibatch_s = result.curve[-1].error, result.update_time_s
        who = (record.key, problem_name(e.problem), e.workers, batch, rule, rate, e.seed)
        rows.append((*who, error, minibatch_s, minibatch_s * count / batch, result.diverged))
    return pd.DataFrame(rows, columns=COLUMNS)


def paper() -> dict[str, float]:
    """What the paper's published figures give: images_per_s on its GPUs, of one, and seconds an epoch on 002's most GPUs."""
    said = {name: published_value("002_large_minibatch", name) for name in ("epochs", "gpus", "hours", "training_images")}
    rate = said["epochs"] * said["training_images"] / (3600 * said["hours"])
    most = published_value("002_statements", "most_gpus")
    each = rate / said["gpus"]
    return {**said, "images_per_s": rate, "of_one": each, "most": most, "epoch_s": said["training_images"] / (each * most)}
