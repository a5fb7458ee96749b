"""Read a trace that PyTorch's profiler exported, piece by piece: what its device did, the steps,
and when the host was in a DataLoader. Files are a stranger's: what cannot be is a sentence.
"""

import codecs
import gzip
import json
import math
import re
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from multigpu.records.intervals import Span
from multigpu.records.trace import DEVICE_EVENTS, Kind, device_kind, device_of

PIECE = 4 * 2**20
LEAST_TEXT, MOST_TEXT, MOST_PACKING = 64 * 2**20, 2**30, 60
"""Bytes of text that any file may hold, and that none may; and how far one may be packed: of
profiles gzip leaves a tenth to a thirtieth.
"""
MOST_EVENTS = 2_000_000
SPACE = re.compile(r"[ \t\r\n]*")


class Event(NamedTuple):
    """What a device did: when, in ns, of which kind, the kernel's name."""

    start: float
    end: float
    kind: Kind
    name: str
    is_kernel: bool


@dataclass
class TraceFile:
    """One rank's trace. by_device: events in order. replayed: events that CUDA graphs launched."""

    path: Path
    rank: int | None = None
    by_device: dict[int, list[Event]] = field(default_factory=dict)
    steps: list[Span] = field(default_factory=list)
    feeding: list[Span] = field(default_factory=list)
    replayed: int = 0


def _no_constant(word: str) -> float:
    raise ValueError(f"{word} is no number")


class _Text:
    """A JSON text of which a piece is held at a time."""

    def __init__(self, path: Path) -> None:
        self.pieces = _pieces(path)
        self.text, self.at, self.ended = "", 0, False
        self.decode = json.JSONDecoder(parse_constant=_no_constant).raw_decode

    def more(self) -> None:
        piece = next(self.pieces, None)
        self.ended = piece is None
        self.text, self.at = self.text[self.at :] + (piece or ""), 0

    def next(self) -> str:
        """Return the next character that is no space; "" at the end."""
        while True:
            found = SPACE.match(self.text, self.at)
            self.at = found.end() if found else self.at
            if self.at < len(self.text) or self.ended:
                return self.text[self.at : self.at + 1]
            self.more()

    def take(self, *allowed: str) -> str:
        """Pass over the next character. ValueError: it is none of these."""
        letter = self.next()
        if letter not in allowed or not letter:
            raise ValueError(
                f"{letter!r} where {' or '.join(allowed)} belongs" if letter else "it ends too soon"
            )
        self.at += 1
        return letter

    def value(self) -> Any:
        """Return the next value, whole."""
        self.next()
        while True:
            try:
                found, end = self.decode(self.text, self.at)
                if end < len(self.text) or self.ended:  # else a number may go on
                    self.at = end
                    return found
            except json.JSONDecodeError as error:
                if self.ended:
                    raise ValueError("it ends too soon") from None
                if len(self.text) - self.at > LEAST_TEXT or error.pos < len(self.text) - PIECE:
                    raise
            self.more()


def _pieces(path: Path) -> Iterator[str]:
    size, text = path.stat().st_size, codecs.getincrementaldecoder("utf-8")("replace")
    with open(path, "rb") as raw:
        packed = raw.read(2) == b"\x1f\x8b"
        raw.seek(0)
        most = max(LEAST_TEXT, min(MOST_TEXT, MOST_PACKING * size)) if packed else MOST_TEXT
        source = gzip.GzipFile(fileobj=raw) if packed else raw
        read = 0
        while piece := source.read(PIECE):
            read += len(piece)
            if read > most:
                raise ValueError(
                    f"it holds more than {most >> 20} MiB of text: profile fewer steps"
                )
            yield text.decode(piece)


def _members(text: _Text) -> Iterator[str]:
    """Yield the keys of the object that comes next, its values being left to who reads them."""
    text.take("{")
    if text.next() == "}":
        return
    while True:
        key = text.value()
        text.take(":")
        yield str(key)
        if text.take(",", "}") == "}":
            return


