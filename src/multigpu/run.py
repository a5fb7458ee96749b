"""A Run: one point of the study, frozen and validated when it is built."""

from __future__ import annotations

import hashlib
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from multigpu.placements import find_placement, unsupported_reason
from multigpu.workloads import find_model, workloads
from multigpu.workloads.base import Model, Optimizer

Precision = Literal["fp64", "fp32", "tf32", "bf16"]
Execution = Literal["eager", "compiled", "captured", "compiled_captured", "graph", "xla"]
"""PyTorch runs the first four, TensorFlow eager, graph (one `tf.function`) and xla."""

ONLY_FOR = {
    "sequence_length": ("words",),
    "layout": ("images",),
    "recurrence": ("words",),
    "embedding_gradients": ("words", "reviews"),
    "cross_entropy": ("words",),
}
"""Fields that mean something for some units only."""


class Run(BaseModel):
    """Workload x placement x framework x devices x batch x precision x execution x seed.

    processes: one a device, or one that dispatches for all devices.
    batch_size: of each device under weak scaling, of all devices together under strong scaling (shards then differ by
        at most one; the first take the remainder).
    data: paths that the input reads (two text files, one folder, one file of reviews), for inputs that take paths.
    sequence_length: words of every source and every target sentence (NMT, input `synthetic` only).
    layout: memory layout of images (CNN only).
    recurrence: all cells in one call of the library ("fused", also None) or a loop of cells, as "dynamic rnn" ("stepwise"); NMT only.
    embedding_gradients: of tables, added up in an array of the table's size ("dense", also None) or sent as deduplicated rows
        with their ids ("sparse"); NMT and DeepCoNN in TensorFlow only.
    cross_entropy: projection and loss operation by operation ("library", also None) or in one piece that leaves the gradient
        where the logits were ("fused"); NMT in PyTorch only.
    bucket_mib: where a bucket of gradients ends (None: 25, the library's choice); placements that merge during backward only.
    execution: "captured" is the whole step as one CUDA graph; "compiled" leaves the model to torch.compile.
    optimizer: "default" is the workload's own rule.
    timed_steps follow warmup_steps, which are measured too but never enter a throughput.
    traced_steps: that many further steps run under the framework's profiler; what is timed is never profiled.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    workload: str
    model: str
    placement: str
    framework: Literal["torch", "tensorflow"] = "torch"
    device_type: Literal["cuda", "cpu"] = "cuda"
    devices: int = Field(default=1, ge=1)
    processes: Literal["per_device", "one"] = "per_device"
    batch_size: int = Field(ge=1)
    scaling: Literal["weak", "strong"] = "weak"
    inputs: str = "synthetic"
    data: tuple[str, ...] | None = None
    sequence_length: int | None = Field(default=None, ge=2)
    layout: Literal["channels_first", "channels_last"] | None = None
    recurrence: Literal["fused", "stepwise"] | None = None
    embedding_gradients: Literal["dense", "sparse"] | None = None
    cross_entropy: Literal["library", "fused"] | None = None
    bucket_mib: int | None = Field(default=None, ge=1, le=4096)
    precision: Precision = "fp32"
    execution: Execution = "eager"
    optimizer: Literal["default", "sgd", "momentum", "adam"] = "default"
    seed: int = Field(default=0, ge=0)
    warmup_steps: int = Field(default=10, ge=1)
    timed_steps: int = Field(default=30, ge=1)
    traced_steps: int = Field(default=0, ge=0, le=20)

    @model_validator(mode="after")
    def _possible(self) -> Run:
        model = find_model(self.workload, self.model)
        placement = find_placement(self.placement)
        known = workloads()[self.workload].inputs
        if self.inputs not in known:
            raise ValueError(f"unknown inputs {self.inputs!r} of workload {self.workload!r}: choose one of {', '.join(known)}")
        if self.scaling == "strong" and self.batch_size < self.devices:
            raise ValueError(
                f"a joined batch of {self.batch_size} cannot be split over {self.devices} devices:"
                f" batch_size must be at least {self.devices}"
            )
        for name, units in ONLY_FOR.items():
            if model.unit not in units and getattr(self, name) is not None:
                raise ValueError(f"{name} {getattr(self, name)!r} has no meaning for {model.unit}: leave it out")
        if self.embedding_gradients == "sparse" and self.framework != "tensorflow":
            raise ValueError("embedding_gradients 'sparse' exists in 'tensorflow' only: leave it out or choose framework 'tensorflow'")
        if self.cross_entropy == "fused" and self.framework != "torch":
            raise ValueError("cross_entropy 'fused' exists in 'torch' only: leave it out or choose framework 'torch'")
        if self.bucket_mib is not None and not (placement.overlap and self.framework == "torch"):
            raise ValueError(f"bucket_mib {self.bucket_mib} has no meaning for placement {self.placement!r}: leave it out")
        if "captured" in self.execution:
            if self.device_type == "cpu":
                raise ValueError(f"execution {self.execution!r} is a CUDA graph and exists on GPUs only: choose eager on device_type 'cpu'")
            if self.warmup_steps < 4:
                raise ValueError(f"warmup_steps {self.warmup_steps} is too few to capture a step: at least 4 are needed")
        if self.device_type == "cpu" and self.precision == "tf32":
            raise ValueError("precision 'tf32' exists on GPUs only: choose fp64, fp32 or bf16 on device_type 'cpu'")
        if self.device_type == "cuda" and self.precision == "fp64":
            raise ValueError("precision 'fp64' serves the equivalence tests on CPUs only: choose fp32, tf32 or bf16 on device_type 'cuda'")
        reason = unsupported_reason(placement, self.framework, self.processes, self.execution)
        if reason:
            raise ValueError(reason)
        return self

    @property
    def description(self) -> Model:
        return find_model(self.workload, self.model)

    @property
    def rule(self) -> Optimizer:
        """The update rule: the workload's own, or a plain one by name. One place for all frameworks, so that twins cannot drift."""
        plain = {"sgd": Optimizer("sgd", 0.1), "momentum": Optimizer("sgd", 0.1, momentum=0.9), "adam": Optimizer("adam", 1e-3)}
        return plain.get(self.optimizer, self.description.optimizer)

    @property
    def shard_sizes(self) -> list[int]:
        """Sentences, images or rows of reviews of each replica's shard of one step."""
        if self.scaling == "weak":
            return [self.batch_size] * self.devices
        share, rest = divmod(self.batch_size, self.devices)
        return [share + (rank < rest) for rank in range(self.devices)]

    @property
    def digest(self) -> str:
        """A hash of every field: two Runs with one digest are the same point.

        Fields at their defaults are left out, so that a field added later (whose default says what was done before) leaves
        the keys of older Records as they are.
        """
        return hashlib.sha256(self.model_dump_json(exclude_defaults=True).encode()).hexdigest()[:16]

    def label(self) -> str:
        """A short name for progress bars and messages."""
        how = f"{self.framework}{' (one process)' if self.processes == 'one' else ''} {self.execution}"
        return f"{self.model} {self.placement} {how} x{self.devices} b{self.batch_size} {self.precision}"


def build_run(**fields: Any) -> Run:
    """A Run, or one clear sentence.

    Raises:
        ValueError: a field is unknown, has a wrong type or a value that cannot work; the sentence names it.
    """
    try:
        return Run(**fields)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        message = first["msg"].removeprefix("Value error, ")
        raise ValueError(f"{where} = {first['input']!r}: {message[0].lower() + message[1:]}" if where else message) from None
