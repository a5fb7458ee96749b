"""Results as HTML: a cell a claim, how many have which verdict, a table row a claim, and the verdicts that changed.

Every verdict has a sign beside its colour, so that it reads in greyscale and with any colour vision.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from functools import lru_cache
from html import escape
from itertools import groupby

from multigpu import paths
from multigpu.analysis.words import joined, plural
from multigpu.claims.core import VERDICTS, Verdict
from multigpu.claims.ledger import Change, orders
from multigpu.claims.results import Result
from multigpu.claims.wording import DASH, SYMBOLS, tested, titled

TITLES = {
    "000": "000 · translation, parameter server",
    "001": "001 · convolutional networks",
    "002": "002 · distributed SGD",
    "003": "003 · two towers, two GPUs",
    "004": "004 · translation, all-reduce",
}
SAID: dict[Verdict, tuple[str, str]] = {
    "holds": ("holds", "hold"),
    "holds here only": ("holds here only", "hold here only"),
    "does not hold": ("does not hold", "do not hold"),
    "inconclusive": ("is inconclusive", "are inconclusive"),
    "out of reach": ("is out of reach", "are out of reach"),
    "not yet measured": ("is not yet measured", "are not yet measured"),
    "cannot be tested here": ("cannot be tested here", "cannot be tested here"),
}
"""Of each verdict, what is said of one claim and of several."""
LONG = 220
"""Letters of a cell beyond which the rest is folded away."""


def css_class(verdict: Verdict) -> str:
    """The class that colours a verdict."""
    return "verdict-" + verdict.replace(" ", "-")


def signed(verdict: Verdict, text: str) -> str:
    """The verdict's sign before a text that is HTML."""
    return f'<span class="verdict-sign" aria-hidden="true">{SYMBOLS[verdict]}</span> {text}'


def scoreboard(results: Sequence[Result]) -> str:
    """A cell a claim, by document, that leads to its row; a claim of several documents stands with the first of them."""
    lines = ['<div class="scoreboard">']
    ordered = sorted(results, key=lambda result: (result.claim.documents[0], result.claim.order))
    for document, own in groupby(ordered, key=lambda result: result.claim.documents[0]):
        cells = [
            f'<a class="{css_class(one.verdict)}" href="#{one.claim.number}" title="{escape(f"{one.claim.sentence} {one.verdict}")}">'
            f"{signed(one.verdict, one.claim.number)}</a>"
            for one in own
        ]
        lines.append(f"<p>{escape(TITLES.get(document, document))}</p>\n<div>{''.join(cells)}</div>")
    return "\n".join([*lines, "</div>"]) + "\n"


def tally(results: Sequence[Result]) -> str:
    """How many claims have each verdict, with its sign, as a sentence."""
    counts = Counter(result.verdict for result in results)
    parts = [f'<span class="{css_class(one)}">{signed(one, plural(counts[one], *SAID[one]))}</span>' for one in VERDICTS]
    return f'<p class="tally">Of {plural(len(results), "claim")} {joined(parts)}.</p>\n'


def claims_table(results: Sequence[Result], folder: str = "") -> str:
    """`<table class="claims">`, a row a claim with its number as id; what is long is folded away.

    folder: of the pages that show the claims, as seen from the page that holds the table.
    """
    written, rows = orders(results), []
    for result in results:
        claim = result.claim
        test = f'<details class="claim-test"><summary>test</summary>{escape(tested(result))}</details>' if claim.predicate else ""
        verdict = signed(result.verdict, result.verdict + (f": {escape(result.scope)}" if result.scope else ""))
        beside = {
            "claim-order": escape(written.get(claim.number, "")),
            "claim-looks": plural(result.looks, "look") if result.looks > 1 else "",
            "claim-why": _folded(result.why) if result.why else "",
        }
        told = "".join(f'<div class="{name}">{text}</div>' for name, text in beside.items() if text)
        link = _link(f"{folder}{claim.page}.html", page_title(claim.page)) if claim.page else ""
        cells = [
            f'<td>{escape(claim.sentence)}<div class="claim-figure">{escape(claim.document)}: {escape(claim.figure)}</div>{test}</td>',
            f"<td>{''.join(map(_folded, titled(result))) or DASH}</td>",
            f'<td class="{css_class(result.verdict)}">{verdict}{told}</td>',
            f"<td>{link + _keys(result) or DASH}</td>",
        ]
        rows.append(f'<tr id="{claim.number}"><th scope="row">{claim.number}</th>{"".join(cells)}</tr>')
    return _table("claims", ("Claim", "The document", "Ours", "Verdict", "Shown on"), rows)


def changes_table(told: Sequence[Change]) -> str:
    """Changed verdicts, a row a change, with a link to the claim's row."""
    rows = [
        f'<tr><th scope="row"><a href="#{one.claim}">{one.claim}</a></th>'
        + "".join(f"<td>{escape(text)}</td>" for text in (one.before, one.after, one.why))
        + "</tr>"
        for one in told
    ]
    return _table("claims changes", ("Claim", "Before", "After", "Why"), rows)


def _table(kind: str, head: Sequence[str], rows: Sequence[str]) -> str:
    names = "".join(f'<th scope="col">{name}</th>' for name in head)
    return "\n".join([f'<table class="{kind}">', f"<thead><tr>{names}</tr></thead>", "<tbody>", *rows, "</tbody>", "</table>"]) + "\n"


@lru_cache
def page_title(page: str) -> str:
    """The first heading of a notebook; its name where there is no such file."""
    file = paths.REPOSITORY / "notebooks" / f"{page}.ipynb"
    if not file.exists():
        return page
    lines = "".join(json.loads(file.read_text())["cells"][0]["source"]).splitlines()
    return next((line.removeprefix("# ") for line in lines if line.startswith("# ")), page)


def _link(address: str, title: str) -> str:
    """A link to a page by its title as far as the first colon, since a row is as high as its highest cell; the whole when pointed at."""
    short = title.split(": ")[0]
    whole = f' title="{escape(title)}"' if short != title else ""
    return f'<a href="{escape(address)}"{whole}>{escape(short)}</a>'


def _folded(text: str) -> str:
    """A text, whose part after the first sentence or figure that makes it long opens on request."""
    ends = [at + 1 for at, letter in enumerate(text) if letter == ";"] if len(text) > LONG else []
    cut = max((end for end in ends if end <= LONG), default=min(ends, default=0))
    more = f"<details><summary>more</summary>{escape(text[cut:].strip())}</details>" if cut else ""
    return f"<div>{escape(text[: cut or None])}{more}</div>"


def _keys(result: Result) -> str:
    keys = " ".join(f"<code>{escape(key)}</code>" for key in result.record_keys)
    return f'<details class="keys"><summary>{plural(len(result.record_keys), "Record")}</summary>{keys}</details>' if keys else ""
