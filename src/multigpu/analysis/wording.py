"""Numbers and Runs in words, the same on every page: "3.85 M words/s (3.80 to 3.90)", "batch 128 a GPU, bf16, eager"."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import pandas as pd

Row = Any
"""A row of a frame: a Series or a dictionary, by column name."""

MODEL_NAMES = {
    "nmt000": "NMT of 000",
    "nmt004": "NMT of 004",
    "nmt000_pieces": "NMT of 000 (pieces)",
    "nmt_catalogs": "NMT (catalogs)",
    "nmt_short": "NMT (short sentences)",
    "nmt_small": "small NMT",
    "nmt_tiny": "tiny NMT",
    "resnet50_v1": "ResNet-50 v1",
    "resnet50_v1.5": "ResNet-50 v1.5",
    "resnet101_v1": "ResNet-101 v1",
    "resnet101_v1.5": "ResNet-101 v1.5",
    "resnet152_v1": "ResNet-152 v1",
    "resnet152_v1.5": "ResNet-152 v1.5",
    "inception3": "Inception-v3",
    "inception4": "Inception-v4",
    "googlenet": "GoogLeNet",
    "vgg11": "VGG-11",
    "vgg16": "VGG-16",
    "vgg19": "VGG-19",
    "alexnet": "AlexNet",
    "overfeat": "OverFeat",
    "lenet": "LeNet",
    "trivial": "trivial network",
    "alexnet_cifar": "AlexNet (CIFAR)",
    "resnet20": "ResNet-20",
    "resnet32": "ResNet-32",
    "resnet44": "ResNet-44",
    "resnet56": "ResNet-56",
    "resnet110": "ResNet-110",
    "densenet40_k12": "DenseNet-40 (k = 12)",
    "densenet100_k12": "DenseNet-100 (k = 12)",
    "resnet_small": "small ResNet",
    "resnet_tiny": "tiny ResNet",
    "alexnet_tiny": "tiny AlexNet",
    "alexnet_cifar_tiny": "tiny AlexNet (CIFAR)",
    "overfeat_tiny": "tiny OverFeat",
    "vgg_tiny": "tiny VGG",
    "googlenet_tiny": "tiny GoogLeNet",
    "inception3_tiny": "tiny Inception-v3",
    "inception4_tiny": "tiny Inception-v4",
    "densenet_tiny": "tiny DenseNet",
    "mlp42m": "fully connected, 42 M",
    "mlp_small": "small fully connected",
    "mlp_tiny": "tiny fully connected",
    "stack_dense": "dense layers",
    "stack_convolution": "convolutions",
    "stack_recurrent": "a recurrent layer",
    "stack_convolution_tiny": "tiny convolutions",
    "stack_recurrent_tiny": "tiny recurrent layers",
    "deepconn": "DeepCoNN",
    "deepconn_fm": "DeepCoNN (factorisation machine)",
    "deepconn_x4": "DeepCoNN, 4 x as wide",
    "deepconn_x16": "DeepCoNN, 16 x as wide",
    "deepconn_small": "small DeepCoNN",
    "deepconn_tiny": "tiny DeepCoNN",
    "deepconn_fm_tiny": "tiny DeepCoNN (factorisation machine)",
}
BATCHING_NAMES = {"own": "own buckets", "shared": "a shared bucket", "fixed": "one width"}
FRAMEWORK_NAMES = {"torch": "PyTorch", "tensorflow": "TensorFlow"}
UNIT_NAMES = {"words": "words/s", "images": "images/s", "reviews": "reviews/s", "samples": "samples/s"}
STATUS_NAMES = {
    "out_of_memory": "out of memory",
    "timeout": "took too long",
    "unsupported": "not supported",
    "failed": "failed",
    "": "not measured",
}

# Fields that tell panels apart, in the order in which a reader wants them. The model always stands first.
TELLING = (
    *(
        "model",
        "batch_size",
        "scaling",
        "input_label",
        "batching",
        "shuffle",
        "sequence_length",
        "precision",
        "execution",
        "layout",
        "batch_norm",
        "optimizer",
    ),
    *("processes", "model_parallel", "micro_batches"),
    *("cross_entropy", "bucket_mib", "bucket_update", "bucket_send"),
    *("all_reduce_spec", "wire_dtype", "loss_scale", "recurrence", "embedding_gradients"),
    *("feed", "image_dtype", "stage_devices", "host_cores"),
    *("framework", "framework_version", "warmup_steps", "timed_steps", "timing_version", "machine"),
)


def missing(value: Any) -> bool:
    """Whether a cell is empty: None, NaN or NA."""
    return value is None or value is pd.NA or (isinstance(value, float) and math.isnan(value))


def execution_text(value: object) -> str:
    """A form of execution: "compiled and captured"."""
    return str(value).replace("_", " and ")


def plural(count: int, one: str, many: str | None = None) -> str:
    """The count with the word that fits it: "1 GPU", "8 GPUs"."""
    return f"{count:,} {one if count == 1 else many or one + 's'}"


def device_word(device_type: str) -> str:
    """What one device of this type is called."""
    return "CPU process" if device_type == "cpu" else "GPU"


def device_words(device_type: str) -> str:
    """What several devices of this type are called."""
    return "CPU processes" if device_type == "cpu" else "GPUs"


def devices_text(count: int, device_type: str) -> str:
    """The devices in words: "1 GPU", "8 GPUs", "2 CPU processes"."""
    return plural(int(count), device_word(device_type), device_words(device_type))


def decimals(value: float, digits: int = 3) -> int:
    """Decimals that show `digits` significant digits of `value`."""
    return 0 if value == 0 or not math.isfinite(value) else max(0, digits - 1 - math.floor(math.log10(abs(value)) + 1e-12))


def scaled(value: float) -> tuple[float, str]:
    """A factor and its letter: 3.85e6 is (1e6, " M"); below a million numbers are written out."""
    return (1e9, " G") if abs(value) >= 1e9 else (1e6, " M") if abs(value) >= 1e6 else (1.0, "")


def with_interval(text: str, low: float, high: float, form: str) -> str:
    """`text` with its bounds, each written with the format `form`; without them where there are none."""
    return text if missing(low) or missing(high) else f"{text} ({low:{form}} to {high:{form}})"


def rate_text(rate: float, low: float = math.nan, high: float = math.nan, unit: str = "words") -> str:
    """A throughput with its interval: "3.85 M words/s (3.80 to 3.90)"."""
    if missing(rate):
        return "not measured"
    factor, letter = scaled(rate)
    places = max(0, 2 - math.floor(math.log10(rate / factor))) if rate else 0
    step = 10.0 ** max(0, math.floor(math.log10(rate / factor)) - 2) if rate else 1.0  # three digits: 296,698 reads 297,000
    values = [round(value / factor / step) * step if step > 1 and not missing(value) else value / factor for value in (rate, low, high)]
    form = f",.{places}f"
    return with_interval(f"{values[0]:{form}}{letter} {UNIT_NAMES[unit]}", values[1], values[2], form)


def percent_text(share: float, low: float = math.nan, high: float = math.nan) -> str:
    """A share in percent with its interval: "93% (92 to 94%)"."""
    form = f".{max(0, decimals(100 * share, 2))}f"
    text = with_interval(f"{100 * share:{form}}%", 100 * low, 100 * high, form)
    return text[:-1] + "%)" if text.endswith(")") else text


def ratio_text(ratio: float, low: float = math.nan, high: float = math.nan) -> str:
    """A ratio with its interval: "6.91 times (6.85 to 6.97)"."""
    form = f".{decimals(ratio)}f"
    return with_interval(f"{ratio:{form}} times", low, high, form)


def bytes_text(count: float) -> str:
    """Bytes in binary units: "2.79 GiB"."""
    factor, unit = bytes_unit(count)
    return f"{count / factor:.{decimals(count / factor)}f} {unit}"


def bytes_unit(largest: float) -> tuple[float, str]:
    """The binary unit in which `largest` bytes are read best."""
    return next(((2.0**power, unit) for power, unit in ((30, "GiB"), (20, "MiB"), (10, "KiB")) if largest >= 2.0**power), (1.0, "B"))


def why_missing(row: Row | None) -> str:
    """Why a cell has no figure, from its row's status and reason; of no row, "not measured"."""
    if row is None:
        return "not measured"
    status, reason = ("" if missing(row.get(name)) else str(row.get(name)) for name in ("status", "reason"))
    words = ", ".join(STATUS_NAMES.get(part, part) for part in status.split(", "))
    return f"{words}: {reason}" if reason else words


