"""Points: the repeats of one Run on one machine, pooled into a row; and how rows are chosen. Every
table of the study starts here.
"""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pandas as pd

from multigpu.analysis.boots import FORMS, rate_half, samples
from multigpu.analysis.fields import FIELDS, LENGTH, POINT, RESTRICTED, SENDING, columns

HEADLINE_REPEATS, HEADLINE_LAUNCHES = 5, 2

SUMMARY = columns("points")
"""What `points` tells of a point, beside the columns that make it one."""


class Missing(LookupError):
    """Raised where a page asks for something that the Records do not hold; the sentence
    says what.
    """


def points(frame: pd.DataFrame, by: Sequence[str] = POINT) -> pd.DataFrame:
    """One row a point (all of a Run but its seed, with the machine and the versions, unless `by`
    says otherwise), in order of appearance. Returns `by`, n (repeats that were measured), launches
    and boots; rate (all units over all time, units/s) with rate_low and rate_high (95%, NaN for a
    single run; they hold what another boot of the host may do to it); step_time_s (all time over
    all timed steps) and median_step_s (median over repeats of their median step); spread (a ratio),
    jitter_s (median), peak_memory_gib (maximum), moved_bytes (mean of a step), launch_s (median),
    power_w (of a device, mean); sample (`boots.Sample`), from which ratios take their intervals;
    tier (headline: five repeats over two launches at least; screening; missing), status and reason
    (why repeats are missing), flags, keys (", " between), commits.
    """
    by = list(by)
    names = by + [name for name in SUMMARY if name not in by]
    if frame.empty:
        types = {name: frame.dtypes.get(name, "string") for name in by} | SUMMARY
        return pd.DataFrame({name: pd.Series(dtype=types[name]) for name in names})
    frame = _labelled(frame)
    groups = frame.groupby(by, dropna=False, sort=False).ngroup()
    first = frame.loc[~groups.duplicated(), by].set_axis(groups[~groups.duplicated()])
    ok = frame["status"].eq("ok")
    table = first.join(_texts(frame, groups, ok)).join(_numbers(frame[ok], groups[ok]))
    counts = ["n", "launches", "boots"]
    table[counts] = table[counts].fillna(0)
    headline = (table["n"] >= HEADLINE_REPEATS) & (table["launches"] >= HEADLINE_LAUNCHES)
    table["tier"] = np.select([table["n"] == 0, headline], ["missing", "headline"], "screening")
    return table[names].astype(SUMMARY).reset_index(drop=True)


def _labelled(frame: pd.DataFrame) -> pd.DataFrame:
    """The frame with the input's label on rows that failed before their input was made, where other
    rows of that input say it.
    """
    by = ["model", "inputs", "sequence_length"]
    label = frame["input_label"].mask(frame["input_label"].eq(""))
    known = label.groupby([frame[name] for name in by], dropna=False).transform("first")
    return frame.assign(input_label=label.fillna(known).fillna(""))


def comma_joined(values: Iterable[Any]) -> str:
    """The distinct values that are not empty, in order, comma-joined."""
    return ", ".join(dict.fromkeys(value for value in values if isinstance(value, str) and value))


def _texts(frame: pd.DataFrame, groups: pd.Series, ok: pd.Series) -> pd.DataFrame:
    """By group: status, reason, flags, keys, commits."""
    texts = pd.DataFrame(
        {
            "keys": frame["key"],
            "status": frame["status"],
            "reason": frame["reason"].mask(ok),
            "flags": frame["flags"].where(ok),
            "commits": frame["commit"].str[:10].where(ok),
        }
    )
    found = texts.groupby(groups).agg(comma_joined)
    return found.assign(status=found["status"].where(~ok.groupby(groups).any(), "ok"))


