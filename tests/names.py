"""The glossary's names that are not said: read from it, and looked for in texts."""

import re
from collections.abc import Iterator
from functools import cache

from multigpu.paths import REPOSITORY


@cache
def not_said() -> dict[str, str]:
    """Synonym -> the one name of the thing, as the glossary lists them."""
    text = (REPOSITORY / "report" / "glossary.md").read_text(encoding="utf-8")
    entries = re.findall(r"^(\S.*)\n: .* Not said: (.+)\.$", text, re.MULTILINE)
    return {synonym: name for name, every in entries for synonym in every.split(", ")}


def said(text: str) -> Iterator[str]:
    """Yield a sentence for each synonym in a text; names of fields and code are none."""
    bare = re.sub(r"```.*?```|`[^`]*`", " ", text, flags=re.DOTALL)
    for synonym, name in not_said().items():
        words = re.escape(synonym).replace(r"\ ", r"\s+")
        found = re.search(rf"(?<![\w.=-]){words}(?:e?s)?(?![\w=(])", bare, re.IGNORECASE)
        if found:
            around = " ".join(bare[max(0, found.start() - 40) : found.end() + 40].split())
            yield f"{synonym!r} for {name!r}: ...{around}..."
