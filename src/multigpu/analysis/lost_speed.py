"""Where 2018's speed went: along a chain of ways to train one model, how much of the lost speedup each change gives back.

N devices that lose nothing give N times one. 2018's way gives S_0 times one, so it loses a factor N / S_0. Where a change
raises the speedup from S_(k-1) to S_k, its share of what was lost is

    share_k = ln(S_k / S_(k-1)) / ln(N / S_0)

which does not depend on units and adds up to 1 with what the last way leaves. A share may be negative: what makes one device
faster may make many scale worse. Every speedup is over one device done the same way, as the documents have it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import pandas as pd

from multigpu.analysis.formulas import pooled_rate
from multigpu.analysis.frame import RUN_FIELDS
from multigpu.analysis.protocols import as_published
from multigpu.analysis.statistics import Sample, interval, sample
from multigpu.analysis.wording import missing
from multigpu.grid.causes import CHAINS, Chain
from multigpu.published import load_published, published_value
from multigpu.run import Run

SAME = tuple(name for name in RUN_FIELDS if name not in ("seed", "warmup_steps", "timed_steps"))
"""What makes two Runs one point of a chain, however many steps were timed."""

START = "2018's way"
PROTOCOL = "warm-up left out"
CEILING = "nothing merged (independent)"
REST = "left over"
APART = "not told apart"
DOCUMENT = "Document 000"
GROUP = ("machine", "framework_version", "timing_version")
"""What all points of a chain must share."""

NUMBERS = (
    *("rate", "rate_low", "rate_high", "faster", "faster_low", "faster_high"),
    *("speedup", "low", "high", "gain", "gain_low", "gain_high", "share", "share_low", "share_high"),
)
"""Of a way: rate of all devices and how much faster that is than the measured way before; the same of speedups; the share of the loss."""

COLUMNS: dict[str, str] = {
    "chain": "string",
    "machine": "string",
    "devices": "int64",
    "way": "string",
    "cause": "string",
    "published": "bool",
    **dict.fromkeys(("n_one", "n"), "int64"),
    **dict.fromkeys(NUMBERS, "float64"),
    "spans": "string",
    "why": "string",
}


class Measured(NamedTuple):
    """The repeats of one point: units and seconds of each, and its launch."""

    units: list[float]
    wall_s: list[float]
    launches: list[str]

    @property
    def rate(self) -> float:
        return pooled_rate(self.units, self.wall_s)

    @property
    def sample(self) -> Sample:
        return sample([unit / wall for unit, wall in zip(self.units, self.wall_s, strict=True)], self.launches)


def _plain(values: Iterable[Any]) -> tuple[Any, ...]:
    return tuple(None if missing(value) else value for value in values)


def _of_run(run: Run) -> tuple[Any, ...]:
    return tuple(getattr(run, name) for name in SAME)


class Points:
    """The rows of a frame with a measurement, by what makes them one point (`SAME`)."""

    def __init__(self, frame: pd.DataFrame) -> None:
        self._rows = frame[frame["status"].eq("ok")]
        self._places: dict[tuple[Any, ...], list[int]] = {}
        for place, values in enumerate(self._rows[list(SAME)].itertuples(index=False, name=None)):
            self._places.setdefault(_plain(values), []).append(place)

    def __contains__(self, run: Run) -> bool:
        return _of_run(run) in self._places

    def rows_of(self, run: Run) -> pd.DataFrame | None:
        """The repeats of one Run; None without any."""
        places = self._places.get(_of_run(run))
        return None if places is None else self._rows.iloc[places]


@dataclass(frozen=True)
class Ground:
    """The Records that a chain is told from: of one machine and one version, with as many devices as most of its ways have.

    frame: rows with status ok, and `points` of it. ways: measured on one device and on `devices`.
    """

    chain: Chain
    devices: int
    small: bool
    frame: pd.DataFrame
    points: Points
    ways: int

    @property
    def device_type(self) -> str:
        return "cpu" if self.small else "cuda"


def grounds(frame: pd.DataFrame, chain: Chain, small: bool = False) -> list[Ground]:
    """Where this chain can be told: every machine, version and number of devices on which one of its ways was measured, and on one device
    too. The most devices first, then the most ways. A Record that is read under another machine's name counts for its own as well.
    """
    own = frame[frame["device_type"].eq("cpu" if small else "cuda") & frame["workload"].eq("nmt") & frame["status"].eq("ok")]
    found = []
    both = [own, own[own["measured_on"].ne(own["machine"])].assign(machine=lambda lent: lent["measured_on"])]
    for _, group in pd.concat(both).groupby(list(GROUP), sort=False):
        points = Points(group)
        for devices in sorted({int(count) for count in group["devices"]} - {1}):
            pairs = zip(chain.runs(1, small), chain.runs(devices, small), strict=True)
            ways = sum(one in points and many in points for one, many in pairs)
            if ways:
                found.append(Ground(chain, devices, small, group, points, ways))
    return sorted(found, key=lambda ground: (ground.devices, ground.ways), reverse=True)


def best_grounds(frame: pd.DataFrame, small: bool = False) -> list[Ground]:
    """Of each chain the ground with most devices, of those on which at least half as many ways were measured as on any."""
    chosen = []
    for chain in CHAINS:
        found = grounds(frame, chain, small)
        most = max((ground.ways for ground in found), default=0)
        chosen += [ground for ground in found if 2 * ground.ways >= most][:1]
    return chosen


def fuller_grounds(frame: pd.DataFrame, chosen: Sequence[Ground]) -> list[Ground]:
    """Of each chosen ground's chain the ground with most ways, where it has more of them: fewer devices, or another machine, that tell more
    of the chain.
    """
    fuller = []
    for ground in chosen:
        most = max(grounds(frame, ground.chain, ground.small), key=lambda other: (other.ways, other.devices))
        fuller += [most] if most.ways > ground.ways else []
    return fuller


def _measured(rows: pd.DataFrame) -> Measured:
    return Measured([float(value) for value in rows["units"]], [float(value) for value in rows["wall_s"]], list(rows["launch_id"]))


def _ratio(parts: Sequence[Measured], value: float) -> tuple[float, float]:
    """Bounds (95%) of a product or ratio of these points' rates that is `value`; NaN where one was measured once."""
    half = interval([part.sample for part in parts])
    return value * math.exp(-half), value * math.exp(half)


