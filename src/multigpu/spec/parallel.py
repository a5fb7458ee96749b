"""How many devices take part in each way of being parallel, and how a batch is shared out."""

from dataclasses import dataclass
from typing import Self

from multigpu.spec.row import Row
from multigpu.spec.run import Run

PARTITIONED = ("sections", "split")
"""Values of a row's `compute` under which devices share copies of a model."""


@dataclass(frozen=True)
class ParallelDims:
    """Degrees of parallelism of a Run; their product is its number of devices.

    data: replicas that all keep whole variables (replicated data parallel).
    shard: replicas that each keep a stretch of the variables or of the optimizer's states (fully
        sharded data parallel, ZeRO).
    tensor: devices over which each layer of one copy of the model is cut.
    pipeline: devices over which the layers or stages of one copy are spread.
    """

    data: int = 1
    shard: int = 1
    tensor: int = 1
    pipeline: int = 1

    @classmethod
    def of(cls, run: Run, row: Row | None) -> Self:
        """Derive the degrees from a Run and the row of its placement.

        row: None where a Run stands for all placements; then `model_parallel` alone says how many
            devices share a copy.
        """
        if row is not None and row.compute == "stage":
            return cls(pipeline=run.devices)
        parted = row is not None and row.compute in PARTITIONED
        degree = run.model_parallel or (run.devices if parted else 1)
        # a degree above the number of devices is refused by `rules.partition`
        copies = max(1, run.devices // degree)
        shares = {"data": copies}
        if row is not None and "sharded" in (row.variables, row.update):
            pieces = min(run.sharded_over or copies, copies)
            shares = {"shard": pieces, "data": copies // pieces}
        if row is not None and row.compute == "sections":
            return cls(**shares, pipeline=degree)
        return cls(**shares, tensor=degree)

    @property
    def devices(self) -> int:
        return self.copies * self.degree

    @property
    def degree(self) -> int:
        """Devices that share one copy of the model: neighbours by rank."""
        return self.tensor * self.pipeline

    @property
    def copies(self) -> int:
        """Copies of the model, which get a shard of the batch each."""
        return self.data * self.shard

    def copy_of(self, rank: int) -> int:
        """The copy of the model, and so the shard, that device `rank` works on."""
        return rank // self.degree

    def leads(self, rank: int) -> bool:
        """Whether `rank` is the first device of its copy of the model, which answers for the
        shard's counts.
        """
        return rank % self.degree == 0


def shard_sizes(run: Run, row: Row | None) -> list[int]:
    """Rows of each replica's shard of one step (sentences, images, ...); a replica is a copy of the
    model, on however many devices. row: as `ParallelDims.of`.
    """
    dims = ParallelDims.of(run, row)
    if row is not None and row.compute == "stage":  # one model on all devices
        return [run.batch_size]
    if run.scaling == "weak":
        return [run.batch_size * dims.degree] * dims.copies
    share, rest = divmod(run.batch_size, dims.copies)
    if row is not None and row.loss == "gpu0":
        return [share] * (run.devices - 1) + [share + rest]
    return [share + (rank < rest) for rank in range(dims.copies)]
