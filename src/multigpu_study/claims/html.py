"""Results as HTML (`multigpu_study.claims.html.j2`): a cell a claim, how many have which verdict, a
table row a claim, and the verdicts that changed.
"""

import json
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from jinja2 import Environment, PackageLoader

from multigpu import paths
from multigpu.analysis.words import plural
from multigpu_study.claims.core import VERDICTS
from multigpu_study.claims.ledger import changes, decided_before_data, orders
from multigpu_study.claims.results import ClaimResult, study_results
from multigpu_study.claims.wording import SAID, SAYINGS, SYMBOLS, tested, titled

LONG = 220
"""Letters of a cell beyond which the rest is folded away."""


def cut(text: str) -> tuple[str, str]:
    """Cut a text after the sentence or figure that makes it long; the rest opens on request."""
    ends = [at + 1 for at, letter in enumerate(text) if letter == ";"] if len(text) > LONG else []
    at = max((end for end in ends if end <= LONG), default=min(ends, default=0))
    return (text[:at], text[at:].strip()) if at else (text, "")


_ENVIRONMENT = Environment(
    loader=PackageLoader("multigpu_study.claims", "."), autoescape=True, trim_blocks=True
)
_ENVIRONMENT.filters |= {"cut": cut, "plural": plural, "decided_before_data": decided_before_data}
_ENVIRONMENT.globals |= {"symbols": SYMBOLS, "verdicts": VERDICTS, "sayings": SAYINGS, "said": SAID}
_MACROS: Any = _ENVIRONMENT.get_template("claims.html.j2").module

scoreboard, tally, changes_table = _MACROS.scoreboard, _MACROS.tally, _MACROS.changes
"""Of results: a cell a claim; how many have each verdict. Of `ledger.changes`: a row each."""


def claims_table(results: Sequence[ClaimResult]) -> str:
    """Return `<table class="claims">`, a row a claim, its number as id; long texts fold away."""
    written = orders(results)
    rows = [
        (
            one,
            written.get(one.claim.number, ""),
            titled(one),
            tested(one),
            page_title(one.claim.page),
        )
        for one in results
    ]
    return str(_MACROS.claims(rows))


@lru_cache
def page_title(page: str) -> str:
    """The first heading of a notebook (a link says it as far as the colon, the whole when pointed
    at); its name where there is no file.
    """
    file = paths.REPOSITORY / "notebooks" / f"{page}.ipynb"
    if not file.is_file():
        return page
    lines = "".join(
        text for cell in json.loads(file.read_text())["cells"][:1] for text in cell["source"]
    ).splitlines()
    return next((line.removeprefix("# ") for line in lines if line.startswith("# ")), page)


def claims_page() -> str:
    """Write a cell a claim, how many have which verdict, the table, and what changed."""
    results = study_results()
    return (
        f"{scoreboard(results)}\n{tally(results)}<div"
        f' class="wide">\n{claims_table(results)}</div>\n\n## Changed verdicts\n\n<div'
        f' class="wide">\n{changes_table(changes())}</div>\n'
    )
