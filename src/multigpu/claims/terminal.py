"""Results on a terminal: a line a claim, or a claim in full."""

import textwrap
from collections import Counter
from collections.abc import Sequence

from multigpu.analysis.words import joined
from multigpu.claims.core import OPEN, VERDICTS
from multigpu.claims.ledger import orders
from multigpu.claims.results import Result
from multigpu.claims.wording import SYMBOLS, tested, titled

WIDEST_TEXT = 120
"""Columns of a claim in full: longer lines are hard to read."""


def overview(results: Sequence[Result], width: int) -> str:
    """A line a claim (number, verdict, document, its sentence as far as there is room), how many have which verdict, what is open."""
    broad, lines = max(map(len, VERDICTS)), []
    for one in results:
        said, documents = f"{one.claim.number:4} {SYMBOLS[one.verdict]:2} {one.verdict:{broad}}", ", ".join(one.claim.documents)
        line = f"{said}  {documents:8}  {one.claim.sentence}"
        lines.append(line if len(line) <= width else line[: max(width - 1, 0)].rstrip() + "…")
    counts = Counter(one.verdict for one in results)
    told = joined([f"{counts[verdict]} {verdict}" for verdict in VERDICTS if counts[verdict]])
    open_ones = [one for one in results if one.verdict in OPEN]
    gpu_s = sum(one.claim.gpus * one.claim.seconds for one in open_ones)
    rest = f"{len(open_ones)} open ones wait for about {gpu_s:,} GPU seconds. " if open_ones else ""
    first = (open_ones or results)[0].claim.number
    return "\n".join([*lines, "", *textwrap.wrap(f"{len(results)} claims: {told}. {rest}Details: claims {first}", max(width, 20))])


def in_full(result: Result, width: int) -> str:
    """All that is said of a claim, wrapped."""
    claim = result.claim
    parts = {
        f"Document {', '.join(claim.documents)}": claim.figure,
        "Verdict": f"{SYMBOLS[result.verdict]} {result.verdict}{f': {result.scope}' if result.scope else ''}",
        "Why": result.why,
        "Ours": "\n".join(titled(result)),
        "Test": f"{tested(result)} {orders([result]).get(claim.number, '')}".removeprefix("Test: ").strip(),
        "Repeats needed": result.needed,
        "Shown on": f"notebooks/{claim.page}.ipynb" if claim.page else "",
        "Records": f"{len(result.record_keys)}: {' '.join(result.record_keys)}" if result.record_keys else "",
    }
    wrap = textwrap.TextWrapper(min(max(width, 20), WIDEST_TEXT), initial_indent="  ", subsequent_indent="  ", break_on_hyphens=False)
    lines = textwrap.wrap(f"{claim.number}: {claim.sentence}", wrap.width)
    for name, text in parts.items():
        if text:
            lines += [name, *(line for paragraph in text.splitlines() for line in wrap.wrap(paragraph))]
    return "\n".join(lines)