def _numbers(ok: pd.DataFrame, groups: pd.Series) -> pd.DataFrame:
    """By group, of measured rows: everything that is a number."""
    launch = ok["launch_id"].astype(object)
    each = ok.groupby(groups)
    table = pd.DataFrame(
        {
            "n": each.size(),
            "launches": launch.groupby(groups).nunique(),
            "boots": ok["boot"].groupby(groups).nunique(),
            "sample": samples(
                ok["units_per_s"], groups, launch, ok["boot"], ok["execution"].map(FORMS)
            ),
        }
    )
    for column, how in {
        "median_step_s": "median",
        "jitter_s": "median",
        "peak_memory_gib": "max",
        "moved_bytes": "mean",
        "launch_s": "median",
        "power_w": "mean",
    }.items():
        table[column] = each[column].agg(how).astype("float64")
    sums = each[["units", "wall_s", "timed_steps"]].sum().astype("float64")
    rates = each["units_per_s"]
    rate = sums["units"] / sums["wall_s"]
    half = np.exp(table["sample"].map(rate_half).astype("float64"))
    return table.assign(
        rate=rate,
        rate_low=rate / half,
        rate_high=rate * half,
        step_time_s=sums["wall_s"] / sums["timed_steps"],
        spread=(rates.max() - rates.min()) / rates.mean(),
    )


def where(table: pd.DataFrame, **fields: Any) -> pd.DataFrame:
    """The rows with these fields: a value, a list of values (None among them: or empty), None
    (empty), or ... (anything but empty).
    """
    kept = np.ones(len(table), dtype=bool)
    for name, value in fields.items():
        if name not in table:
            raise ValueError(
                f"there is no column {name!r} to choose by: columns are"
                f" {', '.join(map(str, table.columns))}"
            )
        column = table[name]
        if value is ...:
            kept &= column.notna().to_numpy()
            continue
        values = list(value) if isinstance(value, list | tuple | set | frozenset) else [value]
        known = [one for one in values if one is not None]
        kept &= (column.isin(known).to_numpy(dtype=bool) if known else False) | (
            column.isna().to_numpy() if None in values else False
        )
    return table[kept]


def one(table: pd.DataFrame, **fields: Any) -> pd.Series:
    """The one measured row with these fields. Missing: there is none. ValueError: several; the
    sentence names what tells them apart.
    """
    asked = ", ".join(f"{name}={value}" for name, value in fields.items())
    found = where(table, **fields)
    if "n" in found:
        found, tried = found[found["n"] > 0], found
        if found.empty and len(tried):
            raise Missing(
                f"the point with {asked} was tried and not measured: {tried.iloc[0]['reason']}"
            )
    if found.empty:
        raise Missing(f"no measured point has {asked}")
    if len(found) > 1:
        differ = [
            name for name in found if name in FIELDS and found[name].nunique(dropna=False) > 1
        ]
        raise ValueError(
            f"{len(found)} points have {asked}: name {' or '.join(differ) or 'more fields'} too"
        )
    return found.iloc[0]


CHANGED = (*SENDING, "loss_scale", "batch_norm", "stem", "weight_casts", "micro_steps")
"""Fields by which a step merges or computes otherwise than the library by itself; or empty."""


def usual(table: pd.DataFrame, **fields: Any) -> pd.DataFrame:
    """The points with these fields and nothing of the host restricted or watched (`RESTRICTED`), of
    each length the most repeated.
    """
    return one_length(where(table, **dict.fromkeys(RESTRICTED) | fields))


def as_it_comes(table: pd.DataFrame, **fields: Any) -> pd.DataFrame:
    """The usual points with these fields whose step merges and computes as the library does by
    itself (`CHANGED`), with no LSTM of ours.
    """
    return usual(table, **dict.fromkeys(CHANGED) | {"recurrence": [None, "stepwise"]} | fields)


def one_length(table: pd.DataFrame) -> pd.DataFrame:
    """Of points that differ only in how many steps were timed (`LENGTH`), the one with most
    repeats, then the longest; order stays.
    """
    apart = [name for name in POINT if name not in LENGTH]
    best = table.sort_values(["n", "timed_steps"], ascending=False, kind="stable").drop_duplicates(
        apart
    )
    return table.loc[table.index.isin(best.index)]
