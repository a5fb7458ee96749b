"""Name objects before they are made."""

import pkgutil
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar

Value = TypeVar("Value")


def lazy(path: str) -> Callable[..., Any]:
    """The function that "module:name" names; its module is imported when it is first called."""

    def call(*arguments: Any, **named: Any) -> Any:
        return pkgutil.resolve_name(path)(*arguments, **named)

    return call


class LazyMapping(Mapping[str, Value]):
    """Values by name, each made when it is first asked for: names alone make none. further: others,
    looked at after all of these.
    """

    def __init__(
        self, makers: Mapping[str, Callable[[], Value]], further: Mapping[str, Value] | None = None
    ) -> None:
        self.makers, self.further = dict(makers), {} if further is None else further
        self.made: dict[str, Value] = {}

    def __getitem__(self, name: str) -> Value:
        if name not in self.makers:
            return self.further[name]
        if name not in self.made:
            self.made[name] = self.makers[name]()
        return self.made[name]

    def __contains__(self, name: object) -> bool:
        return name in self.makers or name in self.further

    def __iter__(self) -> Iterator[str]:
        yield from self.makers
        yield from (name for name in self.further if name not in self.makers)

    def __len__(self) -> int:
        return sum(1 for _ in self)
