"""Document 001's tables, each with its twin: what the Records of this machine say to the same question, or why they say nothing yet."""

from __future__ import annotations

from statistics import median
from typing import Any

import pandas as pd

from multigpu.analysis.metrics import scaling_table, summary
from multigpu.analysis.pairs import ratio_cell
from multigpu.analysis.picture import Shown
from multigpu.analysis.style import look
from multigpu.analysis.tables import table_html
from multigpu.analysis.wording import MODEL_NAMES, missing, percent_text, plural, rate_text, ratio_text, with_interval
from multigpu.published import load_published
from multigpu.workloads import find_model
from multigpu.workloads.cnn.description import FOR_CIFAR

NOT_YET = "not measured"
LARGE = ("resnet50_v1", "resnet50_v1.5", "inception3", "inception4", "vgg16", "alexnet", "resnet152_v1", "resnet152_v1.5")
CIFAR = {"alexnet": "alexnet_cifar"}
CIFAR_NAMES = tuple(model.name for model in FOR_CIFAR)
"""The document's name of a model -> ours, where they differ."""


def _torch(frame: pd.DataFrame) -> pd.DataFrame:
    """Records with one process a GPU, weak scaling and synthetic images, gradients in their own type."""
    plain = frame["framework"].eq("torch") & frame["processes"].eq("per_device") & frame["scaling"].eq("weak")
    usual = frame[["bucket_mib", "all_reduce_spec", "wire_dtype"]].isna().all(axis=1)
    return frame[plain & frame["inputs"].eq("synthetic") & usual]


def scaling_twin(frame: pd.DataFrame) -> Shown:
    """The document's medians over its large models beside ours: DDP, every batch, precision and form of execution measured."""
    table = scaling_table(_torch(frame))
    ours = table[(table["placement"] == "ddp") & table["model"].isin(LARGE) & table["speedup"].notna()]
    rows = []
    for _, row in load_published("001_scaling").iterrows():
        own = ours[ours["devices"] == row["gpus"]]
        cells = {"ours, speedup": NOT_YET, "ours, efficiency": "", "range": "", "settings": ""}
        if len(own):
            low, high = float(own["efficiency"].min()), float(own["efficiency"].max())
            cells = {
                "ours, speedup": f"{median(own['speedup']):.2f}",
                "ours, efficiency": percent_text(median(own["efficiency"])),
                "range": f"{percent_text(low)} to {percent_text(high)}",
                "settings": f"{len(own)}, {plural(own['model'].nunique(), 'model')}",
            }
        rows.append(
            {"GPUs": str(int(row["gpus"])), "document, speedup": f"{row['median_speedup']:.2f}"}
            | {"document, efficiency": f"{row['median_efficiency_percent']:.2f}%"}
            | cells
        )
    note = (
        "Weak scaling, both. Document: the best update of each model, P100 and K80. Ours: DDP against DDP on one GPU, the median over "
        "settings, which are models, batches, precisions and forms of execution."
    )
    return table_html(pd.DataFrame(rows), "001: median speedup of large models", note, right=list(rows[0]))


def cifar_twin(frame: pd.DataFrame) -> Shown:
    """CIFAR's eight models on two GPUs with variables on the CPU, and ResNet-20 with NCCL."""
    table = scaling_table(_torch(frame))
    statements = load_published("001_statements").set_index("name")
    rows = []
    for _, row in load_published("001_cifar10").iterrows():
        own = find_model("cnn", CIFAR.get(row["model"], row["model"]))
        rows.append(
            {
                "model": MODEL_NAMES.get(own.name, own.name),
                "parameters, document": f"{row['parameters']:,}",
                "parameters, ours": f"{own.parameters:,}",
                "speedup on 2, document": f"{row['speedup']:.2f}",
                **{
                    f"ours, {look(name).label}": _speedup(table, own.name, name).replace("–", NOT_YET)
                    for name in ("exp2", "replicated_allreduce", "ddp")
                },
            }
        )
    nccl = float(str(statements.loc["resnet20_nccl_speedup", "value"]))
    note = (
        f"Document: two Tesla M60, variables on the CPU; ResNet-20 with NCCL {nccl:.3f}. Its DenseNet counts come from a miscounting"
        f" script: ours are those of the papers' models. Ours on 2 GPUs{_of(frame)}."
    )
    return table_html(pd.DataFrame(rows), "001: CIFAR-10 models on two GPUs", note, right=[name for name in rows[0] if name != "model"])


