"""Results as tables: a DataFrame, JSON, Markdown and the HTML of the claims page."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from functools import lru_cache
from html import escape
from typing import Any

import pandas as pd

from multigpu import paths
from multigpu.analysis.words import joined
from multigpu.claims.core import VERDICTS, Predicate, Verdict
from multigpu.claims.ledger import Change, orders
from multigpu.claims.results import Result
from multigpu.claims.wording import framework_title, plural, stated

SYMBOLS: dict[Verdict, str] = {
    "holds": "✓",
    "holds here only": "✓*",
    "does not hold": "✗",
    "inconclusive": "≈",
    "out of reach": "↑",
    "not yet measured": "○",
    "cannot be tested here": "–",
}
"""A sign beside every colour: verdicts stay readable in greyscale."""

FRAMEWORKS = ("torch", "tensorflow")
DASH = "–"
WITHOUT = "NumPy: "
"""Stands before a figure that no framework computed."""


def css_class(verdict: Verdict) -> str:
    """The class that colours a verdict."""
    return "verdict-" + verdict.replace(" ", "-")


def ours(result: Result, framework: str) -> str:
    """Our figure in one framework, with its verdict where it is not the overall one; a dash where there is none.

    What was computed in NumPy, without a framework, stands in the first column and says so.
    """
    if framework == FRAMEWORKS[0] and "numpy" in result.by_framework and result.by_framework["numpy"].figure:
        return f"{WITHOUT}{result.by_framework['numpy'].figure}"
    for name, answer in result.by_framework.items():
        if framework in name.split(" / ") and answer.figure:
            return answer.figure if answer.verdict == result.verdict else f"{answer.verdict}, {answer.figure}"
    return DASH


def tested(result: Result) -> str:
    """The predicates in words: what must be so, measured how where that is not as usual, and within which scope; empty without any."""
    predicates = result.claim.predicates
    if not predicates:
        return ""
    contrasts = "; ".join(stated(contrast) for predicate in predicates for contrast in predicate.contrasts)
    told = [text for predicate in predicates for text in (_own_protocol(predicate), predicate.scope) if text]
    return f"Test: {contrasts}. {' '.join(told)}".strip()


def _own_protocol(predicate: Predicate) -> str:
    """How it is measured, where that is not its kind's usual way: a figure without a unit is explained there."""
    return "" if predicate.protocol == type(predicate).model_fields["protocol"].default else predicate.protocol


def claims_frame(results: Sequence[Result]) -> pd.DataFrame:
    """A row a claim: claim, sentence, document, document_figure, torch, tensorflow, verdict, scope, looks, why, test,
    predicate, record_keys.
    """
    table = [
        {
            "claim": result.claim.number,
            "sentence": result.claim.sentence,
            "document": result.claim.document,
            "document_figure": result.claim.figure,
            **{framework: ours(result, framework) for framework in FRAMEWORKS},
            "verdict": result.verdict,
            "scope": result.scope,
            "looks": result.looks,
            "why": result.why,
            "test": tested(result),
            "predicate": result.claim.digest,
            "record_keys": " ".join(result.record_keys),
        }
        for result in results
    ]
    return pd.DataFrame(table)


def settings_frame(results: Sequence[Result]) -> pd.DataFrame:
    """A row an interval: the data behind every figure of a claim."""
    measured = ["devices", "estimate", "low", "high", "n", "launches", "enough", "verdict", "flagged"]
    columns = ["claim", "contrast", "framework", *measured, "fields", "record_keys"]
    table: list[dict[str, Any]] = []
    for result in results:
        for setting in result.settings:
            fields = ", ".join(f"{name}={value}" for name, value in setting.fields.items())
            row = setting.model_dump() | {"claim": result.claim.number, "fields": fields, "record_keys": " ".join(setting.record_keys)}
            table.append({name: row[name] for name in columns})
    return pd.DataFrame(table, columns=columns)


def to_json(results: Sequence[Result]) -> str:
    """All results, their claims and predicates included, as a JSON list."""
    items = []
    for result in results:
        item = result.model_dump(mode="json")
        item["predicate_digest"] = result.claim.digest or None
        items.append(item)
    return json.dumps(items, indent=1, ensure_ascii=False, allow_nan=False)


def to_markdown_table(results: Sequence[Result]) -> str:
    """A Markdown table; of Records, only their number (the HTML table names them)."""
    head = ["claim", "sentence", "document", "its figure", "PyTorch", "TensorFlow", "verdict", "Records"]
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    for result in results:
        verdict = f"{SYMBOLS[result.verdict]} {result.verdict}" + "".join(f": {text}" for text in (result.scope, result.why) if text)
        cells = [result.claim.number, result.claim.sentence, result.claim.document, result.claim.figure]
        cells += [*(ours(result, framework) for framework in FRAMEWORKS), verdict, str(len(result.record_keys) or DASH)]
        lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return "\n".join(lines) + "\n"


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


