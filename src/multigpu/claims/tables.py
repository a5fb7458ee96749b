"""Results as tables: a DataFrame, JSON, Markdown and the HTML of the claims page."""

from __future__ import annotations

import json
from collections.abc import Sequence
from html import escape
from typing import Any

import pandas as pd

from multigpu.claims.core import Result, Verdict
from multigpu.claims.wording import stated

SYMBOLS: dict[Verdict, str] = {
    "holds": "✓",
    "does not hold": "✗",
    "inconclusive": "≈",
    "not yet measured": "○",
    "cannot be tested here": "–",
}
"""A sign beside every colour: verdicts stay readable in greyscale."""

FRAMEWORKS = ("torch", "tensorflow")
DASH = "–"


def css_class(verdict: Verdict) -> str:
    """The class that colours a verdict."""
    return "verdict-" + verdict.replace(" ", "-")


def ours(result: Result, framework: str) -> str:
    """Our figure in one framework, with its verdict where it is not the overall one; a dash where there is none.

    What was computed in NumPy, without a framework, stands in the first column and says so.
    """
    if framework == FRAMEWORKS[0] and "numpy" in result.by_framework and result.by_framework["numpy"].figure:
        return f"NumPy: {result.by_framework['numpy'].figure}"
    for name, answer in result.by_framework.items():
        if framework in name.split(" / ") and answer.figure:
            return answer.figure if answer.verdict == result.verdict else f"{answer.figure} ({answer.verdict})"
    return DASH


def tested(result: Result) -> str:
    """The predicate in words: what must be so, and within which scope; empty where there is none."""
    predicate = result.claim.predicate
    return f"Test: {'; '.join(map(stated, predicate.contrasts))}. {predicate.scope}".strip() if predicate else ""


def claims_frame(results: Sequence[Result]) -> pd.DataFrame:
    """A row a claim: claim, sentence, document, document_figure, torch, tensorflow, verdict, why, test, predicate, record_keys."""
    table = [
        {
            "claim": result.claim.number,
            "sentence": result.claim.sentence,
            "document": result.claim.document,
            "document_figure": result.claim.figure,
            **{framework: ours(result, framework) for framework in FRAMEWORKS},
            "verdict": result.verdict,
            "why": result.why,
            "test": tested(result),
            "predicate": result.claim.predicate.digest if result.claim.predicate else "",
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
        item["predicate_digest"] = result.claim.predicate.digest if result.claim.predicate else None
        items.append(item)
    return json.dumps(items, indent=1, ensure_ascii=False, allow_nan=False)


def to_markdown_table(results: Sequence[Result]) -> str:
    """A Markdown table; of Records, only their number (the HTML table names them)."""
    head = ["claim", "sentence", "document", "its figure", "PyTorch", "TensorFlow", "verdict", "Records"]
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    for result in results:
        verdict = f"{SYMBOLS[result.verdict]} {result.verdict}" + (f": {result.why}" if result.why else "")
        cells = [result.claim.number, result.claim.sentence, result.claim.document, result.claim.figure]
        cells += [*(ours(result, framework) for framework in FRAMEWORKS), verdict, str(len(result.record_keys) or DASH)]
        lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return "\n".join(lines) + "\n"


def to_html_table(results: Sequence[Result]) -> str:
    """The table of the claims page: `<table class="claims">`, a row a claim with its number as id, Record keys folded away."""
    head = ["Claim", "Sentence", "Document", "Its figure", "PyTorch", "TensorFlow", "Verdict", "Records"]
    lines = [
        '<table class="claims">',
        "<thead><tr>" + "".join(f'<th scope="col">{name}</th>' for name in head) + "</tr></thead>",
        "<tbody>",
    ]
    for result in results:
        claim = result.claim
        test = f'<div class="claim-test">{escape(tested(result))}</div>' if claim.predicate else ""
        why = f'<div class="claim-why">{escape(result.why)}</div>' if result.why else ""
        cells = [f"<td>{escape(claim.sentence)}{test}</td>", f"<td>{escape(claim.document)}</td>", f"<td>{escape(claim.figure)}</td>"]
        cells += [f"<td>{escape(ours(result, framework))}</td>" for framework in FRAMEWORKS]
        sign = f'<span class="verdict-sign" aria-hidden="true">{SYMBOLS[result.verdict]}</span> {result.verdict}'
        cells += [f'<td class="{css_class(result.verdict)}">{sign}{why}</td>', f"<td>{_keys(result)}</td>"]
        lines.append(f'<tr id="{claim.number}"><th scope="row">{claim.number}</th>{"".join(cells)}</tr>')
    return "\n".join([*lines, "</tbody>", "</table>"]) + "\n"


def _keys(result: Result) -> str:
    if not result.record_keys:
        return DASH
    keys = " ".join(f"<code>{escape(key)}</code>" for key in result.record_keys)
    return f"<details><summary>{len(result.record_keys)}</summary>{keys}</details>"
