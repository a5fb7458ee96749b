"""Claims on the page that decides them: as on the claims page, of these alone."""

from __future__ import annotations

from collections.abc import Sequence

from multigpu.analysis.picture import Shown
from multigpu.claims import Result, to_html_table


def verdicts(results: Sequence[Result]) -> Shown:
    """The document's sentence and figure, ours in both frameworks, the verdict with its reason, and the Records behind it."""
    return Shown(f'<div class="wide">\n{to_html_table(results)}</div>\n')
