"""Entries of a YAML file (`multigpu.grids` shows one) whose lists are crossed with each other,
whatever `Kind` they are: Runs, trainings.
"""

import difflib
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import Any, Generic

import yaml
from pydantic import ValidationError
from pydantic.fields import FieldInfo

from multigpu.grids.planned import Built, EntrySettings, Planned, launches_of
from multigpu.spec.schema import refusal
from multigpu.workloads import find_model

FOLDER = Path(__file__).resolve().parents[1] / "grids"
BUNDLES = ("job", "way")  # names of lists of fields that belong together
# settings that are lists and not crossed
PLAIN_LISTS = ("launches", "only", "without", "cases", "when")
MOST_POINTS = 100_000  # of one entry: more would never be measured
DEFAULT_BATCH = "default"  # what `batch_size` may say: the model's own

Values = Callable[[Sequence[int]], Sequence[Any]]
Condition = Callable[[Mapping[str, Any], Sequence[int]], bool]


@dataclass(frozen=True)
class Kind(Generic[Built]):
    """The classes and defaults of entries of one kind. fields: those that a point may have. build:
    a point of them, or a ValueError that says what
        cannot be.
    lists: field -> word -> the values that it stands for. conditions, costs: by name, see
        `EntrySettings`. planned: the class of its points.
    """

    fields: Mapping[str, FieldInfo]
    build: Callable[..., Built]
    lists: Mapping[str, Mapping[str, Values]] = field(default_factory=dict)
    conditions: Mapping[str, Condition] = field(default_factory=dict)
    costs: Mapping[str, Callable[[Built], float]] = field(default_factory=dict)
    planned: type[Planned[Any]] = Planned

    def filled(self, fields: Mapping[str, Any], names: Iterable[str]) -> dict[str, Any]:
        """These fields, or else their defaults."""
        return {name: fields.get(name, self.fields[name].default) for name in names}

    def has(self, fields: Mapping[str, Any], wanted: Mapping[str, Any]) -> bool:
        """Whether the fields, or else their defaults, have these values; a list means any of
        its.
        """
        own = self.filled(fields, wanted)
        return all(
            own[name] in (value if isinstance(value, list) else [value])
            for name, value in wanted.items()
        )


