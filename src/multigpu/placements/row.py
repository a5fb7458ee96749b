"""A placement as a row of data, read by every engine and by the prediction of what a step moves."""

from typing import Literal, NamedTuple, Self

from pydantic import Field, model_validator

from multigpu.collectives import find_algorithm
from multigpu.spec.schema import Data
from multigpu.spec.semantics import Semantics

Home = Literal["replica", "host", "gpu0", "balanced", "sharded", "stage", "sections", "split"]
"""Where something lives: a copy on every replica's device, host memory, the first device, spread
over the devices by greedy least load (each variable whole to the device that holds the fewest
elements), cut into equal stretches, one a device (`traffic.laid_out`), or the device of the model's
stage that uses it (placements inside one model: `stage_split`).
"""

Reduction = Literal[
    "all_reduce",
    "reduce_scatter",
    "copy",
    "halves",
    "host",
    "gpu0",
    "balanced",
    "stage",
    "sections",
    "split",
    "average",
    "none",
]
"""Where gradients are summed: in a collective (all sums to every replica, or a stretch each), on
every replica after plain copies, on the first device of each half and then of all, at one place, or
nowhere: "average" takes the mean of variables every so many steps.
"""


Strategy = Literal["", "mirrored", "central_storage", "multi_worker", "parameter_server"]


class Engine(Data):
    """One way in which a framework carries a placement out. strategy: the framework's own that
    does; "" where the engine does.
    """

    framework: Literal["torch", "tensorflow"] = "torch"
    processes: Literal["one", "per_device"] = "per_device"
    executions: tuple[str, ...] = ("eager",)
    strategy: Strategy = ""


class Look(NamedTuple):
    """A placement's place in orders, label, colour (3:1 on white and #121212) and marker."""

    order: int
    label: str
    colour: str
    marker: str


WHOLE_STEP = Engine(executions=("eager", "compiled", "captured", "compiled_captured"))
"""PyTorch with a process a device, where devices do all of a step."""

NOT_CAPTURED = Engine(executions=("eager", "compiled"))
"""PyTorch with a process a device, where a step is no graph of one device's work."""

DISPATCHED = Engine(processes="one")
"""PyTorch with one process that dispatches for all devices."""

IN_GRAPH = Engine(framework="tensorflow", processes="one", executions=("graph", "eager", "xla"))
"""TensorFlow with one process, all towers in its one graph."""


def by_strategy(name: Strategy, processes: Literal["one", "per_device"] = "one") -> Engine:
    """TensorFlow's own strategy of this name, whose steps are graphs."""
    return Engine(framework="tensorflow", processes=processes, executions=("graph",), strategy=name)


MIRRORED = by_strategy("mirrored")

OUTSIDE_A_GRAPH = (
    "strategy.run belongs inside one tf.function: eagerly it would dispatch replica after replica"
)
OWN_COLLECTIVE = "compiled, the strategy would put its own collective in the row's place"
IN_STRATEGY = {"eager": OUTSIDE_A_GRAPH, "xla": OWN_COLLECTIVE}
KERNEL_BY_KERNEL = dict.fromkeys(
    ("compiled", "captured", "compiled_captured"),
    "its sends and receives are tested kernel by kernel only; replicated_allreduce reduces the"
    " library's way in every form",
)


