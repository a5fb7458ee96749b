"""Grids and batches written in YAML: entries whose lists are crossed with each other. Data, no language; `grids/*.yaml` are examples.

    question: Which placement is fastest on two devices?
    common: {workload: nmt, model: nmt_small, sequence_length: 20, device_type: cpu}
    points:
      - placement: [ddp, exp4]          # a list is crossed with every other list; what is written first changes last
        job:                            # a list of fields that belong together
          - {batch_size: 16}
          - {batch_size: 64, precision: bf16}
        devices: [1, 2]
        repeats: 3
        reason: The smallest case that has a merge.

A file may also be the list of `points` alone. All other names of an entry are fields of a Run.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from multigpu.grid.entries import LAUNCH_OF_REPEAT, Planned, Tier, ends_of
from multigpu.run import Run, build_run

FOLDER = Path(__file__).resolve().parents[1] / "grids"
BUNDLES = ("job", "way")
"""Names of lists of fields that belong together."""
PLAIN_LISTS = ("launches", "only", "without", "cases")
"""Settings that are lists and not crossed."""
MOST_POINTS = 100_000
"""Of one entry: more would never be measured."""
COUNTS: dict[str, Callable[[Sequence[int]], list[int]]] = {
    "each": lambda counts: sorted(counts, reverse=True),
    "rising": sorted,
    "ends": ends_of,
    "most": lambda counts: ends_of(counts)[:1],
}
"""What `devices` may say instead of numbers, of those asked for: all, the most or the least first; one and the most; the most."""


class _Closed(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Case(_Closed):
    """What differs for the points that have these fields (a list: any of its values): seconds more, or other launches."""

    where: dict[str, Any]
    more_s: float = 0.0
    launches: tuple[int, ...] | None = None


class Settings(_Closed):
    """What an entry says beside the fields of its Runs.

    question, reason: what the points are to answer, and why these; for readers.
    cost_s, cost_per_device_s: what one measurement may cost, and what every device adds to it.
    repeats: how often each point is measured, over launches as headline points are; or launches: which launch measures each repeat.
    first_repeat: the number of the first (`Planned`).
    only, without: combinations that are kept, and left out: those that have all fields of one of these.
    trace: so many further steps of a twin of the point are traced (true: three). compare: whether a batch sets committed Records beside it.
    """

    question: str = ""
    reason: str = ""
    cost_s: float = Field(default=10.0, gt=0)
    cost_per_device_s: float = Field(default=0.0, ge=0)
    repeats: int = Field(default=1, ge=1, le=100, strict=True)
    launches: tuple[int, ...] = ()
    first_repeat: int = Field(default=0, ge=0, strict=True)
    only: tuple[dict[str, Any], ...] = ()
    without: tuple[dict[str, Any], ...] = ()
    cases: tuple[Case, ...] = ()
    trace: int = Field(default=0, ge=0, le=20, strict=True)
    compare: bool = True

    @model_validator(mode="before")
    @classmethod
    def _three_steps(cls, values: Any) -> Any:
        return {**values, "trace": 3 if values["trace"] else 0} if isinstance(values.get("trace"), bool) else values


@dataclass(frozen=True)
class Row:
    """One point of a file: its Run, the launch of each repeat, and what else its entry says of it. where: its entry, for messages."""

    run: Run
    launches: tuple[int, ...]
    cost_s: float
    settings: Settings
    where: str

    def planned(self) -> list[Planned]:
        """The entries of a grid that this stands for: the point, and its traced twin where one is asked for."""
        tier: Tier = "headline" if len(self.launches) > 1 else "screening"
        entries = [Planned(self.run, tier, self.cost_s, self.launches, self.settings.first_repeat)]
        if self.settings.trace:
            entries.append(Planned(traced(self.run, self.settings.trace), "screening", self.cost_s))
        return entries


def traced(run: Run, steps: int) -> Run:
    """The twin of a Run whose last steps are traced."""
    return build_run(**run.model_dump(exclude_defaults=True) | {"traced_steps": steps})


def launches_of(repeats: int) -> tuple[int, ...]:
    """The launch of each of so many repeats, as headline points have them; further ones have a launch each."""
    more = range(LAUNCH_OF_REPEAT[-1] + 1, LAUNCH_OF_REPEAT[-1] + 1 + repeats)
    return (*LAUNCH_OF_REPEAT, *more)[:repeats]


class _Loader(yaml.SafeLoader):
    """YAML in which a name that stands twice is an error and not the last one's value."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        names = [self.construct_object(key, deep=True) for key, _ in node.value]
        for name in names:
            if names.count(name) > 1:
                raise yaml.MarkedYAMLError(problem=f"{name!r} stands twice", problem_mark=node.start_mark)
        return super().construct_mapping(node, deep)


def read_entries(path: Path) -> tuple[str, list[dict[str, Any]]]:
    """The question and the entries of a file, what they have in common filled in.

    Raises:
        ValueError: it cannot be read, is no YAML or holds no entries; the sentence names it.
    """
    try:
        content = yaml.load(path.read_text(encoding="utf-8"), _Loader)
    except OSError as error:
        raise ValueError(f"{path} cannot be read: {error.strerror or error}") from None
    except (yaml.YAMLError, UnicodeDecodeError, ValueError, RecursionError) as error:
        raise ValueError(f"{path} is no YAML: {' '.join(str(error).split())[:300]}") from None
    if content is None:
        raise ValueError(f"{path} is empty: it needs a list of points, such as `- {{workload: nmt, model: nmt_small, placement: ddp}}`")
    whole = content if isinstance(content, dict) else {"points": content}
    points, common = whole.get("points"), whole.get("common", {})
    for name in whole:
        if name not in ("question", "common", "points"):
            raise ValueError(f"{path}: {name!r} stands beside question, common and points: put it into common or into a point")
    if not isinstance(points, list) or not points or not isinstance(common, dict):
        raise ValueError(f"{path} has no list of `points`: each starts with `- ` and holds fields such as `workload: nmt`")
    for number, entry in enumerate(points, 1):
        if not isinstance(entry, dict):
            raise ValueError(f"{path}, point {number}: {entry!r} is no set of fields such as `workload: nmt`")
    return str(whole.get("question", "")), [{**common, **entry} for entry in points]


