"""Sentences about the forecast, computed from its lines, or None where they do not support one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from statistics import median

import numpy as np
import pandas as pd

from multigpu.analysis.forecast import LEVEL, HeldOut
from multigpu.analysis.forecast_lines import Line
from multigpu.analysis.forecast_merge import Links, fullest
from multigpu.analysis.metrics import scaling_table
from multigpu.analysis.style import look
from multigpu.analysis.wording import describe, devices_text, execution_text, joined, percent_text, plural

TRUSTED = 0.05
"""The error at the held-out count up to which a sentence rests on a line's forecast."""

NONE = (
    "No forecast yet: it takes a job measured on three numbers of devices, one of them 1, so that two parameters can be fitted to "
    "the smaller ones and tested on the largest."
)


def tested(lines: Sequence[Line]) -> list[Line]:
    """The lines whose held-out point has a band to lie in."""
    return [line for line in lines if line.held_out is not None and line.held_out.inside is not None]


def trusted(line: Line) -> bool:
    """Whether the held-out point was predicted within `TRUSTED`, inside its band or not: a narrow band may miss by little."""
    return line.held_out is not None and abs(line.held_out.error) <= TRUSTED


def coverage(lines: Sequence[Line]) -> tuple[int, int]:
    """(held-out points inside their band, held-out points)."""
    own = tested(lines)
    return sum(bool(line.held_out and line.held_out.inside) for line in own), len(own)


def before_widening(line: Line) -> HeldOut | None:
    """The held-out point with the band that launches and noise alone make."""
    held = line.held_out
    return held.widen(1 / held.widening) if held else None


def inside_before(lines: Sequence[Line]) -> int:
    """How many held-out points lay in their band before it was widened."""
    return sum(bool(held.inside) for line in tested(lines) if (held := before_widening(line)))


def test_finding(lines: Sequence[Line]) -> str | None:
    """How many held-out points lie inside their band, and how far off the middle one is: a figure's title."""
    inside, count = coverage(lines)
    if not count:
        return None
    error, before = median(abs(line.held_out.error) for line in lines if line.held_out), inside_before(lines)
    widened = f" ({before} before it was widened)" if any(line.held_out.widening > 1 for line in lines if line.held_out) else ""
    return (
        f"{inside} of {count} held-out points lie in their {LEVEL:.0%} band{widened}; half of the predictions err by less than "
        f"{percent_text(error)}"
    )


def test_sentence(lines: Sequence[Line]) -> str | None:
    """The same with what a band that keeps its word would hold, and the worst error."""
    inside, count = coverage(lines)
    if not count:
        return None
    own = tested(lines)
    errors = {id(line): abs(line.held_out.error) for line in own if line.held_out}
    worst = max(own, key=lambda line: errors[id(line)])
    verdict = "as many as it should" if inside >= np.floor(LEVEL * count) else "so the bands are too narrow"
    return (
        f"The largest count of each of {plural(count, 'line')} was predicted from the smaller ones alone: **{inside} of {count}** "
        f"measurements lie in their {LEVEL:.0%} band, {verdict} ({LEVEL * count:.0f} would be due){_widening(own)}. Half of the "
        f"predictions err by less than **{percent_text(median(errors.values()))}**, the worst by {percent_text(errors[id(worst)])} "
        f"({look(worst.placement).label}; {worst.panel})."
    )


def _widening(lines: Sequence[Line]) -> str:
    """What widening the bands changed; nothing where none was widened."""
    held = [line.held_out for line in lines if line.held_out]
    by = [one.widening for one in held]
    if max(by) <= 1:
        return ""
    before = inside_before(lines)
    return f"; before every band was widened by what the other lines' points ask for ({min(by):.1f} to {max(by):.1f} times), {before} did"


def answers(lines: Sequence[Line], assumed: str) -> list[str]:
    """The page's answer: the forecast, and what its test says; without any, why there is none."""
    found = [fan_sentence(lines, assumed), test_sentence(lines)]
    return [sentence for sentence in found if sentence] or [NONE]


