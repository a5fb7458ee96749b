"""Fields and points in words: what a Run's field says of a point, how a placement was carried out,
which job it did.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd
import yaml

from multigpu.analysis.style import label
from multigpu.spec.tables import table

_SAID = yaml.safe_load(Path(__file__).with_name("words.yaml").read_text(encoding="utf-8"))

WORDS: dict[str, dict[str, str]] = _SAID["values"]
"""Of columns whose values have names: what tables and figures write."""
MODELS, FRAMEWORKS = WORDS["model"], WORDS["framework"]
COLUMNS: dict[str, tuple[str, str]] = {
    name: (heading, form) for name, (heading, form) in _SAID["columns"].items()
}
"""Of columns that tables show: the usual heading and the usual form (`estimate.FORMS`)."""


def named(column: str, value: Any) -> str:
    """A value as tables and figures write it: a placement, a model or a framework by its name."""
    text = str(value)
    if column == "execution":
        return text.replace("_", " and ")
    if column in ("placement", "base_placement"):
        return label(text)
    return WORDS.get(column, {}).get(text, text)


def missing(value: Any) -> bool:
    """Whether a cell is empty: None, NaN, NA or ""."""
    return (
        value is None
        or value is pd.NA
        or value is pd.NaT
        or (isinstance(value, float) and math.isnan(value))
        or str(value) == ""
    )


def plural(count: int, one: str, many: str = "") -> str:
    """The count with the word that fits it: "1 GPU", "8 GPUs"."""
    return f"{count:,} {one if count == 1 else many or one + 's'}"


def device_word(device_type: str) -> str:
    """Return the word for one device: "GPU", or "CPU process"."""
    return "CPU process" if device_type == "cpu" else "GPU"


def devices_text(count: int, device_type: str) -> str:
    """The devices in words: "1 GPU", "8 GPUs", "2 CPU processes"."""
    return plural(
        int(count), device_word(device_type), "CPU processes" if device_type == "cpu" else "GPUs"
    )


def joined(parts: Sequence[str], last: str = "and") -> str:
    """The parts as a list in a sentence: "a", "a and b", "a, b and c"."""
    return f" {last} ".join(filter(None, [", ".join(parts[:-1]), *parts[-1:]]))


def _said(of: str) -> dict[str, Callable[[Any], str]]:
    """Of each field of the rows `of` of `words.csv`: a function that puts a value into words."""
    templates: dict[str, dict[str, str]] = {}
    for row in table(Path(__file__).with_name("words.csv")):
        if row["of"] == of:
            templates.setdefault(row["field"], {})[row["value"]] = row["words"]
    return {name: partial(_filled, name, words) for name, words in templates.items()}


def _filled(name: str, templates: Mapping[str, str], value: Any) -> str:
    """The template of this value, or else of any ("")."""
    template = templates.get(str(value), templates[""])
    count = int(value) if "{count" in template else 0
    return template.format(value=value, count=count, name=WORDS.get(name, {}).get(value, value))


SAYS = _said("way")
"""Of each field of how a placement is carried out: a value in words, "" of the usual one."""

OF_A_JOB = _said("job")
"""Of each field that says what is trained, or how long it was measured: a value in words."""

USUAL = {
    "per_device": "a process per device",
    "own": "own buckets",
    "library": "the library's loss",
}
"""Of usual values that need a word where they are told apart from others."""


def field_words(name: str, value: Any) -> str:
    """One field's value in words; "" where it is missing, or the usual one."""
    if missing(value):
        return ""
    return {**SAYS, **OF_A_JOB}.get(name, str)(value)


def way_words(row: Any) -> str:
    """How a point was carried out: "ddp, captured, fused loss"; what is usual is not said."""
    parts = (
        write(row[name]) for name, write in SAYS.items() if name in row and not missing(row[name])
    )
    # shares nothing with others that are not there
    alone = row["placement"] == "independent" and row["devices"] == 1
    return ", ".join(
        filter(None, ["one replica alone" if alone else label(str(row["placement"])), *parts])
    )


def job_words(row: Any) -> str:
    """Describe the job that a point trains: "ResNet-50, batch 64 per GPU, synthetic input, bf16, on
    4 GPUs".
    """
    first = ("model", "batch_size", "input_label", "sequence_length", "precision", "optimizer")
    said = {name: field_words(name, row[name]) for name in first}
    if row.get("unit") == "tokens" and said["sequence_length"]:
        said["sequence_length"] = f"{row['sequence_length']:,} tokens per sequence"
    said["batch_size"] += (
        f" per {device_word(row['device_type'])}" if row["scaling"] == "weak" else " in all"
    )
    return ", ".join(
        filter(None, [*said.values(), f"on {devices_text(row['devices'], row['device_type'])}"])
    )


def repeats_words(row: Any) -> str:
    """Repeats and launches ("n = 8 over 5 launches"), or "single run"."""
    if row["n"] == 1:
        return "single run"
    return f"n = {row['n']} over {plural(int(row['launches']), 'launch', 'launches')}"


def number(value: Any) -> Any:
    """A value as JSON takes it: numpy's as Python's own, what is missing as null."""
    if missing(value) or (isinstance(value, float) and not math.isfinite(value)):
        return None
    return value.item() if hasattr(value, "item") else value
