"""The form by which a person fills the parameters of `notebooks/experiment.ipynb`: its choice is in
the notebook's variables at once. It offers what the rules of a Run (`multigpu.spec.rules`) allow
beside the rest of the choice, and says of the rest what they say.
"""

import json
from collections.abc import Iterator, Mapping
from html import escape
from itertools import product
from typing import Any, Literal, get_args, get_origin

import yaml

from multigpu.build import build_run
from multigpu.placements import placements
from multigpu.report.experiment import PARAMETERS, fields_of, planned
from multigpu.report.experiment_progress import by_hand
from multigpu.spec.parameters import ParameterError
from multigpu.spec.run import Run
from multigpu.workloads import workloads

try:
    import ipywidgets as widgets
except ImportError:  # it comes with JupyterLab (`make lab`), which nothing else here needs
    widgets = None

# as YAML writes them, values of a list with commas between
WRITTEN = ("sequence_length", "data", "repeats", "records", "more")
FOLLOWING = ("framework", "processes", "execution")  # what an earlier choice may change with it
PLAIN = ("precision", "recompute", "reshard", "micro_steps")  # and set back to its default
PARTS = (None, 2, 4, 8, 16, 32, 64)  # of a shard, as micro_steps


def _read(name: str, value: Any) -> Any:
    """Parse a field; a ParameterError if that is no line of YAML."""
    if name not in WRITTEN:
        return value
    try:
        found = yaml.safe_load(f"[{value}]")
    except yaml.YAMLError:
        raise ParameterError(
            f"{name} = {value!r} cannot be read: the cell above shows how it is written"
        ) from None
    if not found:
        return {} if name == "more" else None
    return found if len(found) > 1 or name == "data" else found[0]


def choices(name: str, given: Mapping[str, Any]) -> list[Any]:
    """List all values of a parameter beside these others; none where it is no choice."""
    chosen = workloads().get(given["workload"])
    own: dict[str, list[Any]] = {
        "workload": [name for name, one in workloads().items() if one.models],
        "placement": list(placements()),
        "model": list(chosen.models) if chosen else [],
        "inputs": list(chosen.inputs) if chosen else [],
        "micro_steps": list(PARTS),
    }
    kind = PARAMETERS[name]
    if name in Run.model_fields and kind is bool:
        return [False, True]
    return own.get(name, list(get_args(kind)) if get_origin(kind) is Literal else [])


def completions(given: Mapping[str, Any], name: str) -> Iterator[dict[str, Any]]:
    """Yield the choice as it is, and then with other values of what stands below `name` in the
    form, so that a choice is offered that needs another form of execution, say.
    """
    yield dict(given)
    chosen, order = dict(given), list(PARAMETERS)
    if name == "workload":
        chosen |= {key: choices(key, given)[0] for key in ("model", "inputs")}
    below = [other for other in FOLLOWING if order.index(other) > order.index(name)]
    plain = [other for other in PLAIN if order.index(other) > order.index(name)]
    for back in ({}, {other: Run.model_fields[other].default for other in plain}):
        for values in product(*(choices(other, given) for other in below)):
            yield chosen | dict(zip(below, values, strict=True)) | back


def why_not(given: Mapping[str, Any]) -> str:
    """Say why the rules refuse this choice; "" where they do not."""
    try:
        build_run(**fields_of(given))
    except ValueError as error:
        return str(error)
    return ""


def completed(given: Mapping[str, Any], name: str) -> tuple[dict[str, Any], str]:
    """Return the choice, with what must change below `name` for it, or why it cannot be."""
    fitting = (other for other in completions(given, name) if not why_not(other))
    found = next(fitting, None)
    return (dict(given), why_not(given)) if found is None else (found, "")


def offered(given: Mapping[str, Any], name: str) -> tuple[list[Any], dict[Any, str]]:
    """The values of a parameter that can be chosen beside what stands above it, and why the others
    cannot. Where none can, what is written in another field is to blame, and all are offered.
    """
    every = choices(name, given)
    tried = {value: completed({**given, name: value}, name)[1] for value in every}
    refused = {value: why for value, why in tried.items() if why}
    if len(refused) == len(every):
        return every, {}
    return [value for value in every if value not in refused], refused


