"""The seconds of a comparison: what fits into them, and when each launch and all of it ends."""

import time

from multigpu.runner.summary import tqdm
from multigpu.user_model.lookout import OutOfTime

LAUNCH_S = 4.0  # that processes take to start, at least
LEAVING_S = 2.0  # kept for ending processes and for writing the page
CUT_S = 1.0  # before the end of a budget, a Run that still goes on is cut off
FIRST_SHARE = 1 / 3  # of what is left of the budget, what a launch may take that others follow
# how long a Run may not get on: at least, at most, of the budget, and in steps
LEAST_PATIENCE_S = {"cpu": 10.0, "cuda": 20.0}
MOST_PATIENCE_S, PATIENCE_SHARE, PATIENCE_STEPS = 60.0, 0.25, 20


class Budget(tqdm):
    """End a launch where the next Run would not fit. ends_s: of all; share_s: of this launch."""

    def __init__(self, total: int, progress: bool) -> None:
        self.ends_s, self.share_s = 0.0, 0.0
        self.took_s, self.label, self.began_s = dict[str, float](), "", 0.0
        self.done, self.opening_s = 0, LAUNCH_S
        super().__init__(total=total, unit="run", disable=not progress, smoothing=0.1)

    @property
    def is_over(self) -> bool:
        """Whether no further launch would come to a Run in time."""
        return time.monotonic() + self.opening_s > self.ends_s

    def begin(self, launches: int) -> None:
        """Begin the first of so many launches, if its first Run would be done in time."""
        self.done, self.label, self.began_s = 0, "", time.monotonic()
        self.share_s = self.began_s + (self.ends_s - self.began_s) * (
            1 if launches == 1 else FIRST_SHARE
        )
        if self.is_over:
            raise OutOfTime

    def set_description(self, desc: str | None = None, refresh: bool | None = True) -> None:
        self.label = desc or ""
        if self.done:
            self.began_s = time.monotonic()
            expected_s = self.took_s.get(self.label, min(self.took_s.values(), default=0.0))
            if self.began_s + expected_s > (self.share_s if self.done > 1 else self.ends_s):
                raise OutOfTime
        super().set_description(desc, refresh)

    def update(self, n: float | None = 1) -> bool | None:
        took_s = time.monotonic() - self.began_s
        if self.label and self.done:
            self.took_s[self.label] = took_s
        elif self.label:
            self.opening_s = max(self.opening_s, took_s)
        self.done += bool(self.label)
        return super().update(n)


def patience_for(device_type: str, budget_s: float, step_s: float) -> float:
    """How long a Run may not get on before it hangs. step_s: of a step on all devices, as far as
    that is known; many of them, since what is merely slow is not left.
    """
    least_s = LEAST_PATIENCE_S[device_type]
    return max(least_s, min(PATIENCE_SHARE * budget_s, MOST_PATIENCE_S), PATIENCE_STEPS * step_s)
