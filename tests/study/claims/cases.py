"""For every claim with a predicate over Runs: Runs, their rates when the claim holds, and their
rates when it does not.
"""

from dataclasses import dataclass
from typing import Any, Literal

from tests.study.claims.planted import QUIET, repeats

Fields = dict[str, Any]
REAL_IMAGES: Fields = {
    "inputs": "jpeg_folder",
    "input_workers": 12,
    "prefetch": 2,
    "staging": "own_stream",
    "image_dtype": "uint8",
}


@dataclass(frozen=True)
class Case:
    """Runs as (fields, rate if the claim holds, rate if it does not, where that is another);
    `common` fields apply to all.
    """

    common: Fields
    runs: tuple[tuple[Any, ...], ...]
    # fields that change with the outcome instead of rates
    holds: Fields | None = None
    fails: Fields | None = None

    def rows(
        self, outcome: Literal["holds", "fails"], noise: tuple[float, ...] = QUIET, **extra: Any
    ) -> list[dict[str, Any]]:
        """All rows with this outcome; `extra` fields override."""
        made = []
        for fields, *rates in self.runs:
            made += repeats(
                rates[0 if outcome == "holds" else -1],
                noise,
                **self.common | fields | (getattr(self, outcome) or {}) | extra,
            )
        return made


IN_GRAPH: Fields = {"framework_version": "2.21", "execution": "graph", "processes": "one"}
"""How TensorFlow's Records of one graph stand beside PyTorch's."""
CNN: Fields = {
    "workload": "cnn",
    "model": "resnet50_v1.5",
    "batch_size": 64,
    "sequence_length": None,
}
CNN |= {"layout": "channels_last", "unit": "images"}
VGG, FP32 = {"model": "vgg16"}, {"precision": "fp32"}
CIFAR: Fields = CNN | {"model": "resnet20", "batch_size": 128}
DDL: Fields = {"model": "nmt004", "batch_size": 64, "sequence_length": None}
DEEPCONN: Fields = {
    "workload": "deepconn",
    "model": "deepconn",
    "batch_size": 32,
    "sequence_length": None,
}

STACKS: Fields = {
    "workload": "stacks",
    "model": "mlp42m",
    "placement": "tensor_split",
    "scaling": "strong",
}
STACKS |= {"batch_size": 8192, "sequence_length": None, "unit": "samples"}


def at(devices: int, **fields: Any) -> Fields:
    return {"devices": devices, **fields}


def on(placement: str, devices: int = 8, **fields: Any) -> Fields:
    return {"placement": placement, "devices": devices, **fields}


def scaling(fields: Fields, devices: int, *speedups: float) -> tuple[tuple[Any, ...], ...]:
    """The Run on one GPU at rate 100, and on `devices` GPUs at these speedups."""
    return (fields | {"devices": 1}, 100), (
        fields | {"devices": devices},
        *(100 * speedup for speedup in speedups),
    )


LAW: Fields = {"inputs": "lengths_000", "sequence_length": None, "input_label": "lengths"}
REAL: Fields = {**REAL_IMAGES, "input_label": "folder"}

FOUR = ("exp1", 100, 197, 150), ("exp2", 110, 205, 219), ("exp3", 124, 228), ("exp4", 147, 259)
"""Experiments, their rate on one GPU and on eight."""

LAYERS = scaling({"placement": "layer_split", "scaling": "strong"}, 2, 0.95)
TWO = ("resnet50_v1.5", "vgg16")
RISING = (1, 100.0), (2, 193.0), (4, 387.0), (8, 744.0)
SERVERS = ("exp2", 100), ("ps_gpu0", 90), ("replicated_copy", 95), ("ddp", 98, 300)
OVERLAP = {
    "exp2": (("resnet50_v1.5", 100, 50), ("inception3", 100), ("alexnet", 50), ("vgg16", 50)),
    "ddp": (("resnet50_v1.5", 99, 100), ("inception3", 99), ("alexnet", 100), ("vgg16", 100)),
}

