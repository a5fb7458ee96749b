"""Describe a user's job in a file beside its Records. Imports no framework."""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal, NamedTuple

from multigpu.spec.model import Init, Model, Optimizer, Variable
from multigpu.spec.schema import Data
from multigpu.workloads.own.job import Job, load_job, unpack
from multigpu.workloads.own.seals import find_packed

FOLDERS = "MULTIGPU_JOBS"
"""The environment variable that names the folders of descriptions, as PATH does programs'."""

PREFIX = "model."
"""Before the user's own names of parameters."""

Leaves = list[tuple[tuple[int, ...], str]]
"""Of each tensor of a batch, a sample's shape and the type."""


class Table(Data):
    """An embedding table whose rows can be looked up first, by so many `ids` of a sample in `leaf`.
    padding: the id without a gradient.
    """

    leaf: str
    column: int | None = None
    stretch: tuple[int, int | None] | None = None
    ids: int
    padding: int | None = None


class Described(Data):
    """A job as the study's programs know it.

    file, job: where the job is, "FILE.py:NAME" or a packed job (`seals.find_packed`); values: the
        file of what its variables start with, there while they are trained (`without_values`).
    variables: (name, shape) of all that is trained, tables: those looked up by row; flat: those
        whose gradient is zero but for rounding, or that the job's optimizer leaves out.
    tied: further names of one parameter -> its first. fixed: parameters that are not trained; idle:
        those of them that no examined batch gave a gradient. hooked: trained ones with a hook on
        their gradient. seldom: trained ones that only some did.
    unfit: placements, or a type of device, that cannot have this model -> why.
    structure: how a batch's tensors make the model's arguments. leaves: what each is. any_rows:
        whether any number of samples will do.
    ragged: whether samples of batches differ in length. reused: whether a batch is overwritten.
    own_update: what of the update is the job's own (`Job.own_update`). micro_steps: as the job's.
    precision: that the job asks for ("": it was not kept).
    checked_in: the precision in which placements are compared with one process; None: `unchecked`.
    coarse: a shorter type of real numbers that it computes in all the same; "": none.
    step_here_s: a step on one device's batch in this process's CPU. batch_s: what making such a
        batch takes by itself, by `batch_by` ("batch()", or the kind of a loader).
    activations: what a batch holds, as written and recomputed; unforecast: why that is not known.
    score: that `evaluate` gives the model as it is made, in evaluate_s of this process's CPU.
    draws: whether its forward pass draws random numbers; None: it was not kept.
    notes: what a user should know of how the job was understood.
    """

    name: str
    job: str
    file: bool
    values: str
    variables: list[tuple[str, tuple[int, ...]]]
    tables: dict[str, Table]
    flat: list[str] = []
    tied: dict[str, str]
    fixed: list[str]
    idle: list[str] = []
    seldom: list[str] = []
    hooked: list[str] = []
    unfit: dict[str, str] = {}
    optimizer: dict[str, Any]
    own_update: list[str] = []
    micro_steps: int = 1
    precision: str = ""
    structure: Any
    framework: Literal["torch", "tensorflow"] = "torch"
    leaves: Leaves = []
    any_rows: bool
    ragged: bool = False
    reused: bool = False
    forward_flops: float
    memory_passes: float
    checked_in: Literal["fp64", "fp32"] | None
    coarse: str = ""
    unchecked: str = ""
    step_here_s: float = 0.0
    activations: dict[str, list[tuple[float, ...]]] = {}
    unforecast: str = ""
    score: float | None = None
    evaluate_s: float = 0.0
    batch_s: float = 0.0
    batch_by: str = "batch()"
    draws: bool | None = None
    notes: list[str] = []

    def load(self, folder: Path) -> Job:
        return load_job(self.job) if self.file else unpack(find_packed(self.job, folder))


class Config(NamedTuple):
    """The settings that builders of a user's model read: the description and its folder."""

    described: Described
    folder: Path

    @property
    def values(self) -> Path:
        return self.folder / self.described.values


def model_of(described: Described, folder: Path) -> Model:
    """The model of the study that a description is."""
    values = str(folder / described.values)
    init, tables, flat = Init("stored", 0.0, values), described.tables, described.flat
    variables = tuple(
        Variable(name, tuple(shape), "embedding" if name in tables else "dense", init, name in flat)
        for name, shape in described.variables
    )
    return Model(
        name=described.name,
        workload="own",
        unit="samples",
        variables=variables,
        optimizer=Optimizer(**described.optimizer),
        forward_flops_per_unit=described.forward_flops,
        memory_passes_per_unit=described.memory_passes,
        config=Config(described=described, folder=folder),
    )


@lru_cache
def _read(path: Path, modified_ns: int) -> Model:
    return model_of(Described.model_validate_json(path.read_text()), path.parent)


class Models(Mapping[str, Model]):
    """The jobs described in the folders that `FOLDERS` names, by name."""

    def __getitem__(self, name: str) -> Model:
        for folder in known():
            if (path := folder / f"{name}.json").is_file():
                return _read(path, path.stat().st_mtime_ns)
        raise KeyError(name)

    def __iter__(self) -> Iterator[str]:
        return iter(sorted({path.stem for folder in known() for path in folder.glob("*.json")}))

    def __len__(self) -> int:
        return len(list(iter(self)))


@contextmanager
def without_values(folder: Path) -> Iterator[None]:
    """Remove first values from a folder of jobs afterwards: they are as large as the model."""
    try:
        yield
    finally:
        for path in folder.glob("*.values"):
            path.unlink(missing_ok=True)


def know(folder: Path) -> None:
    """Have this process, and those that it starts, find the jobs described in this folder."""
    if folder not in known():
        os.environ[FOLDERS] = os.pathsep.join(map(str, [folder, *known()]))


def known() -> list[Path]:
    """The folders of jobs that this process finds."""
    return [Path(part) for part in os.environ.get(FOLDERS, "").split(os.pathsep) if part]
