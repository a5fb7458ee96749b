"""How a user's batch is built, as plain data, and its tensors as arrays. Imports no framework."""

import dataclasses
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from multigpu.spec.errors import JobError

CLASSES: dict[str, type] = {}
"""Of what batches of this process were built, by module and name: named tuples, dataclasses, and
mappings of a class of their own. A batch is taken apart in the process that puts it together.
"""

DUE = "a batch is (inputs, target), of tensors or arrays"


def _class_of(value: Any) -> str:
    """The name under which a batch's class is put together again; "" for plain ones."""
    kind = type(value)
    is_plain = kind in (dict, tuple, list) or not (
        isinstance(value, Mapping) or hasattr(value, "_fields") or dataclasses.is_dataclass(value)
    )
    if is_plain:
        return ""
    name = f"{kind.__module__}.{kind.__qualname__}"
    CLASSES[name] = kind
    return name


def _parts_of(value: Any) -> dict[Any, Any] | None:
    """Of a batch with named parts, these; None where it has none."""
    if isinstance(value, Mapping):
        return dict(value.items())
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return {name: getattr(value, name) for name in value._fields}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    return None


def _tensor(part: Any, where: str) -> np.ndarray:
    """One of PyTorch's tensors as an array that shares its memory where its type allows."""
    kind = type(part).__name__
    if getattr(part, "is_nested", False) or "strided" not in str(
        getattr(part, "layout", "strided")
    ):
        raise JobError(
            f"{where} is a {kind} that is sparse or nested, whose first axis counts no samples:"
            " give it dense, as to_dense() or torch.nn.utils.rnn.pad_sequence do"
        )
    if getattr(part, "is_quantized", False):
        raise JobError(f"{where} is a quantized {kind}: give it as dequantize() does")
    if part.device.type == "meta":
        raise JobError(
            f"{where} is on the device meta, where tensors have no values: make it whole"
        )
    part = part.detach().cpu().resolve_conj().resolve_neg()
    if part.is_floating_point() and part.element_size() < 4:
        part = part.float()
    elif str(part.dtype) == "torch.complex32":
        part = part.cfloat()
    return np.asarray(part)


def _array(part: Any, where: str) -> np.ndarray:
    """Return the value at one place of a batch as an array; a JobError where that is no tensor."""
    if type(part).__name__ == "PackedSequence":
        raise JobError(
            f"{where} is a PackedSequence, whose first axis counts no samples: give the padded"
            " tensor and the lengths, and pack them inside the model"
        )
    if isinstance(part, bool | int | float | complex):
        raise JobError(
            f"{where} is a {type(part).__name__} where a tensor is due: {DUE}; a number that all"
            " samples share belongs in the model or the loss, or is repeated, torch.full((n,),"
            f" {part!r})"
        )
    if hasattr(part, "detach"):
        array = _tensor(part, where)
    elif hasattr(part, "__array__"):
        array = np.asarray(part)
    else:
        raise JobError(f"{where} is a {type(part).__name__} where a tensor is due: {DUE}")
    if array.dtype.kind not in "biufc":
        raise JobError(
            f"{where} is a {type(part).__name__} of {array.dtype} where numbers are due: {DUE}"
        )
    if array.dtype.itemsize > np.dtype(np.complex128 if array.dtype.kind == "c" else "f8").itemsize:
        array = array.astype(np.complex128 if array.dtype.kind == "c" else np.float64)
    array = array.astype(array.dtype.newbyteorder("="), copy=False)
    # an array that is read backwards cannot be a tensor
    return np.ascontiguousarray(array) if array.ndim and min(array.strides) < 0 else array


def taken_apart(value: Any) -> tuple[Any, list[np.ndarray]]:
    """How the batch is built, as plain data, and its tensors as arrays; JobError: others."""
    arrays: list[np.ndarray] = []
    met: dict[int, int] = {}
    kept: list[Any] = []  # no two live objects have one id

    def visit(part: Any, where: str) -> Any:
        if part is None:
            return None
        is_packed = type(part).__name__ == "PackedSequence"
        if not is_packed and (named := _parts_of(part)) is not None:
            if wrong := [name for name in named if not isinstance(name, str | int)]:
                raise JobError(
                    f"{where} has a key {wrong[0]!r}, a {type(wrong[0]).__name__}: name its parts"
                    " by text or by whole numbers"
                )
            parts = [[name, visit(inner, f"{where}[{name!r}]")] for name, inner in named.items()]
            if kind := _class_of(part):
                return {"made": kind, "parts": parts}
            if all(isinstance(name, str) for name in named):
                return {"dict": dict(parts)}
            return {"items": parts}
        if isinstance(part, Sequence) and not is_packed and not isinstance(part, str | bytes):
            parts = [visit(inner, f"{where}[{index}]") for index, inner in enumerate(part)]
            return {"list" if isinstance(part, list) else "tuple": parts}
        if id(part) not in met:
            try:
                array = _array(part, where)
            except JobError:
                raise
            except Exception as error:
                raise JobError(
                    f"{where} is a {type(part).__name__} that cannot be read as a tensor"
                    f" ({type(error).__name__}: {' '.join(str(error).split())[:200]}): {DUE}"
                ) from error
            kept.append(part)
            met[id(part)] = len(arrays)
            arrays.append(array)
        return met[id(part)]

    structure = visit(value, "batch")
    if not arrays:
        raise JobError(f"batch holds no tensor: {DUE}")
    return structure, arrays