def read_rows(path: Path, counts: Sequence[int], asked_only: bool = False) -> list[Row]:
    """Every point of a file, in its order.

    Args:
        counts: the numbers of devices that `each`, `ends` and `most` speak of.
        asked_only: leave out points on other numbers of devices, as a grid does that is measured on some of them.

    Raises:
        ValueError: the file or one of its entries cannot be; the sentence names it and what to do.
    """
    question, entries = read_entries(path)
    rows: list[Row] = []
    for number, entry in enumerate(entries, 1):
        where = f"{path}, point {number}"
        for fields in _combinations(entry, counts, where):
            row = _row({"question": question, **fields}, where)
            if row and not (asked_only and row.run.devices not in counts):
                rows.append(row)
    return rows


def grid(name: str, counts: Sequence[int]) -> list[Planned]:
    """The entries of the grid `grids/<name>.yaml` at these numbers of devices.

    Raises:
        ValueError: as `read_rows`.
    """
    return [entry for row in read_rows(FOLDER / f"{name}.yaml", counts, asked_only=True) for entry in row.planned()]


def _combinations(entry: Mapping[str, Any], counts: Sequence[int], where: str) -> Iterator[dict[str, Any]]:
    """Every choice of one value from each list; bundles are expanded first, and their fields go before the entry's own."""
    axes: list[list[dict[str, Any]]] = []
    for name, value in entry.items():
        if name in BUNDLES:
            bundles = value if isinstance(value, list) else [value]
            if not bundles or not all(isinstance(bundle, dict) for bundle in bundles):
                raise ValueError(f"{where}: {name} = {value!r} is no list of fields such as `- {{batch_size: 64}}`")
            axes.append([flat for bundle in bundles for flat in _combinations(bundle, counts, where)])
        elif name == "devices":
            axes.append([{name: count} for count in _devices(value, counts, where)])
        elif isinstance(value, list) and name not in PLAIN_LISTS and not (name == "data" and not any(isinstance(v, list) for v in value)):
            if not value:
                raise ValueError(f"{where}: {name} is an empty list, so there is no point: name a value")
            axes.append([{name: one} for one in value])
        else:
            axes.append([{name: value}])
    if (size := math.prod(map(len, axes))) > MOST_POINTS:
        raise ValueError(f"{where} makes {size} points of its lists: at most {MOST_POINTS} can be, in several points or files")
    bundled = {index for index, name in enumerate(entry) if name in BUNDLES}
    for choice in product(*axes):
        own = [part for index, part in enumerate(choice) if index not in bundled]
        merged: dict[str, Any] = {}
        for part in [*own, *(choice[index] for index in bundled)]:
            merged |= part
        yield merged


def _devices(value: Any, counts: Sequence[int], where: str) -> list[Any]:
    if isinstance(value, str):
        if value not in COUNTS:
            raise ValueError(f"{where}: devices = {value!r} is no number: give one, a list, or one of {', '.join(COUNTS)}")
        return COUNTS[value](counts)
    return value if isinstance(value, list) else [value]


def _row(fields: dict[str, Any], where: str) -> Row | None:
    """The point with these fields; None where the entry leaves it out."""
    for name in fields:
        if name not in Run.model_fields and name not in Settings.model_fields:
            known = [*Run.model_fields, *Settings.model_fields, *BUNDLES]
            near = difflib.get_close_matches(str(name), known, 1)
            hint = f"did you mean {near[0]!r}?" if near else f"choose among {', '.join(known)}"
            raise ValueError(f"{where}: unknown field {name!r}: {hint}")
    own = {name: value for name, value in fields.items() if name in Run.model_fields}
    try:
        settings = Settings(**{name: value for name, value in fields.items() if name not in own})
    except ValidationError as error:
        first = error.errors()[0]
        raise ValueError(f"{where}: {'.'.join(map(str, first['loc']))} = {first['input']!r}: {first['msg']}") from None
    for wanted in (*settings.only, *settings.without, *(case.where for case in settings.cases)):
        if unknown := sorted(str(name) for name in wanted.keys() - Run.model_fields.keys()):
            raise ValueError(f"{where}: {unknown[0]!r} of a filter is no field of a Run: choose among {', '.join(Run.model_fields)}")
    if (settings.only and not any(_has(own, each) for each in settings.only)) or any(_has(own, each) for each in settings.without):
        return None
    try:
        run = build_run(**{**own, **({"data": tuple(own["data"])} if isinstance(own.get("data"), list) else {})})
    except ValueError as error:
        raise ValueError(f"{where}: {error}") from None
    cost_s, launches = settings.cost_s + settings.cost_per_device_s * run.devices, settings.launches or launches_of(settings.repeats)
    for case in settings.cases:
        if _has(own, case.where):
            cost_s, launches = cost_s + case.more_s, case.launches or launches
    return Row(run, launches, cost_s, settings, where)


def _has(fields: Mapping[str, Any], wanted: Mapping[str, Any]) -> bool:
    """Whether the fields, or else their defaults, have these values; a list means any of its."""
    own = {name: fields.get(name, Run.model_fields[name].default) for name in wanted}
    return all(own[name] in (value if isinstance(value, list) else [value]) for name, value in wanted.items())
