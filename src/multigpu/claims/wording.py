"""Figures as a reader meets them: "at 8 GPUs 0.31x (95% 0.30-0.33), n = 5 over 2 launches"."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from multigpu.analysis.style import look
from multigpu.analysis.words import FRAMEWORKS, MODELS, OF_A_JOB, SAYS, USUAL, field_words, joined, plural
from multigpu.claims.core import Contrast, Selection, Verdict
from multigpu.claims.results import Result, Setting

LISTED = 3
"""Settings that are written out one by one; of more, the range is given."""
BEST_KNOWN = ("model", "placement", "batch_size", "precision", "execution", "processes", "layout", "inputs", "scaling", "machine")
SYMBOLS: dict[Verdict, str] = {
    "holds": "✓",
    "holds here only": "✓*",
    "does not hold": "✗",
    "inconclusive": "≈",
    "out of reach": "↑",
    "not yet measured": "○",
    "cannot be tested here": "–",
}
"""A sign for each verdict."""
COLUMNS = ("torch", "tensorflow")
DASH = "–"
WITHOUT = "NumPy: "
"""Stands before a figure that no framework computed."""
FRAMEWORK_TITLES = {**FRAMEWORKS, "numpy": "NumPy"}
WORKLOAD_NAMES = {"nmt": "translation", "cnn": "image models", "deepconn": "reviews"}
INPUT_NAMES = {
    "synthetic": "synthetic input",
    "lengths_000": "sentence lengths of 000",
    "bucket_means_000": "bucket means of 000",
    "catalogs": "the committed corpus",
    "jpeg_folder": "JPEG files",
}
FORMS = {
    "machine": "on {}",
    "gradients": "K = {}",
    "law": "{} times",
    "recurrence": "{} recurrence",
    "embedding_gradients": "{} gradients of tables",
    "device_ids": "GPUs {}",
}
"""How fields read that `analysis.wording` writes as they are, or does not know."""


def number(value: float, contrast: Contrast, bare: bool = False, decimals: int = 2) -> str:
    """A value in the contrast's unit: a ratio, a share in percent, or a quantity."""
    if contrast.unit == "%":
        return f"{100 * value:.{max(decimals - 2, 1)}f}" + ("" if bare else "%")
    suffix = "" if bare or not contrast.unit else contrast.unit if contrast.unit == "x" else f" {contrast.unit}"
    text = f"{value:,.0f}" if value >= 100 else f"{value:.{decimals}f}" if value >= 0.1 else f"{value:.2g}"
    return text + suffix


WIDEST = 100.0
"""An interval whose bounds lie further apart than this factor says nothing: its launches differ and are two or three."""


def _tells(setting: Setting) -> bool:
    """Whether there is an interval worth showing."""
    return setting.low is not None and setting.high is not None and setting.low > 0 and setting.high <= WIDEST * setting.low


def figure_of(setting: Setting, contrast: Contrast, name: str = "") -> str:
    """One interval: the estimate, its device count, the setting's name, its interval, repeats and launches."""
    fixed = all(term.devices for term in contrast.terms)
    at = ("" if fixed else f" at {_devices(setting)}") + (f", {name}" if name else "")
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


def figure(settings: Sequence[Setting], contrast: Contrast, further: Sequence[Setting] = (), told: Sequence[str] = ()) -> str:
    """All settings of a contrast: each with what tells it from the others, or the range where they are many.

    further: settings with too little data to decide beside those that do: only their number and range are given.
    told: fields that are named though they tell nothing apart.
    """
    beyond = [_further(further, contrast)] if further else []
    if len(settings) <= LISTED:
        names = _telling(settings, [*settings, *further], told, contrast.counts != "highest")
        return "; ".join([*(figure_of(one, contrast, setting_name(one, names)) for one in settings), *beyond])
    low, high = min(s.estimate for s in settings), max(s.estimate for s in settings)
    decimals = _apart(low, high, contrast)
    counts = sorted({setting.devices for setting in settings})
    repeats = min(s.n for s in settings)
    noun = "workers" if settings[0].fields.get("device_type") == "worker" else "GPUs"
    on = _devices(settings[0]) if len(counts) == 1 else f"{joined([str(count) for count in counts])} {noun}"
    bounds = [bound for s in settings if _tells(s) for bound in (s.low, s.high) if bound is not None]
    wide = sum(s.low is not None and not _tells(s) for s in settings)
    said = []
    if bounds:
        ends = (number(end, contrast, bare=True, decimals=decimals) for end in (min(bounds), max(bounds)))
        said.append(f"95% intervals from {' to '.join(ends)}")
    if wide:
        said.append(f"in {plural(wide, 'setting', 'settings')} launches differ too much for one")
    outer = f" ({', '.join(said)})" if said else ""
    text = f"{spread(settings, contrast)}{outer} in {len(settings)} settings{of_models(settings)} at {on}, n >= {repeats} each"
    return "; ".join([text, *beyond])


