"""Document 001's tables, each with its twin: what the Records of this machine say to the same question, or why they say nothing yet."""

from __future__ import annotations

from collections.abc import Iterable
from statistics import median
from typing import Any

import pandas as pd

from multigpu.analysis.metrics import scaling_table, summary
from multigpu.analysis.ordinary import BUCKETS, of_today
from multigpu.analysis.pairs import ratio_cell
from multigpu.analysis.picture import Shown
from multigpu.analysis.steady import eager_ahead
from multigpu.analysis.style import look
from multigpu.analysis.tables import table_html
from multigpu.analysis.wording import FRAMEWORK_NAMES, MODEL_NAMES, describe, joined, missing, percent_text, with_interval
from multigpu.published import load_published
from multigpu.workloads import find_model
from multigpu.workloads.cnn import densenet
from multigpu.workloads.cnn.description import FOR_CIFAR
from multigpu.workloads.cnn.layers import trace

NOT_YET = "not measured"
BATCH = 64
"""Images a GPU at which claim C12 compares large models."""
REPEATED, ALL = "ours repeated", "all ours"
"""Columns of medians: of models with an interval, and with those measured once."""
FORMS = ("captured", "eager")
"""Forms of execution of which a model is shown in one, the first that was measured."""
LARGE = ("resnet50_v1", "resnet50_v1.5", "inception3", "inception4", "vgg16", "alexnet", "resnet152_v1", "resnet152_v1.5")
CLOCKED = "alexnet"
"""The document's model in its table of memory clocks."""
CIFAR = {"alexnet": "alexnet_cifar"}
"""The document's name of a model -> ours, where they differ."""
SMALL_UPDATES = ("exp2", "replicated_allreduce", "ddp")
"""Placements of ours beside the document's small models."""
CIFAR_NAMES = tuple(model.name for model in FOR_CIFAR)
GROWTH, DENSENET_LAYERS = 12, (12, 32)
"""Of the document's DenseNets (k = 12): 40 and 100 layers are three blocks of 12 and 32 convolutions and four layers more."""
PAIR_JOB = ["batch_size", "precision", "layout", "execution"]
"""What must be equal among our points beside the document's pairs."""


def torch_points(frame: pd.DataFrame) -> pd.DataFrame:
    """Records with one process a GPU, weak scaling and synthetic images, gradients in their own type; compiled, of today's program."""
    plain = frame["framework"].eq("torch") & frame["processes"].eq("per_device") & frame["scaling"].eq("weak")
    usual = frame[[*BUCKETS, "all_reduce_spec", "wire_dtype"]].isna().all(axis=1)
    return of_today(frame[plain & frame["inputs"].eq("synthetic") & usual])


def at_claims_batch(frame: pd.DataFrame) -> pd.DataFrame:
    """A row of `scaling_table` a large model and number of GPUs: DDP at BATCH images a GPU, as claim C12 asks.

    Captured, or eager where a captured step or its one-GPU baseline was not measured; of several precisions or layouts, the one with most
    repeats.
    """
    table = scaling_table(torch_points(frame))
    own = table[(table["placement"] == "ddp") & table["model"].isin(LARGE) & (table["batch_size"] == BATCH) & table["speedup"].notna()]
    own = own[own["execution"].isin(FORMS) & (own["devices"] > 1)]
    order = own.assign(_form=own["execution"].map(FORMS.index), _model=own["model"].map(LARGE.index))
    order = order.sort_values(["_model", "devices", "_form", "n", "precision"], ascending=[True, True, True, False, True], kind="stable")
    return order.drop_duplicates(["model", "devices"]).drop(columns=["_form", "_model"]).reset_index(drop=True)


