"""Data with known fields, as files hold it, what every kind of Run has, and one sentence for what
cannot be.
"""

import hashlib
from collections.abc import Mapping
from typing import Any, Self

from pydantic import BaseModel, ConfigDict, ValidationError


class Data(BaseModel):
    """Never changed, of known fields alone. A figure that is no number is written as such and read
    back, instead of spoiling the file.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", ser_json_inf_nan="constants")

    def values_of(self, *names: str) -> dict[str, Any]:
        """These fields by name."""
        return {name: getattr(self, name) for name in names}


class Strict(Data):
    """As `Data`, of exact types: a person may have written it."""

    model_config = ConfigDict(strict=True)


class Spec(Strict):
    """Base of what is to be measured: a Run of some kind."""

    @classmethod
    def built(cls, **fields: Any) -> Self:
        """One with these fields; a ValueError names one that is unknown, of a wrong type or of a
        value that cannot work.
        """
        try:
            return cls(**fields)
        except ValidationError as error:
            raise ValueError(refusal(error)) from None

    @property
    def digest(self) -> str:
        """A hash of every field: two with one digest are the same point. Fields at their defaults
        are left out, so that one added later, whose default says what was done before, leaves the
        keys of older Records as they are.
        """
        return hashlib.sha256(self.model_dump_json(exclude_defaults=True).encode()).hexdigest()[:16]

    def label(self) -> str:
        """A short name for progress bars and messages."""
        raise NotImplementedError


def refusal(error: ValidationError) -> str:
    """The first thing that is wrong: the field, its value, and what is wrong with it, in one
    line.
    """
    first = error.errors()[0]
    where = ".".join(str(part) for part in first["loc"])
    found = in_one_line(first["msg"].removeprefix("Value error, "))
    if first["type"] == "missing":
        found = f"{where} has no value: give it one"
    elif where and first["type"] == "extra_forbidden":
        found = f"{where} is no field that this version knows"
    elif where and isinstance(first["input"], (Mapping, BaseModel)):
        found = f"{where}: {found}"
    elif where:
        value = repr(first["input"][:99] if isinstance(first["input"], str) else first["input"])
        found = f"{where} = {value if len(value) <= 80 else value[:80] + ' ...'}: {found}"
    return " ".join(found.splitlines())


def in_one_line(sentence: str) -> str:
    """The sentence with its first letter small, to stand after a name, and without line breaks."""
    return " ".join((sentence[:1].lower() + sentence[1:]).splitlines())
