"""What pydantic refuses, in one sentence: the field, its value, and what is wrong with it."""

from __future__ import annotations

from collections.abc import Mapping

from pydantic import BaseModel, ValidationError

MOST_CHARACTERS = 80


def refusal(error: ValidationError) -> str:
    """The first thing that is wrong."""
    first = error.errors()[0]
    where = ".".join(str(part) for part in first["loc"])
    if first["type"] == "missing":
        return f"{where} has no value: give it one"
    message = first["msg"].removeprefix("Value error, ")
    message = message[0].lower() + message[1:]
    if not where:
        return message
    if first["type"] == "extra_forbidden":
        return f"{where} is no field that this version knows"
    if isinstance(first["input"], (Mapping, BaseModel)):
        return f"{where}: {message}"
    value = repr(first["input"])
    return f"{where} = {value if len(value) <= MOST_CHARACTERS else value[:MOST_CHARACTERS] + ' ...'}: {message}"
