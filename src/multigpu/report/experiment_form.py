"""The form by which a person fills the parameters of `notebooks/experiment.ipynb`: its choice is in
the notebook's variables at once.
"""

import json
from html import escape
from typing import Any, Literal, get_args, get_origin

import yaml

from multigpu.placements import placements
from multigpu.report.experiment import PARAMETERS, planned
from multigpu.report.experiment_progress import by_hand
from multigpu.spec.parameters import ParameterError
from multigpu.workloads import workloads

try:
    import ipywidgets as widgets
except ImportError:  # it comes with JupyterLab (`make lab`), which nothing else here needs
    widgets = None

# as YAML writes them, values of a list with commas between
WRITTEN = (
    "sequence_length",
    "data",
    "repeats",
    "records",
    "more",
)


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


def _options(name: str, workload: str) -> list[str]:
    """List the choices for a parameter; empty where it is no choice."""
    chosen = workloads().get(workload)
    own = {
        "workload": [name for name, one in workloads().items() if one.models],
        "placement": list(placements()),
        "model": list(chosen.models) if chosen else [],
        "inputs": list(chosen.inputs) if chosen else [],
    }
    kind = PARAMETERS[name]
    return own.get(name, list(get_args(kind)) if get_origin(kind) is Literal else [])


def _field(name: str, value: Any, workload: str) -> Any:
    """The widget of one parameter."""
    options = _options(name, workload)
    look = {"description": name.replace("_", " "), "style": {"description_width": "8em"}}
    if options:
        return widgets.Dropdown(
            options=options, value=value if value in options else options[0], **look
        )
    if name in WRITTEN:
        text = (
            ", ".join(map(str, value))
            if isinstance(value, list)
            else json.dumps(value)
            if isinstance(value, dict)
            else str(value)
        )
        return widgets.Text(
            value="" if value in (None, {}) else text, continuous_update=False, **look
        )
    if name in ("compare", "trace"):
        return widgets.Checkbox(value=bool(value), **look)
    return widgets.BoundedIntText(value=value, min=1, max=2**31 - 1, **look)


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
    fields = {name: _field(name, namespace[name], namespace["workload"]) for name in PARAMETERS}
    said = widgets.HTML()

    def taken(_: Any = None) -> None:
        try:
            for name, field in fields.items():
                namespace[name] = _read(name, field.value)
            run = planned(namespace).run
        except ParameterError as error:
            said.value = f"<b>This cannot be trained:</b> {escape(str(error))}"
            return
        said.value = f"<b>Ready:</b> {run.label()}. Run the cells below."

    def other_workload(change: Any) -> None:
        for name in ("model", "inputs"):
            fields[name].options = _options(name, change["new"])

    fields["workload"].observe(other_workload, names="value")
    for field in fields.values():
        field.observe(taken, names="value")
    taken()
    return widgets.VBox(
        [
            widgets.GridBox(
                list(fields.values()), layout={"grid_template_columns": "repeat(auto-fill, 22em)"}
            ),
            said,
        ]
    )
