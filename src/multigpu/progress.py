"""How far an experiment is: who follows its sweep (`measure.summary.Bar`) in a notebook and shows its steps as they come."""

import contextlib
import threading
import time
from collections.abc import Callable, Iterator

from IPython.display import DisplayHandle, display

from multigpu.measure.watching import Watched
from multigpu.run import Run


@contextlib.contextmanager
def following(watched: Watched, show: Callable[[str, int], None]) -> Iterator[None]:
    """Meanwhile a thread has the stage and its steps shown, three times a second."""
    ended = threading.Event()

    def follow() -> None:
        while not ended.wait(0.3):
            show(*watched.state())

    thread = threading.Thread(target=follow, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


class Progress:
    """A line a Run, which says how far it is while it trains: in a notebook, where its text is replaced as it goes on."""

    def __init__(self, run: Run, total: int, watched: Watched) -> None:
        self.run, self.total, self.open, self.watched = run, total, False, watched
        self.lines: list[str] = []
        self.began: tuple[str, float] = ("", 0.0)
        self.handle: DisplayHandle | None = display({"text/plain": ""}, raw=True, display_id=True)
        self.lock = threading.Lock()

    def set_description(self, desc: str | None = None) -> None:
        with self.lock:
            self.watched.reset()
            self.open = True
            self.lines.append("starts")

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
        lines = [f"run {number} of {self.total}  {line}" for number, line in enumerate(self.lines, 1)]
        if self.handle is not None:
            self.handle.update({"text/plain": "\n".join(lines)}, raw=True)