class _Step(NamedTuple):
    name: str
    cause: str
    published: bool
    one: Measured | None
    many: Measured | None
    why: str


def _steps(ground: Ground, steps: pd.DataFrame) -> list[_Step]:
    """Every way in order, the protocol beside the first way that was measured, and the ceiling last."""
    pairs = zip(ground.chain.steps(1, ground.small), ground.chain.steps(ground.devices, ground.small), strict=True)
    found: list[_Step] = []
    begun = False
    for (way, one), (_, many) in pairs:
        rows = [ground.points.rows_of(run) for run in (one, many)]
        if rows[0] is None or rows[1] is None:
            lacking = [str(run.devices) for run, own in zip((one, many), rows, strict=True) if own is None]
            found.append(_Step(way.name, way.cause, False, None, None, f"not measured on {' and '.join(lacking)}"))
            continue
        alone, together = _measured(rows[0]), _measured(rows[1])
        if not begun:
            timed = [as_published(own, steps) for own in (rows[0], rows[1])]
            if all(len(own) for own in timed):
                found.append(_Step(way.name, way.cause, True, _measured(timed[0]), _measured(timed[1]), ""))
                found.append(_Step(PROTOCOL, "protocol", False, alone, together, ""))
            else:
                found.append(_Step(PROTOCOL, "protocol", False, None, None, "no step times"))
                found.append(_Step(way.name, way.cause, False, alone, together, ""))
        else:
            found.append(_Step(way.name, way.cause, False, alone, together, ""))
        begun = True
    ceiling = [ground.points.rows_of(ground.chain.ceiling_run(count, ground.small)) for count in (1, ground.devices)]
    known = [None if rows is None else _measured(rows) for rows in ceiling]
    both = None not in known
    why = "" if both else "not measured"
    return [*found, _Step(CEILING, "links", False, known[0] if both else None, known[1] if both else None, why)]


def chain_table(ground: Ground, steps: pd.DataFrame) -> pd.DataFrame:
    """A row a way in order, then the ceiling and what is left over.

    Args:
        steps: of `frame.step_times`, for the Records of `ground`: the published protocol counts warm-up steps too.

    Returns:
        `COLUMNS`: cause ("protocol", "host", "links", "work"; "not told apart" where ways of several causes before it were not measured,
        which `spans` then names; empty for the first measured way, from which all shares count); rate of all devices (units/s) and
        speedup with 95% bounds (NaN where either side has n = 1); share with bounds of the gain alone, the loss taken as it is;
        why: a missing figure's reason. The ceiling's share is what independent replicas add to the last way (only if that was
        measured), the last row's what neither way nor ceiling reaches.
    """
    common = {"chain": ground.chain.name, "machine": str(ground.frame["machine"].iloc[0]), "devices": ground.devices}
    rows: list[dict[str, Any]] = []
    last: tuple[float, list[Measured]] | None = None
    lost = math.nan
    waiting: list[_Step] = []
    listed = _steps(ground, steps)
    for step in listed:
        row: dict[str, Any] = dict.fromkeys(NUMBERS, math.nan)
        row |= common | {"way": step.name, "cause": step.cause, "published": step.published}
        row |= {"n_one": 0, "n": 0, "spans": "", "why": step.why}
        ceiling = step is listed[-1]
        if step.one is None or step.many is None:
            waiting += [] if ceiling else [step]
            rows.append(row)
            continue
        own = [step.one, step.many]
        value = step.many.rate / step.one.rate
        low, high = _ratio(own, value)
        rate_low, rate_high = _ratio([step.many], step.many.rate)
        row |= {"rate": step.many.rate, "rate_low": rate_low, "rate_high": rate_high}
        row |= {"speedup": value, "low": low, "high": high, "n_one": len(step.one.units), "n": len(step.many.units)}
        if last is None:
            lost = math.log(ground.devices / value)
            row["cause"] = ""
        elif ceiling and waiting:  # beside another way than the last, it tells nothing
            row["cause"] = ""
        else:
            row |= _changed(own, last[1], step.cause == "protocol", lost)
            causes = {other.cause for other in waiting} | {step.cause}
            row |= {"cause": step.cause if len(causes) == 1 else APART, "spans": ", ".join([*(w.name for w in waiting), step.name])}
            row["spans"] = row["spans"] if waiting else ""
        if not (ceiling and waiting):
            last, waiting = (value, own), []
        rows.append(row)
    if last is not None and lost > 0:
        rest: dict[str, Any] = dict.fromkeys(NUMBERS, math.nan)
        rest |= common | {"way": REST, "cause": REST, "published": False, "n_one": 0, "n": 0}
        rows.append(rest | {"share": math.log(ground.devices / last[0]) / lost, "spans": "", "why": ""})
    return pd.DataFrame({name: pd.Series([row[name] for row in rows], dtype=dtype) for name, dtype in COLUMNS.items()})


