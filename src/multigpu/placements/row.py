"""A placement as a row of data, read by every engine and by the prediction of what a step moves."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, model_validator

from multigpu.collectives import find_algorithm

Home = Literal["replica", "host", "gpu0", "sharded"]
"""Where something lives: a copy on every replica's device, host memory, the first device, or spread over the devices by
greedy least load (each variable, in order of declaration, goes whole to the device that holds the fewest elements)."""

Merge = Literal["all_reduce", "copy", "halves", "host", "gpu0", "sharded", "none"]
"""Where gradients are summed: in a collective, on every replica after plain copies, on the first device of each half of the
devices and then on the first of all, at one place, or nowhere."""


class Semantics(BaseModel):
    """What a placement's result equals.

    joined: one process training on the joined batch; stale: the same with gradients `steps` updates old;
    lossy: the joined batch within `tolerance` (norm of the difference over norm of the update);
    independent: every replica equals one process training on that replica's shard alone;
    asynchronous: every shard's update is applied exactly once, by its own mean, to variables that others may have changed since
    they were read: on one replica the joined batch, on more a result that depends on their order.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")
    kind: Literal["joined", "stale", "lossy", "independent", "asynchronous"] = "joined"
    steps: int = 0
    tolerance: float = 0.0


class Engine(BaseModel):
    """One way in which a framework carries a placement out.

    processes: one process that dispatches for all devices, or one a device.
    executions: the forms of execution that it allows.
    strategy: the framework's own strategy that carries it out; "" where the engine does.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")
    framework: Literal["torch", "tensorflow"] = "torch"
    processes: Literal["one", "per_device"] = "per_device"
    executions: tuple[str, ...] = ("eager",)
    strategy: Literal["", "mirrored", "central_storage", "multi_worker", "parameter_server"] = ""


ONE_GRAPH = ("eager", "compiled", "captured", "compiled_captured")
"""PyTorch's forms of execution where devices do all of a step."""

HOST_IN_THE_MIDDLE = "the host gathers rows, merges or updates in the middle of every step, and a graph of device work cannot wait for it"


class Placement(BaseModel):
    """Where each part of a training step lives and what travels between the parts.

    variables, embeddings: homes of the dense variables and of the tables that are looked up by row.
    lookup: where rows are gathered: on the replica (then whole tables travel to it) or at the table's home (rows do).
    merge, slots, update: where gradients are summed, optimiser state lives and the update runs.
    travels: what an embedding sends to a replica each step.
    algorithm: of `collectives.algorithms`: the all-reduce after backward written out from sends and receives; None: the library's.
    overlap: whether merging starts before backward has ended.
    engines: who carries the placement out, and how; `refusals` says why a form of execution is not among theirs.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    title: str
    source: str
    summary: str
    variables: Home
    embeddings: Home
    lookup: Home
    compute: Literal["replica"] = "replica"
    merge: Merge
    slots: Home
    update: Home
    travels: Literal["nothing", "rows", "tables"]
    algorithm: str | None = None
    overlap: bool = False
    semantics: Semantics = Semantics()
    engines: tuple[Engine, ...] = (Engine(),)
    refusals: dict[str, str] = {}

    @property
    def frameworks(self) -> tuple[str, ...]:
        """Frameworks in which the placement exists."""
        return tuple(dict.fromkeys(engine.framework for engine in self.engines))

    @property
    def executions(self) -> tuple[str, ...]:
        """Forms of execution that some engine allows."""
        return tuple(dict.fromkeys(form for engine in self.engines for form in engine.executions))

    @model_validator(mode="after")
    def _consistent(self) -> Placement:
        if self.lookup not in ("replica", self.embeddings):
            raise ValueError(
                f"{self.name}: rows can be gathered on the replica or at the table's home {self.embeddings!r}, not at {self.lookup!r}"
            )
        expected = "nothing" if self.embeddings == "replica" else "tables" if self.lookup == "replica" else "rows"
        if self.travels != expected:
            raise ValueError(
                f"{self.name}: with embeddings at {self.embeddings!r} and look-up at {self.lookup!r},"
                f" {expected} must travel, not {self.travels!r}"
            )
        if (self.variables == "replica") != (self.update == "replica"):
            raise ValueError(
                f"{self.name}: variables at {self.variables!r} cannot be updated at {self.update!r}:"
                " copies are updated where they are, and only they"
            )
        if self.slots != self.update:
            raise ValueError(f"{self.name}: slots at {self.slots!r} must live where the update runs, {self.update!r}")
        at_home = ("all_reduce", "copy", "halves", "gpu0", "none") if self.update == "replica" else (self.update,)
        if self.merge not in at_home:
            raise ValueError(f"{self.name}: with the update at {self.update!r}, gradients merge at one of {at_home}, not at {self.merge!r}")
        return self

    @model_validator(mode="after")
    def _algorithm_possible(self) -> Placement:
        if self.algorithm is None:
            return self
        if self.merge != "all_reduce" or self.overlap:
            how = f"with merge {self.merge!r}" + (" and overlap" if self.overlap else "")
            raise ValueError(f"{self.name}: algorithm {self.algorithm!r} is one of an all-reduce after backward, and cannot be used {how}")
        if any((engine.framework, engine.processes) != ("torch", "per_device") for engine in self.engines):
            raise ValueError(f"{self.name}: algorithm {self.algorithm!r} is carried out in 'torch' with one process a device only")
        wire = find_algorithm(self.algorithm).wire
        if wire and self.semantics.kind != "lossy":
            raise ValueError(
                f"{self.name}: algorithm {self.algorithm!r} sends {wire}, so its semantics are 'lossy', not {self.semantics.kind!r}"
            )
        return self
