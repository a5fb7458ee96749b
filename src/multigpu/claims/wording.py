"""Figures as a reader meets them: "at 8 GPUs 0.31x (95% 0.30-0.33), n = 5 over 2 launches"."""

from __future__ import annotations

import math
from collections.abc import Sequence

from multigpu.analysis.style import look
from multigpu.analysis.words import FRAMEWORKS, MODELS, OF_A_JOB, SAYS, USUAL, field_words, joined, plural
from multigpu.claims.core import KINDS, Contrast, Predicate, Selection, Verdict, data_of
from multigpu.claims.results import Result, Setting

SAYINGS = data_of("words.yaml")
SYMBOLS: dict[Verdict, str] = SAYINGS["symbols"]
LISTED = 3
"""Settings that are written out one by one; of more, the range is given."""
BEST_KNOWN = ("model", "placement", "batch_size", "precision", "execution", "processes", "layout", "inputs", "scaling", "machine")
WIDEST = 100.0
"""An interval whose bounds lie further apart than this factor says nothing: its launches differ and are two or three."""


def number(value: float, contrast: Contrast, bare: bool = False, decimals: int = 2) -> str:
    """A value in the contrast's unit: a ratio, a share in percent, or a quantity."""
    if contrast.unit == "%":
        return f"{100 * value:.{max(decimals - 2, 1)}f}" + ("" if bare else "%")
    suffix = "" if bare or not contrast.unit else contrast.unit if contrast.unit == "x" else f" {contrast.unit}"
    text = f"{value:,.0f}" if value >= 100 else f"{value:.{decimals}f}" if value >= 0.1 else f"{value:.2g}"
    return text + suffix


def _interval(setting: Setting) -> tuple[float, float] | None:
    """The bounds, if they are worth showing."""
    if setting.low is None or setting.high is None or not setting.low > 0 or setting.high > WIDEST * setting.low:
        return None
    return setting.low, setting.high


def figure_of(setting: Setting, contrast: Contrast, name: str = "") -> str:
    """One interval: the estimate, its device count, the setting's name, its interval, repeats and launches."""
    fixed = all(term.devices for term in contrast.terms)
    at = ("" if fixed else f" at {_devices([setting])}") + (f", {name}" if name else "")
    if setting.low is None or setting.high is None:
        return f"{number(setting.estimate, contrast)}{at}, n = {setting.n} (screening)"
    # enough digits to tell the bounds apart
    width = setting.high - setting.low
    decimals = min(max(math.ceil(-math.log10(width)), 2), 3) if width > 0 else 2
    ends = "-".join(number(bound, contrast, bare=True, decimals=decimals) for bound in (setting.low, setting.high))
    between = f"95% {ends}" if _interval(setting) else "launches differ too much for an interval"
    seeds = {"clock", "epochs"} & set(setting.fields)
    repeats = f"{setting.n} seeds" if seeds else f"{setting.n} over {plural(setting.launches, 'launch', 'launches')}"
    return f"{number(setting.estimate, contrast, decimals=decimals)}{at} ({between}), n = {repeats}"


def _devices(settings: Sequence[Setting]) -> str:
    counts, fields = sorted({setting.devices for setting in settings}), settings[0].fields
    words = {"worker": ("worker", "workers"), "cpu": ("CPU process", "CPU processes")}
    one, many = words.get(str(fields.get("device_type")), ("GPU", "GPUs"))
    if "epochs" in fields:  # of what was trained, where batches count
        one = many = "times the batch"
    return f"{joined([str(count) for count in counts])} {one if counts == [1] else many}"


def figure(settings: Sequence[Setting], contrast: Contrast, further: Sequence[Setting] = (), told: Sequence[str] = ()) -> str:
    """All settings of a contrast: each with what tells it from the others, or the range where they are many.

    further: settings with too little data to decide beside those that do: only their number and range are given.
    told: fields that are named though they tell nothing apart.
    """
    count = plural(len(further), "further setting", "further settings")
    beyond = [f"{count} {seldom(further)}: {spread(further, contrast)}"] if further else []
    if len(settings) <= LISTED:
        names = _telling(settings, [*settings, *further], told, contrast.counts != "highest")
        return "; ".join([*(figure_of(one, contrast, setting_name(one, names)) for one in settings), *beyond])
    decimals = _apart(settings, contrast)
    bounds = [bound for setting in settings for bound in _interval(setting) or ()]
    wide = sum(setting.low is not None and not _interval(setting) for setting in settings)
    said = []
    if bounds:
        ends = (number(end, contrast, bare=True, decimals=decimals) for end in (min(bounds), max(bounds)))
        said.append(f"95% intervals from {' to '.join(ends)}")
    if wide:
        said.append(f"in {plural(wide, 'setting', 'settings')} launches differ too much for one")
    outer = f" ({', '.join(said)})" if said else ""
    text = f"{spread(settings, contrast)}{outer} in {len(settings)} settings{of_models(settings)} at {_devices(settings)}"
    return "; ".join([f"{text}, n >= {min(setting.n for setting in settings)} each", *beyond])


def _apart(settings: Sequence[Setting], contrast: Contrast) -> int:
    """The decimals of the lowest and the highest estimate, one more where they would read the same."""
    low, high = (end(setting.estimate for setting in settings) for end in (min, max))
    return 3 if low != high and number(low, contrast) == number(high, contrast) else 2


def spread(settings: Sequence[Setting], contrast: Contrast) -> str:
    """From the lowest to the highest estimate; one number where they read the same."""
    ends = (end(setting.estimate for setting in settings) for end in (min, max))
    decimals = _apart(settings, contrast)
    return " to ".join(dict.fromkeys(number(end, contrast, decimals=decimals) for end in ends))


