"""Which questions belong together: the order in which the report lists its pages and the navigation groups them."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

TOPICS = {
    "The machine, and what to choose": ("01-machine", "04-summary", "17-hardware"),
    "Where variables live": ("02-nmt-placement", "03-cnn-placement", "05-placement-cost", "06-tensorflow", "21-phases", "22-causes"),
    "What merging sends": ("07-all-reduce", "18-across-hosts", "19-document-004"),
    "Image models": ("13-cnn-scaling", "24-cnn-updates", "14-cnn-formats", "15-input", "16-what-scales"),
    "Parts of a model, parts of a batch": ("09-inside-one-model", "11-parallelism", "10-batching"),
    "Training to the end": ("12-training", "20-large-batch", "08-synchrony"),
    "More GPUs than there are": ("23-forecast",),
}
"""A topic -> the notebooks about it, in reading order."""
OTHERS = "Further questions"
"""The topic of a notebook that has none."""


def by_topic(notebooks: Iterable[Path]) -> dict[str, list[Path]]:
    """The notebooks of every topic that has any, in the topics' order; those without one last, by name."""
    left = {path.stem: path for path in sorted(notebooks)}
    found = {topic: [left.pop(stem) for stem in stems if stem in left] for topic, stems in TOPICS.items()}
    return {topic: paths for topic, paths in (found | {OTHERS: list(left.values())}).items() if paths}
