"""Errors that become a Record's status instead of the end of a sweep, and which line of the user's
own code an error comes from.
"""

import dis
import traceback
from pathlib import Path

from multigpu.paths import is_own, quoted

RAISE = dis.opmap["RAISE_VARARGS"]


class Unsupported(Exception):
    """This Run cannot exist here; the message says why. Its Record's status is `unsupported`."""


class Refused(ValueError):
    """A rule refuses a Run; the sentence names the value, the reason and what may be chosen."""


class DidNotTrain(Exception):
    """The steps ran but the model did not learn from them: a figure that must not be published."""


class JobError(ValueError):
    """A user's job cannot be trained; the sentence names what failed and the user's own line."""

    def _render_traceback_(self) -> list[str]:
        """Render for a notebook in place of a traceback (IPython asks for it)."""
        return [str(self)]


def own_line(error: BaseException) -> str:
    """The innermost line of the user's own files on the way to the error, with its text; "" where
    there is none.
    """
    if isinstance(error, SyntaxError) and error.filename:
        return f"{Path(error.filename).name}, line {error.lineno}: {(error.text or '').strip()}"
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        if is_own(frame.filename):
            return quoted(frame.filename, frame.lineno or 0)
    return ""


class EndsProcess(SystemExit):
    """Raised by this package to end its own process, for its launcher to start it again: no fault
    of the Run that goes on.
    """


def of_a_signal(error: BaseException) -> bool:
    """Whether somebody pressed Ctrl-C: a KeyboardInterrupt that no `raise` of any code has made."""
    if not isinstance(error, KeyboardInterrupt):
        return False
    step = error.__traceback__
    while step is not None and step.tb_next is not None:
        step = step.tb_next
    return step is None or step.tb_frame.f_code.co_code[step.tb_lasti] != RAISE