class _Loader(yaml.SafeLoader):
    """YAML in which a name that stands twice is an error and not the last one's value."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        names = [self.construct_object(key, deep=True) for key, _ in node.value]
        for name in names:
            if names.count(name) > 1:
                raise yaml.MarkedYAMLError(
                    problem=f"{name!r} stands twice", problem_mark=node.start_mark
                )
        return super().construct_mapping(node, deep)


def read_yaml(path: Path) -> Any:
    """Parse a file of YAML; a ValueError that begins with its name if it cannot be read, or is no
    YAML.
    """
    if "\0" in str(path):
        raise ValueError(f"{str(path)!r} cannot be read: no name of a file holds a NUL")
    try:
        return yaml.load(path.read_text(encoding="utf-8"), _Loader)
    except OSError as error:
        raise ValueError(f"{path} cannot be read: {error.strerror or error}") from None
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise ValueError(f"{path} is no YAML: {' '.join(str(error).split())[:300]}") from None


def read_entries(path: Path) -> tuple[str, list[dict[str, Any]]]:
    """The question and the entries of a file, what they have in common filled in; a ValueError
    names a file without any.
    """
    content = read_yaml(path)
    if content is None:
        raise ValueError(
            f"{path} is empty: it needs a list of points, such as `- {{workload: nmt, model:"
            " nmt_small, placement: ddp}`"
        )
    whole = content if isinstance(content, dict) else {"points": content}
    points, common = whole.get("points"), whole.get("common", {})
    for name in whole:
        if name not in ("question", "common", "points"):
            raise ValueError(
                f"{path}: {name!r} stands beside question, common and points: put it into common or"
                " into a point"
            )
    if not isinstance(points, list) or not points or not isinstance(common, dict):
        raise ValueError(
            f"{path} has no list of `points`: each starts with `- ` and holds fields such as"
            " `workload: nmt`"
        )
    for number, entry in enumerate(points, 1):
        if not isinstance(entry, dict):
            raise ValueError(
                f"{path}, point {number}: {entry!r} is no set of fields such as `workload: nmt`"
            )
    return str(whole.get("question", "")), [{**common, **entry} for entry in points]


def expand(path: Path, kind: Kind[Built], counts: Sequence[int] = ()) -> Iterator[Planned[Built]]:
    """Every point of a file, in its order; a ValueError names an entry that cannot be, and what to
    do.
    counts: the numbers of devices that words such as `each` and `most` speak of.
    """
    question, entries = read_entries(path)
    for number, entry in enumerate(entries, 1):
        where = f"{path}, point {number}"
        for fields in _combinations(entry, kind, counts, where):
            if point := _point({"question": question, **fields}, kind, counts, where):
                yield point


def _combinations(
    entry: Mapping[str, Any], kind: Kind[Any], counts: Sequence[int], where: str
) -> Iterator[dict[str, Any]]:
    """Every choice of one value from each list; bundles are expanded first, and their fields go
    before the entry's own.
    """
    axes: list[list[dict[str, Any]]] = []
    for name, value in entry.items():
        words = kind.lists.get(name, {})
        if name in BUNDLES:
            bundles = value if isinstance(value, list) else [value]
            if not bundles or not all(isinstance(bundle, dict) for bundle in bundles):
                raise ValueError(
                    f"{where}: {name} = {value!r} is no list of fields such as `- {{batch_size:"
                    " 64}`"
                )
            axes.append(
                [flat for bundle in bundles for flat in _combinations(bundle, kind, counts, where)]
            )
        elif isinstance(value, str) and value in words:
            axes.append([{name: one} for one in words[value](counts)])
        elif name == "devices" and isinstance(value, str):
            raise ValueError(
                f"{where}: devices = {value!r} is no number: give one, a list, or one of"
                f" {', '.join(words)}"
            )
        elif (
            isinstance(value, list)
            and name not in PLAIN_LISTS
            and not (name == "data" and not any(isinstance(v, list) for v in value))
        ):
            if not value:
                raise ValueError(
                    f"{where}: {name} is an empty list, so there is no point: name a value"
                )
            axes.append([{name: one} for one in value])
        else:
            axes.append([{name: value}])
    if (size := math.prod(map(len, axes))) > MOST_POINTS:
        raise ValueError(
            f"{where} makes {size} points of its lists: at most {MOST_POINTS} can be, in several"
            " points or files"
        )
    for choice in product(*axes):
        parts = sorted(zip(entry, choice, strict=True), key=lambda part: part[0] in BUNDLES)
        yield {name: value for _, part in parts for name, value in part.items()}


def _settings(fields: Mapping[str, Any], kind: Kind[Any], where: str) -> EntrySettings:
    """Return the settings beside the fields of the point, every name in them known."""
    for name in fields:
        if name not in kind.fields and name not in EntrySettings.model_fields:
            known = [*kind.fields, *EntrySettings.model_fields, *BUNDLES]
            near = difflib.get_close_matches(str(name), known, 1)
            hint = f"did you mean {near[0]!r}?" if near else f"choose among {', '.join(known)}"
            raise ValueError(f"{where}: unknown field {name!r}: {hint}")
    try:
        settings = EntrySettings(
            **{name: value for name, value in fields.items() if name not in kind.fields}
        )
    except ValidationError as error:
        raise ValueError(f"{where}: {refusal(error)}") from None
    for wanted in (*settings.only, *settings.without, *(case.where for case in settings.cases)):
        if unknown := sorted(str(name) for name in wanted.keys() - kind.fields.keys()):
            raise ValueError(
                f"{where}: {unknown[0]!r} of a filter is no field of a Run: choose among"
                f" {', '.join(kind.fields)}"
            )
    for name, words, names in (
        ("when", settings.when, kind.conditions),
        ("cost", (settings.cost,) * bool(settings.cost), kind.costs),
    ):
        if strange := [word for word in words if word not in names]:
            raise ValueError(
                f"{where}: {name} = {strange[0]!r} is not known: choose among {', '.join(names)}"
            )
    return settings


def _point(
    fields: dict[str, Any], kind: Kind[Built], counts: Sequence[int], where: str
) -> Planned[Built] | None:
    """The point with these fields; None where the entry leaves it out."""
    settings = _settings(fields, kind, where)
    own = {name: value for name, value in fields.items() if name in kind.fields}
    if (settings.only and not any(kind.has(own, each) for each in settings.only)) or any(
        kind.has(own, each) for each in settings.without
    ):
        return None
    if not all(
        kind.conditions[word](kind.filled(own, kind.fields), counts) for word in settings.when
    ):
        return None
    if isinstance(own.get("data"), list):
        own["data"] = tuple(own["data"])
    try:
        if own.get("batch_size") == DEFAULT_BATCH:
            own["batch_size"] = getattr(
                find_model(own["workload"], own["model"]).config, "default_batch", None
            )
            if own["batch_size"] is None:
                raise ValueError(
                    f"batch_size = {DEFAULT_BATCH!r}: model {own['model']!r} names no batch of its"
                    " own: write a number"
                )
        built = kind.build(**own)
    except ValueError as error:
        raise ValueError(f"{where}: {error}") from None
    launches = settings.launches
    cost_s = _cost_s(settings, kind.filled(own, kind.fields)) + (
        kind.costs[settings.cost](built) if settings.cost else 0.0
    )
    for case in settings.cases:
        if kind.has(own, case.where):
            cost_s, launches = cost_s + case.more_s, case.launches or launches
    launches = launches or launches_of(settings.repeats)
    return kind.planned(
        built, round(cost_s, 2), launches, settings.first_repeat, settings=settings, where=where
    )


def _cost_s(settings: EntrySettings, fields: Mapping[str, Any]) -> float:
    """Return the seconds that a point with these fields may cost by the entry's own numbers."""
    cost_s = settings.cost_s
    if settings.cost_per_device_s:
        cost_s += settings.cost_per_device_s * fields["devices"]
    if settings.cost_per_variable_s or settings.cost_per_100m_parameters_s:
        model = find_model(fields["workload"], fields["model"])
        cost_s += (
            settings.cost_per_variable_s * len(model.variables)
            + settings.cost_per_100m_parameters_s * model.parameters / 1e8
        )
    return cost_s
