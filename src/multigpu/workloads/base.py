"""A family of models with one kind of input, the `WORKLOAD` of its package."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from multigpu.inputs.batch import Source
from multigpu.lazy import LazyMapping
from multigpu.spec.model import Model, Optimizer, Unit
from multigpu.spec.run import Run
from multigpu.spec.stage_graph import Staged
from multigpu.spec.tables import table


@dataclass(frozen=True)
class Workload:
    """A family of models with one kind of input; each framework's builder is `<framework>.py`.
    stages: for placements inside one model.
    checked: whether each Run first trains a few steps beside one process on the global batch
        (`checked` of its engine): no test does.
    """

    name: str
    unit: Unit
    models: Mapping[str, Model]
    inputs: Mapping[str, Callable[[Run, Model], Source]]
    stages: Staged | None = None
    frameworks: tuple[str, ...] = ("torch", "tensorflow")
    checked: bool = False


def models_in(
    folder: Path, config: type[Any], describe: Callable[[str, Any, Optimizer], Model]
) -> Mapping[str, Model]:
    """Describe the models of a folder's `models.csv`, a row a model, each when it is first asked
    for. Its columns are fields of `config` and of an `Optimizer`, whose name is `optimizer`; an
    empty cell is a field's default, and `note` is for readers.
    """
    sizes, rule = TypeAdapter(config), TypeAdapter(Optimizer)

    def made(row: dict[str, str]) -> Model:
        given = {name: text for name, text in row.items() if text}
        own_rule = rule.validate_python(given | {"name": row["optimizer"]})
        return describe(row["model"], sizes.validate_python(given), own_rule)

    rows = table(folder / "models.csv")
    return LazyMapping({row["model"]: partial(made, row) for row in rows})
