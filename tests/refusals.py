"""What cannot be is refused in one sentence, which says why."""

import csv
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest


def refused(
    why: str,
    call: Callable[..., object],
    /,
    *given: Any,
    error: type[Exception] = ValueError,
    **more: Any,
) -> str:
    """The one sentence in which a call is refused, where the pattern `why` is found."""
    with pytest.raises(error, match=why) as caught:
        call(*given, **more)
    said = str(caught.value)
    assert "\n" not in said
    return said


def cases_beside(test: str, name: str) -> list[list[str]]:
    """The rows of a CSV that lies beside a test's file, without its header."""
    with (Path(test).parent / name).open(newline="") as file:
        return list(csv.reader(file))[1:]
