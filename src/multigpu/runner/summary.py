"""Who follows a sweep, and what became of it, for its exit code and in words."""

import contextlib
import errno
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Protocol, Self

# tqdm says where ipywidgets is not installed; its plain bar does
with warnings.catch_warnings(action="ignore"):
    from tqdm.auto import tqdm


class Bar(Protocol):
    """Displays the progress of a sweep: a progress bar of tqdm, or one who passes it on."""

    def update(self, n: float = 1) -> bool | None: ...

    def set_description(self, desc: str | None = None) -> None: ...

    def set_postfix_str(self, s: str = "") -> None: ...

    def close(self) -> None: ...


# statuses of Runs that may end otherwise when they are measured again
AGAIN = ("failed", "timeout")
# counted like a status: points that were not reached, where the same command goes on
LEFT = "left for a longer budget"


@dataclass
class Summary:
    """Counts of what a sweep did: statuses counted, those that are not ok with their reasons, what
    was measured again and why, and its cost.
    """

    statuses: Counter[str] = field(default_factory=Counter)
    troubles: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    reused: int = 0
    wall_s: float = 0.0

    def add(self, other: Self) -> None:
        """Take in what a part of this sweep did; its seconds are among this one's."""
        self.statuses.update(other.statuses)
        self.troubles += other.troubles
        self.notes += other.notes
        self.reused += other.reused

    @property
    def exit_code(self) -> int:
        """1 where a Run did not end as it might have: one that does not fit, or that does not
        exist, is a finding.
        """
        return int(any(self.statuses[status] for status in AGAIN))

    def __str__(self) -> str:
        counts = (
            ", ".join(f"{n} {status}" for status, n in sorted(self.statuses.items()))
            or "nothing to measure"
        )
        again = " ".join(f"--retry {status}" for status in AGAIN if self.statuses[status])
        if again:
            hint = [f"what did not end well is measured again by the same command with {again}"]
        else:
            hint = []
        return "\n".join(
            [
                f"{counts}; {self.reused} measured before; {self.wall_s:.0f} s",
                *self.troubles,
                *self.notes,
                *hint,
            ]
        )


@contextlib.contextmanager
def followed(total: int, progress: bool, bar: Bar | None = None) -> Iterator[tuple[Summary, Bar]]:
    """A sweep's summary, which has its seconds in the end, and its bar over so many measurements,
    unless another is told. A RuntimeError: the disk takes no note of how far a launch is.
    """
    summary, began = Summary(), time.monotonic()
    shown: Bar = (
        tqdm(total=total, unit="run", disable=not progress, smoothing=0.1) if bar is None else bar
    )
    try:
        yield summary, shown
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EROFS):
            raise
        raise RuntimeError(
            f"how far a launch is cannot be noted in {tempfile.gettempdir()}: {error.strerror};"
            f" {sum(summary.statuses.values())} Runs were measured and are kept, and the same"
            " command goes on from there once there is room, or TMPDIR names another folder"
        ) from None
    finally:
        if bar is None:
            shown.close()
        summary.wall_s = time.monotonic() - began
