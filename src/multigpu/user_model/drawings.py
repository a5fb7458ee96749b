"""What a page of a comparison draws: the race, and where a step goes."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

from multigpu.analysis.estimate import Estimate
from multigpu.records.trace import SIX_PARTS
from multigpu.user_model.parts import SIX_NAMES, traced_of

if TYPE_CHECKING:
    from multigpu.user_model.result import Result

COLOURS = dict(
    zip(SIX_PARTS, ("#e69f00", "#56b4e9", "#009e73", "#d55e00", "#0072b2", "#999999"), strict=True)
)


def shown_race(result: Result) -> str:
    """Draw each way's rate with its interval, as HTML: the leader and its rivals apart from those
    that are slower and those that train something else.
    """
    from multigpu.analysis.picture import shown
    from multigpu.analysis.plots import dots

    race = result.race
    if race is None or len(result.names) < 2:
        return ""
    near = {race.leader, *race.near}
    stands = dict.fromkeys(near, "ahead, or not told apart from it")
    stands |= dict.fromkeys(race.behind, "slower")
    rows = result.frame.sort_values("rate", ascending=False, kind="stable")
    rows = rows.assign(stands=[stands.get(name, "trains something else") for name in rows["name"]])
    caption = "Samples/s, batches ready; 95% intervals, hollow where there is a single run."
    picture = dots(rows, "rate", "name", "The race", caption, hue="stands", form="rate")
    return str(shown(picture, "race"))


def shown_parts(result: Result) -> str:
    """Draw the six parts of a step as given, of one device and of the fastest, as HTML bars of one
    length each.
    """
    chosen = [result.base, result.chosen(None)] if result.names else []
    bars = []
    for placed in dict.fromkeys(one.name for one in chosen if one is not None):
        if (found := traced_of(result, result[placed])) is None:
            continue
        whole = sum(found.parts.values())
        pieces = "".join(
            f'<span style="flex:{seconds / whole:.4f} 0 0;background:{COLOURS[part]}"'
            f' title="{escape(SIX_NAMES[part])}: {Estimate(seconds):ms}"></span>'
            for part, seconds in found.parts.items()
            if seconds > 0
        )
        bars.append(
            f"<p>{escape(placed)}: {Estimate(whole):ms} a step</p><div class='bar'>{pieces}</div>"
        )
    if not bars:
        return ""
    key = "".join(
        f'<span><i style="background:{COLOURS[part]}"></i> {escape(name)}</span> '
        for part, name in SIX_NAMES.items()
    )
    return f"{''.join(bars)}<p class='muted key'>{key}</p>"