def _of(frame: pd.DataFrame) -> str:
    """The machines of the frame: " of 2x-nvidia-h200"."""
    return f" of {' and '.join(sorted(set(frame['machine'])))}" if len(frame) else ""


def _speedup(table: pd.DataFrame, model: str, placement: str, devices: int = 2) -> str:
    own = table[(table["model"] == model) & (table["placement"] == placement) & (table["devices"] == devices) & table["speedup"].notna()]
    return "–" if own.empty else ratio_cell(own.sort_values("n").iloc[-1], "speedup")


def pairs_twin(frame: pd.DataFrame) -> Shown:
    """AlexNet on a pair of GPUs under each variable update: the document's pairs behind one PCIe switch and across, and ours on NVLink."""
    points = summary(_torch(frame))
    ours = points[(points["model"] == "alexnet") & (points["devices"] == 2) & (points["n"] > 0)]
    names = {
        ("gpu", "parameter_server", False): "ps_gpu0",
        ("cpu", "parameter_server", False): "exp2",
        ("gpu", "replicated", False): "replicated_copy",
        ("gpu", "replicated", True): "replicated_allreduce",
        ("gpu", "independent", False): "independent",
    }
    rows = []
    for _, row in load_published("001_pix_phb").iterrows():
        placement = names[row["parameter_server"], row["variable_update"], str(row["nccl"]).upper() == "TRUE"]
        own = ours[ours["placement"] == placement].sort_values("n")
        rate = NOT_YET if own.empty else _images(own.iloc[-1])
        rows.append(
            {"update": look(placement).label, "PIX (images/s)": f"{row['pix_0_1_images_per_s']:,.0f}"}
            | {"PHB (images/s)": f"{row['phb_0_5_images_per_s']:,.0f}", "PIX over PHB": f"{row['speedup_pix_over_phb']:.2f}"}
            | {"ours (images/s)": rate}
        )
    note = "Document: AlexNet, two GTX 1070. All pairs here are joined by NVLink: there is no pair across a switch to compare with (C20)."
    note += f" Ours{_of(frame)}." if len(ours) else ""
    return table_html(pd.DataFrame(rows), "001: AlexNet on two GPUs", note, right=[name for name in rows[0] if name != "update"])


def _images(row: Any) -> str:
    """A point's rate with its interval, without its unit."""
    return with_interval(f"{row['rate']:,.0f}", row["rate_low"], row["rate_high"], ",.0f")


def clocks_twin(frame: pd.DataFrame) -> Shown:
    """The document's GPUs by memory clock; ours run at one."""
    known = frame[frame["sm_clock_mhz"].notna()]
    clock = (
        f"the SM clock after a Run is {known['sm_clock_mhz'].median():,.0f} MHz in the median" if len(known) else "no clock was recorded"
    )
    words = {"gpu": "GPU", "images_per_s": "images/s", "images_percent": "of GPU 0 (%)"}
    words |= {"memory_clock_ghz": "clock (GHz)", "memory_clock_percent": "of GPU 0's (%)"}
    places = {"images_per_s": ",.1f", "images_percent": ".1f", "memory_clock_ghz": ".4f", "memory_clock_percent": ".1f"}
    data = load_published("001_memory_clock")
    data = data.assign(**{name: [f"{value:{form}}" for value in data[name]] for name, form in places.items()})
    data = data.astype(str).rename(columns=words)
    note = f"Clocks are never touched here and every GPU of the machine has the same memory clock; {clock}."
    return table_html(data, "001: throughput by memory clock (GTX 1070)", note, right=list(words.values()))