class Placement(Data):
    """Where each part of a training step lives and what travels between the parts.

    variables, embeddings: homes of the dense variables and of the tables that are looked up by row
        (which live with them unless said).
    lookup: where rows are gathered: at the table's home, unless said (then rows travel), or on the
        replica (whole tables do).
    update: where it runs: at the variables' home, unless said. reduction: where gradients are
        summed: where the update runs, unless said.
    compute: "sections": stretches of layers, each on its own device, which all shards pass;
        "split": every layer, cut over the devices of one copy of the model. Then everything else is
        so too, further devices hold further copies, and gradients of one part are joined with those
        of the same part of other copies (`partition.py`).
    algorithm: of `collectives.algorithms`: the all-reduce after backward written out from sends and
        receives; None: the library's.
    overlap: whether reduction starts before backward has ended. staged: whether a replica computes
        with what it fetched a step before.
    copied_anew: whether devices but the home have variables, and room for them, for a step alone.
    loss: on each replica over its shard, or on the first device over all replicas' predictions,
        which travel there (their gradients back); the global batch is then sliced there too, and
        the last replica takes the remainder.
    look: on pages; None: by hash of the name (`analysis.style`).
    refusals: form of execution -> what prevents it, where `refusals.why_not_executed` cannot tell
        it from the rest of the row.
    """

    name: str
    title: str
    source: str
    summary: str
    variables: Home
    embeddings: Home = Field(default_factory=lambda row: row["variables"])
    lookup: Home = Field(default_factory=lambda row: row["embeddings"])
    compute: Literal["replica", "stage", "sections", "split"] = "replica"
    update: Home = Field(default_factory=lambda row: row["variables"])
    reduction: Reduction = Field(default_factory=lambda row: row["update"])
    algorithm: str | None = None
    overlap: bool = False
    staged: bool = False
    copied_anew: bool = False
    loss: Literal["replica", "gpu0"] = "replica"
    semantics: Semantics = Semantics()
    engines: tuple[Engine, ...] = (Engine(),)
    refusals: dict[str, str] = {}
    look: Look | None = None

    @property
    def slots(self) -> Home:
        return self.update

    @property
    def travels(self) -> Literal["nothing", "rows", "tables", "activations"]:
        """What an embedding sends to a replica each step, or parts of one model each other."""
        if self.compute in ("sections", "split"):
            return "activations"
        if self.embeddings == "replica":
            return "nothing"
        if self.lookup == "replica":
            return "tables"
        return "rows"

    @property
    def frameworks(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(engine.framework for engine in self.engines))

    @property
    def reduces_gradients(self) -> bool:
        return self.reduction not in ("average", "none")

    @property
    def divides_update(self) -> bool:
        """Whether several devices share an update that one does alone."""
        return self.update not in ("replica", "host", "gpu0")

    @property
    def uses_host(self) -> bool:
        """Whether the host keeps, gathers, merges or updates anything of the model."""
        return "host" in (self.variables, self.embeddings, self.lookup, self.reduction, self.update)

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if {"sections", "split"} & {self.compute, self.variables, self.embeddings, self.update}:
            homes = {
                self.compute,
                self.variables,
                self.embeddings,
                self.lookup,
                self.reduction,
                self.update,
            }
            if len(homes) > 1:
                raise ValueError(
                    f"{self.name}: the parts of one model are all at 'sections' or all at 'split',"
                    f" not at {sorted(homes)}"
                )
            return self
        if self.lookup not in ("replica", self.embeddings):
            raise ValueError(
                f"{self.name}: rows can be gathered on the replica or at the table's home"
                f" {self.embeddings!r}, not at {self.lookup!r}"
            )
        updated_at = {"replica": ("replica", "sharded"), "sharded": ("sharded",)}.get(
            self.variables
        )
        if self.update not in updated_at if updated_at else self.update in ("replica", "sharded"):
            raise ValueError(
                f"{self.name}: variables at {self.variables!r} cannot be updated at"
                f" {self.update!r}: copies are updated where they are, whole or each replica its"
                " stretch, and only they"
            )
        whole = ("all_reduce", "copy", "halves", "gpu0", "average", "none")
        at_home = {"replica": whole, "sharded": ("reduce_scatter",)}.get(
            self.update, (self.update,)
        )
        if self.reduction not in at_home:
            raise ValueError(
                f"{self.name}: with the update at {self.update!r}, gradients are reduced at one of"
                f" {at_home}, not at {self.reduction!r}"
            )
        if (self.reduction == "average") != (self.semantics.every > 1):
            raise ValueError(
                f"{self.name}: variables are averaged after every so many steps, so reduction"
                f" {self.reduction!r} cannot be every {self.semantics.every}"
            )
        copies = "replica" in (self.variables, self.embeddings)
        self._check_staging(copies)
        if self.loss == "gpu0" and (
            copies or any(engine.processes != "one" for engine in self.engines)
        ):
            raise ValueError(
                f"{self.name}: a loss over all replicas' predictions has one master of each"
                " variable, and exists with one process for all devices only"
            )
        if self.algorithm is None:
            return self
        if self.reduction != "all_reduce" or self.overlap:
            how = f"with reduction {self.reduction!r}" + (" and overlap" if self.overlap else "")
            raise ValueError(
                f"{self.name}: algorithm {self.algorithm!r} is one of an all-reduce after backward,"
                f" and cannot be used {how}"
            )
        if any(
            (engine.framework, engine.processes) != ("torch", "per_device")
            for engine in self.engines
        ):
            raise ValueError(
                f"{self.name}: algorithm {self.algorithm!r} is carried out in 'torch' with one"
                " process a device only"
            )
        if (wire := find_algorithm(self.algorithm).wire) and not self.semantics.tolerance:
            raise ValueError(
                f"{self.name}: algorithm {self.algorithm!r} sends {wire}, so its semantics are"
                f" 'lossy', not {self.semantics.kind!r}"
            )
        return self

    def _check_staging(self, copies: bool) -> None:
        if self.staged != bool(self.semantics.steps):
            raise ValueError(
                f"{self.name}: staged variables are one step old, so staged {self.staged} cannot be"
                f" {self.semantics.kind!r}"
            )
        if self.staged and (self.semantics.steps != 1 or copies or self.lookup != "replica"):
            raise ValueError(
                f"{self.name}: staging fetches whole variables one step ahead: they live elsewhere"
                " than on the replica, tables travel whole, and semantics are stale by 1 step"
            )
