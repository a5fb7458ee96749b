"""Define the fields of every kind of Record: a key and an attempt, and where, when and by which
source it was made.
"""

import hashlib
from datetime import UTC, datetime
from typing import Any, ClassVar, Literal, get_args

from multigpu.machine.machine import (
    Machine,
    framework_version,
    source_state,
    source_tree,
    this_machine,
)
from multigpu.spec.schema import Data, Spec

SCHEMA_VERSION = 1
Status = Literal["ok", "out_of_memory", "timeout", "unsupported", "failed"]
STATUSES: tuple[Status, ...] = get_args(Status)


class Kept(Data):
    """A Record of some kind, written once and never edited.
    key: the name of what was measured (`key_of`); attempt: a later one stands beside the earlier
        ones and is the one that is read.
    measured_at: in UTC. clean_tree: whether the source was as committed. source_tree: git's name of
        its package ("" in older Records).
    """

    key: str
    attempt: int = 0
    machine: Machine
    versions: dict[str, str]
    measured_at: str
    commit: str
    clean_tree: bool
    source_tree: str = ""

    @property
    def own_key(self) -> str:
        """The key that its content gives."""
        raise NotImplementedError

    @property
    def place(self) -> str:
        """The folder of a store that holds it."""
        return self.machine.name


class RecordBase(Kept):
    """The outcome of one point of a sweep: its measurement, which each kind adds, or the reason why
    there is none. asked: the field with the `Spec` that was to be measured. key_words, of its kind,
    tell its keys from others'. meaning enters every key: to be raised whenever what a figure means
    changes.
    """

    asked: ClassVar[str] = "run"
    key_words: ClassVar[tuple[str, ...]] = ()
    meaning: ClassVar[int]

    schema_version: int = SCHEMA_VERSION
    repeat: int
    status: Status
    reason: str = ""
    launch_id: str

    @property
    def spec(self) -> Any:
        return getattr(self, self.asked)

    @property
    def framework_version(self) -> str:
        """Of the framework that was measured, as in the key."""
        return framework_version(self.spec.framework, self.versions)

    @classmethod
    def key_for(
        cls,
        spec: Spec,
        repeat: int,
        machine: str,
        framework_version: str,
        meaning: int | None = None,
    ) -> str:
        """Return the key of a measurement by `key_of`. A new framework, or another meaning, makes
        new keys: they share no table unseen.
        """
        version = cls.meaning if meaning is None else meaning
        return key_of(*cls.key_words, spec.digest, repeat, machine, framework_version, version)

    @property
    def own_key(self) -> str:
        return self.key_for(self.spec, self.repeat, self.machine.name, self.framework_version)


def made_here(versions: dict[str, str]) -> dict[str, Any]:
    """The fields of a Record that is made now, of this machine."""
    commit, clean = source_state()
    return {
        "machine": this_machine(),
        "versions": versions,
        "measured_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "commit": commit,
        "clean_tree": clean,
        "source_tree": source_tree(),
    }


def key_of(*parts: object) -> str:
    """The name of a measurement, from all that tells it from others: what has a Record under it is
    not measured again.
    """
    return hashlib.sha256("|".join(map(str, parts)).encode()).hexdigest()[:20]
