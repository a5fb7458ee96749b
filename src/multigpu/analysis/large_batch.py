"""Large batches: what linear rate scaling and warm-up do to the error, what a minibatch and an epoch take, and 002's own questions."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pandas as pd

from multigpu.analysis.picture import Shown, paragraphs
from multigpu.analysis.synchrony import problem_name
from multigpu.analysis.tables import table_html
from multigpu.published import published_value
from multigpu.synchrony.grid_training import LARGE, LARGE_LAW
from multigpu.synchrony.record import SynchronyRecord

RULES = {"one": "the rate of one worker", "scaled": "n times the rate", "warm_up": "n times, after a warm-up"}
COLUMNS = ["key", "problem", "workers", "batch", "rule", "rate", "seed", "error", "minibatch_s", "epoch_s", "diverged"]
PER_GPU = 32
"""Images of one GPU in 002's example."""


def large_batch_frame(records: Iterable[SynchronyRecord]) -> pd.DataFrame:
    """A row a run: batch = k n, the rule of the rate, share of test rows wrong at the end, virtual seconds a minibatch and an epoch."""
    rows: list[dict[str, Any]] = []
    known = {problem: (count, base) for problem, count, base, *_ in LARGE}
    for record in records:
        e, result = record.experiment, record.result
        if e.law != LARGE_LAW or e.protocol != "sync" or e.problem not in known or result is None or e.rate is None:
            continue
        count, base = known[e.problem]
        rate = getattr(e.rate, "rate", 0.0)
        batch = e.workers * e.problem.batch_size
        rows.append(
            {
                "key": record.key,
                "problem": problem_name(e.problem),
                "workers": e.workers,
                "batch": batch,
                "rule": "warm_up" if e.rate.kind == "warm_up" else "one" if rate == base else "scaled",
                "rate": rate,
                "seed": e.seed,
                "error": result.curve[-1].error,
                "minibatch_s": result.update_time_s,
                "epoch_s": result.update_time_s * count / batch,
                "diverged": result.diverged,
            }
        )
    return pd.DataFrame(rows, columns=COLUMNS)


def ranges(frame: pd.DataFrame) -> pd.DataFrame:
    """Median, least and most test error over seeds, by problem, batch and rule (one worker's batch has one rule, which is all three)."""
    table = frame.groupby(["problem", "batch", "rule"])["error"].agg(["median", "min", "max", "count"]).reset_index()
    single = table[table["batch"] == table["batch"].min()]
    return pd.concat([table, *(single.assign(rule=rule) for rule in RULES if rule != "one")]).sort_values(["problem", "batch"])


def keeps_up_to(frame: pd.DataFrame, rule: str, margin: float = 0.01) -> dict[str, int]:
    """By problem, the largest batch up to which the median error stays within `margin` of that of the smallest batch."""
    found = {}
    for problem, group in ranges(frame).groupby("problem"):
        line = group[group["rule"] == rule].set_index("batch")["median"].sort_index()
        if line.empty or line.index.has_duplicates:
            continue  # nothing to compare, or no batch that all rules share
        kept = line <= line.iloc[0] + margin
        broken = kept[~kept].index
        found[str(problem)] = int(max(line.index[line.index < broken[0]]) if len(broken) else line.index[-1])
    return found


def answer(frame: pd.DataFrame, runs: pd.DataFrame) -> Shown:
    """What scaling and warm-up do here, and what 002's half second is."""
    sentences = []
    if len(frame):
        by_rule = {rule: keeps_up_to(frame, rule) for rule in RULES}
        for problem in sorted(by_rule["one"]):
            limits = [by_rule[rule].get(problem, 0) for rule in RULES]
            sentences.append(
                f"On {problem.split(',')[0]} the test error stays within a point of the smallest batch's up to a batch of **{limits[0]}** "
                f"at that batch's rate, **{limits[1]}** with the rate scaled linearly, and **{limits[2]}** after a warm-up of five epochs."
            )
    return paragraphs(*sentences or ["No Record supports an answer yet: `python -m multigpu synchrony` runs the experiments."], _half(runs))


def paper() -> dict[str, float]:
    """What the paper's published figures give: images_per_s on its GPUs, of one, and seconds an epoch on 002's most GPUs."""
    said = {name: published_value("002_large_minibatch", name) for name in ("epochs", "gpus", "hours", "training_images")}
    rate = said["epochs"] * said["training_images"] / (3600 * said["hours"])
    most = published_value("002_statements", "most_gpus")
    each = rate / said["gpus"]
    return {**said, "images_per_s": rate, "of_one": each, "most": most, "epoch_s": said["training_images"] / (each * most)}


