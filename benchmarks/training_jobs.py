"""Jobs that `training.py` times, and the Run that each way of training one has."""

from dataclasses import dataclass, field
from typing import Any

from multigpu.build import build_run
from multigpu.spec.run import Run

Settings = dict[str, Any]
"""Fields of a Run by name."""

CAPTURED: Settings = {"placement": "ddp", "execution": "captured"}
COMPILED_CAPTURED: Settings = {"placement": "ddp", "execution": "compiled_captured"}
APART: Settings = {"placement": "independent", "bucket_update": None, "bucket_send": None}
COPIED: Settings = {"bucket_send": "copied", "bucket_update": "in_backward"}

IMAGES: Settings = {"workload": "cnn", "layout": "channels_last", "precision": "bf16"}


@dataclass(frozen=True)
class Job:
    """What is trained, and how this project and TensorFlow train it best.

    common: what all ways have in common.
    batches: those that are timed where none is named, the one that pages show first.
    ours: the way that Records say is the fastest. alone, together: more of it, on one device and
        on several.
    others: further ways of this project by name, each as what it changes of `ours`; timed where
        they are named.
    mirrored: more of TensorFlow's way on several devices.
    """

    common: Settings
    batches: tuple[int, ...]
    ours: Settings
    alone: Settings = field(default_factory=dict)
    together: Settings = field(default_factory=dict)
    others: dict[str, Settings] = field(default_factory=dict)
    mirrored: Settings = field(default_factory=dict)


JOBS: dict[str, Job] = {
    "resnet50": Job(
        {**IMAGES, "model": "resnet50_v1.5"},
        (64, 256),
        {**CAPTURED, "batch_norm": "fused", "stem": "folded"},
        alone={"bucket_update": "in_backward"},
        together={"bucket_send": "grouped_small_last"},
        others={"ours-copied": COPIED, "ours-apart": APART},
        mirrored={"batch_norm": "persistent"},
    ),
    "translator": Job(
        {"workload": "nmt", "model": "nmt000", "sequence_length": 100, "precision": "bf16"},
        (128, 384),
        {
            **CAPTURED,
            "recurrence": "persistent",
            "cross_entropy": "fused",
            "bucket_update": "in_backward",
        },
        together={"bucket_send": "grouped_small_last"},
        others={"ours-copied": COPIED, "ours-apart": APART},
    ),
    # compiled alone beats captured alone at every batch that Records have; whether the loss should
    # be the compiler's, too, no Record says yet
    "gpt2": Job(
        {"workload": "gpt", "model": "gpt2_124m", "sequence_length": 1024, "precision": "bf16"},
        (32,),
        {**COMPILED_CAPTURED, "cross_entropy": "fused"},
        others={"ours-library-loss": {"cross_entropy": None}, "ours-apart": APART},
    ),
    # one Record at 32: compiled and captured 2,888 images/s, captured 1,849; none with batch norm
    # fused
    "inception3": Job(
        {**IMAGES, "model": "inception3"},
        (64,),
        COMPILED_CAPTURED,
        others={
            "ours-fused": {"execution": "captured", "batch_norm": "fused"},
            "ours-apart": APART,
        },
        mirrored={"batch_norm": "persistent"},
    ),
    "vgg16": Job(
        {**IMAGES, "model": "vgg16"},
        (64,),
        COMPILED_CAPTURED,
        others={"ours-apart": APART},
    ),
    # document 003's batch and precision
    "deepconn": Job(
        {"workload": "deepconn", "model": "deepconn"},
        (32,),
        CAPTURED,
        alone={"bucket_update": "in_backward"},
        others={"ours-compiled": {**COMPILED_CAPTURED, "bucket_update": None}, "ours-apart": APART},
    ),
    "small": Job(
        {
            "workload": "cnn",
            "model": "resnet_small",
            "layout": "channels_last",
            "device_type": "cpu",
        },
        (32,),
        {"placement": "ddp", "batch_norm": "fused"},
    ),
}

WAYS = ("plain", "ours", "reduce-overhead", "compile", "captured", "tensorflow")
"""In the order in which they prepare. "plain" has autocast, cuDNN's LSTM (nn.LSTM), images with
channels last and a fused update; on several devices it is DistributedDataParallel, with
torch.compile around it ("compile") or inside it ("reduce-overhead"). "captured" is this project's
graph of the library's kernels, "tensorflow" one process: XLA on one device (one traced function
for the translator), MirroredStrategy on several.
"""
FURTHER = tuple(dict.fromkeys(way for job in JOBS.values() for way in job.others))
BY_HAND = ("plain", "compile", "reduce-overhead")
"""Ways whose step is written as a user of PyTorch writes it."""

MOST_STEPS = 200_000


def run_of(job: str, batch: int, way: str, devices: int = 1) -> Run:
    """What a way trains; batch: of each device.

    Raises:
        ValueError: this job has no such way; the sentence says why.
    """
    known = JOBS[job]
    more: Settings = {"placement": "independent", "timed_steps": MOST_STEPS}
    if way == "tensorflow":
        more |= {"framework": "tensorflow", "processes": "one", "execution": "graph"}
        if devices > 1:
            more |= {"placement": "mirrored_nccl", **known.mirrored}
        else:
            form = "graph" if known.common["workload"] == "nmt" else "xla"
            more |= {"placement": "exp4", "execution": form}
    elif way == "captured":
        more |= CAPTURED
    elif way not in BY_HAND:
        if way != "ours" and way not in known.others:
            raise ValueError(
                f"{job} has no way {way!r}: it has {', '.join([*WAYS, *known.others])}"
            )
        more |= {**known.ours, **(known.together if devices > 1 else known.alone)}
        more |= known.others.get(way, {})
    return build_run(**{**known.common, "devices": devices, "batch_size": batch, **more})
