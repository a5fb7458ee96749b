"""Stand-ins for a Run and a Model: just the fields that inputs read."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
from hypothesis import strategies as st

from multigpu.inputs.batch import Batch
from multigpu.placements.resolve import shard_sizes


@st.composite
def shard_lists(draw: st.DrawFn, most: int = 7, devices: int = 8) -> list[int]:
    """Sizes of the shards of a global batch, as a Run shares it out."""
    count = draw(st.integers(1, devices))
    batch = draw(st.integers(count, most * count))
    return [batch // count + (rank < batch % count) for rank in range(count)]


def make_run(sizes: list[int], inputs: str = "synthetic", seed: int = 0, **more: Any) -> Any:
    """The fields that inputs read of a Run whose global batch is shared out in these sizes."""
    shared = {"placement": "ddp", "scaling": "strong", "model_parallel": None}
    shared |= {"devices": len(sizes), "batch_size": sum(sizes)}
    fields = {"inputs": inputs, "seed": seed, "batching": "own", "shuffle": False}
    empty = dict.fromkeys(("sequence_length", "data", "image_dtype"))
    run: Any = SimpleNamespace(**empty | shared | fields | more)
    assert shard_sizes(run) == sizes, "no Run shares a batch out so"
    return run


def make_text_model(source: int = 1000, target: int = 900) -> Any:
    return SimpleNamespace(
        name="m", config=SimpleNamespace(source_vocabulary=source, target_vocabulary=target)
    )


def make_image_model(size: int = 8, channels: int = 3, classes: int = 11) -> Any:
    return SimpleNamespace(
        name="m", config=SimpleNamespace(image_size=size, channels=channels, classes=classes)
    )


def same(a: Batch, b: Batch) -> bool:
    """Whether two batches are equal in every count and every element."""
    counts = [
        (x.rank, x.units, x.padded_units, x.loss_terms, x.lookups, sorted(x.arrays)) for x in (a, b)
    ]
    return counts[0] == counts[1] and all(
        np.array_equal(a.arrays[name], b.arrays[name]) for name in a.arrays
    )


def corpus_files(folder: Path, lengths: list[tuple[int, int]]) -> tuple[str, str]:
    """A corpus whose pair i is the words `s<i>` and `t<i>`, repeated."""
    paths = folder / "train.en", folder / "train.de"
    for side, path in enumerate(paths):
        path.write_text(
            "".join(
                " ".join([f"{'st'[side]}{i}"] * pair[side]) + "\n" for i, pair in enumerate(lengths)
            ),
            encoding="utf-8",
        )
    return str(paths[0]), str(paths[1])
