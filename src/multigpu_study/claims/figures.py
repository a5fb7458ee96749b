"""Write figures of settings and contrasts with their intervals."""

from collections.abc import Sequence

from multigpu.analysis.words import joined, plural
from multigpu_study.claims.core import Contrast
from multigpu_study.claims.results import Setting
from multigpu_study.claims.wording import LISTED, number, of_models, settings_named

WIDEST = 100.0
"""An interval whose bounds lie further apart than so many times says nothing."""


def _interval(setting: Setting) -> tuple[float, ...]:
    """The bounds, if they are worth showing."""
    low, high = setting.low, setting.high
    return () if low is None or high is None or not low > 0 or high > WIDEST * low else (low, high)


def figure_of(setting: Setting, contrast: Contrast, name: str = "") -> str:
    """Write one estimate: device count, the setting's name, interval, repeats and launches."""
    at = ("" if all(term.devices for term in contrast.terms) else f" at {_devices([setting])}") + (
        f", {name}" if name else ""
    )
    if setting.low is None or setting.high is None:
        return f"{number(setting.estimate, contrast)}{at}, n = {setting.n} (screening)"
    decimals = 3 if 0 < setting.high - setting.low < 0.01 else 2  # enough to tell the bounds apart
    ends = "-".join(
        number(bound, contrast, bare=True, decimals=decimals)
        for bound in (setting.low, setting.high)
    )
    between = f"95% {ends}" if _interval(setting) else "launches differ too much for an interval"
    if {"clock", "epochs"} & set(setting.fields):
        over = " seeds"
    else:
        over = f" over {plural(setting.launches, 'launch', 'launches')}"
    return (
        f"{number(setting.estimate, contrast, decimals=decimals)}{at} ({between}), n ="
        f" {setting.n}{over}"
    )


def _devices(settings: Sequence[Setting]) -> str:
    counts, fields = sorted({setting.devices for setting in settings}), settings[0].fields
    words = {"worker": ("worker", "workers"), "cpu": ("CPU process", "CPU processes")}
    one, many = words.get(str(fields.get("device_type")), ("GPU", "GPUs"))
    if "epochs" in fields:  # of what was trained, where batches count
        one = many = "times the batch"
    return f"{joined([str(count) for count in counts])} {one if counts == [1] else many}"


def figure(
    settings: Sequence[Setting],
    contrast: Contrast,
    further: Sequence[Setting] = (),
    told: Sequence[str] = (),
) -> str:
    """All settings of a contrast: each with what tells it from the others, or the range where they
    are many.
    further: those with too little data to decide, of which only number and range are given. told:
        fields that are named in any case.
    """
    if len(settings) <= LISTED:
        names = settings_named(settings, [*settings, *further], told, contrast.counts != "highest")
        parts = [figure_of(one, contrast, name) for one, name in zip(settings, names, strict=True)]
    else:
        bounds = [bound for setting in settings for bound in _interval(setting)]
        wide = sum(setting.low is not None and not _interval(setting) for setting in settings)
        ends = [
            number(end(bounds), contrast, bare=True, decimals=_apart(settings, contrast))
            for end in (min, max)
            if bounds
        ]
        said = [f"95% intervals from {' to '.join(ends)}"] if bounds else []
        said += [f"in {plural(wide, 'setting')} launches differ too much for one"] if wide else []
        outer = f" ({', '.join(said)})" if said else ""
        text = (
            f"{spread(settings, contrast)}{outer} in {len(settings)} settings{of_models(settings)}"
            f" at {_devices(settings)}"
        )
        parts = [f"{text}, n >= {min(setting.n for setting in settings)} each"]
    if further:
        parts.append(
            f"{plural(len(further), 'further setting')} {seldom(further)}:"
            f" {spread(further, contrast)}"
        )
    return "; ".join(parts)


def _apart(settings: Sequence[Setting], contrast: Contrast) -> int:
    """Decimals of the lowest and highest estimate: one more where they would read the same."""
    low, high = (end(setting.estimate for setting in settings) for end in (min, max))
    return 3 if low != high and number(low, contrast) == number(high, contrast) else 2


def spread(settings: Sequence[Setting], contrast: Contrast) -> str:
    """From the lowest to the highest estimate; one number where they read the same."""
    ends = (end(setting.estimate for setting in settings) for end in (min, max))
    return " to ".join(
        dict.fromkeys(number(end, contrast, decimals=_apart(settings, contrast)) for end in ends)
    )


def seldom(settings: Sequence[Setting]) -> str:
    """How often settings were measured that have too few repeats to decide."""
    if all(setting.n == 1 for setting in settings):
        return "measured once"
    return "measured too seldom to decide"
