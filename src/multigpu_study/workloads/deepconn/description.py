"""Document 003's recommender, framework-free: two towers over one table of words, and what joins
them. A row is a user, an item and the rating that the one gave the other. One tower reads what the
user wrote about other items, the other one what others wrote about the item. They share the table
alone.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import prod, sqrt
from pathlib import Path
from typing import Any

import numpy as np

from multigpu.spec.model import Init, Model, Optimizer, Variable
from multigpu.spec.stage_graph import Stage, StageGraph
from multigpu.workloads.base import models_in
from multigpu_study.workloads.deepconn.reviews import TABLE

TOWERS = ("user", "item")
"""What each tower's variables' names begin with, in the order of texts in a row."""


@dataclass(frozen=True)
class DeepconnConfig:
    """Sizes of one two-tower model. vocabulary: rows of the table, the special ones included.
    embedding: its width.
    length: words of each of a row's two texts, cut off or padded. filters, width: of the
        convolution over words, inside the text.
    pool: words of a window of the maximum, which moves by one. dense: width of a tower's output.
    """

    vocabulary: int
    length: int = 800
    embedding: int = 50
    filters: int = 10
    width: int = 3
    pool: int = 2
    dense: int = 64

    @property
    def positions(self) -> int:
        return self.length - self.width + 1

    @property
    def flat(self) -> int:
        """Features of a tower after pooling, position by position; 7,970 in the document."""
        return (self.positions - self.pool + 1) * self.filters


def variables(config: DeepconnConfig) -> tuple[Variable, ...]:
    """The table; per tower a convolution [filters, embedding, width] and a dense [out, in]."""

    def glorot(fan_in: int, fan_out: int) -> Init:
        return Init("uniform", sqrt(6 / (fan_in + fan_out)))

    zero = Init("constant", 0.0)
    n, filters, width = config.embedding, config.filters, config.width
    found = [Variable(TABLE, (config.vocabulary, n), "embedding", glorot(config.vocabulary, n))]
    for tower in TOWERS:
        found += [
            Variable(
                f"{tower}_conv_kernel",
                (filters, n, width),
                "convolution",
                glorot(width * n, width * filters),
            ),
            Variable(f"{tower}_conv_bias", (filters,), "bias", zero),
            Variable(
                f"{tower}_dense_kernel",
                (config.dense, config.flat),
                "dense",
                glorot(config.flat, config.dense),
            ),
            Variable(f"{tower}_dense_bias", (config.dense,), "bias", zero),
        ]
    return tuple(found)


def forward_flops_per_review(config: DeepconnConfig) -> float:
    """Floating-point operations of the forward pass for one row: two convolutions and two dense
    layers. Look-ups, tanh, pooling and the towers' dot product are left out: they are bound by
    memory. At the document's size 2 x (2,394,000 + 1,020,160) = 6.83 million, so training takes
    20.5 million a row.
    """
    convolution = 2 * config.positions * config.width * config.embedding * config.filters
    dense = 2 * config.flat * config.dense
    return float(2 * (convolution + dense))


def memory_passes_per_review(config: DeepconnConfig) -> float:
    """Numbers that a training step reads or writes for one row at least
    (`Model.memory_passes_per_unit`), of both towers. A word's row, its gradient and the sum (4);
    both ends of a convolution and a dense layer (3); tanh (3); the maximum (2, then 1).
    """
    words, windows = config.length * config.embedding, config.positions * config.filters
    return float(
        2
        * (
            4 * words
            + 3 * (words + windows)
            + 3 * windows
            + 2 * (windows + config.flat)
            + config.flat
            + 3 * (config.flat + config.dense)
        )
    )


def epoch_steps(global_batch: int) -> int:
    """Steps of a pass over document 003's 26,352 training rows: 824 at its batch of 32."""
    return -(-26_352 // global_batch)


def describe(name: str, config: DeepconnConfig, optimizer: Optimizer) -> Model:
    """Describe a two-tower model; ValueError: texts are too short for a window of the maximum."""
    if config.flat < 1:
        raise ValueError(
            f"{name} reads {config.length} words: its convolution and maximum need at least"
            f" {config.width + config.pool - 1}"
        )
    return Model(
        name=name,
        workload="deepconn",
        unit="reviews",
        variables=variables(config),
        optimizer=optimizer,
        forward_flops_per_unit=forward_flops_per_review(config),
        memory_passes_per_unit=memory_passes_per_review(config),
        config=config,
    )


def stage_graph(model: Model, strings: bool = False) -> StageGraph:
    """Document 003's operations, a stage for each of its lines: per tower (ids,) embed, conv, pool,
    flatten, dense; then rating with loss. Look-ups of both towers run where their one table lives
    (as `embedding_lookup` colocates them), and rows travel instead.
    strings: words arrive as strings, and a stage of each tower looks their ids up in a table of the
        host.
    """
    config: DeepconnConfig = model.config
    stages: list[Stage] = []

    def given(name: str, *shape: int) -> dict[str, dict[str, int]]:
        return {name: {"rows": prod(shape)}}

    for tower in TOWERS:
        words = f"{tower}_words"
        inputs: tuple[str, ...] = ()
        arrays: tuple[str, ...] = (words,)
        if strings:
            ids = f"{tower}_ids"
            gives = given(ids, config.length)
            stages.append(Stage(ids, (), (words,), gives, integers=True, tower=tower, host=True))
            inputs, arrays = (ids,), ()

        def own(*names: str, tower: str = tower) -> tuple[str, ...]:
            return tuple(f"{tower}_{name}" for name in names)

        embed, conv, pool, flatten, dense = own("embed", "conv", "pool", "flatten", "dense")
        looked_up = given(embed, config.length, config.embedding)
        maps = given(conv, config.positions, config.filters)
        pooled = given(pool, config.positions - config.pool + 1, config.filters)
        flat, last = given(flatten, config.flat), given(dense, config.dense)
        filters = own("conv_kernel", "conv_bias")
        weights = own("dense_kernel", "dense_bias")
        stages += [
            Stage(embed, inputs, arrays, looked_up, variables=(TABLE,), tower=tower),
            Stage(conv, (embed,), gives=maps, variables=filters, tower=tower),
            Stage(pool, (conv,), gives=pooled, tower=tower),
            Stage(flatten, (pool,), gives=flat, tower=tower),
            Stage(dense, (flatten,), gives=last, variables=weights, tower=tower),
        ]
    towers = tuple(f"{tower}_dense" for tower in TOWERS)
    stages.append(Stage("rating", towers, ("ratings",), given("rating")))
    return StageGraph(tuple(stages))


def stage_arrays(model: Model, arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """A batch's words (B, 2 x length) by tower, and its ratings (B,)."""
    config: DeepconnConfig = model.config
    halves = np.split(arrays["words"], [config.length], axis=1)
    return {f"{tower}_words": half for tower, half in zip(TOWERS, halves, strict=True)} | {
        "ratings": arrays["ratings"]
    }


Compute = Callable[[Mapping[str, Any], Sequence[Any], Sequence[Any]], Any]
"""From the stage's variables, the outputs and the arrays that it reads to its output."""

Layer = Callable[..., Any]


def stages_of(
    *, embed: Layer, conv: Layer, pool: Layer, flatten: Layer, dense: Layer, error: Layer
) -> dict[str, Compute]:
    """Stage -> what it computes in one framework, of these layers, for B rows; pool and flatten
    take what conv gives, in any order of axes.
    embed: of the table and ids. conv: with tanh, of (B, length, embedding), kernel and bias.
        flatten: to (B, flat), position by position.
    dense: with ReLU. error: of both towers' outputs and the ratings, the sum of the squared errors.
    """

    def weighted(layer: Layer, name: str) -> Compute:
        return lambda values, inputs, arrays: layer(
            inputs[0], values[f"{name}_kernel"], values[f"{name}_bias"]
        )

    def plain(layer: Layer) -> Compute:
        return lambda values, inputs, arrays: layer(inputs[0])

    found: dict[str, Compute] = {}
    for tower in TOWERS:
        # ids arrive with the batch, or from the stage that looks strings up
        found[f"{tower}_embed"] = lambda values, inputs, arrays: embed(
            values[TABLE], (arrays or inputs)[0]
        )
        found |= {f"{tower}_conv": weighted(conv, f"{tower}_conv"), f"{tower}_pool": plain(pool)}
        found |= {
            f"{tower}_flatten": plain(flatten),
            f"{tower}_dense": weighted(dense, f"{tower}_dense"),
        }
    return found | {"rating": lambda values, inputs, arrays: error(inputs[0], inputs[1], arrays[0])}


def through_tower(
    stages: Mapping[str, Callable[..., Any]], values: Mapping[str, Any], tower: str, text: Any
) -> Any:
    """Pass a text of each row through its tower: (B, length, embedding) -> (B, dense)."""
    for stage in ("conv", "pool", "flatten", "dense"):
        text = stages[f"{tower}_{stage}"](values, [text], [])
    return text


MODELS: Mapping[str, Model] = models_in(Path(__file__).parent, DeepconnConfig, describe)
"""By name. Nothing says how many words the document's table holds. Its single-GPU profile does,
roughly: Adam's passes over the whole table take 187 us (one array read, one written) and 279 us
(two read, one written), so 93 us an array, about 16 MB or 80,000 rows at 170 GB/s, which is
assumed: its repository's profiles list Tesla K80 (data/README.md), rated 240 GB/s a GPU before
error correction and losses.
"""