def status_text(row: Row | None) -> str:
    """Why a cell has no figure, in two or three words; the reason itself stands elsewhere."""
    return why_missing(None if row is None else {"status": row["status"]})


def field_text(row: Row, field: str) -> str:
    """One field of a Run in words; empty where it has no meaning for the Run."""
    value = row[field]
    if missing(value) or value == "":
        return ""
    match field:
        case "model":
            return MODEL_NAMES.get(value, str(value))
        case "batch_size":
            whose = f"a {device_word(row['device_type'])}" if row["scaling"] == "weak" else "in all"
            return f"batch {value} {whose}"
        case "scaling":
            return f"{value} scaling"
        case "input_label":
            return "synthetic input" if value == "synthetic" else str(value)
        case "sequence_length":
            return f"{value} words a sentence"
        case "batching":
            return BATCHING_NAMES.get(value, str(value))
        case "shuffle":
            return "shuffled" if value else "in corpus order"
        case "layout":
            return str(value).replace("_", " ")
        case "execution":
            return execution_text(value)
        case "processes":
            return "one process" if value == "one" else "a process a device"
        case "feed":
            return {"arrays": "fed from arrays", "strings": "fed with strings", "pipeline": "fed one step ahead"}[str(value)]
        case "host_cores":
            return plural(int(value), "host core")
        case "stage_devices":
            from multigpu.analysis.stage_words import stages_text  # which joins its words as this module does

            return stages_text(row)
        case "cross_entropy":
            return "loss in one piece" if value == "fused" else "the library's loss"
        case "bucket_mib":
            return f"buckets of {value} MiB"
        case "batch_norm":
            return f"{value} batch norm"
        case "bucket_update":
            return "updates in backward"
        case "bucket_send":
            return "gradients sent unpacked" + (", the last bucket small" if value == "grouped_small_last" else "")
        case "all_reduce_spec":
            return f"all-reduce {value}"
        case "model_parallel":
            return f"{devices_text(int(value), row['device_type'])} a copy of the model"
        case "micro_batches":
            return f"{value} micro-batches"
        case "image_dtype":
            return f"images cross as {value}"
        case "wire_dtype":
            return f"gradients in {value}"
        case "loss_scale":
            return f"loss scale {value}"
        case "optimizer":
            return "" if value == "default" else str(value)
        case "framework":
            return FRAMEWORK_NAMES.get(value, str(value))
        case "framework_version":
            return f"{FRAMEWORK_NAMES.get(row['framework'], row['framework'])} {value}"
        case "warmup_steps" | "timed_steps":
            return f"{value} {field.removesuffix('_steps').replace('warmup', 'warm-up')} steps"
        case "timing_version":
            return f"timer {value}"
        case _:
            return str(value)


