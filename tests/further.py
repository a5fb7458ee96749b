"""Many cases of one kind: `make test` runs as few of them as show every feature, `make jobs` the
rest, which are marked `further`.
"""

from collections.abc import Callable, Collection, Hashable, Sequence
from typing import Any, TypeVar

import pytest

Case = TypeVar("Case")


def covering(each: Sequence[set[Hashable]]) -> set[int]:
    """Places of as few of these sets as a greedy choice finds whose union is that of all."""
    left, chosen = dict(enumerate(each)), set[int]()
    missing = set[Hashable]().union(*each)
    while missing:
        best = max(left, key=lambda place: (len(left[place] & missing), -place))
        missing -= left.pop(best)
        chosen.add(best)
    return chosen


def parameters(cases: Sequence[Case], features: Callable[[Case], set[Hashable]]) -> list[Any]:
    """All cases as parameters of a test; as many are marked `further` as can be without a feature
    that no other has.
    """
    few = covering([features(case) for case in cases])
    return [
        pytest.param(case, marks=() if place in few else pytest.mark.further)
        for place, case in enumerate(cases)
    ]


def but(often: Collection[Case], cases: Sequence[Case]) -> list[Any]:
    """All cases as parameters of a test; those not to be run often are marked `further`."""
    return [
        pytest.param(case, marks=() if case in often else pytest.mark.further) for case in cases
    ]


def asked(request: pytest.FixtureRequest, argument: str, test: str = "") -> set[Any]:
    """Values of a parameter in the selected tests of the module that asks (or in this one of them):
    a fixture need not make what none looks at.
    """
    return {
        item.callspec.params[argument]
        for item in request.session.items
        if isinstance(item, pytest.Function) and item.path == request.path
        if test in (item.originalname, "")
        if argument in getattr(getattr(item, "callspec", None), "params", ())
    }
