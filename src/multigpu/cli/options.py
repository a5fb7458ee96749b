"""Give parsers what stands in tables: `commands.csv` names the commands, `options.csv` what each
takes, a row an option. A cell that is empty in the row of an option that several commands have is
that of the row of `usual`; a name in braces is filled in.
"""

import argparse
from pathlib import Path
from typing import Any

from multigpu.cli.command import count, name, seconds, size_gib
from multigpu.records.base import STATUSES
from multigpu.runner.hosts.launching import PORT
from multigpu.spec.tables import table

FOLDER = Path(__file__).parent
SEVERAL = "several hosts"
"""Options by which a command says that it is one of several, one a host: what `company` reads."""

KINDS: dict[str, dict[str, Any]] = {
    "flag": {"action": "store_true"},
    "list": {"action": "append", "default": []},
    "name": {"type": name},
    "count": {"type": count()},
    "int": {"type": int},
    "seconds": {"type": seconds},
    "size_gib": {"type": size_gib},
    "path": {"type": Path},
}
"""How the words of an option are read, by its column `kind`; any other is text."""


def add_options(
    parser: argparse._ActionsContainer, command: str, folder: Path = FOLDER, **words: str
) -> None:
    """Give a parser the options of a command in a folder's table. words: of names in braces."""
    words |= {"statuses": " ".join(STATUSES), "port": str(PORT)}
    usual = {
        row["option"]: row for row in table(FOLDER / "options.csv") if row["command"] == "usual"
    }
    for row in table(folder / "options.csv"):
        if row["command"] != command:
            continue
        if row["option"] == SEVERAL:
            add_options(parser.add_argument_group(SEVERAL, row["help"]), SEVERAL)
        else:
            parser.add_argument(
                row["option"], **_argument(row, usual.get(row["option"], {}), words)
            )


def _argument(row: dict[str, str], usual: dict[str, str], words: dict[str, str]) -> dict[str, Any]:
    """What argparse takes for an option."""
    cells = {name: (row[name] or usual.get(name, "")).format(**words) for name in row}
    found: dict[str, Any] = {
        name: cells[name] for name in ("nargs", "metavar", "default", "help") if cells[name]
    }
    if usual and row["default"]:
        found["help"] += f" (default: {row['default']})"
    if cells["default"] == "required":
        del found["default"]
        found["required"] = True
    if cells["choices"]:
        found["choices"] = tuple(cells["choices"].split())
    return KINDS.get(cells["kind"], {}) | found