def telling(table: pd.DataFrame, fields: Sequence[str] = TELLING) -> dict[str, list[str]]:
    """Of each model, the fewest fields (in the given order) that tell its kinds of row apart, and the model if there are several.

    A field that adds nothing to those before it is left out: where the batch tells all panels apart, the batch alone names them.
    Whether the loss is in one piece is said wherever it differs: it changes the work, and not only who launches it.
    """
    found = {}
    for model, group in table.groupby("model", sort=False):
        chosen: list[str] = []
        count = 1
        for field in fields:
            kinds = len(group[[*chosen, field]].drop_duplicates())
            if field != "model" and (kinds > count or (field == "cross_entropy" and group[field].nunique(dropna=False) > 1)):
                chosen, count = [*chosen, field], kinds
        found[str(model)] = (["model"] if table["model"].nunique() > 1 else []) + chosen
    return found


def describe(row: Row, fields: Sequence[str]) -> str:
    """The row's fields in words, comma-joined; a version names its framework, which is not said again."""
    said = [field for field in fields if field != "framework" or "framework_version" not in fields]
    return ", ".join(text for field in said if (text := field_text(row, field)))


def constants(table: pd.DataFrame, fields: Sequence[str] = TELLING) -> str:
    """In words, what all rows have in common."""
    same = [field for field in fields if table[field].nunique(dropna=False) == 1]
    return describe(table.iloc[0], same) if len(table) else ""


def repeats_text(table: pd.DataFrame) -> str:
    """Repeats, launches and the meaning of intervals, for a caption; `table` of `metrics.summary`."""
    measured = table[table["n"] > 0]
    if measured.empty:
        return "no repeat"
    low, high = int(measured["n"].min()), int(measured["n"].max())
    text = f"n = {low}" if low == high else f"n = {low} to {high}"
    if high == 1:
        return f"{text} (screening): no intervals"
    launches = (int(measured["launches"].min()), int(measured["launches"].max()))
    over = plural(launches[0], "launch", "launches") if launches[0] == launches[1] else f"{launches[0]} to {launches[1]} launches"
    return f"{text} over {over}; intervals 95%" + ("; points without one were measured once (screening)" if low == 1 else "")


def unbroken(*parts: str) -> str:
    """The parts side by side, for a cell of a narrow table: lines may end between parts and nowhere within one."""
    return ", ".join(part.replace(" ", "\u00a0") for part in parts)


def joined(parts: Sequence[str]) -> str:
    """The parts as a list in a sentence: "a", "a and b", "a, b and c"."""
    return " and ".join(filter(None, [", ".join(parts[:-1]), *parts[-1:]]))
