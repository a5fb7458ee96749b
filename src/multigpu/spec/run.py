"""A Run: one point of the study, as plain data.

`multigpu.build.build_run` builds one that can be measured: it looks up the Run's placement and
model, and judges it by `spec.rules`. `Run(...)` alone checks types and ranges.
"""

from typing import Literal, Self

from pydantic import Field, model_validator

from multigpu.spec.schema import Spec

Precision = Literal["fp64", "fp32", "tf32", "bf16", "bf16_params", "fp16"]
Batching = Literal["own", "shared", "fixed"]
Execution = Literal["eager", "compiled", "captured", "compiled_captured", "graph", "xla"]
"""PyTorch runs the first four, TensorFlow eager, graph (one `tf.function`) and xla."""


class Run(Spec):
    """Workload x placement x framework x devices x batch x precision x execution x seed.

    processes: one a device, or one that dispatches for all devices.
    batch_size: of each device under weak scaling, of all devices together under strong scaling
        (shards then differ by at most one; the first take the remainder, or the last all of it
        where the placement slices a global batch).
    data: paths that the input reads (two text files, one folder), for inputs that take paths; a
        file of text may be packed by gzip (.gz).
    sequence_length: words of every source and every target sentence (NMT: input `synthetic`), or
        positions to which batching "fixed" pads both sides, longer sentences cut off there (100
        where none is named); tokens of every sequence of a transformer (None: all it can read).
    batching: which sentences share a step (NMT): every replica's shard from a length bucket of its
        own ("own", document 000), all replicas' shards from one bucket ("shared", the practice that
        it proposes), or no buckets and one width ("fixed").
    shuffle: take the sentences of a corpus in an order drawn from the seed, and not in the corpus's
        own (NMT and transformers, corpora only).
    layout: memory layout of images (CNN only).
    batch_norm: the framework's own (None); cuDNN's "persistent" kernels (TensorFlow on GPUs, as
        tf_cnn_benchmarks asks for them); or in one piece with the sum, ReLU and max-pooling that
        follow ("fused", PyTorch, channels last; without Triton the Record says so).
    stem: "folded": the first convolution without its stride, on images whose blocks of pixels
        became channels; as `batch_norm` "fused".
    weight_casts: "grouped": weights of several convolutions are cast to 16 bits by one kernel, and
        their gradients back by one (PyTorch).
    recurrence: all cells in one call of the library ("fused", also None) or a loop of cells, as
        "dynamic rnn" ("stepwise"); NMT and recurrent stacks only. "persistent": a cell at a time by
        this project's own kernels, bf16 on GPUs with compute capability 9.0 (on others the
        library's, and the Record says so; on CPUs written out); NMT in PyTorch only.
    embedding_gradients: of tables, added up in an array of the table's size ("dense", also None) or
        sent as deduplicated rows with their ids ("sparse"); NMT and DeepCoNN in TensorFlow only.
    cross_entropy: projection and loss operation by operation ("library", also None) or in one piece
        that leaves the gradient where the logits were ("fused": of a transformer a stretch of
        tokens at a time, so that all logits never exist); NMT and transformers in PyTorch only.
    bucket_mib: where a bucket of gradients ends (None: 25, the library's choice); placements that
        merge during backward only.
    bucket_update: when a bucket's variables are updated: when backward has ended and the bucket has
        returned (None), or "in_backward", as soon as it has returned, on streams of their own
        beside what is left of backward; captured steps of such placements only.
    bucket_send: how a bucket travels: packed into one message (None), or "grouped", each gradient
        from where backward left it, all in one call of the library, with no wait that the order of
        a stream makes needless, or "grouped_small_last", so too, and the small bucket is the last
        that backward completes instead of the first, all others being updated at once; "copied" and
        "copied_small_last": packed, and summed by copies from device to device, which take no
        multiprocessors, and one addition (`engines.torch.copied_sums`), between GPUs with peer
        access, or "copied_grouped", so too, large gradients from where backward left them; as
        `bucket_update`, captured steps only. Copied sums are `zero1`'s, too: each bucket's pieces
        are updated where their sum is, beside backward, and the new values are copied to all.
    nccl_ctas: thread blocks, each on a multiprocessor of its own, that one of NCCL's collectives
        takes at most (NCCL_MAX_CTAS; None: as many as the library likes); PyTorch's placements that
        merge by its all-reduce, with a process a device only.
    all_reduce_spec: which all-reduce takes which gradients, by their bytes (grammar:
        `collectives.spec`), for the placement `replicated_allreduce`; None: the library's takes all
        of them as one message.
    wire_dtype: the type in which gradients travel through the all-reduce (None: their own); PyTorch
        only.
    powersgd_rank: gradients travel as two factors of this rank where that is at most half of their
        bytes (PyTorch's PowerSGD; what is left out is added to the next step's), in place of an
        exact sum; placement `ddp`, eager, only.
    top_k: this share of each gradient's numbers travels, the largest ones with their places (what
        is left out is added to the next step's), in place of an exact sum; as `powersgd_rank`.
    precision: "bf16" and "fp16": products in 16 bits by autocast, of variables in float32.
        "bf16_params": variables, products and gradients in bfloat16, beside float32 masters that
        are updated; transformers in PyTorch, with replicas that update themselves or cut variables.
    loss_scale: what the loss is multiplied by under fp16, fixed; None: found while training
        (`engines.torch.loss_scale`).
    model_parallel: devices that share one copy of the model, where a placement spreads or cuts it
        (None: all of them); the others hold further copies, and batches are shared out among
            copies.
    micro_batches: into how many parts, one after another, each copy's batch passes the stages
        (None: one); layers over devices only.
    pipeline_schedule: in which order a pipeline's stages work: all micro-batches forward, then all
        back (None, GPipe), "1f1b", one forward and one back as soon as there is one, or
        "interleaved", so too with two stages a device; placement `pipeline` only.
    micro_steps: parts of each shard that pass forward and backward one after another, their
        gradients added up, before variables are updated once (None: one); PyTorch with a process a
        device and replicas of the whole model.
    micro_sync: when these gradients merge: with the last part's (None), or "each" part's; replicas
        whose gradients merge only.
    slicing: "device": the global batch goes to the first device, from which every other gets its
        shard (None: each shard comes from the host); placement `data_parallel` only.
    recompute: whether repeated blocks keep their inputs alone and compute activations again in
        backward; PyTorch with a process a device and replicas of the whole model.
    reshard: whether variables that are cut and gathered for forward are freed after it and gathered
        again for backward (False: kept between); placements that cut variables only.
    sharded_over: devices over which variables are cut (None: all), neighbours by rank; the others
        hold further copies (hybrid sharding); placements that cut variables only.
    local_steps: steps that a replica trains by itself between two averages (None: 5); placement
        `local_sgd` only.
    execution: "captured" is the whole step as one CUDA graph; "compiled" leaves the model to
        torch.compile.
    optimizer: "default" is the workload's own rule.
    timed_steps follow warmup_steps, which are measured too but never enter a throughput.
    input_workers: processes of each replica that make batches (PyTorch's loader), or parallel calls
        of all replicas (tf.data); 0: the training process itself, in the step; None: one thread of
        it, one batch ahead.
    prefetch: batches that are on the device ahead of their step; 0: copied when the step asks.
    staging: "own_stream": what is copied ahead is copied on a stream of its own, beside what
        computes.
    image_dtype: as what images cross to the device: float32, normalised on the host (None), or
        "uint8", the pixels themselves, a quarter of the bytes, normalised there (inputs
        synthetic_host and jpeg_folder, PyTorch only).
    device_ids: which GPUs, "0,3", by rank (None: the first ones); on CPUs names of stand-ins alone.
    peer_access: "off": NCCL goes through host memory (NCCL_P2P_DISABLE=1), a stand-in for GPUs on
        either side of a switch.
    host_cores: how many of (each) host's cores all processes of the Run may use together, the first
        ones, by affinity from before any framework starts, with no more threads than that (None:
        all).
    energy_window_s: so many further seconds are trained between two readings of each GPU's counter
        of energy.
    feed: where a step's reviews come from: kept on the device if they repeat, else fetched one
        ahead (None); handed over by the step's own thread from Python's arrays ("arrays", as a
        feed_dict), of words as strings that the host looks up ("strings", TensorFlow's placements
        of stages only, as document 003), or one ahead by another thread ("pipeline"); DeepCoNN
        only.
    stage_devices: the device of each stage of the model, one digit each in the graph's order, for
        placement "searched".
    traced_steps: that many further steps run under the framework's profiler; what is timed is never
        profiled.
    traced_from: the first step of that window, counted from the Run's first one (None: soon after
        the last timed one).
    """

    workload: str
    model: str
    placement: str
    framework: Literal["torch", "tensorflow"] = "torch"
    device_type: Literal["cuda", "cpu"] = "cuda"
    devices: int = Field(default=1, ge=1, le=4096)
    processes: Literal["per_device", "one"] = "per_device"
    batch_size: int = Field(ge=1, le=10**8)
    scaling: Literal["weak", "strong"] = "weak"
    inputs: str = "synthetic"
    data: tuple[str, ...] | None = None
    sequence_length: int | None = Field(default=None, ge=2, le=10**6)
    batching: Batching = "own"
    shuffle: bool = False
    layout: Literal["channels_first", "channels_last"] | None = None
    batch_norm: Literal["persistent", "fused"] | None = None
    stem: Literal["folded"] | None = None
    weight_casts: Literal["grouped"] | None = None
    recurrence: Literal["fused", "stepwise", "persistent"] | None = None
    embedding_gradients: Literal["dense", "sparse"] | None = None
    cross_entropy: Literal["library", "fused"] | None = None
    bucket_mib: int | None = Field(default=None, ge=1, le=4096)
    bucket_update: Literal["in_backward"] | None = None
    bucket_send: (
        Literal["grouped", "grouped_small_last", "copied", "copied_small_last", "copied_grouped"]
        | None
    ) = None
    nccl_ctas: int | None = Field(default=None, ge=1, le=64)
    all_reduce_spec: str | None = None
    wire_dtype: Literal["bf16", "fp16"] | None = None
    powersgd_rank: int | None = Field(default=None, ge=1, le=64)
    top_k: float | None = Field(default=None, gt=0, lt=1)
    loss_scale: int | None = Field(default=None, ge=1, le=2**24)
    input_workers: int | None = Field(default=None, ge=0, le=64)
    prefetch: int = Field(default=0, ge=0, le=2)
    staging: Literal["own_stream"] | None = None
    image_dtype: Literal["uint8"] | None = None
    device_ids: str | None = None
    peer_access: Literal["off"] | None = None
    energy_window_s: int | None = Field(default=None, ge=1)
    model_parallel: int | None = Field(default=None, ge=1)
    micro_batches: int | None = Field(default=None, ge=2, le=64)
    pipeline_schedule: Literal["1f1b", "interleaved"] | None = None
    micro_steps: int | None = Field(default=None, ge=2, le=64)
    micro_sync: Literal["each"] | None = None
    slicing: Literal["device"] | None = None
    recompute: bool = False
    reshard: bool = True
    sharded_over: int | None = Field(default=None, ge=2)
    local_steps: int | None = Field(default=None, ge=2, le=10_000)
    precision: Precision = "fp32"
    execution: Execution = "eager"
    optimizer: Literal["default", "sgd", "momentum", "adam"] = "default"
    seed: int = Field(default=0, ge=0)
    warmup_steps: int = Field(default=10, ge=1, le=10**8)
    timed_steps: int = Field(default=30, ge=1, le=10**8)
    traced_steps: int = Field(default=0, ge=0, le=20)
    feed: Literal["arrays", "strings", "pipeline"] | None = None
    stage_devices: str | None = None
    traced_from: int | None = Field(default=None, ge=1)
    host_cores: int | None = Field(default=None, ge=1)

    @model_validator(mode="after")
    def _writable(self) -> Self:
        """Refuse a path that no digest and no line of a log could hold."""
        for path in self.data or ():
            if any(letter < " " or "\ud800" <= letter <= "\udfff" for letter in path):
                raise ValueError(
                    f"data names {path!r}, which is no text of a line in UTF-8: rename or link it"
                )
        return self

    @property
    def chosen_devices(self) -> tuple[int, ...]:
        """Which device each rank uses."""
        if self.device_ids is None:
            return tuple(range(self.devices))
        return tuple(int(part) for part in self.device_ids.split(","))

    @property
    def environment(self) -> dict[str, str]:
        """Variables that the Run's processes must find in their environment before they start."""
        named = {
            "NCCL_P2P_DISABLE": self.peer_access == "off",
            "NCCL_MAX_CTAS": self.nccl_ctas,
            "TF_USE_CUDNN_BATCHNORM_SPATIAL_PERSISTENT": self.batch_norm == "persistent",
        }
        return {name: str(int(wanted)) for name, wanted in named.items() if wanted}

    def label(self) -> str:
        how = (
            f"{self.framework}{' (one process)' if self.processes == 'one' else ''}"
            f" {self.execution}"
        )
        return (
            f"{self.model} {self.placement} {how} x{self.devices} b{self.batch_size}"
            f" {self.precision}"
        )
