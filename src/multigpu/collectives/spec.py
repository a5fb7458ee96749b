"""An all-reduce for each range of sizes, in one line of text (tf_cnn_benchmarks'
`all_reduce_spec`).

Grammar: `ALGORITHM (":" LIMIT ":" ALGORITHM)*`. ALGORITHM is `library` (NCCL between GPUs, gloo
between CPU processes) or one of `collectives.algorithms`. LIMIT is a number of bytes, with `k` for
2^10 or `M` for 2^20; limits grow from left to right. A gradient goes to the first algorithm whose
limit is not below the bytes in which it travels; the last has no limit.

Gradients under a limit are packed: all of one range travel as one message. Those of the last range
travel each by itself. So `central_server:32k:library` sends what is 32 KiB or smaller in one
message by way of a server, and each larger gradient through the library; `library` alone sends one
message a variable.
"""

import itertools
import re
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from multigpu.collectives import algorithms, find_algorithm

LIBRARY = "library"


class GradientRange(NamedTuple):
    """Gradients of at most `limit_bytes` (None: any) that no earlier range took."""

    algorithm: str
    limit_bytes: int | None


def parse_spec(text: str) -> tuple[GradientRange, ...]:
    """The ranges, smallest gradients first. ValueError: no such grammar, or one that rounds."""
    words = text.split(":")
    if len(words) % 2 == 0:
        raise ValueError(
            f"all_reduce_spec {text!r} ends with a limit: write ALGORITHM, or"
            " ALGORITHM:LIMIT:ALGORITHM and so on"
        )
    limits: list[int | None] = []
    for word in words[1::2]:
        if not (found := re.fullmatch(r"([1-9]\d*)([kM]?)", word)):
            raise ValueError(
                f"all_reduce_spec {text!r} has the limit {word!r}: write bytes such as 512, 32k"
                " or 4M"
            )
        limits.append(int(found[1]) << {"": 0, "k": 10, "M": 20}[found[2]])
    exact = [name for name, algorithm in algorithms().items() if algorithm.wire is None]
    if strange := [word for word in words[::2] if word not in (LIBRARY, *exact)]:
        raise ValueError(
            f"all_reduce_spec {text!r} names {strange[0]!r}: choose {LIBRARY} or one of"
            f" {', '.join(exact)}"
        )
    if any(low >= high for low, high in itertools.pairwise(limits)):  # type: ignore[operator]
        raise ValueError(f"all_reduce_spec {text!r} has limits that do not grow from left to right")
    return tuple(
        GradientRange(name, limit) for name, limit in zip(words[::2], [*limits, None], strict=True)
    )


def messages(
    parts: Sequence[GradientRange], elements: Sequence[int], item_bytes: int
) -> list[tuple[str, list[int]]]:
    """How gradients travel: (algorithm, their indices) of each message, in order of sending."""
    limits = [np.inf if part.limit_bytes is None else part.limit_bytes for part in parts]
    chosen = np.searchsorted(limits, [count * item_bytes for count in elements])
    found: list[tuple[str, list[int]]] = []
    for number, part in enumerate(parts):
        own = np.flatnonzero(chosen == number).tolist()
        together = [[index] for index in own] if part.limit_bytes is None else [own] * bool(own)
        found += [(part.algorithm, members) for members in together]
    return found


def spec_bytes(
    parts: Sequence[GradientRange], elements: Sequence[int], item_bytes: int, replicas: int
) -> dict[str, int]:
    """Bytes of one merge over all replicas, by kind of `placements.traffic`."""
    moved = {"device_to_device": 0, "all_reduce": 0}
    if replicas > 1:
        for algorithm, members in messages(parts, elements, item_bytes):
            count = sum(elements[index] for index in members)
            if algorithm == LIBRARY:
                moved["all_reduce"] += replicas * count * item_bytes
            else:
                moved["device_to_device"] += find_algorithm(algorithm).moved_bytes(
                    count, item_bytes, replicas
                )
    return {kind: count for kind, count in moved.items() if count}
