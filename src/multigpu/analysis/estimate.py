"""A figure with its interval, and the one place where figures become text."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from numbers import Real
from pathlib import Path
from typing import Any

import pandas as pd

from multigpu.analysis.limits import mfu_of, peak_of
from multigpu.analysis.points import Missing, one
from multigpu.spec.tables import table

STEPS: dict[str, list[tuple[float, float, str]]] = {}
"""Form -> (from which size on, times what, pattern), largest first."""
for _row in table(Path(__file__).with_name("forms.csv")):
    _step = float(_row["from"]), float(_row["times"]), _row["pattern"]
    STEPS.setdefault(_row["form"], []).append(_step)


def written(value: float, form: str) -> str:
    """Write a figure in a form, as the first of its steps says that it reaches."""
    if form == "number" and value == round(value):
        return f"{value:,.0f}"
    steps = ((times, pattern) for least, times, pattern in STEPS[form] if abs(value) >= least)
    times, pattern = next(steps)
    return pattern.format(times * value)


FORMS: dict[str, Callable[[float], str]] = {form: partial(written, form=form) for form in STEPS}
"""How a figure is written, by its format: `{e:percent}`; a word "interval" adds the bounds."""

SINGLE_RUN = "single run"
TOO_FEW, WIDE = "too few repeats", 10.0
"""Said in place of an interval whose ends are so many times apart."""
NARROW_FORMS = ("rate", "times", "ms", "us", "s")  # of which such an interval says nothing

WRITTEN: set[str] = set()
"""Keys of the Records behind every figure that this page has written: `show.sources` lists them."""


def keys_in(rows: pd.DataFrame) -> set[str]:
    """The Records that rows rest on, by their columns of keys."""
    columns = [
        rows[name].dropna().astype(str) for name in ("keys", "base_keys", "key") if name in rows
    ]
    return {key for column in columns for text in column for key in text.split(", ") if key}


@dataclass(frozen=True)
class Estimate:
    """A figure, its 95% interval (NaN: a single run has none), the Records behind it, its unit,
    and what stands beside it; both are said of a rate.
    """

    value: float
    low: float = math.nan
    high: float = math.nan
    keys: frozenset[str] = frozenset()
    unit: str = ""
    beside: str = ""

    @property
    def known(self) -> bool:
        return not (math.isnan(self.low) or math.isnan(self.high))

    @property
    def is_too_few(self) -> bool:
        """Whether its repeats are too few to say the figure."""
        return self.known and self.low > 0 and self.high > WIDE * self.low

    def __format__(self, spec: str) -> str:
        """As `FORMS` says; with " interval" also from where to where it may be, or that it is a
        single run. ValueError: no such form.
        """
        form, _, more = (spec or "number").partition(" ")
        if form not in FORMS or more not in ("", "interval"):
            raise ValueError(
                f"{spec!r} is no form of a figure: choose {', '.join(FORMS)}, with ' interval'"
                " behind it if wanted"
            )
        if math.isnan(self.value):
            return "–"
        write = FORMS[form]
        WRITTEN.update(self.keys)
        text = f"{write(self.value)} {self.unit}".rstrip() if form == "rate" else write(self.value)
        beside = f", {self.beside}" if self.beside and form == "rate" else ""
        if not more:
            return text + beside
        if not self.known:
            return f"{text} ({SINGLE_RUN}){beside}"
        if self.is_too_few and form in NARROW_FORMS:
            return f"{text} ({TOO_FEW}){beside}"
        high = write(self.high)
        unit = high.lstrip("-0123456789.,")  # said once
        return f"{text} ({write(self.low).removesuffix(unit)} to {high}){beside}"

    def __rsub__(self, whole: float) -> "Estimate":
        """Subtract from `whole`: 1 - efficiency is the share lost."""
        return Estimate(
            whole - self.value, whole - self.high, whole - self.low, self.keys, self.unit
        )

    def __gt__(self, other: "Estimate | float") -> bool:
        """Whether all of the interval lies above (all of) the other; a single run, of which none is
        known, is above nothing.
        """
        return self.low > (other.high if isinstance(other, Estimate) else other)

    def __lt__(self, other: "Estimate | float") -> bool:
        """Whether all of the interval lies below (all of) the other: `require(1.8 < gain < 2,
        ...)`.
        """
        return self.high < (other.low if isinstance(other, Estimate) else other)

    def __truediv__(self, other: "Estimate | float") -> "Estimate":
        """A ratio of figures of different Records: halves of their intervals, in logarithms, add in
        quadrature.
        """
        if not isinstance(other, Estimate):
            return Estimate(
                self.value / other, self.low / other, self.high / other, self.keys, self.unit
            )
        ratio = self.value / other.value
        half = math.hypot(*(math.log(side.high / side.low) / 2 for side in (self, other)))
        return Estimate(
            ratio, ratio * math.exp(-half), ratio * math.exp(half), self.keys | other.keys
        )

    def __rtruediv__(self, whole: float) -> "Estimate":
        """`whole` over it: 1 / ratio looks from the other side."""
        return Estimate(whole / self.value, whole / self.high, whole / self.low, self.keys, "")


def estimate(of: Any, name: str = "ratio", **fields: Any) -> Estimate:
    """The figure in column `name` of a row, or of a table's one row with these fields, or a plain
    number. Missing: the row has none.
    """
    if isinstance(of, Real):
        return Estimate(float(of))
    row = one(of, **fields) if isinstance(of, pd.DataFrame) else of
    value = row[name]
    if value is None or pd.isna(value):
        raise Missing(
            f"{name} of {row.get('placement', 'this point')} has no value here: its baseline was"
            " not measured"
        )
    low, high = (float(row.get(f"{name}_{end}", math.nan)) for end in ("low", "high"))
    unit = row.get("unit") if name.endswith("rate") else None
    keys = frozenset(str(row.get("keys", row.get("key", ""))).split(", ")) - {"", "nan"}
    return Estimate(
        float(value), low, high, keys, f"{unit}/s" if unit else "", beside_rate(row, name)
    )


def beside_rate(row: Any, name: str) -> str:
    """Say the MFU beside the rate in this column, "MFU 0.42 of 989 TFLOP/s"; "" where none is
    known, and of other columns.
    """
    mfu = mfu_of(row, name) if name in ("rate", "units_per_s") else math.nan
    if math.isnan(mfu):
        return ""
    peak = peak_of(str(row["gpu"]), row["precision"])
    return f"MFU {mfu:.2f} of {peak / 1e12:.0f} TFLOP/s"
