"""What is measured between hosts: parts (files of `grids/hosts/`), each on hosts of its own, within which the most informative comes first.

Their points have fields of a CollectiveRun, or of a Run, and of the hosts: `per_host` processes on each and `rate_mbit`, of every host's
link each way. `cost_s` is what one repeat of a whole part may take, `timeout_s` what one of its Runs may.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pydantic.fields import FieldInfo

from multigpu.collectives import algorithms
from multigpu.collectives.run import CollectiveRun, methods_for
from multigpu.grid.expand import FOLDER, Kind, expand
from multigpu.run import Run, build_run
from multigpu.workloads import find_model

PARTS = ("growth", "document_004", "latency", "document_004_apart", "steps", "growth_repeated", "small")
"""In the order in which they tell most."""

STUDY = PARTS[:5]

SCALE = 500
"""Document 004's Ethernet of 100 Gbit/s between machines of four GPUs, over links of 200 Mbit/s; its bytes are divided alike."""


@dataclass(frozen=True)
class Point:
    """A Run between hosts of a kind."""

    run: CollectiveRun | Run
    per_host: int
    rate_mbit: float
    timeout_s: float


@dataclass(frozen=True)
class Part:
    """Runs that are measured on hosts of a kind. cost_s: what one repeat of all may take; timeout_s: one Run, at most."""

    name: str
    title: str
    runs: tuple[CollectiveRun | Run, ...]
    per_host: int
    rate_mbit: float
    cost_s: float
    timeout_s: float

    @property
    def hosts(self) -> int:
        """How many hosts it needs."""
        return max(-(-run.devices // self.per_host) for run in self.runs)


def document_bytes() -> int:
    """Document 004's gradients divided by `SCALE`, in whole fp32 elements."""
    return round(4 * find_model("nmt", "nmt004").parameters / SCALE / 4) * 4


def _build(per_host: int, rate_mbit: float, timeout_s: float = 60.0, **fields: Any) -> Point:
    run = CollectiveRun.built(**fields) if "method" in fields else build_run(**fields)
    return Point(run, per_host, rate_mbit, timeout_s)


def _methods() -> list[str]:
    libraries = methods_for("cpu")
    return [*libraries[1:3], libraries[0], *libraries[3:]]


KIND = Kind(
    fields={
        **Run.model_fields,
        **CollectiveRun.model_fields,
        **{name: FieldInfo(default=None) for name in ("per_host", "rate_mbit", "timeout_s")},
    },
    build=_build,
    lists={
        "method": {
            "every": lambda _: _methods(),
            "exact": lambda _: [name for name in _methods() if name in algorithms() and algorithms()[name].wire is None],
        },
        "bytes": {"document_004": lambda _: [document_bytes()]},
    },
)


def read_part(name: str) -> Part:
    """The part that a file of `grids/hosts/` describes."""
    found = list(expand(FOLDER / "hosts" / f"{name}.yaml", KIND))
    first, settings = found[0].built, found[0].settings
    runs = tuple(point.built.run for point in found)
    return Part(name, settings.question, runs, first.per_host, first.rate_mbit, settings.cost_s, first.timeout_s)


def find_parts(names: Sequence[str] = ()) -> list[Part]:
    """The parts of these names; the whole study without any.

    Raises:
        ValueError: no such part; the sentence names the known ones.
    """
    if unknown := [name for name in names if name not in PARTS]:
        raise ValueError(f"unknown part {unknown[0]!r}: choose among {', '.join(PARTS)}")
    return [read_part(name) for name in names or STUDY]