def scaling_twin(frame: pd.DataFrame) -> Shown:
    """The document's medians over its large models beside ours (`at_claims_batch`), of those with an interval and of all; each told."""
    ours = at_claims_batch(frame)
    rows = []
    for _, row in load_published("001_scaling").iterrows():
        own = ours[ours["devices"] == row["gpus"]]
        empty = [f"{name}, {what}" for name in (REPEATED, ALL) for what in ("speedup", "efficiency")]
        cells = {**dict.fromkeys(empty, ""), empty[0]: NOT_YET, "each model": ""}
        if len(own):
            repeated = own[own["efficiency_low"].notna()]
            cells = {
                **_medians(REPEATED, repeated),
                **_medians(ALL, own),
                "each model": "; ".join(
                    f"{one_efficiency(point)} ({point['precision']}, {point['execution']}{eager_ahead(frame, point)})"
                    for _, point in own.iterrows()
                ),
            }
        rows.append(
            {"GPUs": str(int(row["gpus"])), "document, speedup": f"{row['median_speedup']:.2f}"}
            | {"document, efficiency": f"{row['median_efficiency_percent']:.2f}%"}
            | cells
        )
    note = (
        "Weak scaling, both. Document: the best update of each model, P100 and K80. Ours: ddp against ddp on one GPU at "
        f"{BATCH} images a GPU, the median over models; each captured, or eager where captured was not measured. In brackets: of how many. "
        "Repeated: of models with an interval. All: with those measured once, where an eager step may be its host's, and a captured one "
        "that is slower than the eager step is said to be. C12 counts points of five repeats, so it can hold where the median of all "
        "models is lower."
    )
    figures = [name for name in rows[0] if name != "each model"]
    return table_html(pd.DataFrame(rows), "001: median speedup of large models", note, right=figures, wide=["each model"])


def _medians(name: str, own: pd.DataFrame) -> dict[str, str]:
    """Median speedup and efficiency of these rows; dashes without any."""
    if own.empty:
        return {f"{name}, speedup": "–", f"{name}, efficiency": "–"}
    return {
        f"{name}, speedup": f"{median(own['speedup']):.2f}",
        f"{name}, efficiency": f"{100 * median(own['efficiency']):.2f}% ({len(own)})",
    }


def one_efficiency(row: Any) -> str:
    """The model with its efficiency and interval, or that it was measured once: "VGG-16 95%, once"."""
    once = "" if not missing(row["efficiency_low"]) else ", once"
    share = percent_text(row["efficiency"], row["efficiency_low"], row["efficiency_high"])
    return f"{MODEL_NAMES.get(row['model'], row['model'])} {share}{once}"


def cifar_twin(frame: pd.DataFrame) -> Shown:
    """CIFAR's eight models on two GPUs with variables on the CPU, and ResNet-20 with NCCL."""
    table = scaling_table(torch_points(frame))
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
                "efficiency, document": f"{row['efficiency_percent']:.2f}%",
                **{f"ours, {look(name).label}": cifar_speedup(table, own.name, name) for name in SMALL_UPDATES},
            }
        )
    nccl, share = (float(str(statements.loc[f"resnet20_nccl_{what}", "value"])) for what in ("speedup", "efficiency"))
    note = (
        f"Document: two Tesla M60, variables on the CPU; ResNet-20 with NCCL {nccl:.3f} ({share:.2f}%). {counting_sentence()} Ours: "
        f"speedup and efficiency on 2 GPUs{_of(frame)}, eager, each model at its own batch, {_arithmetic(table, SMALL_UPDATES)}, where the "
        "document's are TensorFlow in fp32. Eager steps of such models wait for their host: wide intervals and speedups above 2 are its."
    )
    return table_html(pd.DataFrame(rows), "001: CIFAR-10 models on two GPUs", note, right=[name for name in rows[0] if name != "model"])


def counting_sentence() -> str:
    """What the document's counts of parameters hold beside what is trained, and why its DenseNets have fewer; from the descriptions."""
    small = find_model("cnn", "resnet20")
    statistics = 2 * sum(v.elements for v in small.variables if v.kind == "norm" and v.name.endswith(".bias"))
    narrow = [
        f"{sum(v.elements for v in trace(densenet.cifar(layers, GROWTH, transition=2 * GROWTH), (3, 32, 32)).variables):,}"
        for layers in DENSENET_LAYERS
    ]
    return (
        "Its counts hold, beside trained parameters, the running statistics of batch norm and a step counter "
        f"({MODEL_NAMES[small.name]}: {small.parameters:,} + {statistics:,} + 1). Its DenseNets are narrower than the paper's: their "
        f"transitions pass on {2 * GROWTH} channels whatever the block has gathered, so {joined(narrow)} parameters are trained; ours keep "
        "all channels."
    )


