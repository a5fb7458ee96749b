"""Who follows a sweep."""

from __future__ import annotations

from typing import Protocol

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
