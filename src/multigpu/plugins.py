"""Find what other packages add, each by an entry point of its distribution (see CONTRIBUTING).

The study of this repository is such a package: its entry points stand in its registry.csv, too, so
that they are seen where a checkout is run without being installed.
"""

import sys
from collections.abc import Callable, Container, Iterator, Mapping
from functools import cache, cached_property
from importlib.metadata import EntryPoint, EntryPoints, distributions, entry_points
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TypeVar

from pydantic import ValidationError

from multigpu.spec.schema import refusal
from multigpu.spec.tables import table

STUDY = "multigpu_study"
KINDS = (
    "placements",
    "workloads",
    "claims",
    "commands",
    "engines",
    "experiments",
    "grids",
    "fragments",
    "printed",
)
Value = TypeVar("Value")


@cache
def declared(kind: str) -> EntryPoints:
    """Every entry point of a kind: those of installed distributions, and the study's as its
    checkout has them. Nothing that they name is imported.
    """
    group = f"multigpu.{kind}"
    study = (EntryPoint(name, value, group) for name, value in added_by_study(kind).items())
    others = (one for one in _installed() if one.group == group and not of_the_study(one))
    return EntryPoints([*others, *study])


@cache
def _installed() -> list[EntryPoint]:
    """All entry points of all distributions; to read them takes 40 ms, once for all kinds."""
    try:
        found = entry_points()
    except Exception:  # one distribution whose list is broken hides all others
        return one_by_one()[0]
    return [point for group in found.groups for point in found.select(group=group)]


@cache
def one_by_one() -> tuple[list[EntryPoint], list[str]]:
    """Read the entry points of each distribution by itself; and of each whose list is broken what
    is wrong, in a sentence.
    """
    found, broken, names = list[EntryPoint](), list[str](), set[str]()
    for one in distributions():
        name = str(getattr(one, "_path", "a package"))  # its folder, until it says its name
        try:
            name = one.metadata["Name"]
            # what comes first on the path hides the others
            found += [] if name in names else one.entry_points
            names.add(name)
        except Exception as error:  # whatever Python says of a line without "=", or of odd bytes
            broken.append(
                f"the entry_points.txt of {Path(name).name} in {one.locate_file('')} cannot be read"
                f" ({' '.join(str(error).split())}): install that package again, or uninstall it"
            )
    return found, broken


def of_the_study(point: EntryPoint) -> bool:
    """Whether an entry point is one of this repository's study."""
    return point.module.partition(".")[0] == STUDY


def added_by_study(kind: str) -> dict[str, str]:
    """Name -> "module:object" of what the study adds of a kind; nothing where it is not there."""
    try:
        spec = find_spec(STUDY)
    except ModuleNotFoundError:  # as a finder says that blocks it
        return {}
    for folder in (spec.submodule_search_locations or ()) if spec else ():
        registry = Path(folder) / "registry.csv"
        if registry.is_file():
            return {row["name"]: row["value"] for row in table(registry) if row["kind"] == kind}
    return {}


def files() -> list[Path]:
    """The Python, YAML and CSV files of this package, and of all that add something."""
    added = (point.value for kind in KINDS for point in declared(kind))
    tops = {__package__, *(value.partition(":")[0].partition(".")[0].strip() for value in added)}
    specs = [spec for top in sorted(tops) if top and (spec := find_spec(top))]
    folders = [Path(folder) for spec in specs for folder in spec.submodule_search_locations or ()]
    alone = [
        Path(spec.origin) for spec in specs if spec.origin and not spec.submodule_search_locations
    ]
    return [
        *alone,
        *(
            path
            for folder in folders
            for pattern in ("*.py", "*.yaml", "*.csv")
            for path in folder.rglob(pattern)
        ),
    ]


class PluginRegistry(Mapping[str, Value]):
    """Map names to what other packages add of one kind. Names are read without an import: a package
    is imported when what it adds is asked for.

    What cannot be used says why when it is asked for, a ValueError; whoever goes through all is
    spared it, and standard error says why.
    of: what an entry point must name. taken: names that this package uses itself. use: makes the
        value of what an entry point names and of its module's name; it may refuse.
    """

    def __init__(
        self,
        kind: str,
        of: type,
        taken: Container[str] = (),
        use: Callable[[Any, str], Value] = lambda found, _: found,
    ) -> None:
        self.kind, self.of, self.taken, self.use = kind, of, taken, use
        self.found: dict[str, Value | ValueError] = {}
        self.told: set[str] = set()

    @cached_property
    def points(self) -> dict[str, list[EntryPoint]]:
        """The entry points of this kind by name; there should be one of each."""
        own = declared(self.kind)
        return {name: [*own.select(name=name)] for name in sorted(own.names)}

    @cached_property
    def of_the_study(self) -> frozenset[str]:
        """The names that this repository's own study adds."""
        return frozenset(name for name, (point, *_) in self.points.items() if of_the_study(point))

    @cached_property
    def foreign(self) -> frozenset[str]:
        """The names that other distributions add, which others may not have."""
        return frozenset(name for name in self.points if name in self) - self.of_the_study

    def module(self, name: str) -> str:
        """The module that the entry point names."""
        return self.points[name][0].module

    def __contains__(self, name: object) -> bool:
        return name in self.points and name not in self.taken

    def __getitem__(self, name: str) -> Value:
        points = self.points[name]
        if name not in self.found:
            try:
                self.found[name] = self._used(name, points)
            except Exception as error:  # whatever an import may raise
                if isinstance(error, ValidationError):
                    why = refusal(error)
                else:
                    why = " ".join(str(error).split()) or type(error).__name__
                whose = " and ".join(
                    f"{point.dist.name if point.dist else '?'} ({point.value})" for point in points
                )
                words = (
                    f"{self.kind.removesuffix('s')} {name!r} of {whose} cannot be used: {why}; mend"
                    " it there, or uninstall that package"
                )
                self.found[name] = ValueError(words)
        if isinstance(found := self.found[name], ValueError):
            raise found.with_traceback(None)
        return found

    def _used(self, name: str, points: list[EntryPoint]) -> Value:
        if len(points) > 1:
            raise ValueError("one name cannot stand for two")
        if name in self.taken:
            raise ValueError("multigpu itself has that name")
        found = points[0].load()
        if not isinstance(found, self.of):
            raise ValueError(
                f"it is of type {type(found).__name__} and must be a {self.of.__name__}"
            )
        if (called := getattr(found, "name", name)) != name:
            raise ValueError(f"it calls itself {called!r}")
        return self.use(found, points[0].module)

    def __iter__(self) -> Iterator[str]:
        for name in self.points:
            try:
                self[name]
            except ValueError as error:
                if name not in self.told:
                    self.told.add(name)
                    print(f"multigpu: {error}", file=sys.stderr)
            else:
                yield name

    def __len__(self) -> int:
        return sum(1 for _ in self)
