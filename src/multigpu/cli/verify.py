"""The command `verify`, which imports no more than it needs to be quick."""

import argparse
from pathlib import Path

from multigpu import paths
from multigpu.analysis.verify import EXCEPTIONS, altered_files, lines, verify
from multigpu.records.packing import stores_of


def verify_command(arguments: argparse.Namespace) -> int:
    """Whether Records can be believed: every file that is none, and what each Record says against
    itself and others.
    """
    named = arguments.folder or arguments.records
    root = Path(named) if named else paths.DATA
    if not root.is_dir():
        raise ValueError(f"{root} is no folder: name one that holds Records")
    stores = stores_of(root if named else None)
    folders = [(store, place) for store in stores for place in store.places()]
    kinds = {(store.root / place).resolve(): store.kind_in(place) for store, place in folders}
    report = verify(root.resolve(), EXCEPTIONS, kinds)
    unreadable = [said for store in stores for said in store.unreadable(report.suspects)]
    unreadable += altered_files(root)
    print("".join(f"{fault}\n" for fault in unreadable), end="")
    print("\n".join(lines(report)), flush=True)
    return 1 if unreadable or report.faults else 0