def _of(frame: pd.DataFrame) -> str:
    """The machines of the frame: " of 2x-nvidia-h200"."""
    return f" of {' and '.join(sorted(set(frame['machine'])))}" if len(frame) else ""


def _arithmetic(table: pd.DataFrame, placements: Iterable[str]) -> str:
    """How the points were trained that `cifar_speedup` shows: "PyTorch in bf16"."""
    shown = [cifar_points(table, name).drop_duplicates("model", keep="last")["precision"] for name in placements]
    precisions = joined(sorted(set(pd.concat(shown))))
    return f"{FRAMEWORK_NAMES['torch']} in {precisions}" if precisions else FRAMEWORK_NAMES["torch"]


def cifar_points(table: pd.DataFrame, placement: str, devices: int = 2) -> pd.DataFrame:
    """The rows of `scaling_table` of one placement on `devices` GPUs, eager, each of CIFAR's models at its own batch; the last of a model
    speaks for it: of most repeats, then in bf16, channels last.
    """
    batches = {model.name: model.config.default_batch for model in FOR_CIFAR}
    own = table[table["speedup"].notna() & table["execution"].eq("eager") & (table["batch_size"] == table["model"].map(batches))]
    own = own[(own["placement"] == placement) & (own["devices"] == devices)]
    return own.sort_values(["n", "precision", "layout"], ascending=[True, False, True], kind="stable")


def cifar_speedup(table: pd.DataFrame, model: str, placement: str) -> str:
    """Speedup with its interval and efficiency on 2 GPUs: "1.51 (1.49 to 1.53), 76%"."""
    own = cifar_points(table, placement)
    own = own[own["model"] == model]
    if own.empty:
        return NOT_YET
    row = own.iloc[-1]
    return f"{ratio_cell(row, 'speedup')}, {percent_text(row['efficiency'])}" + (", once" if missing(row["speedup_low"]) else "")


def pairs_twin(frame: pd.DataFrame) -> Shown:
    """AlexNet on a pair of GPUs under each variable update: the document's pairs behind one PCIe switch and across, and ours on NVLink.

    Ours are of one machine, batch, precision, layout and form of execution: those in which most of the five updates were measured, of
    equals the ones most often repeated.

    frame: each row under the machine that measured it (`cnn_page.as_measured`).
    """
    points = summary(torch_points(frame))
    ours = points[(points["model"] == "alexnet") & (points["devices"] == 2) & (points["n"] > 0)]
    names = {
        ("gpu", "parameter_server", False): "ps_gpu0",
        ("cpu", "parameter_server", False): "exp2",
        ("gpu", "replicated", False): "replicated_copy",
        ("gpu", "replicated", True): "replicated_allreduce",
        ("gpu", "independent", False): "independent",
    }
    ours = ours[ours["placement"].isin(set(names.values()))]
    jobs = [group for _, group in ours.groupby(["machine", *PAIR_JOB], dropna=False)]
    ours = max(jobs, key=lambda group: (len(group), int(group["n"].sum())), default=ours)
    rows = []
    for _, row in load_published("001_pix_phb").iterrows():
        nccl = str(row["nccl"]).upper() == "TRUE"
        place = row["parameter_server"].upper() + (", NCCL" if nccl else "")
        placement = names[row["parameter_server"], row["variable_update"], nccl]
        own = ours[ours["placement"] == placement]
        images = {
            heading: "–" if missing(row[name]) else f"{row[name]:,.2f}"
            for heading, name in (
                ("PIX 0,1", "pix_0_1_images_per_s"),
                ("PIX 4,5", "pix_4_5_images_per_s"),
                ("PHB 0,5", "phb_0_5_images_per_s"),
            )
        }
        rows.append(
            {"the document's update": f"{row['variable_update'].replace('_', ' ')}, {place}"}
            | images
            | {"PIX over PHB": f"{row['speedup_pix_over_phb']:.2f}", "ours": look(placement).label}
            | {"images/s": NOT_YET if own.empty else _images(own.iloc[0]), "n": "" if own.empty else _repeats(own.iloc[0])}
        )
    note = (
        "Document: AlexNet, two GTX 1070, images/s; PIX: a pair behind one PCIe switch, PHB: one across the host bridge. All pairs here "
        "are joined by NVLink: none crosses a switch (C20)."
    )
    if len(ours):
        first = ours.iloc[0]
        note += f" Ours, on {first['machine']}: {describe(first, PAIR_JOB)}; n: repeats over launches."
    figures = [name for name in rows[0] if name not in ("the document's update", "ours", "n")]
    return table_html(pd.DataFrame(rows), "001: AlexNet on two GPUs", note, right=figures)


