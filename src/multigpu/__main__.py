"""`python -m multigpu`, and the command `multigpu`."""

import os
import signal
import sys
from importlib.metadata import entry_points
from typing import Any

READ_BY_OTHERS = {"PYDANTIC_DISABLE_PLUGINS": "__all__", "TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}
"""Keeps libraries from reading the entry points of packages that are not theirs."""


class Stopped(KeyboardInterrupt):
    """Python ends a process by the signal itself where a plain KeyboardInterrupt ever left code
    that was compiled from text.
    """


def _stop(*_: Any) -> None:
    """As Ctrl-C: what runs is ended in order. Once: a second word would cut that short."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    raise Stopped


def _entry_points_are_whole() -> bool:
    """Whether every package's entry points can be read; where not, standard error says of which
    they cannot, and libraries that need not read them are told to leave them alone.
    """
    try:
        return entry_points(group="multigpu.commands") is not None
    except Exception:
        os.environ.update(READ_BY_OTHERS)
        from multigpu.plugins import one_by_one

        print(f"multigpu: {'; '.join(one_by_one()[1])}", file=sys.stderr)
        return False


def main() -> int:
    """Run one command; returns the exit code. To stop it is no failure from the first second on,
    when it still imports.
    """
    whole = True
    try:
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, _stop)
        whole = _entry_points_are_whole()
        from multigpu.cli.main import main as command

        return command()
    except BaseException as error:  # pydantic makes another of an interruption
        if (
            not isinstance(error, KeyboardInterrupt)
            and signal.getsignal(signal.SIGTERM) is not signal.SIG_IGN
        ):
            if whole or not isinstance(error, Exception):
                raise
            print("multigpu: a library that reads them has stopped this command", file=sys.stderr)
            return 2
        print(
            "multigpu: stopped; what was measured is kept, and the same command goes on from there",
            file=sys.stderr,
        )
        return 130


if __name__ == "__main__":
    sys.exit(main())
