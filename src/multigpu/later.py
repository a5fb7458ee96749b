"""Functions that are named before the module that holds them is loaded."""

from __future__ import annotations

import pkgutil
from collections.abc import Callable
from typing import Any


def later(path: str) -> Callable[..., Any]:
    """The function that "module:name" names; its module is imported when it is first called."""

    def call(*arguments: Any, **named: Any) -> Any:
        return pkgutil.resolve_name(path)(*arguments, **named)

    return call
