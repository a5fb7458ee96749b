"""`records --share`: copies of Records with nothing in them that tells who measured, or on which host, for others to read."""

import getpass
import re
import socket
from collections import Counter, defaultdict
from collections.abc import Iterable
from pathlib import Path

from multigpu import placements, workloads
from multigpu.archive import Name, write_archive
from multigpu.measure.machine import PATH
from multigpu.record import Record

PLAIN = re.compile(r"[\w.,:+-]{0,16}")
"""A setting that says of speed what it says: a number, a word, a list of them."""

ADDRESS = re.compile(r"\b\d{1,3}(?:\.\d{1,3}){3}\b|\b(?:[0-9a-f]{2}:){5}[0-9a-f]{2}\b|GPU-[0-9a-f]{8}|[\w.]+@[\w-]+\.\w+", re.IGNORECASE)


def telling() -> list[str]:
    """Words that stand for this host and this user."""
    try:
        user = getpass.getuser()
    except OSError:  # a user without a name
        user = ""
    return [word for word in (socket.gethostname(), user, str(Path.home())) if len(word) > 4]


def without_host(record: Record) -> Record:
    """The Record without what only its host has: settings that are no plain words, the build of its kernel, its start, paths in reasons."""
    machine = record.machine
    settings = {
        name: value if PLAIN.fullmatch(value) and not ADDRESS.search(value) else "<left out>" for name, value in machine.environment.items()
    }
    kernel = re.match(r"[\d.]*", machine.kernel)
    own = machine.model_copy(
        update={"environment": settings, "kernel": kernel[0] if kernel else "", "network": ADDRESS.sub("", machine.network)}
    )
    return record.model_copy(update={"machine": own, "boot": "", "reason": PATH.sub("<path>", record.reason)})


def share(records: Iterable[Record], folder: Path) -> tuple[list[Path], Counter[str]]:
    """Write copies of these Records into a folder, an archive a machine; where, and how many were left out for which reason."""
    texts: dict[str, dict[Name, bytes]] = defaultdict(dict)
    left, words = Counter[str](), telling()
    for record in records:
        copy = without_host(record)
        text = copy.model_dump_json(exclude={"versions"})  # which may look like addresses
        if record.run.workload == "own":
            left["of a model of your own, which others do not have"] += 1
        elif record.run.placement in placements.ADDED or record.run.workload in workloads.ADDED:
            left["of a placement or a workload of another package, which others may not have"] += 1
        elif record.run.data is not None:
            left["read a file of yours, whose path is part of their key"] += 1
        elif ADDRESS.search(text) or any(word in text for word in words):
            left["hold an address, or a name of this host or user"] += 1
        else:
            texts[record.place][record.key, record.attempt] = copy.model_dump_json().encode()
    written = []
    for place, own in sorted(texts.items()):
        (folder / place).mkdir(parents=True, exist_ok=True)
        written.append(write_archive(folder / place, own))
    return written, left
