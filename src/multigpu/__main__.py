"""`python -m multigpu`, and the command `multigpu`."""

import signal
import sys
from typing import Any


class Stopped(KeyboardInterrupt):
    """Python ends a process by the signal itself where a plain KeyboardInterrupt ever left code
    that was compiled from text.
    """


def _stop(*_: Any) -> None:
    """As Ctrl-C: what runs is ended in order. Once: a second word would cut that short."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    raise Stopped


def main() -> int:
    """Run one command; returns the exit code. To stop it is no failure from the first second on,
    when it still imports.
    """
    try:
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, _stop)
        from multigpu.cli.main import main as command

        return command()
    except BaseException as error:  # pydantic makes another of an interruption
        if (
            not isinstance(error, KeyboardInterrupt)
            and signal.getsignal(signal.SIGTERM) is not signal.SIG_IGN
        ):
            raise
        print(
            "multigpu: stopped; what was measured is kept, and the same command goes on from there",
            file=sys.stderr,
        )
        return 130


if __name__ == "__main__":
    sys.exit(main())
