"""What every kind of Record has: a key and an attempt, and where, when and by which source it was made."""

from __future__ import annotations

import hashlib
from datetime import UTC, datetime
from typing import Any

from pydantic import BaseModel, ConfigDict

from multigpu.measure.machine import Machine, source_state, this_machine


class Kept(BaseModel):
    """A Record of some kind, written once and never edited.

    key: the name of what was measured (`key_of`); attempt: a later one stands beside the earlier ones and is the one that is read.
    measured_at: in UTC. commit, clean_tree: of the source, and whether it was as committed.
    """

    # a figure that is no number is written as such and read back, instead of spoiling the file
    model_config = ConfigDict(frozen=True, extra="forbid", ser_json_inf_nan="constants")

    key: str
    attempt: int = 0
    machine: Machine
    versions: dict[str, str]
    measured_at: str
    commit: str
    clean_tree: bool

    @property
    def own_key(self) -> str:
        """The key that its content gives."""
        raise NotImplementedError

    @property
    def place(self) -> str:
        """The folder of a store that holds it."""
        return self.machine.name


def made_here(versions: dict[str, str], machine: Machine | None = None) -> dict[str, Any]:
    """The fields of a Record that is made now, of this machine unless another is given: of several hosts, say."""
    commit, clean = source_state()
    return {
        "machine": machine or this_machine(),
        "versions": versions,
        "measured_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "commit": commit,
        "clean_tree": clean,
    }


def key_of(*parts: object) -> str:
    """The name of a measurement, from all that tells it from others: what has a Record under it is not measured again."""
    return hashlib.sha256("|".join(map(str, parts)).encode()).hexdigest()[:20]