def _apart(low: float, high: float, contrast: Contrast) -> int:
    """The decimals of both, one more where they would read the same."""
    return 3 if low != high and number(low, contrast) == number(high, contrast) else 2


def spread(settings: Sequence[Setting], contrast: Contrast, least_decimals: int = 2) -> str:
    """From the lowest to the highest estimate; one number where they read the same."""
    low, high = min(setting.estimate for setting in settings), max(setting.estimate for setting in settings)
    decimals = max(_apart(low, high, contrast), least_decimals)
    return " to ".join(dict.fromkeys(number(end, contrast, decimals=decimals) for end in (low, high)))


def seldom(settings: Sequence[Setting]) -> str:
    """How often settings were measured that have too few repeats to decide."""
    return "measured once" if all(setting.n == 1 for setting in settings) else "measured too seldom to decide"


def _further(settings: Sequence[Setting], contrast: Contrast) -> str:
    count = plural(len(settings), "further setting", "further settings")
    return f"{count} {seldom(settings)}: {spread(settings, contrast)}"


def of_models(settings: Sequence[Setting]) -> str:
    """The models of these settings: " of ResNet-50 v1.5 and VGG-16", or how many; empty where there is none."""
    models = sorted({model for setting in settings for model in str(setting.fields.get("model") or "").split(" / ") if model})
    if not models:
        return ""
    return f" of {joined([MODELS.get(model, model) for model in models])}" if len(models) <= LISTED else f" of {len(models)} models"


def together(labels: Sequence[str]) -> str:
    """The labels of contrasts that share a figure: "time, in every setting and in one setting"."""
    heads = {label.rpartition(", ")[0] for label in labels}
    if len(labels) > 1 and len(heads) == 1 and "" not in heads:
        return f"{heads.pop()}, {joined([label.rpartition(', ')[2] for label in labels])}"
    return joined(list(labels))


def _telling(shown: Sequence[Setting], found: Sequence[Setting], told: Sequence[str] = (), by_count: bool = True) -> list[str]:
    """The fewest fields, best known first, that tell every shown setting from all that were found; `told` are among them.

    by_count: whether the device count, which is told anyway, tells settings apart. Where each one's highest count was looked for it
    does not: the reader would take a smaller one for another count of the same setting.
    """
    alike = [(one, other) for one in shown for other in found if other is not one and not (by_count and one.devices != other.devices)]
    telling: list[str] = []
    names = dict.fromkeys([*BEST_KNOWN, *(name for setting in found for name in setting.fields)])
    for name in names:
        left = [(one, other) for one, other in alike if one.fields.get(name) == other.fields.get(name)]
        if len(left) < len(alike) or name in told:
            alike, telling = left, [*telling, name]
    return telling


def setting_name(setting: Setting, names: Sequence[str]) -> str:
    """The named fields of a setting in words; what has no value is left out."""
    known = [(name, setting.fields.get(name)) for name in names]
    return ", ".join(filter(None, (_value(name, value, setting.fields) for name, value in known if value is not None)))


def framework_title(name: str) -> str:
    """A framework, or those that a predicate joins ("torch / tensorflow"), as readers know them."""
    return joined([FRAMEWORK_TITLES.get(part, part) for part in name.split(" / ")])


def tallied(holds: int, fails: int, settings: Sequence[Setting]) -> str:
    """In how many settings a contrast was shown and refuted; the others are open."""
    count = len(settings)
    undecided = count - holds - fails
    of = f"{plural(count, 'setting', 'settings')}{of_models(settings)}"
    shown = f"shown in {holds or 'none'} of {of}, refuted in {fails or 'none'}"
    return f"{shown}, open in {undecided}" if undecided else shown