def _changed(own: list[Measured], before: list[Measured], protocol: bool, lost: float) -> dict[str, float]:
    """What a way changes beside the measured one before it, with bounds: the rate of all devices, the speedup, and its share of the loss.

    Args:
        own, before: on one device and on all. protocol: they are the same Records timed twice, whose ratios vary, not their rates.
    """
    parts = [_over(a, b) for a, b in zip(own, before, strict=True)] if protocol else [*own, *before]
    found: dict[str, float] = {}
    for name, value, rest in (
        ("faster", own[1].rate / before[1].rate, parts[1:2] if protocol else [own[1], before[1]]),
        ("gain", own[1].rate / own[0].rate * before[0].rate / before[1].rate, parts),
    ):
        low, high = _ratio(rest, value)
        found |= {name: value, f"{name}_low": low, f"{name}_high": high}
    if lost > 0:
        found |= {name.replace("gain", "share"): math.log(found[name]) / lost for name in ("gain", "gain_low", "gain_high")}
    return found


def _over(own: Measured, base: Measured) -> Measured:
    """Each repeat's rate over the same repeat's other rate, as a Measured of ratios."""
    ratios = [a / b * d / c for a, b, c, d in zip(own.units, own.wall_s, base.units, base.wall_s, strict=True)]
    return Measured(ratios, [1.0] * len(ratios), own.launches)


def chain_keys(found: Iterable[Ground]) -> list[str]:
    """The keys of the Records that these grounds' chains and ceilings rest on."""
    keys: dict[str, None] = {}
    for ground in found:
        for count in (1, ground.devices):
            for run in [*ground.chain.runs(count, ground.small), ground.chain.ceiling_run(count, ground.small)]:
                rows = ground.points.rows_of(run)
                keys |= dict.fromkeys([] if rows is None else [str(key) for key in rows["key"]])
    return list(keys)


def document_chain() -> pd.DataFrame:
    """What document 000 and its author's correction say themselves, as `chain_table` does: each of its steps changed several things."""
    runs = load_published("000_experiments")
    exp4 = runs[runs["experiment"].eq("Exp4") & runs["gpus"].eq(8)].iloc[0]
    correction = {name: published_value("000_correction", f"speedup_{name}") for name in ("nccl", "parameter_server_gpu", "independent")}
    threads = f"{published_value('000_correction', 'host_threads'):.0f} threads"
    batch = f"batch {published_value('000_correction', 'batch_size'):.0f}"
    rate = published_value("000_correction", "words_per_s")
    several = [
        ("Exp4 as published", "", float(exp4["speedup"]), float(exp4["words_per_s"])),
        (f"warm-up out, {threads}, {batch}", APART, correction["nccl"], math.nan),
        ("cuDNN's LSTM, server on GPUs", APART, correction["parameter_server_gpu"], rate),
        (CEILING, "links", correction["independent"], math.nan),
    ]
    devices, rows, before = 8, [], math.nan
    lost = math.log(devices / several[0][2])
    for way, cause, value, words in several:
        row: dict[str, Any] = dict.fromkeys(NUMBERS, math.nan)
        row |= {"chain": DOCUMENT, "machine": f"{devices} P100", "devices": devices, "way": way, "cause": cause, "published": cause == ""}
        row |= {"n_one": 1, "n": 1}
        share = math.nan if missing(before) else math.log(value / before) / lost
        rows.append(row | {"rate": words, "speedup": value, "share": share, "spans": "", "why": ""})
        before = value
    rest = rows[-1] | {"way": REST, "cause": REST, "rate": math.nan, "speedup": math.nan, "n_one": 0, "n": 0}
    rows.append(rest | {"share": math.log(devices / before) / lost})
    return pd.DataFrame({name: pd.Series([row[name] for row in rows], dtype=dtype) for name, dtype in COLUMNS.items()})
