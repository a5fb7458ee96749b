"""Python reads this file at every start where its folder stands in PYTHONPATH: it writes which
functions of the package a process calls.

A line each time that a function is first called in a process: its file, its name, and whether a
module was being imported by then.
"""

import os
import sys
import threading
import traceback
from types import CodeType, FrameType
from typing import Any

SOURCE = os.environ["TRACED_SOURCE"]
WRITTEN = os.open(os.environ["TRACED_TO"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
seen: set[tuple[CodeType, bool]] = set()


def importing(frame: FrameType) -> bool:
    """Whether this call serves an import."""
    above = (frame for frame, _ in traceback.walk_stack(frame))
    return any(
        frame.f_code.co_name == "<module>" and frame.f_globals.get("__name__") != "__main__"
        for frame in above
    )


def note(frame: FrameType, event: str, _: Any) -> None:
    code = frame.f_code
    if event != "call" or (code, False) in seen:
        return
    own = code.co_filename.startswith(SOURCE)
    during = own and importing(frame)
    if (code, during) not in seen:
        seen.add((code, during))
        if own:
            word = "import" if during else "call"
            os.write(
                WRITTEN,
                f"{code.co_filename.removeprefix(SOURCE)} {word} {code.co_qualname}\n".encode(),
            )


sys.setprofile(note)
threading.setprofile(note)