def stated(contrast: Contrast) -> str:
    """What a contrast tests, in words: "words/s of Exp2 over Exp4 at most 0.95x"."""
    bound = number(contrast.bound, contrast)
    if contrast.direction in ("within", "outside"):
        return f"{contrast.label} {contrast.direction} {number(1 / contrast.bound, contrast)} to {bound}"
    return f"{contrast.label} {'at least' if contrast.direction == 'above' else 'at most'} {bound}"


def _value(name: str, value: object, fields: Mapping[str, object] | None = None) -> str:
    """A field's value in words, with the field's name where the value alone would not tell; both of what sides differ in.

    fields: of the Run, where others say what the value is of.
    """
    if value is None:
        return f"no {name.replace('_', ' ')}"
    if isinstance(value, str) and " / " in value:
        return " / ".join(_value(name, part, fields) for part in value.split(" / "))
    if name == "placement":
        label, _, how = look(str(value)).label.partition(", ")  # a comma would end it in a list
        return f"{label} ({how})" if how else label
    if name in ("inputs", "workload"):
        return (INPUT_NAMES if name == "inputs" else WORKLOAD_NAMES).get(str(value), str(value).replace("_", " "))
    if name in FORMS:
        return FORMS[name].format(value)
    if name in SAYS or name in OF_A_JOB:
        return field_words(name, value) or USUAL.get(str(value), str(value).replace("_", " "))
    return f"{name.replace('_', ' ')} {value}" if str(value)[0].isdigit() else str(value).replace("_", " ")


def described(selection: Selection) -> str:
    """The Runs of a selection, in words, what is best known of them first."""
    rank = {name: place for place, name in enumerate(("workload", *BEST_KNOWN))}
    pinned = {name: values[0] for name, values in selection if len(values) == 1}
    ordered = sorted(selection, key=lambda pair: rank.get(pair[0], len(rank)))
    return ", ".join(" or ".join(_value(name, value, pinned) for value in values) for name, values in ordered)


def wanted(scope: Selection, lacking: Mapping[Selection, set[str]], counted: tuple[str, str] = ("GPU", "GPUs")) -> str:
    """The Runs that are missing, in words: what all have in common first. counted: what a count is of, one and many."""
    parts = []
    for select, counts in lacking.items():
        on = joined(sorted(counts, key=lambda text: (len(text), text)))
        parts.append(f"{described(select)} on {on} {counted[on != '1']}")
    return f"no Records of {described(scope)}" + (":" if lacking.keys() - {()} else "") + " " + "; ".join(part.strip() for part in parts)


def ours(result: Result, framework: str) -> str:
    """Our figure in one framework, with its verdict where it is not the overall one; a dash where there is none.

    What was computed in NumPy, without a framework, stands in the first column and says so.
    """
    if framework == COLUMNS[0] and "numpy" in result.by_framework and result.by_framework["numpy"].figure:
        return f"{WITHOUT}{result.by_framework['numpy'].figure}"
    for name, answer in result.by_framework.items():
        if framework in name.split(" / ") and answer.figure:
            return answer.figure if answer.verdict == result.verdict else f"{answer.verdict}, {answer.figure}"
    return DASH


def titled(result: Result) -> list[str]:
    """Our figures, each with the framework it is of; one of both frameworks, which compares them, once."""
    names: dict[str, list[str]] = {}
    for name in COLUMNS:
        names.setdefault(ours(result, name), []).append(framework_title(name))
    return [text if text.startswith(WITHOUT) else f"{joined(own)}: {text}" for text, own in names.items() if text != DASH]


def tested(result: Result) -> str:
    """The predicates in words: what must be so, measured how where that is not as usual, and within which scope; empty without any."""
    predicates = result.claim.predicates
    if not predicates:
        return ""
    contrasts = "; ".join(stated(contrast) for predicate in predicates for contrast in predicate.contrasts)
    told = []
    for one in predicates:
        usual = type(one).model_fields["protocol"].default
        told += [text for text in ("" if one.protocol == usual else one.protocol, one.scope) if text]
    return f"Test: {contrasts}. {' '.join(told)}".strip()
