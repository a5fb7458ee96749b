"""Document 001's single figures, each beside what the Records say to it, or why they cannot."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from statistics import median
from typing import Any

import pandas as pd

from multigpu.analysis.cnn_document import BATCH, LARGE, NOT_YET, cifar_points, cifar_speedup, one_efficiency, torch_points
from multigpu.analysis.cnn_scaling import ddp_points, least_captured
from multigpu.analysis.formats import images_of, layouts
from multigpu.analysis.metrics import scaling_table, summary
from multigpu.analysis.picture import Shown
from multigpu.analysis.steady import GRAPHS, eager_ahead, exact_first, once_text, steady
from multigpu.analysis.style import look
from multigpu.analysis.tables import table_html
from multigpu.analysis.ways import ratio_of
from multigpu.analysis.wording import MODEL_NAMES, describe, devices_text, execution_text, joined, missing, plural, rate_text, ratio_text
from multigpu.claims import find_claim
from multigpu.published import load_published, published_value
from multigpu.workloads import find_model

RESNET, INCEPTION = "resnet50_v1.5", "inception3"
TABLE = "001_statements"


@dataclass(frozen=True)
class Ours:
    """The Records that statements are compared with.

    plain: the page's Records (`cnn_document.torch_points`), table: `scaling_table` of them; layouts: `formats.layouts` of every machine's
    Records; single: `summary` of the plain ones on one GPU of every machine with these GPUs; small: `scaling_table` of CIFAR's models.
    """

    plain: pd.DataFrame
    single: pd.DataFrame
    table: pd.DataFrame
    layouts: pd.DataFrame
    small: pd.DataFrame


def statements_twin(frame: pd.DataFrame, small: pd.DataFrame | None = None, measured: pd.DataFrame | None = None) -> Shown:
    """Every single figure of the document beside ours; figures of one sentence or with one answer share a row.

    small: the Records of CIFAR's models, where another machine has them. measured: every machine's Records, of which both layouts are
    compared and one GPU's best is sought (`cnn_page.as_measured`).
    """
    plain, every = torch_points(frame), frame if measured is None else measured
    single = summary(torch_points(every[every["gpu"].isin(set(frame["gpu"])) & every["devices"].eq(1)]))
    cifar = scaling_table(torch_points(frame if small is None else small))
    ours = Ours(plain, single, scaling_table(plain), layouts(every), cifar)
    shared: dict[Callable[[Ours], str], dict[str, str]] = {}
    for _, first in load_published(TABLE).drop_duplicates(["printed", "scope"]).iterrows():
        shared.setdefault(ANSWERS[str(first["name"])], {})[str(first["printed"])] = str(first["scope"])
    rows = [
        {"the document": "; ".join(printed), "scope there": "; ".join(dict.fromkeys(printed.values())), "ours": answer(ours)}
        for answer, printed in shared.items()
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
    by = ["machine", "devices", "precision", "execution", "layout"]
    own = ours.table[(ours.table["n"] > 0) & (ours.table["placement"] == "ddp") & (ours.table["batch_size"] == BATCH)]
    over, under = (own[own["model"] == name].set_index(by, drop=False) for name in (RESNET, INCEPTION))
    found = []
    for setting in over.index.intersection(under.index, sort=False):
        row = over.loc[setting]
        ratio, (low, high) = ratio_of(ours.plain, row, under.loc[setting])
        found.append({**row[[*by, "device_type"]], "ratio": ratio, "ratio_low": low, "ratio_high": high})
    if not found:
        return NOT_YET
    table = pd.DataFrame(found)
    machines = table["machine"].nunique() > 1
    sure = steady(table, "ratio")
    told = [
        f"{ratio_text(row['ratio'], row['ratio_low'], row['ratio_high'])} on {devices_text(row['devices'], row['device_type'])}"
        f"{' of ' + row['machine'] if machines else ''} ({describe(row, ['precision', 'execution'])}{once_text(row, 'ratio')})"
        for _, row in exact_first(table[sure], "ratio").iterrows()
    ]
    told += _of_hosts(table[~sure], "ratio")
    return f"{'; '.join(told)}; ddp, batch {BATCH}"


def _of_hosts(table: pd.DataFrame, name: str) -> list[str]:
    """A clause on ratios that hosts set: "eager, which hosts set: 1.86 to 2.60 times in 3 settings, 3 with a side measured once"; none
    without any.
    """
    if table.empty:
        return []
    ends = " to ".join(dict.fromkeys(f"{value:.2f}" for value in (table[name].min(), table[name].max())))
    once = int(table[f"{name}_low"].isna().sum())
    few = f", {once} with a side measured once" if once else ""
    return [f"{_hosts(table)}: {ends} times in {plural(len(table), 'setting')}{few}"]


def _hosts(table: pd.DataFrame) -> str:
    """The forms of execution of rows whose hosts set them: "eager and compiled, which hosts set"."""
    return f"{joined([execution_text(form) for form in dict.fromkeys(table['execution'])])}, which hosts set"


def _batch_effect(ours: Ours) -> str:
    by = ["machine", "model", "placement", "devices", "precision", "execution", "layout"]
    table = ours.table
    own = table[(table["devices"] > 1) & (table["placement"] != "independent") & table["efficiency"].notna()]
    both = own[own["batch_size"] == 64].merge(own[own["batch_size"] == 32], on=by, suffixes=("", "_32"))
    sure = both["execution"].isin(GRAPHS)
    parts = [_batches(rows, how) for rows, how in ((both[sure], "captured"), (both[~sure], _hosts(both[~sure]))) if len(rows)]
    return "; ".join(parts) or NOT_YET


def _batches(both: pd.DataFrame, how: str) -> str:
    """What 64 images a GPU keep of the efficiency of 32, in the median and where they differ most."""
    most: Any = both.iloc[int((both["efficiency"] - both["efficiency_32"]).abs().to_numpy().argmax())]
    ratio, of = ratio_text(median(both["efficiency"] / both["efficiency_32"])), plural(len(both), "setting")
    extent = f"in the median of {of}, at most" if len(both) > 1 else f"in {of}:"
    return (
        f"{how}: 64 keeps {ratio} the efficiency of 32 {extent} {100 * most['efficiency']:.0f}% against {100 * most['efficiency_32']:.0f}% "
        f"({MODEL_NAMES.get(most['model'], most['model'])}, {look(most['placement']).label}, "
        f"{devices_text(most['devices'], most['device_type'])}{_once(most['n'], most['n_32'])})"
    )


def _least(ours: Ours) -> str:
    large = ours.plain[ours.plain["model"].isin(LARGE)]
    found, every = least_captured(large), ddp_points(large)
    rest = every[~steady(every, "efficiency")] if len(every) else every
    hosts = f"{plural(len(rest), 'eager point')} that hosts set: not compared" if len(rest) else ""
    if found is None:
        return hosts or NOT_YET
    row, count = found
    how = f"{devices_text(row['devices'], row['device_type'])}, batch {row['batch_size']}, {row['precision']}{eager_ahead(large, row)}"
    least = f"the least of {plural(count, 'captured point')} of large models under ddp: {one_efficiency(row)} ({how})"
    return "; ".join(filter(None, [least, hosts]))


def _parameters(ours: Ours) -> str:
    return "; ".join(f"{MODEL_NAMES[name]}: {find_model('cnn', name).parameters / 1e6:.1f} million" for name in (INCEPTION, RESNET))


def _channels_first(ours: Ours) -> str:
    table = ours.layouts
    table = table[table["precision"] == "fp32"] if len(table) else table
    kinds = {"imagenet": "large images", "cifar10": "small images"}
    found = [(words, table[table["model"].map(images_of) == kind]) for kind, words in kinds.items()] if len(table) else []
    parts = [f"{words} {_gains(own)}" for words, own in found if len(own)]
    return f"in fp32, {'; '.join(parts)}; see C16" if parts else NOT_YET


def _gains(table: pd.DataFrame) -> str:
    """What NCHW gains in these points, their models, and how many were measured once."""
    gains = [100 * (float(ratio) - 1) for ratio in table["ratio"]]
    models = joined(sorted({MODEL_NAMES.get(name, name) for name in table["model"]}))
    once = sum(missing(low) for low in table["ratio_low"])
    extent = f"{min(gains):+.1f}% to {max(gains):+.1f}%, {median(gains):+.1f}% in the median" if len(gains) > 1 else f"{gains[0]:+.1f}%"
    return f"{extent} of {plural(len(gains), 'point')} ({models}{f'; {once} measured once' if once else ''})"


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
    own = ddp_points(ours.plain)
    own = own[(own["model"] == INCEPTION) & (own["devices"] == 2)]
    sure = steady(own, "speedup")
    told = [
        f"{ratio_text(row['speedup'], row['speedup_low'], row['speedup_high'])} one GPU (ddp, {describe(row, ['batch_size', 'execution'])}"
        f"{once_text(row, 'speedup')})"
        for _, row in exact_first(own[sure], "speedup").iterrows()
    ]
    told += _of_hosts(own[~sure], "speedup")
    names = cifar_points(ours.small, "exp2")["model"].unique()
    small = f"{len(names)} models, above" if len(names) else NOT_YET
    return f"{MODEL_NAMES[INCEPTION]}: {'; '.join(told) or NOT_YET}; CIFAR-10: {small}"


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
    **dict.fromkeys(
        (
            *("nchw_gain_min", "nchw_gain_max", "nchw_gain_benchmarks_min", "nchw_gain_benchmarks_max"),
            *("nchw_gain_imagenet", "nchw_gain_cifar10"),
        ),
        _channels_first,
    ),
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