def _images(row: Any) -> str:
    """A point's rate with its interval, without its unit."""
    return with_interval(f"{row['rate']:,.0f}", row["rate_low"], row["rate_high"], ",.0f")


def _repeats(row: Any) -> str:
    return f"{row['n']} over {row['launches']}" if row["n"] > 1 else "1, screening"


def clocks_twin(frame: pd.DataFrame, gpus: pd.DataFrame | None = None) -> Shown:
    """The document's GPUs by memory clock; beside them ours, which run at one.

    gpus: of `hardware.gpu_points`; shown is a job of the document's model, or of another where that was not measured, captured before
    eager, of most GPUs, of most repeats, of the largest batch.
    """
    known = frame[frame["sm_clock_mhz"].notna()]
    clock = (
        f"the SM clock after a Run is {known['sm_clock_mhz'].median():,.0f} MHz in the median" if len(known) else "no clock was recorded"
    )
    words = {"gpu": "GPU", "images_per_s": "images/s", "images_percent": "of GPU 0 (%)"}
    words |= {"memory_clock_ghz": "clock (GHz)", "memory_clock_percent": "of GPU 0's (%)"}
    places = {"images_per_s": ",.3f", "images_percent": ".2f", "memory_clock_ghz": ".4f", "memory_clock_percent": ".2f"}
    data = load_published("001_memory_clock")
    data = data.assign(**{name: [f"{value:{form}}" for value in data[name]] for name, form in places.items()})
    data = data.astype(str).rename(columns=words)
    note = f"Clocks are never touched here and every GPU of the machine has the same memory clock; {clock}."
    ours = _each_gpu(gpus) if gpus is not None else pd.DataFrame()
    if len(ours):
        first = ours.iloc[0]
        beside = data.merge(pd.DataFrame([_gpu_cells(row) for _, row in ours.iterrows()]), on="GPU", how="outer")
        data = beside.sort_values("GPU", key=lambda names: names.astype(int)).fillna("–").reset_index(drop=True)
        how = "alone, one at a time" if first["how"] == "alone" else "all at once, each a replica by itself"
        named = f"{MODEL_NAMES.get(first['model'], first['model'])}"
        named += "" if first["model"] == CLOCKED else f" (the document's {MODEL_NAMES[CLOCKED]} was not measured so)"
        note += (
            f" Document: {MODEL_NAMES[CLOCKED]}. Ours, {first['machine']}: {named}, batch {first['batch_size']}, "
            f"{first['precision']}, {first['execution']}, {how}, n = {ours['n'].min()}; clocks and power as found just after the timed "
            "steps. Others stand on the page about hardware."
        )
    return table_html(data, "001: throughput by memory clock (GTX 1070)", note, right=[str(name) for name in data])


def _each_gpu(points: pd.DataFrame) -> pd.DataFrame:
    """The rows, a GPU each, of the job that `clocks_twin` shows."""
    job = ["machine", "how", "model", "batch_size", "precision", "execution"]
    jobs = [own.sort_values("gpu") for _, own in points.groupby(job, sort=True)] if len(points) else []

    def rank(own: pd.DataFrame) -> tuple[bool, bool, int, int, int]:
        first = own.iloc[0]
        return first["model"] == CLOCKED, first["execution"] == "captured", len(own), int(own["n"].min()), int(first["batch_size"])

    return max(jobs, key=rank, default=points)


def _gpu_cells(row: Any) -> dict[str, str]:
    return {
        "GPU": str(row["gpu"]),
        "ours: images/s": f"{row['units_per_s']:,.0f}",
        "ours: of GPU 0 (%)": f"{100 * row['share']:.2f}",
        "memory clock (GHz)": f"{row['memory_clock_mhz'] / 1000:.3f}",
        "SM clock (GHz)": f"{row['sm_clock_mhz'] / 1000:.3f}",
        "power (W)": f"{row['power_w']:,.0f}",
    }
