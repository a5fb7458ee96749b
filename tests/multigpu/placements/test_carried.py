"""A row says nothing that its engine ignores: it would be measured and shown as another placement
than it is.
"""

from collections.abc import Iterator
from typing import Any

import pytest

from multigpu.engines.common.context import Carries, check_carried
from multigpu.engines.tensorflow import session as tensorflow
from multigpu.engines.torch import build as torch
from multigpu.placements import placements
from multigpu.placements.row import Engine, Placement
from multigpu.spec.errors import Unsupported
from multigpu.spec.parallel import PARTITIONED
from tests.refusals import refused

pytest.importorskip("tensorflow")

PLANTED: dict[str, dict[str, Any]] = {
    "overlap": {"overlap": True},
    "no overlap": {"overlap": False},
    "algorithm": {"algorithm": "ring"},
    "staged": {"staged": True, "semantics": {"kind": "stale", "steps": 1}, "lookup": "replica"},
    "loss": {"loss": "gpu0"},
    "copied_anew": {"copied_anew": True},
    "tables": {"embeddings": "host", "lookup": "host"},
    "tables whole": {"lookup": "replica"},
    **{
        f"reduction {merge}": {"reduction": merge}
        for merge in ("all_reduce", "copy", "halves", "gpu0", "average", "none")
    },
}
"""Fields that a row might say otherwise."""


def trainer_of(row: Placement, engine: Engine) -> type[Any]:
    if engine.framework == "torch":
        return torch.trainer_of(row, engine.processes)
    return tensorflow.trainer_of(row)


@pytest.mark.parametrize("row", placements().values(), ids=lambda row: row.name)
def test_every_engine_of_a_row_carries_out_what_it_says(row: Placement) -> None:
    for engine in row.engines:
        check_carried(trainer_of(row, engine), row)
        assert engine.framework == "tensorflow" or not engine.strategy, "PyTorch has no strategies"
        for form, why in row.refusals.items():
            assert why and any(form not in each.executions for each in row.engines), (
                f"{form} is refused, and every engine runs it"
            )
    assert (row.reduction == "none") == (not row.semantics.facts.is_one_model)


def planted_rows() -> Iterator[tuple[Placement, Engine, str]]:
    """Rows that say one thing otherwise, so far as a row may, with each engine that has them."""
    for row in placements().values():
        for name, fields in PLANTED.items():
            try:
                planted = Placement.model_validate(row.model_dump() | fields)
            except ValueError:
                continue
            if planted == row:
                continue
            yield from ((planted, engine, name) for engine in row.engines)


def test_a_row_that_says_what_its_engine_ignores_is_refused() -> None:
    """Each row with each field said otherwise is another trainer's, differs in what its trainer
    reads, or is refused with the field's name.
    """
    refusals: dict[str, int] = dict.fromkeys(PLANTED, 0)
    for planted, engine, name in planted_rows():
        try:
            trainer = trainer_of(planted, engine)
        except Unsupported:
            continue
        field = trainer.carries.ignored(planted)
        if field is None:
            continue
        refusals[name] += 1
        said = refused(
            f"says {field.split()[0]} .*, which {trainer.__name__} does not carry out",
            check_carried,
            trainer,
            planted,
            error=Unsupported,
        )
        assert repr(planted.name) in said
    assert all(
        refusals[name] for name in PLANTED if "reduction" not in name and "tables" not in name
    )
    assert all(refusals[f"reduction {merge}"] for merge in ("halves", "gpu0"))


@pytest.mark.parametrize("compute", PARTITIONED)
@pytest.mark.parametrize("name", ["overlap", "algorithm", "loss"])
def test_parts_of_one_model_ignore_no_field_silently(compute: str, name: str) -> None:
    """Their rows may say anything of gradients that replicas merge: all of it would be ignored."""
    row = next(row for row in placements().values() if row.compute == compute)
    planted = Placement.model_validate(row.model_dump() | PLANTED[name])
    for engine in row.engines:
        refused(
            f"says {name} ", check_carried, trainer_of(planted, engine), planted, error=Unsupported
        )


def test_what_a_trainer_may_read_differs_only_in_what_it_declares() -> None:
    """A trainer that declares nothing of a field takes the usual value alone."""
    row = placements()["ddp"]
    assert Carries({"all_reduce": (True,)}).ignored(row) is None
    assert Carries({"all_reduce": (False,)}).ignored(row) == "overlap True"
    assert Carries({"copy": (False,)}).ignored(row) == "reduction 'all_reduce'"