def is_built_alike(one: Any, other: Any) -> bool:
    """Whether two batches' structures differ at most in a list where the other has a tuple."""
    one, other = (repr(each).replace("'list': [", "'tuple': [") for each in (one, other))
    return bool(one == other)


def classes_now(structure: Any) -> dict[str, type]:
    """Classes of a batch's parts as their modules have them: a job's file that is loaded again has
    others of the same names, which its model asks for.
    """
    found = {}
    if isinstance(structure, dict):
        if name := structure.get("made"):
            known = CLASSES.get(name)
            now: Any = sys.modules.get(getattr(known, "__module__", ""))
            for part in getattr(known, "__qualname__", "").split("."):
                now = getattr(now, part, None)
            found = {name: now if isinstance(now, type) else known} if known else {}
        for _, part in _children(structure):
            found |= classes_now(part)
    return found


def _made(kind: type | None, parts: dict[Any, Any]) -> Any:
    """An object of a batch's class from its parts, made without its own code if it can."""
    if kind is None:
        return parts
    if issubclass(kind, tuple):
        return kind._make(parts.values())  # type: ignore[attr-defined]
    if issubclass(kind, Mapping):
        try:
            made: Any = kind
            found = made(**parts) if dataclasses.is_dataclass(kind) else made(parts)
        except Exception:
            return parts
        return found if dict(found.items()).keys() == parts.keys() else parts
    found = object.__new__(kind)
    for field, part in parts.items():
        object.__setattr__(found, field, part)
    return found


def put_together(
    structure: Any, tensors: Mapping[str, Any], classes: Mapping[str, type] = CLASSES
) -> Any:
    """The batch of which `taken_apart` gave the structure, from its tensors by number."""
    if structure is None:
        return None
    if isinstance(structure, int):
        return tensors[str(structure)]
    if "dict" in structure:
        return {
            name: put_together(part, tensors, classes) for name, part in structure["dict"].items()
        }
    if "items" in structure or "made" in structure:
        listed = structure["items"] if "items" in structure else structure["parts"]
        parts = {name: put_together(part, tensors, classes) for name, part in listed}
        return parts if "items" in structure else _made(classes.get(structure["made"]), parts)
    ((kind, parts),) = structure.items()
    listed = [put_together(part, tensors, classes) for part in parts]
    return listed if kind == "list" else tuple(listed)


def names_of(structure: Any) -> list[str]:
    """Where each tensor of a batch stands in it, by number: batch[0], batch['ids'], ..."""
    found: dict[int, str] = {}

    def visit(part: Any, where: str) -> None:
        if isinstance(part, int):
            found.setdefault(part, where)
        elif part is not None:
            for name, inner in _children(part):
                visit(inner, f"{where}[{name!r}]")

    visit(structure, "batch")
    return [found[number] for number in sorted(found)]


def _children(structure: Any) -> Iterator[tuple[Any, Any]]:
    if "dict" in structure:
        yield from structure["dict"].items()
    elif "tuple" in structure or "list" in structure:
        yield from enumerate(structure.get("tuple") or structure.get("list") or ())
    else:
        yield from structure.get("items") or structure.get("parts") or ()


def checked_rows(
    tensors: Sequence[np.ndarray], rows: int, who: str, names: Sequence[str] = ()
) -> None:
    """Refuse a batch of another size than asked for. names: of its tensors."""
    for index, tensor in enumerate(tensors):
        name = names[index] if names else f"its tensor {index}"
        if not tensor.ndim:
            raise JobError(
                f"{who} was asked for {rows} samples, and {name} is one number, of the shape []:"
                " the first axis of every tensor counts the samples. Repeat what all of them share,"
                f" value.expand({rows}), or keep it in the model or the loss"
            )
        if tensor.shape[0] != rows:
            raise JobError(
                f"{who} was asked for {rows} samples, and {name} has the shape"
                f" {list(tensor.shape)}: the first axis of every tensor counts the samples, so it"
                f" must be {rows}"
            )
