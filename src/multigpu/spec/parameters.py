"""The check that follows a notebook's cell tagged `parameters`: a wrong type or an unknown name
stops it there, in one sentence.
"""

import ast
import difflib
from collections.abc import Collection, Iterable, MutableMapping
from typing import Any

import yaml
from pydantic import ConfigDict, TypeAdapter, ValidationError


class ParameterError(ValueError):
    """A parameter that cannot be; its message is one sentence."""

    def _render_traceback_(self) -> list[str]:
        """Render for a notebook in place of a traceback (IPython asks for it)."""
        return [f"{type(self).__name__}: {self}"]


def assigned_names(source: str) -> list[str]:
    """The names that a cell's top-level statements assign, in order; none if it is no Python."""
    try:
        statements = ast.parse(source).body
    except SyntaxError:
        return []
    targets: list[ast.expr] = []
    for statement in statements:
        if isinstance(statement, ast.Assign):
            targets += statement.targets
        elif isinstance(statement, ast.AnnAssign):
            targets.append(statement.target)
    return [target.id for target in targets if isinstance(target, ast.Name)]


def check_known(given: Iterable[str], known: Collection[str], where: str) -> None:
    """Refuse (ParameterError) a parameter that `where` does not have."""
    for name in given:
        if name not in known:
            near = difflib.get_close_matches(name, sorted(known), 1)
            if near:
                hint = f"did you mean {near[0]!r}?"
            elif known:
                hint = f"choose from {', '.join(sorted(known))}."
            else:
                hint = "it has none."
            raise ParameterError(f"unknown parameter {name!r} of {where}: {hint}")


def _as_yaml(value: Any) -> Any:
    """Read a text as YAML, if that is a truth, a list, a mapping or null; else keep the value."""
    try:
        read = yaml.safe_load(value) if isinstance(value, str) else value
    except yaml.YAMLError:
        return value
    return read if read is None or isinstance(read, bool | list | dict) else value


def check_parameters(namespace: MutableMapping[str, Any], **expected: Any) -> None:
    """Check a notebook's `globals()`; a ParameterError names a parameter that is unknown, missing
    or of a wrong type.
    expected: name -> type of every parameter, as pydantic reads types. Nothing is converted (7 is
        no text and 1 no truth), but what papermill's -p hands over as text where no text can be:
        `true`, `null`, a list or a mapping is then what YAML reads of it.
    """
    # IPython keeps the cells it ran; papermill injects unknown names as readily as known ones
    for source in namespace.get("In", []):
        if source.startswith("# Parameters"):
            check_known(assigned_names(source), expected, "this notebook")
    for name, kind in expected.items():
        if name not in namespace:
            raise ParameterError(
                f"parameter {name!r} has no value: the parameters cell must give it one."
            )
        value, adapter = namespace[name], TypeAdapter(kind, config=ConfigDict(strict=True))
        try:
            try:
                adapter.validate_python(value)
            except ValidationError:
                read = _as_yaml(value)
                if read is value:
                    raise
                adapter.validate_python(read)
                namespace[name] = read
        except ValidationError as error:
            first = error.errors()[0]
            message = first["msg"][0].lower() + first["msg"][1:]
            hint = (
                " (papermill reads -p values as numbers where it can; -r passes them as text)"
                if first["type"] == "string_type"
                else ""
            )
            inside = "".join(f"[{part!r}]" for part in first["loc"] if isinstance(part, int))
            raise ParameterError(
                f"parameter {name}{inside} = {first['input']!r}: {message}{hint}."
            ) from None
