"""Sentences that stand in templates (`*.j2`): modules bring facts, macros choose the words."""

from collections.abc import Callable
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined


def macros_of(package: str, file: str, **known: Any) -> Callable[..., str]:
    """Read a template of macros; returns a function that takes a macro's name and its facts and
    gives its text. The filter `told` writes a figure in a form ("ms").

    known: further functions and tables that its macros use.
    """
    environment = Environment(
        loader=PackageLoader(package, "."),
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=StrictUndefined,
    )
    environment.filters["told"] = format
    environment.globals |= known
    macros = environment.get_template(file).module

    def text(part: str, **facts: Any) -> str:
        return str(getattr(macros, part)(**facts)).strip("\n")

    return text
