"""The two-tower model as stages: document 003's operations, one stage for each of its lines.

Its `conv1d` holds the bias and tanh, its `dense` the relu. Both towers look words up in one table, so both look-ups run where the
table lives (as TensorFlow's `embedding_lookup` colocates them, whatever device is asked for) and rows travel instead.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from multigpu.stages.graph import Stage, StageGraph
from multigpu.workloads.base import Model
from multigpu.workloads.deepconn.description import TABLE, TOWERS, DeepconnConfig


def stage_graph(model: Model, strings: bool = False) -> StageGraph:
    """Per tower: (ids,) embed, conv, pool, flatten, dense; then the rating with its squared error.

    strings: words arrive as strings, and a stage of each tower looks their ids up in a table of the host.
    """
    config: DeepconnConfig = model.config
    stages: list[Stage] = []
    for tower in TOWERS:
        words = f"{tower}_words"
        inputs: tuple[str, ...] = ()
        arrays: tuple[str, ...] = (words,)
        if strings:
            stages.append(Stage(f"{tower}_ids", (), (words,), (config.length,), integers=True, tower=tower, host=True))
            inputs, arrays = (f"{tower}_ids",), ()

        def own(*names: str, tower: str = tower) -> tuple[str, ...]:
            return tuple(f"{tower}_{name}" for name in names)

        maps = (config.positions, config.filters)
        pooled = (config.positions - config.pool + 1, config.filters)
        stages += [
            Stage(f"{tower}_embed", inputs, arrays, (config.length, config.embedding), variables=(TABLE,), tower=tower),
            Stage(f"{tower}_conv", own("embed"), (), maps, variables=own("conv_kernel", "conv_bias"), tower=tower),
            Stage(f"{tower}_pool", own("conv"), (), pooled, tower=tower),
            Stage(f"{tower}_flatten", own("pool"), (), (config.flat,), tower=tower),
            Stage(f"{tower}_dense", own("flatten"), (), (config.dense,), variables=own("dense_kernel", "dense_bias"), tower=tower),
        ]
    machine = () if config.factors is None else ("machine_bias", "machine_weights", "machine_factors")
    stages.append(Stage("rating", tuple(f"{tower}_dense" for tower in TOWERS), ("ratings",), (), variables=machine))
    return StageGraph(tuple(stages))


def stage_arrays(model: Model, arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """A batch's words (B, 2 x length) by tower, and its ratings (B,)."""
    config: DeepconnConfig = model.config
    halves = np.split(arrays["words"], [config.length], axis=1)
    return {f"{tower}_words": half for tower, half in zip(TOWERS, halves, strict=True)} | {"ratings": arrays["ratings"]}