def _times(factor: float) -> str:
    """A factor that may be large: "2.18 times", "9,684 times"."""
    return f"{factor:,.0f} times" if factor >= 100 else f"{factor:.3g} times"


def by_execution(lines: Sequence[Line]) -> str | None:
    """The same by form of execution, with how far their bands reach: as launches and noise make them, and once widened."""
    parts = []
    for name in dict.fromkeys(str(line.first["execution"]) for line in tested(lines)):
        own = [line for line in tested(lines) if str(line.first["execution"]) == name]
        inside, count = coverage(own)
        error = median(abs(line.held_out.error) for line in own if line.held_out)
        wide = [line.held_out.high_s / line.held_out.low_s for line in own if line.held_out]
        alone = [held.high_s / held.low_s for line in own if (held := before_widening(line))]
        before = "" if wide == alone else f"; before it was widened {_times(median(alone))} in the middle, with {inside_before(own)} inside"
        text = (
            f"{execution_text(name)} steps: {inside} of {count} inside, middle error {percent_text(error)}; from its low end to its high "
            f"one a band is {_times(median(wide))} in the middle and {_times(max(wide))} at most{before}."
        )
        parts.append(f"{text[:1].upper()}{text[1:]}")
    return " ".join(parts) if len(parts) > 1 else None


Rows = Sequence[tuple[Line, float, float, float]]
"""Of `_at_most`."""


def _at_most(lines: Sequence[Line], home: bool) -> list[tuple[Line, float, float, float]]:
    """(line, efficiency, low, high) at the largest count any forecast reaches, of trusted lines: variables with a home, or all-reduce."""
    most = max((line.forecast.devices[-1] for line in lines if line.forecast), default=0)
    rows = []
    for line in lines:
        at = line.at(most)
        if line.forecast is None or at is None or line.points is None or line.points.demand.at_home != home:
            continue
        if line.points.demand.copied or not trusted(line):
            continue
        low, high = line.forecast.band()
        rows.append((line, float(line.forecast.efficiency[at]), float(low[at]), float(high[at])))
    return rows


def _apart(reduced: Rows, homes: Rows) -> int:
    """How many all-reduces' bands lie above every band of placements with homes."""
    return sum(row[2] > max(home[3] for home in homes) for row in reduced)


def fan_finding(lines: Sequence[Line]) -> str | None:
    """What all-reduce keeps at the end of the forecast against placements with homes, where every band lies apart from every other."""
    reduced, homes = _at_most(lines, False), _at_most(lines, True)
    if not reduced or not homes or _apart(reduced, homes) < len(reduced):
        return None
    least, best = min(reduced, key=lambda row: row[1]), max(homes, key=lambda row: row[1])
    assert least[0].forecast is not None
    on = devices_text(least[0].forecast.devices[-1], str(least[0].first["device_type"]))
    return f"Forecast for {on}: all-reduce keeps {percent_text(least[1])} or more, variables with one home {percent_text(best[1])} at most"


def fan_sentence(lines: Sequence[Line], assumed: str) -> str | None:
    """What the forecast says of the largest count, and where it must not be believed: the range of each kind, whether bands lie apart."""
    reduced, homes = _at_most(lines, False), _at_most(lines, True)
    apart = len(reduced) if not (reduced and homes) else _apart(reduced, homes)
    parts, bold = [], "**" if apart == len(reduced) else ""
    for rows, words in ((reduced, "all-reduce keeps"), (homes, "placements that give each variable one home keep")):
        if rows:
            values, low, high = [row[1] for row in rows], min(row[2] for row in rows), max(row[3] for row in rows)
            between = f"{percent_text(min(values))} to {percent_text(max(values))}" if len(rows) > 1 else percent_text(values[0])
            reach = f"bands from {percent_text(low)}" + (f" to {percent_text(high)}" if high <= 1 else " with no upper bound")
            parts.append(f"{words} {bold}{between}{bold} ({reach}; {plural(len(rows), 'line')})")
    forecasts = [line.forecast for line in lines if line.forecast]
    if not parts:
        return None
    most = max(found.devices[-1] for found in forecasts)
    reaching = sum(found.devices[-1] == most for found in forecasts)
    overlap = ""
    if apart < len(reduced):
        overlap = (
            f" **The bands overlap**: those of {apart} of {plural(len(reduced), 'all-reduce line')} lie above all of the others', so which "
            "keeps more is what the middle forecasts say, and not shown."
        )
    return (
        f"On {most:,} GPUs, by the {len(reduced) + len(homes)} of {plural(reaching, 'line')} that reach so far whose held-out point was "
        f"predicted within {TRUSTED:.0%}, {joined(parts)}.{overlap} {assumed}"
    )


