"""Document 001's single figures, each beside what the Records say to it, or why they cannot."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from statistics import median
from typing import Any

import pandas as pd

from multigpu.analysis.cnn_document import BATCH, NOT_YET, at_claims_batch, cifar_points, cifar_speedup, one_efficiency, torch_points
from multigpu.analysis.formats import images_of, layouts
from multigpu.analysis.metrics import scaling_table, summary
from multigpu.analysis.picture import Shown
from multigpu.analysis.style import look
from multigpu.analysis.tables import table_html
from multigpu.analysis.wording import MODEL_NAMES, describe, joined, missing, plural, rate_text, ratio_text
from multigpu.claims import find_claim
from multigpu.published import load_published, published_value
from multigpu.workloads import find_model

RESNET, INCEPTION = "resnet50_v1.5", "inception3"
TABLE = "001_statements"


@dataclass(frozen=True)
class Ours:
    """The Records that statements are compared with.

    layouts: `formats.layouts` of every machine's Records; single: `summary` of the plain ones on one GPU of every machine with these GPUs;
    table: `scaling_table` of the page's plain ones; large: `cnn_document.at_claims_batch`; small: `scaling_table` of CIFAR's models.
    """

    layouts: pd.DataFrame
    single: pd.DataFrame
    table: pd.DataFrame
    large: pd.DataFrame
    small: pd.DataFrame


def statements_twin(frame: pd.DataFrame, small: pd.DataFrame | None = None, measured: pd.DataFrame | None = None) -> Shown:
    """Every single figure of the document beside ours; figures of one sentence share a row.

    small: the Records of CIFAR's models, where another machine has them. measured: every machine's Records, of which both layouts are
    compared and one GPU's best is sought (`cnn_page.as_measured`).
    """
    every = frame if measured is None else measured
    single = summary(torch_points(every[every["gpu"].isin(set(frame["gpu"])) & every["devices"].eq(1)]))
    table, cifar = (scaling_table(torch_points(own)) for own in (frame, frame if small is None else small))
    ours = Ours(layouts(every), single, table, at_claims_batch(frame), cifar)
    rows = [
        {"the document": str(first["printed"]), "scope there": str(first["scope"]), "ours": ANSWERS[str(first["name"])](ours)}
        for _, first in load_published(TABLE).drop_duplicates(["printed", "scope"]).iterrows()
    ]
    return table_html(pd.DataFrame(rows), "001: single figures", wide=["the document", "scope there", "ours"])


def _untestable(number: str) -> Callable[[Ours], str]:
    return lambda ours: f"cannot be tested here ({number}): {find_claim(number).untestable}"


def _one_gpu(model: str) -> Callable[[Ours], str]:
    def answer(ours: Ours) -> str:
        table = ours.single
        own = table[(table["model"] == model) & (table["n"] > 0)]
        if own.empty:
            return NOT_YET
        best = own.iloc[int(own["rate"].to_numpy().argmax())]
        rate = rate_text(best["rate"], best["rate_low"], best["rate_high"], "images")
        how = describe(best, ["precision", "batch_size", "execution"])
        on = f", {best['machine']}" if table["machine"].nunique() > 1 else ""
        return f"at best {rate} ({how}, {look(best['placement']).label}{on}{_once(best['n'])})"

    return answer


def _once(*repeats: int) -> str:
    return ", once" if min(repeats) == 1 else ""


def _model_ratio(ours: Ours) -> str:
    by = ["devices", "precision", "execution", "layout"]
    own = ours.table[(ours.table["n"] > 0) & (ours.table["placement"] == "ddp") & (ours.table["batch_size"] == BATCH)]
    both = own[own["model"] == RESNET].merge(own[own["model"] == INCEPTION], on=by, suffixes=("", "_under"))
    if both.empty:
        return NOT_YET
    ratios = [float(value) for value in both["rate"] / both["rate_under"]]
    once = sum(min(row["n"], row["n_under"]) == 1 for _, row in both.iterrows())
    each = [f"{ratio:.2f} on {plural(int(count), 'GPU')}" for ratio, count in zip(ratios, both["devices"], strict=True)]
    how = joined(sorted({describe(row, ["precision", "execution"]) for _, row in both.iterrows()}))
    return (
        f"{ratio_text(median(ratios))} in the median of {plural(len(both), 'setting')} ({'; '.join(each)}; DDP, batch {BATCH}, {how}"
        f"{f'; {once} with a side measured once' if once else ''})"
    )


def _batch_effect(ours: Ours) -> str:
    by = ["model", "placement", "devices", "precision", "execution", "layout"]
    table = ours.table
    own = table[(table["devices"] > 1) & (table["placement"] != "independent") & table["efficiency"].notna()]
    both = own[own["batch_size"] == 64].merge(own[own["batch_size"] == 32], on=by, suffixes=("", "_32"))
    if both.empty:
        return NOT_YET
    most: Any = both.iloc[int((both["efficiency"] - both["efficiency_32"]).abs().to_numpy().argmax())]
    return (
        f"64 keeps {ratio_text(median(both['efficiency'] / both['efficiency_32']))} the efficiency of 32 in the median of "
        f"{plural(len(both), 'setting')}; at most {100 * most['efficiency']:.0f}% against {100 * most['efficiency_32']:.0f}% "
        f"({MODEL_NAMES.get(most['model'], most['model'])}, {look(most['placement']).label}, {most['devices']} GPUs, {most['execution']}"
        f"{_once(most['n'], most['n_32'])})"
    )


def _least(ours: Ours) -> str:
    if ours.large.empty:
        return NOT_YET
    row: Any = ours.large.iloc[int(ours.large["efficiency"].to_numpy().argmin())]
    how = f"{row['devices']} GPUs, batch {row['batch_size']}, {row['precision']}, {row['execution']}"
    return f"the least of {plural(len(ours.large), 'point')} under DDP: {one_efficiency(row)} ({how})"


def _parameters(ours: Ours) -> str:
    return "; ".join(f"{MODEL_NAMES[name]}: {find_model('cnn', name).parameters / 1e6:.1f} million" for name in (INCEPTION, RESNET))


def _channels_first(kind: str | None) -> Callable[[Ours], str]:
    """kind: of images ("imagenet", "cifar10"), or None for both."""

    def answer(ours: Ours) -> str:
        table = ours.layouts
        table = table[table["precision"] == "fp32"] if len(table) else table
        if kind and len(table):
            table = table[table["model"].map(images_of) == kind]
        if table.empty:
            return NOT_YET
        gains = [100 * (float(ratio) - 1) for ratio in table["ratio"]]
        models = joined(sorted({MODEL_NAMES.get(name, name) for name in table["model"]}))
        once = sum(missing(low) for low in table["ratio_low"])
        extent = f"{min(gains):+.1f}% to {max(gains):+.1f}%, {median(gains):+.1f}% in the median" if len(gains) > 1 else f"{gains[0]:+.1f}%"
        return f"{extent} of {plural(len(gains), 'point')} in fp32 ({models}{f'; {once} measured once' if once else ''}); see C16"

    return answer


def _nccl(ours: Ours) -> str:
    return cifar_speedup(ours.small, "resnet20", "replicated_allreduce")


def _by_size(statement: str, above: bool) -> Callable[[Ours], str]:
    """Efficiencies on 2 GPUs, variables on the CPU, of CIFAR's models with at least or fewer parameters than the statement's number."""

    def answer(ours: Ours) -> str:
        own = cifar_points(ours.small, "exp2").drop_duplicates("model", keep="last")
        bound = published_value(TABLE, statement)
        sizes = {name: find_model("cnn", name).parameters for name in own["model"]}
        own = own[[(sizes[name] >= bound) == above for name in own["model"]]]
        if own.empty:
            return NOT_YET
        own = own.sort_values("model", key=lambda names: names.map(sizes))
        return f"{'; '.join(one_efficiency(row) for _, row in own.iterrows())} on 2 GPUs, {look('exp2').label}"

    return answer


def _two_gpus(ours: Ours) -> str:
    own = ours.large[(ours.large["model"] == INCEPTION) & (ours.large["devices"] == 2)]
    said = NOT_YET if own.empty else ""
    for _, row in own.iterrows():
        low, high = row["speedup_low"], row["speedup_high"]
        said = f"{ratio_text(row['speedup'], low, high)} one GPU (DDP, batch {BATCH}, {row['execution']}{_once(row['n'])})"
    names = cifar_points(ours.small, "exp2")["model"].unique()
    return f"{MODEL_NAMES[INCEPTION]}: {said}; CIFAR-10: {f'{len(names)} models, above' if len(names) else NOT_YET}"


def _logs(ours: Ours) -> str:
    return "no counterpart: a Record of a traced Run keeps sums over its steps and not the profiler's log"


ANSWERS: dict[str, Callable[[Ours], str]] = {
    "p100_over_k80": _untestable("C49"),
    "resnet50_over_inception3": _model_ratio,
    "efficiency_at_least": _least,
    **dict.fromkeys(("batch_size_a", "batch_size_b"), _batch_effect),
    **dict.fromkeys(("parameters_low", "parameters_high"), _parameters),
    "k80_inception3": _one_gpu(INCEPTION),
    "k80_resnet50": _one_gpu(RESNET),
    **dict.fromkeys(("nchw_gain_min", "nchw_gain_max", "nchw_gain_benchmarks_min", "nchw_gain_benchmarks_max"), _channels_first(None)),
    "nchw_gain_imagenet": _channels_first("imagenet"),
    "nchw_gain_cifar10": _channels_first("cifar10"),
    **dict.fromkeys(("resnet20_nccl_speedup", "resnet20_nccl_efficiency"), _nccl),
    "parallel_from_parameters": _by_size("parallel_from_parameters", True),
    "unsuitable_below_parameters": _by_size("unsuitable_below_parameters", False),
    **dict.fromkeys(
        ("slow_clock_throughput_min", "slow_clock_throughput_max", "memory_clock_high", "memory_clock_low"), _untestable("C19")
    ),
    "pix_over_phb": _untestable("C20"),
    **dict.fromkeys(
        ("seven_gforce_best_speedup", "seven_gforce_least_overhead_speedup", "seven_gforce_least_overhead_efficiency"), _untestable("C50")
    ),
    "m60_speedup": _two_gpus,
    "trace_log_size": _logs,
}
"""Name of a statement -> what stands beside it."""
