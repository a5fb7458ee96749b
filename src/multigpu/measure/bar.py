"""Who follows a sweep."""

from __future__ import annotations

import warnings
from typing import Protocol

with warnings.catch_warnings(action="ignore"):  # tqdm says where ipywidgets is not installed; its plain bar does
    from tqdm.auto import tqdm


class Bar(Protocol):
    """What follows a sweep: a progress bar of tqdm, or one who passes it on."""

    def update(self, n: float = 1) -> bool | None: ...

    def set_description(self, desc: str | None = None) -> None: ...

    def set_postfix_str(self, s: str = "") -> None: ...

    def close(self) -> None: ...


def new_bar(total: int, progress: bool) -> Bar:
    """A progress bar over so many measurements."""
    bar: Bar = tqdm(total=total, unit="run", disable=not progress, smoothing=0.1)
    return bar
