"""Show in a notebook how far its Runs are."""

import threading
import time

from IPython.core.getipython import get_ipython
from IPython.display import DisplayHandle, display

from multigpu.runner.watching import Watched
from multigpu.spec.parameters import ParameterError
from multigpu.spec.run import Run


class Progress:
    """A line a Run, which says how far it is, as a bar for `measure`: in a notebook, where its text
    is replaced as it goes on.
    """

    def __init__(self, run: Run, total: int, watched: Watched) -> None:
        self.run, self.total, self.open, self.watched = run, total, False, watched
        self.lines: list[str] = []
        self.began: tuple[str, float] = ("", 0.0)
        self.handle: DisplayHandle | None = display({"text/plain": ""}, raw=True, display_id=True)
        self.lock = threading.Lock()

    def set_description(self, desc: str | None = None) -> None:
        with self.lock:
            self.watched.reset()
            if self.open:  # its workers died, and it is started once more
                self.lines[-1] = "starts again"
            else:
                self.lines.append("starts")
            self.open = True

    def update(self, n: float = 1) -> bool | None:
        with self.lock:
            if self.open:
                self.lines[-1] = "ended"
            else:
                self.lines += ["measured before"] * int(n)
            self.open = False
            self._show()
        return True

    def set_postfix_str(self, s: str = "") -> None:
        with self.lock:
            if self.lines:
                self.lines[-1] = s
            self._show()

    def close(self) -> None:
        """Its lines stay."""

    def steps(self, stage: str, steps: int) -> None:
        """Show the stage of the Run that is open, and the steps of it and their rate."""
        with self.lock:
            if not self.open:
                return
            if stage != self.began[0]:
                self.began = (stage, time.monotonic())
            took = time.monotonic() - self.began[1]
            count = {"warm-up": self.run.warmup_steps, "timed": self.run.timed_steps}.get(stage, 0)
            rate = f", {steps / took:,.1f} steps/s" if took > 1 and steps else ""
            told = {"": "starts", "build": "builds the model"}
            self.lines[-1] = told.get(stage, f"{stage}: step {min(steps, count)} of {count}{rate}")
            self._show()

    def _show(self) -> None:
        total = max(self.total, len(self.lines))  # what was disturbed is measured again
        lines = [f"run {number} of {total}  {line}" for number, line in enumerate(self.lines, 1)]
        if self.handle is not None:
            self.handle.update({"text/plain": "\n".join(lines)}, raw=True)


class ExperimentError(ParameterError):
    """Nothing could be measured; its message is the reason of the first Run that failed."""


def by_hand() -> bool:
    """Whether a person sits before this kernel: papermill's cannot ask for input."""
    return bool(getattr(getattr(get_ipython(), "kernel", None), "_allow_stdin", False))
