"""Fields of a Run from the words of a command line."""

from collections.abc import Mapping, Sequence
from typing import Any, get_args

from pydantic.fields import FieldInfo

from multigpu.spec.run import Run


def parse_fields(
    texts: Sequence[str], known: Mapping[str, FieldInfo] = Run.model_fields
) -> dict[str, Any]:
    """`name=value` words as fields, each in the type that its field has in `known`; "none" for one
    that is left out; or a ValueError.
    """
    fields: dict[str, Any] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals:
            raise ValueError(f"{text!r} is not of the form field=value")
        if name not in known:
            raise ValueError(f"unknown field {name!r}: choose among {', '.join(known)}")
        fields[name] = (
            tuple(value.split(","))
            if name == "data"
            else _typed(name, value, known[name].annotation)
        )
    return fields


def _typed(name: str, value: str, annotation: Any) -> bool | int | float | str | None:
    """A word in the type of a field: true or false, a number, none where it may be left out, or
    else the text itself.
    """
    kinds = {annotation, *get_args(annotation)}
    if value.lower() == "none" and type(None) in kinds:
        return None
    try:
        if bool in kinds:
            return {"true": True, "false": False}[value.lower()]
        if int in kinds:
            return int(value)
        return float(value) if float in kinds else value
    except (ValueError, KeyError):
        if bool in kinds:
            needed = "true or false is"
        elif int in kinds:
            needed = "an integer is"
        else:
            needed = "a number is"
        raise ValueError(f"{name} = {value!r}: {needed} needed") from None
