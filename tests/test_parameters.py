from typing import Any

import pytest

from multigpu.parameters import Measure, ParameterError, assigned_names, check_parameters


def test_right_values_pass() -> None:
    check_parameters(
        {"measure": "none", "grid": "default", "devices": [1, 2], "minutes": 3, "other": object()},
        measure=Measure,
        grid=str,
        devices=list[int],
        minutes=float | None,
    )


@pytest.mark.parametrize(
    ("value", "kind", "sentence"),
    [
        (
            7,
            str,
            "parameter p = 7: input should be a valid string (papermill reads -p values as numbers where it can; -r passes them as text).",
        ),
        ("maybe", Measure, "parameter p = 'maybe': input should be 'missing', 'all' or 'none'."),
        (True, int, "parameter p = True: input should be a valid integer."),
        ("1", int, "parameter p = '1': input should be a valid integer."),
        (1.0, int, "parameter p = 1.0: input should be a valid integer."),
        (1, bool, "parameter p = 1: input should be a valid boolean."),
        (2, list[int], "parameter p = 2: input should be a valid list."),
        ([1, "2"], list[int], "parameter p[1] = '2': input should be a valid integer."),
    ],
)
def test_a_wrong_type_is_one_sentence(value: object, kind: Any, sentence: str) -> None:
    with pytest.raises(ParameterError) as caught:
        check_parameters({"p": value}, p=kind)
    assert str(caught.value) == sentence


def test_a_missing_value_is_named() -> None:
    with pytest.raises(ParameterError, match="'grid' has no value"):
        check_parameters({}, grid=str)


def test_an_unknown_name_is_found_in_the_injected_cell_alone() -> None:
    cells = ["", "measure = 'none'", '# Parameters\nmeasure = "all"\nmesure = "none"\n']
    with pytest.raises(ParameterError, match="unknown parameter 'mesure' of this notebook: did you mean 'measure'"):
        check_parameters({"measure": "all", "In": cells}, measure=Measure)
    # A notebook run twice in one kernel holds names of its later cells: they are no parameters.
    check_parameters({"measure": "all", "frame": 1, "In": [*cells[:2], "frame = 1"]}, measure=Measure)


def test_assigned_names() -> None:
    assert assigned_names("import os\na = 1  # one\nb: int = 2\nc = d = 3\nif a:\n    e = 4\nf.g = 5") == ["a", "b", "c", "d"]
    assert assigned_names("%%time\nno python") == []
