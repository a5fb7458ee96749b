"""How words of a command line are read: fields of a Run, counts of devices."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, get_args

from pydantic.fields import FieldInfo

from multigpu.grid import devices_here
from multigpu.run import Run


def parse_fields(texts: Sequence[str], known: Mapping[str, FieldInfo] = Run.model_fields) -> dict[str, Any]:
    """`name=value` words as fields, each in its own type.

    Args:
        known: the fields there are, by name; those of a Run unless others are given.

    Raises:
        ValueError: a word without "=", an unknown name, or a value that is not of the field's type.
    """
    fields: dict[str, Any] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals:
            raise ValueError(f"{text!r} is not of the form field=value")
        if name not in known:
            raise ValueError(f"unknown field {name!r}: choose among {', '.join(known)}")
        fields[name] = tuple(value.split(",")) if name == "data" else _typed(name, value, known[name].annotation)
    return fields


def _typed(name: str, value: str, annotation: Any) -> bool | int | float | str:
    """A word in the type of a field: true or false, a number, or else the text itself."""
    kinds = {annotation, *get_args(annotation)}
    try:
        if bool in kinds:
            return {"true": True, "false": False}[value.lower()]
        if int in kinds:
            return int(value)
        return float(value) if float in kinds else value
    except (ValueError, KeyError):
        needed = "true or false is" if bool in kinds else "an integer is" if int in kinds else "a number is"
        raise ValueError(f"{name} = {value!r}: {needed} needed") from None


def parse_counts(text: str | None) -> list[int]:
    """Device counts from "1,2,4"; without a text, 1, 2, 4, 8 up to what this machine has (its CPUs stand in, up to 2).

    Raises:
        ValueError: a count is not a positive integer.
    """
    if text is None:
        return devices_here()
    counts = []
    for part in text.split(","):
        if not part.strip().isdecimal() or int(part) < 1:
            raise ValueError(f"devices {part!r} is not a positive integer: give counts such as 1,2,4")
        counts.append(int(part))
    return counts