def statements_twin(frame: pd.DataFrame) -> Shown:
    """The document's single figures beside ours."""
    table, statements = scaling_table(_torch(frame)), load_published("001_statements").set_index("name")
    said: list[tuple[str, str]] = [
        ("resnet50_over_inception3", _model_ratio(table, "resnet50_v1.5", "inception3")),
        ("batch_size_a", _batch_effect(table)),
        ("k80_resnet50", _one_gpu(table, "resnet50_v1.5")),
        ("k80_inception3", _one_gpu(table, "inception3")),
        ("resnet20_nccl_speedup", _speedup(table, "resnet20", "replicated_allreduce").replace("–", NOT_YET)),
        ("efficiency_at_least", _least(table)),
    ]
    rows = [
        {"the document": str(statements.loc[name, "printed"]), "scope there": str(statements.loc[name, "scope"]), "ours": own}
        for name, own in said
    ]
    return table_html(pd.DataFrame(rows), "001: single figures", wide=["the document", "scope there", "ours"])


def _one_gpu(table: pd.DataFrame, model: str) -> str:
    own = table[(table["model"] == model) & (table["devices"] == 1) & (table["n"] > 0)]
    if own.empty:
        return NOT_YET
    best = own.iloc[int(own["rate"].to_numpy().argmax())]
    rate = rate_text(best["rate"], best["rate_low"], best["rate_high"], "images")
    return f"{rate} ({best['precision']}, batch {best['batch_size']}, {best['execution']})"


def _model_ratio(table: pd.DataFrame, over: str, under: str) -> str:
    by = ["placement", "devices", "batch_size", "precision", "execution", "layout"]
    measured = table[table["n"] > 0]
    both = measured[measured["model"] == over].merge(measured[measured["model"] == under], on=by, suffixes=("", "_under"))
    if both.empty:
        return NOT_YET
    return f"{ratio_text(median(both['rate'] / both['rate_under']))} in the median of {len(both)} settings"


def _batch_effect(table: pd.DataFrame) -> str:
    by = ["model", "placement", "devices", "precision", "execution", "layout"]
    own = table[(table["devices"] > 1) & (table["placement"] != "independent") & table["efficiency"].notna()]
    both = own[own["batch_size"] == 64].merge(own[own["batch_size"] == 32], on=by, suffixes=("", "_32"))
    if both.empty:
        return NOT_YET
    most: Any = both.iloc[int((both["efficiency"] - both["efficiency_32"]).abs().to_numpy().argmax())]
    return (
        f"64 keeps {ratio_text(median(both['efficiency'] / both['efficiency_32']))} the efficiency of 32 in the median of "
        f"{plural(len(both), 'setting')}; at most {percent_text(most['efficiency'])} against {percent_text(most['efficiency_32'])} "
        f"({MODEL_NAMES.get(most['model'], most['model'])}, {look(most['placement']).label}, {most['devices']} GPUs, {most['execution']}"
        f"{', measured once' if min(most['n'], most['n_32']) == 1 else ''})"
    )


def _least(table: pd.DataFrame) -> str:
    own = table[(table["placement"] == "ddp") & (table["devices"] > 1) & table["efficiency"].notna()]
    if own.empty:
        return NOT_YET
    row: Any = own.iloc[int(own["efficiency"].to_numpy().argmin())]
    low = "" if missing(row["efficiency_low"]) else f" ({percent_text(row['efficiency_low'])} to {percent_text(row['efficiency_high'])})"
    return (
        f"at least {percent_text(row['efficiency'])}{low} under DDP: {MODEL_NAMES.get(row['model'], row['model'])}, "
        f"{row['devices']} GPUs, batch {row['batch_size']}, {row['precision']}, {row['execution']}"
    )