def tally(results: Sequence[Result]) -> str:
    """How many claims have each verdict, with its sign, as a sentence in HTML."""
    counts = Counter(result.verdict for result in results)
    parts = [
        f'<span class="{css_class(verdict)}"><span class="verdict-sign" aria-hidden="true">{SYMBOLS[verdict]}</span> '
        f"{plural(counts[verdict], *SAID[verdict])}</span>"
        for verdict in VERDICTS
    ]
    return f'<p class="tally">Of {plural(len(results), "claim", "claims")} {joined(parts)}.</p>\n'


LONG = 220
"""Letters of a cell beyond which the rest is folded away."""


def to_html_table(results: Sequence[Result], folder: str | None = None) -> str:
    """Claims with their verdicts: `<table class="claims">`, a row a claim with its number as id; what is long is folded away.

    folder: of the pages that show the claims, as seen from the page that holds the table; None: the table is on such a page itself.
    """
    written = orders(results)
    head = ["Claim", "The document", "Ours", "Verdict", "Records" if folder is None else "Shown on"]
    lines = [
        '<table class="claims">',
        "<thead><tr>" + "".join(f'<th scope="col">{name}</th>' for name in head) + "</tr></thead>",
        "<tbody>",
    ]
    for result in results:
        claim = result.claim
        test = f'<details class="claim-test"><summary>test</summary>{escape(tested(result))}</details>' if claim.predicate else ""
        said = f'<div class="claim-figure">{escape(claim.document)}: {escape(claim.figure)}</div>'
        shown = [_folded(text) for text in titled(result)]
        here = f": {escape(result.scope)}" if result.scope else ""
        sign = f'<span class="verdict-sign" aria-hidden="true">{SYMBOLS[result.verdict]}</span> {result.verdict}{here}'
        looks = f'<div class="claim-looks">{plural(result.looks, "look", "looks")}</div>' if result.looks > 1 else ""
        first = f'<div class="claim-order">{escape(written[claim.number])}</div>' if claim.number in written else ""
        why = f'<div class="claim-why">{_folded(result.why)}</div>' if result.why else ""
        page = claim.page
        link = "" if folder is None or not page else _link(f"{folder}{page}.html", page_title(page))
        cells = [
            f"<td>{escape(claim.sentence)}{said}{test}</td>",
            f"<td>{''.join(shown) or DASH}</td>",
            f'<td class="{css_class(result.verdict)}">{sign}{first}{looks}{why}</td>',
            f"<td>{link}{_keys(result) or ('' if link else DASH)}</td>",
        ]
        lines.append(f'<tr id="{claim.number}"><th scope="row">{claim.number}</th>{"".join(cells)}</tr>')
    return "\n".join([*lines, "</tbody>", "</table>"]) + "\n"


def to_html_changes(told: Sequence[Change]) -> str:
    """Changed verdicts: `<table class="claims">`, a row a change, with a link to the claim's row."""
    cells = [
        f'<th scope="row"><a href="#{one.claim}">{one.claim}</a></th><td>{escape(one.before)}</td><td>{escape(one.after)}</td>'
        f"<td>{escape(one.why)}</td>"
        for one in told
    ]
    head = "".join(f'<th scope="col">{name}</th>' for name in ("Claim", "Before", "After", "Why"))
    rows = "".join(f"<tr>{cell}</tr>\n" for cell in cells)
    return f'<table class="claims changes">\n<thead><tr>{head}</tr></thead>\n<tbody>\n{rows}</tbody>\n</table>\n'


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


def titled(result: Result) -> list[str]:
    """Our figures, each with the framework it is of; one of both frameworks, which compares them, once."""
    names: dict[str, list[str]] = {}
    for name in FRAMEWORKS:
        names.setdefault(ours(result, name), []).append(framework_title(name))
    return [text if text.startswith(WITHOUT) else f"{joined(own)}: {text}" for text, own in names.items() if text != DASH]


def _folded(text: str) -> str:
    """A text, whose part after the first sentence or figure that makes it long opens on request."""
    ends = [at + 1 for at, letter in enumerate(text) if letter == ";"] if len(text) > LONG else []
    cut = max((end for end in ends if end <= LONG), default=min(ends, default=0))
    if not cut:
        return f"<div>{escape(text)}</div>"
    return f"<div>{escape(text[:cut])}<details><summary>more</summary>{escape(text[cut:].strip())}</details></div>"


def _keys(result: Result) -> str:
    if not result.record_keys:
        return ""
    keys = " ".join(f"<code>{escape(key)}</code>" for key in result.record_keys)
    return f'<details class="keys"><summary>{plural(len(result.record_keys), "Record", "Records")}</summary>{keys}</details>'
