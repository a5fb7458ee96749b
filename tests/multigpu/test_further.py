"""Which cases `make test` runs, and which fixtures know that they are asked for."""

import pytest

from tests.further import asked, but, covering, parameters


def test_as_few_cases_as_show_every_feature() -> None:
    each = [{"a"}, {"a", "b"}, {"b", "c"}, {"c"}, set[str]()]
    assert covering(each) == {1, 2}
    assert covering([]) == set() == covering([set()])


def test_what_shows_nothing_new_is_marked() -> None:
    marked = [len(each.marks) for each in parameters(["ab", "a", "b", "c"], set)]
    assert marked == [0, 1, 1, 0]
    assert [len(each.marks) for each in but("b", ["a", "b"])] == [1, 0]


@pytest.mark.parametrize("number", but((1,), (1, 2)))
def test_selected_values_are_asked_for(number: int, request: pytest.FixtureRequest) -> None:
    own = asked(request, "number", "test_selected_values_are_asked_for")
    assert number in own <= {1, 2} and own == asked(request, "number")
    assert asked(request, "number", "test_what_shows_nothing_new_is_marked") == set()
    assert asked(request, "other") == set()