def _items(text: _Text) -> Iterator[Any]:
    """Yield the values of the list that comes next."""
    text.take("[")
    if text.next() == "]":
        text.at += 1
        return
    while True:
        yield text.value()
        if text.take(",", "]") == "]":
            return


def read_trace(path: Path) -> TraceFile:
    """Read the trace of one rank, packed by gzip or not. ValueError: it cannot be read, is no
    trace, or holds what no trace can; one sentence.
    """
    found, base, listed = TraceFile(path), 0, False
    try:
        text = _Text(path)
        for key in _members(text):
            if key == "traceEvents" and text.next() == "[":
                listed = True
                for event in _items(text):
                    _add(found, event)
            elif key == "baseTimeNanoseconds":
                base = int(_number(text.value(), key))
            elif key == "distributedInfo":
                about = text.value()
                rank = about.get("rank") if isinstance(about, dict) else None
                found.rank = None if rank is None else int(_number(rank, "rank"))
            else:
                text.value()
    except OSError as error:
        if not isinstance(error, gzip.BadGzipFile):
            raise ValueError(f"{path} cannot be read: {error.strerror or error}") from None
        raise ValueError(_no_trace(path, error)) from None
    except (ValueError, EOFError, zlib.error, RecursionError) as error:
        raise ValueError(_no_trace(path, error)) from None
    if not listed:
        raise ValueError(
            f"{path} holds no traceEvents: give what profiler.export_chrome_trace wrote"
        )
    for own in found.by_device.values():
        own.sort()
    if base:  # ranks on one clock
        found.by_device = {
            device: [
                event._replace(start=event.start + base, end=event.end + base) for event in own
            ]
            for device, own in found.by_device.items()
        }
        found.steps = [(start + base, end + base) for start, end in found.steps]
        found.feeding = [(start + base, end + base) for start, end in found.feeding]
    return found


def _no_trace(path: Path, error: Exception) -> str:
    return (
        f"{path} is no trace in Chrome's format ({error}): give what"
        " profiler.export_chrome_trace wrote"
    )


def _number(value: Any, name: str) -> float:
    """Return a finite number. ValueError: it is none."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise ValueError(f"{name} is {type(value).__name__}, no number")
    try:
        number = float(value)
    except (ValueError, OverflowError):
        number = math.nan
    if not math.isfinite(number):
        raise ValueError(f"{name} is {str(value)[:40]!r}, no number")
    return number


def _add(found: TraceFile, event: Any) -> None:
    """Keep an event if it is one that explains a step."""
    if not isinstance(event, dict):
        raise ValueError(f"an event is {type(event).__name__}, no object")
    if event.get("ph") != "X":
        return
    category, name = event.get("cat"), event.get("name", "")
    on_device = category in DEVICE_EVENTS
    if not isinstance(name, str):
        raise ValueError(f"an event's name is {type(name).__name__}, no text")
    feeds, steps = name.startswith("enumerate(DataLoader)"), name.startswith("ProfilerStep#")
    if not on_device and (category == "gpu_user_annotation" or not (feeds or steps)):
        return
    if "ts" not in event:
        raise ValueError(f"the event {name[:40]!r} has no ts")
    start, took = _number(event["ts"], "ts") * 1000, _number(event.get("dur", 0), "dur") * 1000
    if took < 0:
        raise ValueError(f"dur of the event {name[:40]!r} is negative")
    if not on_device:
        (found.feeding if feeds else found.steps).append((start, start + took))
        return
    arguments = event.setdefault("args", {})
    if not isinstance(arguments, dict):
        raise ValueError(f"args of the event {name[:40]!r} is {type(arguments).__name__}")
    if not name:
        raise ValueError("an event of a device has no name")
    try:
        device = device_of(event) or 0
    except (TypeError, ValueError):
        raise ValueError(f"device of the event {name[:40]!r} is no number") from None
    found.replayed += bool(arguments.get("graph node id"))
    own = found.by_device.setdefault(device, [])
    own.append(Event(start, start + took, device_kind(event), name, category == "kernel"))
    if len(own) > MOST_EVENTS:
        raise ValueError(f"it holds more than {MOST_EVENTS:,} events: profile fewer steps")
