"""`python -m multigpu`, and the command `multigpu`."""

import signal
import sys
from typing import Any


def _stop(*_: Any) -> None:
    """As Ctrl-C: what runs is ended in order. Once: a second word would cut that short."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    raise KeyboardInterrupt


def main() -> int:
    """Run one command; returns the exit code. To stop it is no failure from the first second on, when it still imports."""
    try:
        signal.signal(signal.SIGTERM, _stop)
        from multigpu.cli import main as command

        return command()
    except KeyboardInterrupt:
        print("multigpu: stopped; what was measured is kept, and the same command goes on from there", file=sys.stderr)
        return 130


if __name__ == "__main__":
    sys.exit(main())
