"""Share options and parsers among all commands: options of several, how words are read, and one
sentence and an exit code for what goes wrong.
"""

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import Any, NoReturn, ParamSpec

from multigpu.grids import devices_here
from multigpu.paths import kind_in
from multigpu.plugins import PluginRegistry

Words = ParamSpec("Words")
MOST_S = 7 * 86400.0  # a week: no command and no Run may ask for more
MOST = 10_000  # of what is counted on a command line


@dataclass(frozen=True)
class Command:
    """A command that another package adds.
    does: its line of help. run: "module:function" that does it and gives the exit code, imported
        when the command is called. arguments: gives its parser what it takes; `run` gets what was
        parsed. None: `run` parses the rest of the line itself.
    """

    name: str
    does: str
    run: str
    arguments: Callable[[argparse.ArgumentParser], None] | None = None


COMMANDS: PluginRegistry[Command] = PluginRegistry("commands", Command)
"""What other packages add."""


class Parser(argparse.ArgumentParser):
    """Bad input ends with one sentence, as everywhere, and not with the usage above it: `--help`
    prints that.
    """

    def parse_known_args(  # type: ignore[override] # its two ways to be called are one
        self, args: Sequence[str] | None = None, namespace: Any = None
    ) -> tuple[Any, list[str]]:
        for word in sys.argv[1:] if args is None else args:
            # which argparse takes for an empty list
            if word.startswith("--") and word.endswith("=--"):
                self.error(f"{word!r} gives {word[:-3]} no value")
        found, left = super().parse_known_args(args, namespace)
        every = next((one for one in self._get_positional_actions() if one.nargs == "*"), None)
        if every and not any(word.startswith("-") for word in left):
            # which stand behind an option, where argparse expects no more of them
            setattr(found, every.dest, [*getattr(found, every.dest), *left])
            left = []
        return found, left

    def error(self, message: str) -> NoReturn:
        self.exit(
            2,
            f"multigpu: {' '.join(message.split())} (`{self.prog} --help` lists what can be"
            " said)\n",
        )


def seconds(text: str) -> float:
    """A span of time on a command line; of any other text argparse's error, which argparse turns
    into a sentence and exit code 2.
    """
    with suppress(ValueError):
        if 0 < (found := float(text)) <= MOST_S:
            return found
    raise argparse.ArgumentTypeError(
        f"{text!r} is no span of time: give seconds, above 0 and at most {MOST_S:.0f} (a week)"
    )


def size_gib(text: str) -> float:
    """A size of memory on a command line, GiB; of any other text argparse's error."""
    with suppress(ValueError):
        if 0 < (found := float(text)) <= MOST:
            return found
    raise argparse.ArgumentTypeError(f"{text!r} is no size: give GiB, above 0 and at most {MOST}")


def count(least: int = 1) -> Callable[[str], int]:
    """Return a parser of whole numbers from this one to `MOST`."""

    def read(text: str) -> int:
        with suppress(ValueError):
            if least <= (found := int(text)) <= MOST:
                return found
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from {least} to {MOST}")

    return read


def name(text: str) -> str:
    """A name on a command line, which may not be empty: that would be taken for none given."""
    if not text.strip():
        raise argparse.ArgumentTypeError(
            "an empty name was given: leave the option out for the default"
        )
    return text


def add_records(parser: argparse.ArgumentParser, default: Path, *older: str) -> None:
    """Give a command its option for the folder of its own kind of Records, which bears the name of
    the default one. older: a name that the option had before, under which its value is parsed.
    """
    parser.add_argument(
        "--records",
        *older,
        dest=older[0].strip("-") if older else "records",
        type=lambda text: kind_in(Path(text), default.name),
        default=default,
        help=f"folder of the Records (default: data/{default.name})",
    )


OWN_RECORDS = {
    "batch": "its Records are in the folder that --out names",
    "compare": "its Records are in the folder that --out names",
    "fits": "it reads none",
    "page": "give the notebook's parameter, records=FOLDER",
}
"""Commands that no folder of Records can be named to, and why."""


def add_everywhere(parser: argparse.ArgumentParser, default: Any) -> None:
    """Give a parser the options that may stand before a command as well as behind it.
    default: of what is not said, `argparse.SUPPRESS` behind the command.
    """
    parser.add_argument(
        "--records",
        metavar="FOLDER",
        default=default,
        help="of the Records: one that holds runs/, such as data (default), or of Runs alone",
    )
    parser.add_argument(
        "--end-with-parent",
        action="store_true",
        default=False if default is None else default,
        help="end when the process that started this ends, however it does",
    )


def answered(run: Callable[Words, int]) -> Callable[Words, int]:
    """The command, whose failures are a sentence and an exit code: 2 for bad input, 1 for a
    launcher that died.
    """

    @wraps(run)
    def answer(*words: Words.args, **more: Words.kwargs) -> int:
        try:
            return run(*words, **more)
        except (ValueError, RuntimeError) as error:
            print(f"multigpu: {error}", file=sys.stderr)
            return 2 if isinstance(error, ValueError) else 1
        except ModuleNotFoundError as error:
            if (error.name or "multigpu").startswith("multigpu"):
                raise
            brings = 'pip install "multigpu[study]" brings it'
            print(f"multigpu: {error.name} is not installed: {brings}", file=sys.stderr)
            return 2
        except BrokenPipeError:  # `records | head`
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return 0
        except OSError as error:
            print(
                f"multigpu: {error.filename or 'a file'}: {error.strerror or error}",
                file=sys.stderr,
            )
            return 2

    return answer


def parse_counts(text: str | None) -> list[int]:
    """Device counts from "1,2,4", or a ValueError; without a text, those that this machine can
    measure (`devices_here`).
    """
    if text is None:
        return devices_here()
    for part in text.split(","):
        if not part.strip().isdecimal() or int(part) < 1:
            raise ValueError(
                f"devices {part!r} is not a positive integer: give counts such as 1,2,4"
            )
    return [int(part) for part in text.split(",")]