def _field(name: str, value: Any, given: Mapping[str, Any]) -> Any:
    """The widget of one parameter."""
    look = {"description": name.replace("_", " "), "style": {"description_width": "9em"}}
    if choices(name, given):
        return widgets.Dropdown(**look)
    if name in WRITTEN:
        if isinstance(value, list):
            text = ", ".join(map(str, value))
        elif isinstance(value, dict):
            text = json.dumps(value)
        else:
            text = str(value)
        return widgets.Text(
            value="" if value in (None, {}) else text, continuous_update=False, **look
        )
    if name in ("compare", "trace"):
        return widgets.Checkbox(value=bool(value), **look)
    return widgets.BoundedIntText(value=value, min=1, max=2**31 - 1, **look)


SHOWN = {None: "none", False: "no", True: "yes"}


def left_out(refused: Mapping[str, Mapping[Any, str]]) -> str:
    """Tell as HTML what is not offered, and why; values that one reason refuses in a line."""
    alike: dict[tuple[str, str], list[str]] = {}
    for name, own in refused.items():
        for value, why in own.items():
            reason = (name, why.replace(str(value), "").replace(repr(value), ""))
            alike.setdefault(reason, [why]).append(str(SHOWN.get(value, value)))
    lines = [
        f"<li>{name.replace('_', ' ')} <b>{escape(', '.join(values))}</b>: {escape(why)}</li>"
        for (name, _), (why, *values) in alike.items()
    ]
    counts = ", ".join(
        f"{len(own)} of {name.replace('_', ' ')}" for name, own in refused.items() if own
    )
    return (
        f"<details><summary>Not offered beside this choice: {counts}. Why?</summary>"
        f"<ul>{''.join(lines)}</ul></details>"
        if lines
        else ""
    )


def form(namespace: dict[str, Any]) -> Any:
    """The form over a notebook's `globals()`, with whether its choice can be trained here; None
    where nobody is there to fill it.
    """
    if not by_hand():
        return None
    if widgets is None:
        print(
            "A form would stand here with ipywidgets (`make lab` installs it): change the"
            " parameters above instead."
        )
        return None
    fields = {name: _field(name, namespace[name], namespace) for name in PARAMETERS}
    said, filling = widgets.HTML(), [False]
    meant: dict[str, dict[str, Any]] = {}  # what a choice's words stand for

    def fill() -> None:
        """Show the choice, and beside it what can be chosen."""
        refused = {}
        filling[0] = True
        for name, field in fields.items():
            if choices(name, namespace):
                values, refused[name] = offered(namespace, name)
                own = namespace[name]
                shown = [*values, *([] if own in values else [own])]
                meant[name] = {str(SHOWN.get(value, value)): value for value in shown}
                field.options = list(meant[name])
                field.value = str(SHOWN.get(own, own))
        filling[0] = False
        try:
            run = planned(namespace).run
            told = f"<b>Ready:</b> {run.label()}. Run the cells below."
        except ParameterError as error:
            told = f"<b>This cannot be trained:</b> {escape(str(error))}"
        said.value = f"{told}{changed[0]}{left_out(refused)}"

    changed = [""]

    def taken(change: Any) -> None:
        if filling[0]:
            return
        try:
            given = {name: namespace[name] for name in PARAMETERS}
            name = next(name for name, field in fields.items() if field is change["owner"])
            new = change["new"]
            asked = given | {name: meant[name][new] if name in meant else _read(name, new)}
            found = completed(asked, name)[0] if choices(name, given) else asked
            with_it = [f"{key} {found[key]}" for key in given if found[key] != asked[key]]
            changed[0] = f" With it: {escape(', '.join(with_it))}." if with_it else ""
            namespace.update(found)
        except ParameterError as error:
            said.value = f"<b>This cannot be trained:</b> {escape(str(error))}"
            return
        fill()

    for field in fields.values():
        field.observe(taken, names="value")
    fill()
    layout = {"grid_template_columns": "repeat(auto-fill, 23em)"}
    return widgets.VBox([widgets.GridBox(list(fields.values()), layout=layout), said])