CASES: dict[str, Case] = {
    "C1": Case({"placement": "exp4"}, ((at(3), 100), (at(8), 119, 180))),
    "C2": Case({}, ((on("exp2"), 82, 99), (on("exp4"), 100))),
    "C3": Case(
        {}, ((on("exp4", 1), 118, 100), (on("exp3", 1), 100), (on("exp4"), 114), (on("exp3"), 100))
    ),
    "C4": Case({"placement": "exp4"}, (*scaling({}, 4, 1.92, 1.51), *scaling(LAW, 4, 1.51, 1.52))),
    "C5": Case(
        {"placement": "exp4"},
        (*scaling({"batch_size": 360}, 4, 2.56, 1.9), *scaling({"batch_size": 128}, 4, 1.92)),
    ),
    "C10": Case(
        {},
        tuple(
            run for name, one, *eight in FOUR for run in ((on(name, 1), one), (on(name), *eight))
        ),
    ),
    "C11": Case({"placement": "exp2"}, ((at(2), 100), (at(3), 162, 145))),
    "C12": Case(
        CNN,
        tuple(
            (at(count, model=model), rate, 40 + 60 * count)
            for model in TWO
            for count, rate in RISING
        ),
    ),
    "C13": Case(CNN, ((at(4), 100), (REAL | at(4), 99, 80))),
    "C14": Case(
        CNN, (*scaling({"batch_size": 64}, 8, 7.4), *scaling({"batch_size": 32}, 8, 7.3, 6.0))
    ),
    "C15": Case(CNN, ((at(2), 161, 100), (at(2, model="inception3"), 100, 120))),
    "C16": Case(
        CNN | {"precision": "fp32"},
        (
            (at(2, layout="channels_first"), 125, 90),
            (at(2), 100),
            (VGG | at(2, layout="channels_first"), 150),
            (VGG | at(2), 100),
        ),
    ),
    "C17": Case(
        CIFAR | {"placement": "exp2"},
        (
            *scaling({}, 2, 1.51, 1.95),
            *scaling({"model": "resnet32"}, 2, 1.99),
            *scaling({"model": "resnet110"}, 2, 1.92),
        ),
    ),
    "C18": Case(
        CIFAR | {"placement": "exp2"},
        (
            *(*scaling({"model": "alexnet_cifar"}, 2, 1.17, 1.9), *scaling({}, 2, 1.51)),
            *(
                *scaling({"placement": "replicated_allreduce"}, 2, 1.64),
                *scaling({"model": "resnet32"}, 2, 2.0),
            ),
        ),
    ),
    "C21": Case(
        CNN, tuple((on(name, 4, model=model), *rates) for model in TWO for name, *rates in SERVERS)
    ),
    "C22": Case(CNN, ((on("replicated_allreduce"), 130, 99), (on("replicated_copy"), 100))),
    "C23": Case(
        CNN | {"processes": "one"}, ((on("make_parallel"), 100.5, 110), (on("ps_gpu0"), 100))
    ),
    "C24": Case(
        CNN | {"timed_steps": 60},
        ((at(1), 100), (VGG | at(1), 100)),
        holds={"slowdown": 1.5},
        fails={"slowdown": 1.01},
    ),
    "C29": Case(
        CNN,
        (
            *scaling({"placement": "ddp"}, 8, 7.6, 6.8),
            *scaling({"placement": "replicated_allreduce"}, 8, 6.7),
        ),
    ),
    "C30": Case(CNN, ((FP32 | at(1), 40), (FP32 | at(8), 312, 250), (at(1), 100), (at(8), 640))),
    "C34": Case(
        {}, ((CNN | FP32 | at(1), 40), (CNN | at(1), 100, 41), (FP32 | at(1), 40), (at(1), 100, 40))
    ),
    "C35": Case(
        DEEPCONN,
        (
            (on("single", 1), 110, 100),
            (on("tower_per_gpu", 2), 200, 220),
            (on("alternating", 2), 196, 190),
        ),
    ),
    "C31": Case(STACKS, ((at(1), 100), (at(2), 150, 95), (at(8), 220, 90))),
    "C56": Case(
        CNN | on("ddp", 2, layout="channels_first"),
        (({"powersgd_rank": 4}, 120, 90), ({"top_k": 0.01}, 115, 80), ({}, 100)),
    ),
    "C37": Case(
        {},
        (
            (DEEPCONN | on("single", 1), 100),
            (DEEPCONN | on("tower_per_gpu", 2), 90, 180),
            *LAYERS,
            *scaling(STACKS, 2, 0.7),
        ),
    ),
    "C38": Case(DDL, scaling({}, 4, 2.57, 1.9)),
    "C39": Case(
        DDL,
        (
            *scaling({"placement": "replicated_allreduce"}, 2, 1.6),
            *scaling({"placement": "independent"}, 2, 2.0, 1.62),
        ),
    ),
    "C40": Case({"placement": "layer_split", "scaling": "strong"}, scaling({}, 4, 1.2, 3.2)),
    "C41": Case(
        {
            "batch_size": 64,
            "inputs": "catalogs",
            "sequence_length": None,
            "input_label": "catalogs",
            "timed_steps": 383,
            "batching": "own",
        },
        (
            ({"shuffle": False}, 400),
            ({"shuffle": True, "input_label": "catalogs, shuffled"}, 100, 300),
        ),
    ),
    "C42": Case(
        CNN,
        (
            *(
                run
                for model in TWO
                for run in ((on("exp2", 2, model=model), 100), (on("ps_gpu0", 2, model=model), 90))
            ),
            *((on("exp2", 2, model="alexnet"), 100), (on("ps_gpu0", 2, model="alexnet"), 150, 90)),
        ),
    ),
    "C43": Case(
        CNN,
        tuple(
            (on(name, model=model), *rates)
            for name, by_model in OVERLAP.items()
            for model, *rates in by_model
        ),
    ),
    "C44": Case(
        CNN | {"boots": "vwxyz"},  # forms are told apart over several boots only
        ((at(1, processes="per_device"), 100), (at(1, framework="tensorflow", **IN_GRAPH), 75, 45)),
    ),
    "C46": Case(
        CNN | {"execution": "captured"},
        (*scaling({"batch_size": 512}, 4, 3.94, 3.7), *scaling({"batch_size": 16}, 4, 3.0)),
    ),
    "C52": Case(
        {}, ((CNN | FP32 | at(1), 40), (CNN | at(1), 22, 40), (FP32 | at(1), 40), (at(1), 25, 41))
    ),
    "C47": Case(DDL, ((at(4), 51e4, 3e4), (at(8), 90e4, 6e4))),
}