def links_sentence(links: Links) -> str:
    """What is assumed beyond what was measured."""
    gbit = 8 * links.between_bytes_per_s / 1e9
    return (
        f"Nothing beyond one machine was measured: assumed are nodes of {links.node}, {gbit:,.3g} Gbit/s a device between them, "
        f"{1e6 * links.between_latency_s:,.3g} µs a message, and a {links.between} all-reduce."
    )


def spread_sentence(lines: Sequence[Line], devices: int = 64) -> str | None:
    """Why spreading variables over devices stops helping: the fullest home at a count, as a share of what travels."""
    for line in lines:
        demand = line.points.demand if line.points else None
        if line.forecast and demand and demand.elements and not demand.host:
            total, held = sum(demand.pulled) + sum(demand.pushed), sum(fullest(demand, devices))
            what = f"the {len(demand.elements)} variables of {describe(line.first, ['model'])}"
            return (
                f"{look(line.placement).label} spreads {what}: on {devices} devices the fullest still serves "
                f"**{percent_text(held / total)}** of what travels, where a {devices}th would be {percent_text(1 / devices)}, and "
                "from there on its link carries more with every device."
            )
    return None


def noise_sentence(lines: Sequence[Line]) -> str | None:
    """How much of a step waiting for the slowest replica takes at the end of the forecast, by form of execution: of trusted all-reduces."""
    parts = []
    rows = [row[0] for row in _at_most(lines, False)]
    for name in dict.fromkeys(str(line.first["execution"]) for line in rows):
        shares = []
        for line in rows:
            if line.forecast and line.first["execution"] == name:
                shares.append(dict(line.forecast.binding(len(line.forecast.devices) - 1))["noise"])
        parts.append(f"{percent_text(median(shares))} of {execution_text(name)} steps")
    if not parts or not rows[0].forecast:
        return None
    on = devices_text(rows[0].forecast.devices[-1], str(rows[0].first["device_type"]))
    return f"Where gradients are all-reduced, waiting for the slowest replica takes {joined(parts)} on {on}, by the middle forecast."


def shared_host_sentence(frame: pd.DataFrame) -> str | None:
    """What sharing the host costs replicas that merge nothing, for which the model has no part; of repeated points."""
    table = scaling_table(frame)
    own = table[(table["placement"] == "independent") & (table["scaling"] == "weak") & (table["tier"] == "headline")]
    own = own[own["efficiency"].notna() & (own["devices"] == own["devices"].max()) & (own["devices"] > 1)]
    if own.empty:
        return None
    worst = own.loc[own["efficiency"].idxmin()]
    on = devices_text(worst["devices"], str(worst["device_type"]))
    return (
        f"The model has no part for a shared host. Independent replicas, which merge nothing, keep "
        f"{percent_text(own['efficiency'].min(), worst['efficiency_low'], worst['efficiency_high'])} to "
        f"{percent_text(own['efficiency'].max())} of their speed on {on}: what is lost there is put on the merge or the noise."
    )


def without_fan(lines: Sequence[Line]) -> str | None:
    """How many lines have no fan, and why."""
    reasons = Counter(line.why for line in lines if line.why)
    if not reasons:
        return None
    parts = [f"{count}: {why}" for why, count in reasons.most_common()]
    return f"No fan for {plural(sum(reasons.values()), 'line')}. {'; '.join(parts)}."
