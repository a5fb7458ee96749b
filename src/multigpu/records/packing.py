"""Many Records into archives: `records --pack` of the loose ones of a place, `records --share` of
copies that tell of no person or host.
"""

import getpass
import os
import re
import socket
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from multigpu import paths, placements, workloads
from multigpu.machine.machine import PATH
from multigpu.records.archive import Name, write_archives
from multigpu.records.collective import CollectiveStore
from multigpu.records.record import Record, RecordStore
from multigpu.records.store import RECORD_KINDS, Held, Store, check_same, loose_in, packed_in
from multigpu.writing import naming

# loose Records that are worth an archive: fewer save little, and every archive is kept for good
FEWEST = 20


@dataclass(frozen=True)
class Packed:
    """Counts of what was packed in one place: so many Records, of `before` bytes loose; `after`:
    bytes of the archives that hold them.
    """

    folder: Path
    records: int
    before: int
    after: int

    def __str__(self) -> str:
        return (
            f"{self.folder}: {self.records:,} Records packed, {self.before:,} bytes before,"
            f" {self.after:,} after"
        )


def stores_of(folder: Path | None = None) -> list[Store]:
    """The stores of one folder: one of the study's holds its own kinds, any other one Records of
    Runs; None: all of the study's.
    """
    every: list[Store] = [
        RecordStore(paths.RUNS),
        CollectiveStore(paths.COLLECTIVES),
        CollectiveStore(paths.HOSTS),
        RecordStore(paths.HOSTS_RUNS),
        RecordStore(paths.INTERFERENCE),
        *(store for kind in RECORD_KINDS.values() for store in kind.stores()),
    ]
    if folder is None or folder.resolve() == paths.DATA:
        return every
    return [store for store in every if store.root.resolve() == folder.resolve()] or [
        RecordStore(paths.kind_in(folder))
    ]


def pack(store: Store) -> Iterator[Packed]:
    """Pack the loose Records of every place that has `FEWEST` or more, and remove those that an
    interrupted packing left beside an archive. A ValueError names a file that is no Record of the
    store's kind, or differs from what an archive holds under its name, or a folder that cannot be
    written. This place is as it was, but for an archive of the same Records; those yielded are
    done.
    """
    for place in store.places():
        folder = store.root / place
        try:
            if found := _pack_place(store, folder):
                yield found
        except OSError as error:
            raise ValueError(
                f"{folder} cannot be packed: {error}; no Record is lost, and the same command goes"
                " on from there"
            ) from None


def _pack_place(store: Store, folder: Path) -> Packed | None:
    every, misnamed = loose_in(folder)
    if misnamed:
        raise ValueError(misnamed[0])
    loose, packed = _by_name(every), _by_name(packed_in(folder))
    fresh = loose.keys() - packed.keys()
    if len(fresh) < FEWEST:
        loose, fresh = {name: held for name, held in loose.items() if name in packed}, set()
    if not loose:
        return None
    for name, held in loose.items():
        store.read(held)
        if name in packed:
            check_same(packed[name], held)
    before = sum(held.path.stat().st_size for held in loose.values())
    if fresh:
        write_archives(folder, {name: loose[name].text() for name in fresh})
        handle = os.open(folder, os.O_RDONLY)
        try:
            # the names of its files outlast a power cut, before others are taken out of it
            os.fsync(handle)
        finally:
            os.close(handle)
        packed = _by_name(packed_in(folder))
    for name, held in loose.items():  # every one before any goes
        check_same(packed[name], held)
    for held in loose.values():
        held.path.unlink(missing_ok=True)
    archives = {packed[name].path for name in loose}
    return Packed(folder, len(loose), before, sum(path.stat().st_size for path in archives))


def _by_name(every: Iterable[Held]) -> dict[Name, Held]:
    return {(held.key, held.attempt): held for held in every}


# a setting that says of speed what it says: a number, a word, a list of them
PLAIN = re.compile(r"[\w.,:+-]{0,16}")
ADDRESS = re.compile(
    r"\b\d{1,3}(?:\.\d{1,3}){3}\b|\b(?:[0-9a-f]{2}:){5}[0-9a-f]{2}\b"
    r"|GPU-[0-9a-f]{8}|[\w.]+@[\w-]+\.\w+",
    re.IGNORECASE,
)


def without_host(record: Record) -> Record:
    """The Record without what only its host has: settings that are no plain words, the build of its
    kernel, its start, paths in reasons.
    """
    machine = record.machine
    plain = {
        name: value
        for name, value in machine.environment.items()
        if PLAIN.fullmatch(value) and not ADDRESS.search(value)
    }
    settings = dict.fromkeys(machine.environment, "<left out>") | plain
    kernel, network = re.sub(r"(?s)[^\d.].*", "", machine.kernel), ADDRESS.sub("", machine.network)
    own = machine.model_copy(update={"environment": settings, "kernel": kernel, "network": network})
    return record.model_copy(
        update={"machine": own, "boot": "", "reason": PATH.sub("<path>", record.reason)}
    )


def share(records: Iterable[Record], folder: Path) -> tuple[list[Path], Counter[str]]:
    """Write copies of these Records into a folder, an archive a machine; where, and how many were
    left out for which reason.
    """
    texts, left = defaultdict[str, dict[Name, bytes]](dict), Counter[str]()
    try:
        user = getpass.getuser()
    except OSError:  # a user without a name
        user = ""
    words = [word for word in (socket.gethostname(), user, str(Path.home())) if len(word) > 4]
    for record in records:
        copy = without_host(record)
        text = copy.model_dump_json(exclude={"versions"})  # which may look like addresses
        if record.run.workload == "own":
            left["of a model of your own, which others do not have"] += 1
        elif record.run.placement in placements.FOREIGN or record.run.workload in workloads.FOREIGN:
            left["of a placement or a workload of another package, which others may not have"] += 1
        elif record.run.data is not None:
            left["read a file of yours, whose path is part of their key"] += 1
        elif ADDRESS.search(text) or any(word in text for word in words):
            left["hold an address, or a name of this host or user"] += 1
        else:
            texts[record.place][record.key, record.attempt] = copy.model_dump_json().encode()
    written = []
    for place, own in sorted(texts.items()):
        with naming(folder / place):
            (folder / place).mkdir(parents=True, exist_ok=True)
            written += write_archives(folder / place, own)
    return written, left
