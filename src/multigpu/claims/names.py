"""Names that predicates select by: those there are, and those that later placements, models and inputs are to take.

A predicate is written before its Runs can be. Whoever adds one of these keeps the name, or changes it here before measuring.
"""

from __future__ import annotations

from typing import Any

from multigpu.claims.core import Contrast, Term, Value, where

NMT = "nmt000"
"""Document 000's model, at 128 sentences a GPU unless a claim says otherwise."""
NMT_DDL = "nmt004"
"""Document 004's model: 4 x 1024, vocabulary 36,548, 717.67 MB of gradients."""
DEEPCONN = "deepconn"
"""Document 003's model."""

RESNET50 = ("resnet50_v1", "resnet50_v1.5")
RESNET152 = ("resnet152_v1", "resnet152_v1.5")
INCEPTION = ("inception3",)
LARGE_CNNS = (*RESNET50, *INCEPTION, "inception4", "vgg16", "alexnet", *RESNET152)
CIFAR_RESNETS = ("resnet20", "resnet32", "resnet44", "resnet56", "resnet110")
CIFAR_ALEXNET = "alexnet_cifar"
CIFAR_DENSENETS = ("densenet40_k12", "densenet100_k12")

SERVER_CPU = "exp2"
"""Parameter server on the CPU: 000's Exp2 and 001's parameter_server with the CPU as its device."""
SERVER_GPU = "ps_gpu0"
CONCATENATED = "make_parallel"
"""One loss on GPU 0 over all towers' predictions: 001's make_parallel."""
COPIES = "replicated_copy"
ALL_REDUCE = "replicated_allreduce"
"""Replicated variables, all-reduce after backward."""
OVERLAPPED = "ddp"
"""Replicated variables, all-reduce while backward runs."""
MATRICES = "tensor_split"
"""Every layer's matrix cut over devices."""
MLP = "mlp42m"
"""Document 002's fully connected model of 42 million parameters."""
LAYERS = "layer_split"
"""LSTM layers spread over devices, as tensorflow/nmt does with `num_gpus`."""
ONE_GPU, TOWERS, ALTERNATING = "single", "tower_per_gpu", "alternating"
"""Document 003's placements: all on one GPU, one tower a GPU, devices changing from operation to operation."""

LENGTHS = "lengths_000"
"""NMT input with 000's own law of sentence lengths."""
OWN: tuple[Value, ...] = ("own", None)
"""Every replica draws its own bucket, as in document 000; a table without the field knows nothing else."""
CORPUS = "catalogs"
"""NMT input of real sentences: the committed corpus."""
REAL_IMAGES: dict[str, Any] = {
    "inputs": "jpeg_folder",
    "input_workers": 12,
    "prefetch": 2,
    "staging": "own_stream",
    "image_dtype": "uint8",
}

PLAIN = ("eager", "graph")
"""What a framework does unasked: PyTorch op by op, TensorFlow one graph for all towers (as the documents' did)."""
EAGER_OR_CAPTURED: tuple[Value, ...] = ("eager", "captured")


def term(devices: int | None = None, **fields: Value | tuple[Value, ...]) -> Term:
    """A term of the Runs with these fields, on `devices` or on the contrast's N."""
    return Term(select=where(**fields), devices=devices)


def efficiency(label: str, bound: float, under: int = 1, **more: object) -> Contrast:
    """The rate a GPU on N GPUs against that on `under` GPUs (1: scaling efficiency), of the same placement."""
    return Contrast.model_validate(
        {"label": label, "over": (Term(),), "under": (Term(devices=under),), "per_device": True, "bound": bound, "unit": "%"} | more
    )


def scaling_ratio(label: str, over: Term, under: Term, **more: object) -> Contrast:
    """The speedup on N GPUs of one kind of Run against that of another, each against its own single GPU."""
    factors = {"over": (over, Term(select=under.select, devices=1)), "under": (Term(select=over.select, devices=1), under)}
    return Contrast.model_validate({"label": label} | factors | more)