def seldom(settings: Sequence[Setting]) -> str:
    """How often settings were measured that have too few repeats to decide."""
    return "measured once" if all(setting.n == 1 for setting in settings) else "measured too seldom to decide"


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


def _telling(shown: Sequence[Setting], found: Sequence[Setting], told: Sequence[str], by_count: bool) -> list[str]:
    """The fewest fields, best known first, that tell every shown setting from all that were found; `told` are among them.

    by_count: whether the device count, which is told anyway, tells settings apart. Where each one's highest count was looked for it
    does not: the reader would take a smaller one for another count of the same setting.
    """
    alike = [(one, other) for one in shown for other in found if other is not one and not (by_count and one.devices != other.devices)]
    telling: list[str] = []
    for name in dict.fromkeys([*BEST_KNOWN, *(name for setting in found for name in setting.fields)]):
        left = [(one, other) for one, other in alike if one.fields.get(name) == other.fields.get(name)]
        if len(left) < len(alike) or name in told:
            alike, telling = left, [*telling, name]
    return telling


def setting_name(setting: Setting, names: Sequence[str]) -> str:
    """The named fields of a setting in words; what has no value is left out."""
    known = [(name, setting.fields.get(name)) for name in names]
    return ", ".join(filter(None, (_value(name, value) for name, value in known if value is not None)))


def framework_title(name: str) -> str:
    """A framework, or those that a predicate joins ("torch / tensorflow"), as readers know them."""
    return joined([{**FRAMEWORKS, "numpy": "NumPy"}.get(part, part) for part in name.split(" / ")])


def tallied(holds: int, fails: int, settings: Sequence[Setting]) -> str:
    """In how many settings a contrast was shown and refuted; the others are open."""
    undecided = len(settings) - holds - fails
    of = f"{plural(len(settings), 'setting', 'settings')}{of_models(settings)}"
    return f"shown in {holds or 'none'} of {of}, refuted in {fails or 'none'}" + (f", open in {undecided}" if undecided else "")


def stated(contrast: Contrast) -> str:
    """What a contrast tests, in words: "words/s of Exp2 over Exp4 at most 0.95x"."""
    range_of = f"{contrast.direction} {number(1 / contrast.bound, contrast)} to"
    how = {"above": "at least", "below": "at most"}.get(contrast.direction, range_of)
    return f"{contrast.label} {how} {number(contrast.bound, contrast)}"


def _value(name: str, value: object) -> str:
    """A field's value in words, with the field's name where the value alone would not tell; both of what sides differ in."""
    if value is None:
        return f"no {name.removesuffix('_s').replace('_', ' ')}"
    text = str(value).replace("_", " ")
    if isinstance(value, str) and " / " in value:
        return " / ".join(_value(name, part) for part in value.split(" / "))
    if name == "placement":
        label, _, how = look(str(value)).label.partition(", ")  # a comma would end it in a list
        return f"{label} ({how})" if how else label
    if name in ("inputs", "workload"):
        return str(SAYINGS[name].get(value, text))
    if name in SAYINGS["forms"]:
        return str(SAYINGS["forms"][name].format(value))
    if name in SAYS or name in OF_A_JOB:
        return field_words(name, value) or USUAL.get(str(value), text)
    return f"{name.replace('_', ' ')} {value}" if text[0].isdigit() else text


def _described(selection: Selection) -> str:
    """The Runs of a selection, in words, what is best known of them first."""
    rank = {name: place for place, name in enumerate(("workload", *BEST_KNOWN))}
    ordered = sorted(selection, key=lambda pair: rank.get(pair[0], len(rank)))
    return ", ".join(" or ".join(_value(name, value) for value in values) for name, values in ordered)


def counted(predicate: Predicate, counts: Sequence[object]) -> str:
    """So many of what its `devices` count: "4 and 8 GPUs"."""
    words = [str(count) for count in counts]
    return f"{joined(words)} {KINDS[predicate.of]['counted'][words != ['1']]}"


def wanted(predicate: Predicate, lacking: Sequence[tuple[Selection, set[str]]]) -> str:
    """The Runs that are missing, in words: what all have in common first."""
    parts = []
    for select in dict.fromkeys(select for select, _ in lacking):
        counts = {count for own, words in lacking if own == select for count in words}
        ordered = sorted(counts, key=lambda text: (len(text), text))
        parts.append(f"{_described(select)} on {counted(predicate, ordered)}".strip())
    return f"no Records of {_described(predicate.where)}" + (":" if any(select for select, _ in lacking) else "") + f" {'; '.join(parts)}"


def ours(result: Result, framework: str) -> str:
    """Our figure in one framework, or in those compared with it, with its verdict where it is not the overall one; "" without any."""
    for name, answer in result.by_framework.items():
        if framework in (name, *name.split(" / ")) and answer.figure:
            return answer.figure if answer.verdict == result.verdict else f"{answer.verdict}, {answer.figure}"
    return ""


def titled(result: Result) -> list[str]:
    """Our figures, each with the framework it is of, or with those that it compares."""
    return [f"{framework_title(name)}: {text}" for name in result.by_framework if (text := ours(result, name))]


def tested(result: Result) -> str:
    """The predicates in words: what must be so, measured how where that is not as usual, and within which scope; empty without any."""
    told = [stated(contrast) for predicate in result.claim.predicates for contrast in predicate.contrasts]
    further = []
    for one in result.claim.predicates:
        usual = KINDS[one.of].get("usual", {}).get("protocol", Predicate.model_fields["protocol"].default)
        further += [text for text in ("" if one.protocol == usual else one.protocol, one.scope) if text]
    return f"Test: {'; '.join(told)}. {' '.join(further)}".strip() if told else ""
