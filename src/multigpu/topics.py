"""How the report orders its pages: by the number of their notebook, under the three things a reader comes for."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

FRONT = "00-front"
"""The notebook that is the report's first page."""

TOPICS = {"Decide": range(0, 2), "Understand": range(2, 20), "Evidence": range(20, 100)}
"""A topic -> the numbers of the notebooks under it."""


def number_of(notebook: Path) -> int:
    """The number before a notebook's name."""
    found = re.match(r"\d+", notebook.stem)
    return int(found[0]) if found else 0


def by_topic(notebooks: Iterable[Path]) -> dict[str, list[Path]]:
    """The notebooks of every topic that has any, by number; the front page, which lists them, is in none."""
    known = sorted(path for path in notebooks if path.stem != FRONT)
    found = {topic: [path for path in known if number_of(path) in numbers] for topic, numbers in TOPICS.items()}
    return {topic: paths for topic, paths in found.items() if paths}
