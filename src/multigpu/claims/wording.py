"""Figures as a reader meets them: "at 8 GPUs 0.31x (95% 0.30-0.33), n = 5 over 2 launches"."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from multigpu.claims.core import Contrast, Selection, Setting

LISTED = 3
"""Settings that are written out one by one; of more, the range is given."""
BEST_KNOWN = ("machine", "model", "placement", "precision", "execution", "batch_size", "inputs", "layout", "scaling")


def plural(count: int, one: str, many: str) -> str:
    """The count with the word that fits it."""
    return f"{count} {one if count == 1 else many}"


def number(value: float, contrast: Contrast, bare: bool = False, decimals: int = 2) -> str:
    """A value in the contrast's unit: a ratio, a share in percent, or a quantity."""
    if contrast.unit == "%":
        return f"{100 * value:.{max(decimals - 2, 1)}f}" + ("" if bare else "%")
    if contrast.unit == "x":
        text = f"{value:.{decimals}f}" if value >= 0.1 else f"{value:.2g}"
        return text + ("" if bare else "x")
    text = f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
    return text if bare else f"{text} {contrast.unit}".rstrip()


WIDEST = 100.0
"""An interval whose bounds lie further apart than this factor says nothing: its launches differ and are two or three."""


def _tells(setting: Setting) -> bool:
    """Whether there is an interval worth showing."""
    return setting.low is not None and setting.high is not None and setting.low > 0 and setting.high <= WIDEST * setting.low


def figure_of(setting: Setting, contrast: Contrast) -> str:
    """One interval: the estimate, its device count, its interval, repeats and launches."""
    fixed = all(term.devices for term in contrast.terms)
    at = "" if fixed else f" at {_devices(setting)}"
    if setting.low is None or setting.high is None:
        return f"{number(setting.estimate, contrast)}{at}, n = {setting.n} (screening)"
    # enough digits to tell the bounds apart
    width = setting.high - setting.low
    decimals = min(max(math.ceil(-math.log10(width)), 2), 3) if width > 0 else 2
    low, high = (number(bound, contrast, bare=True, decimals=decimals) for bound in (setting.low, setting.high))
    estimate = number(setting.estimate, contrast, decimals=decimals)
    repeats = (
        f"{setting.n} seeds"
        if {"clock", "epochs"} & set(setting.fields)
        else f"{setting.n} over {plural(setting.launches, 'launch', 'launches')}"
    )
    between = f"95% {low}-{high}" if _tells(setting) else "launches differ too much for an interval"
    return f"{estimate}{at} ({between}), n = {repeats}"


def _devices(setting: Setting) -> str:
    if "epochs" in setting.fields:  # of a TrainingPredicate, which counts batches
        return f"{setting.devices} times the batch"
    if setting.fields.get("device_type") == "worker":
        return plural(setting.devices, "worker", "workers")
    if setting.fields.get("device_type") == "cpu":
        return plural(setting.devices, "CPU process", "CPU processes")
    return plural(setting.devices, "GPU", "GPUs")


def figure(settings: Sequence[Setting], contrast: Contrast) -> str:
    """All settings of a contrast: each with what tells it from the others, or the range where they are many."""
    if len(settings) <= LISTED:
        telling = _telling(settings)
        parts = []
        for setting in settings:
            values = [_value(name, setting.fields[name]) for name in telling if setting.fields.get(name) is not None]
            parts.append(f"{', '.join(values)} {setting.text}".strip())
        return "; ".join(parts)
    low, high = min(s.estimate for s in settings), max(s.estimate for s in settings)
    counts = sorted({setting.devices for setting in settings})
    repeats = min(s.n for s in settings)
    noun = "workers" if settings[0].fields.get("device_type") == "worker" else "GPUs"
    on = _devices(settings[0]) if len(counts) == 1 else f"{', '.join(map(str, counts))} {noun}"
    bounds = [bound for s in settings if _tells(s) for bound in (s.low, s.high) if bound is not None]
    wide = sum(s.low is not None and not _tells(s) for s in settings)
    said = []
    if bounds:
        said.append(f"95% intervals from {number(min(bounds), contrast, bare=True)} to {number(max(bounds), contrast, bare=True)}")
    if wide:
        said.append(f"in {plural(wide, 'setting', 'settings')} launches differ too much for one")
    outer = f" ({', '.join(said)})" if said else ""
    return f"{number(low, contrast)} to {number(high, contrast)}{outer} in {len(settings)} settings at {on}, n >= {repeats} each"


def _telling(settings: Sequence[Setting]) -> list[str]:
    """The fewest fields, best known first, that tell the settings apart (the device count is told anyway)."""
    names = list(dict.fromkeys([*BEST_KNOWN, *(name for setting in settings for name in setting.fields)]))
    keys: list[tuple[object, ...]] = [(setting.devices,) for setting in settings]
    telling: list[str] = []
    for name in names:
        finer = [(*key, setting.fields.get(name)) for key, setting in zip(keys, settings, strict=True)]
        if len(set(finer)) > len(set(keys)):
            keys, telling = finer, [*telling, name]
    return telling


def stated(contrast: Contrast) -> str:
    """What a contrast tests, in words: "words/s of Exp2 over Exp4 at most 0.95x"."""
    bound = number(contrast.bound, contrast)
    if contrast.direction in ("within", "outside"):
        return f"{contrast.label} {contrast.direction} {number(1 / contrast.bound, contrast)} to {bound}"
    return f"{contrast.label} {'at least' if contrast.direction == 'above' else 'at most'} {bound}"


def _value(name: str, value: object) -> str:
    """A field's value, with the field's name where the value alone would not tell."""
    if value is None:
        return f"no {name.replace('_', ' ')}"
    if name == "scaling":
        return f"{value} scaling"
    if name == "shuffle":
        return "shuffled" if value else "in the corpus's order"
    if name == "batching":
        return f"{value} buckets"
    return f"{name.replace('_', ' ')} {value}" if str(value)[0].isdigit() else str(value)


def described(selection: Selection) -> str:
    """The Runs of a selection, in words."""
    return ", ".join(" or ".join(_value(name, value) for value in values) for name, values in selection)


def wanted(scope: Selection, lacking: Mapping[Selection, set[str]], counted: tuple[str, str] = ("GPU", "GPUs")) -> str:
    """The Runs that are missing, in words: what all have in common first. counted: what a count is of, one and many."""
    parts = []
    for select, counts in lacking.items():
        on = " and ".join(sorted(counts, key=lambda text: (len(text), text)))
        parts.append(f"{described(select)} on {on} {counted[on != '1']}")
    return f"no Records of {described(scope)}" + (":" if lacking.keys() - {()} else "") + " " + "; ".join(part.strip() for part in parts)