def _half(runs: pd.DataFrame) -> str:
    """002's epoch on 352 GPUs, from published figures alone."""
    p, said = paper(), published_value("002_statements", "epoch_time_most")
    needed = p["training_images"] / said / p["most"]
    ours = resnet_steps(runs)
    beside = ""
    if len(ours):
        best = (ours["batch"] / ours["minibatch_s"] / ours["devices"]).max()
        beside = f" (one {ours['gpu'].iloc[0]} here: {best:,.0f} at that batch)"
    return (
        f"An epoch on {p['most']:.0f} GPUs in {said:g} s would need {needed:,.0f} images/s of every GPU{beside}. {p['epochs']:.0f} epochs "
        f"in one hour on {p['gpus']:.0f} are {p['of_one']:.0f} images/s of each, and **{p['epoch_s']:.0f} s**, {p['epoch_s'] / 60:.1f} "
        f"minutes, an epoch on {p['most']:.0f}: 002's {said:g} is minutes."
    )


def resnet_steps(runs: pd.DataFrame) -> pd.DataFrame:
    """Our ResNet-50 with 002's 32 images a GPU, a row a number of GPUs and way: devices, batch, execution, minibatch_s, epoch_s, n, keys.

    runs: of `load_frame`. PyTorch DDP, bf16, weak scaling; epoch_s is for ImageNet's training images at that throughput.
    """
    columns = ["devices", "batch", "execution", "minibatch_s", "epoch_s", "n", "keys", "gpu", "machine"]
    if runs.empty:
        return pd.DataFrame(columns=columns)
    where = {"model": "resnet50_v1.5", "placement": "ddp", "framework": "torch", "precision": "bf16", "scaling": "weak", "status": "ok"}
    table = runs[pd.concat([runs[name] == value for name, value in where.items()], axis=1).all(axis=1)]
    table = table[(table["batch_size"] == PER_GPU) & table["execution"].isin(["eager", "captured"])]
    images = published_value("002_large_minibatch", "training_images")
    rows = []
    for (machine, execution, _), group in table.groupby(["machine", "execution", "devices"]):
        rate, devices = group["units_per_s"].median(), int(group["devices"].iloc[0])
        rows.append(
            {
                "devices": devices,
                "batch": devices * PER_GPU,
                "execution": execution,
                "minibatch_s": devices * PER_GPU / rate,
                "epoch_s": images / rate,
                "n": len(group),
                "keys": " ".join(group["key"]),
                "gpu": group["gpu"].iloc[0],
                "machine": machine,
            }
        )
    return pd.DataFrame(rows, columns=columns)


def questions(runs: pd.DataFrame, frame: pd.DataFrame) -> Shown:
    """002's questions on its figure of runtime, each answered from Records or published figures; `frame`: of `synchrony_frame`."""
    p = paper()
    steps = resnet_steps(runs)
    captured = steps[steps["execution"] == "captured"].set_index("devices")
    iteration = epoch = example = "not yet measured"
    if len(captured) > 1:
        one, most = captured.loc[captured.index.min()], captured.loc[captured.index.max()]
        count = int(captured.index.max())
        growth = most["minibatch_s"] / one["minibatch_s"]
        iteration = f"each GPU computes as much as before, and only merging is added: {100 * (growth - 1):.1f}% on {count} GPUs against one"
        fewer = int(count / captured.index.min())
        faster = one["epoch_s"] / most["epoch_s"]
        epoch = f"{fewer} times fewer minibatches of {growth:.2f} times the time: {faster:.2f} times faster on {count} GPUs"
        example = (
            f"yes: {most['batch']} images / {1e3 * most['minibatch_s']:.2f} ms = {most['batch'] / most['minibatch_s']:,.0f} images/s. "
            "Without the batch nothing follows"
        )
    rows = {
        "Why does time per iteration increase little with the minibatch?": iteration,
        "Why does time per epoch decrease with the batch?": epoch,
        "How long is an epoch on 44 servers?": f"{p['epoch_s']:.0f} s, not half a second (the arithmetic is above)",
        "Throughput from time per epoch: is the batch needed?": f"no: {p['training_images']:,.0f} images / {p['epoch_s']:.1f} s = "
        f"{p['training_images'] / p['epoch_s']:,.0f} images/s",
        "Throughput from time per minibatch: is the batch needed?": example,
        "Would K-sync have converged faster, and to which error?": _k_sync(frame),
    }
    data = pd.DataFrame({"002 asks": list(rows), "Answer": list(rows.values())})
    return table_html(data, note="ResNet-50, 32 images a GPU, bf16, the whole step as one CUDA graph.", wide=["002 asks", "Answer"])


def _k_sync(frame: pd.DataFrame) -> str:
    """K-sync's loss above the least over sync's, soon and late."""
    table = frame[frame["excess_last"].notna() & frame["budget_s"].notna() & (frame["clock"] == "virtual")]
    sync, several = table[table["protocol"] == "sync"], table[table["protocol"] == "k_sync"]
    if sync.empty or several.empty:
        return "not yet measured"
    k = int(several["gradients_per_update"].min())
    chosen = several[several["gradients_per_update"] == k]
    soon, late = (chosen[column].median() / sync[column].median() for column in ("excess_early", "excess_last"))
    return (
        f"on linear regression with K = {k} of {int(chosen['workers'].iloc[0])} and exponential times, {soon:.2g} times sync's loss above "
        f"the least after 5% of the time, and {late:.1f} times in the end"
    )
