"""Read what the ranks of a hanging job left behind: dumps of PyTorch's flight recorder (one a rank,
the rank last in the file's name), and stacks as `faulthandler` or py-spy write them. Nothing that a
file names is imported or called.
"""

import json
import pickle
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from io import BytesIO
from pathlib import Path
from typing import Any

from multigpu.writing import explaining

MOST_BYTES = 256 * 2**20
LIBRARIES = re.compile(r"site-packages|dist-packages|[/\\]lib[/\\]python3|^<|importlib")
"""Of files that are no part of the user's script."""
WAITING = re.compile(
    r"distributed_c10d\.py|_run_engine_backward|_engine_run_backward|functional_collectives"
    r"|distributed[/\\](?:fsdp|algorithms|pipelining)|_pre_forward|_sync_"
)
"""Of frames in which a rank waits for others."""
EQUAL_SIZES = re.compile(r"^_?(all_?reduce|broadcast|reduce|barrier|all_?gather)(?!.*_v)")


@dataclass(frozen=True)
class Call:
    """A collective, a send or a receive as a rank began it. number: among the calls of its group,
    from 1. place: the line of the user's script; "" where the library began it (backward).
    """

    group: str
    number: int
    name: str
    sizes: Any
    dtypes: Any
    done: bool
    place: str
    p2p: bool = False

    def __str__(self) -> str:
        what = " ".join(
            f"{dtype} {list(size)}"
            for dtype, size in zip(self.dtypes or (), self.sizes or (), strict=False)
        )
        where = self.place or "called by the library, as in backward"
        return f"{self.name}{f' of {what}' if what else ''}, {where}"

    def differs(self, other: "Call") -> bool:
        """Whether two ranks' calls of one number cannot be the same collective."""
        if self.name != other.name:
            return True
        equal = EQUAL_SIZES.match(self.name)
        return bool(equal) and (self.sizes, self.dtypes) != (other.sizes, other.dtypes)


@dataclass(frozen=True)
class Dump:
    """What one file tells of a rank. calls: oldest first; members: ranks by group, where told;
    last: the number of the last call begun, by group. place: where its main thread stands, "" if
    the file holds no stack; waits: whether it waits for other ranks there.
    """

    rank: int
    calls: tuple[Call, ...] = ()
    members: dict[str, tuple[int, ...]] = field(default_factory=dict)
    last: dict[str, int] = field(default_factory=dict)
    place: str = ""
    waits: bool = False


class _Plain(pickle.Unpickler):
    """Unpickle numbers, texts, lists and dicts; refuse all that would import or call."""

    def find_class(self, module: str, name: str) -> Any:
        raise pickle.UnpicklingError(f"it names {module}.{name}, which no dump holds")


def rank_of(path: Path) -> int:
    """Return the last number in a file's name. ValueError: it holds none."""
    found = re.findall(r"\d+", path.name)
    if not found:
        raise ValueError(
            f"{path} does not tell whose it is: end its name in the rank, as nccl_trace_rank_0"
        )
    return int(found[-1])


def read_dump(path: Path) -> Dump:
    """Read what a rank left. ValueError: the file is no dump and holds no stack; one sentence."""
    rank = rank_of(path)
    with explaining(f"{path} cannot be read"):
        if path.stat().st_size > MOST_BYTES:
            raise ValueError(f"{path} is larger than {MOST_BYTES >> 20} MiB: no dump is")
        content = path.read_bytes()
    if not content.startswith((b"\x80", b"{")):
        return _of_stack(path, rank, content.decode(errors="replace"))
    try:
        found = _Plain(BytesIO(content)).load() if content[0] == 0x80 else json.loads(content)
        return _of_recorder(rank, found)
    except Exception as error:  # the bytes are a stranger's: anything may be wrong with them
        said = f"{type(error).__name__}: {error}" if not str(error).isprintable() else str(error)
        raise ValueError(
            f"{path} is no dump of the flight recorder ({said or type(error).__name__}): give what"
            " TORCH_FR_DUMP_TEMP_FILE names, one file a rank"
        ) from None


def _of_recorder(rank: int, found: Any) -> Dump:
    members = {}
    for name, config in found.get("pg_config", {}).items():
        ranks = config.get("ranks") or "[]"
        members[str(name)] = tuple(json.loads(ranks) if isinstance(ranks, str) else ranks)
    calls, last, status = [], dict[str, int](), found.get("pg_status", {})
    for entry in found["entries"]:
        group, p2p = str(entry["process_group"][0]), bool(entry.get("is_p2p"))
        number = int(entry["p2p_seq_id" if p2p else "collective_seq_id"])
        call = Call(
            group,
            number,
            str(entry["profiling_name"]).partition(":")[2] or str(entry["profiling_name"]),
            entry.get("input_sizes"),
            entry.get("input_dtypes"),
            entry.get("state") == "completed" or bool(entry.get("retired")),
            _place((str(f["filename"]), f["line"], f["name"]) for f in entry.get("frames", ())),
            p2p,
        )
        calls.append(call)
        if not p2p:
            last[group] = max(last.get(group, 0), number)
    for name, one in status.items():
        if str(name) in last:
            last[str(name)] = max(last[str(name)], int(one.get("last_enqueued_collective", -1)))
    return Dump(rank, tuple(calls), members, last)


def _place(frames: Iterable[tuple[str, Any, str]]) -> str:
    """Return the innermost line of a stack that is the user's."""
    for file, line, name in frames:
        if not LIBRARIES.search(file):
            return f"{Path(file).name}:{line} in {name}"
    return ""


FRAME = re.compile(
    r'^\s+File "(?P<file>[^"]+)", line (?P<line>\d+) in (?P<name>.+)$'
    r"|^\s+(?P<name_>\S.*) \((?P<file_>[^()]+):(?P<line_>\d+)\)$"
)


def _of_stack(path: Path, rank: int, text: str) -> Dump:
    threads: list[tuple[str, list[tuple[str, str, str]]]] = []
    for line in text.splitlines():
        if re.match(r"\s*(Current )?[Tt]hread ", line):
            threads.append((line, []))
        elif threads and (found := FRAME.match(line)):
            parts = found.groupdict()
            file, number, name = (
                parts[key] or parts[f"{key}_"] for key in ("file", "line", "name")
            )
            threads[-1][1].append((file, number, name))
    threads = [(head, frames) for head, frames in threads if frames]
    if not threads:
        raise ValueError(
            f"{path} is no dump of the flight recorder and holds no stack: give what"
            " faulthandler.dump_traceback or `py-spy dump` wrote"
        )
    main = next((frames for head, frames in threads if "MainThread" in head), threads[-1][1])
    inner = []
    for frame in main:
        if not LIBRARIES.search(frame[0]):
            break
        inner.append(frame)
    waits = any(WAITING.search(f"{file} {name}") for file, _, name in inner)
    return Dump(rank, place=_place(main) or f"{main[0][2]} of a library", waits=waits)
