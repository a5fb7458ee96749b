"""Which page of the report shows what decides a claim."""

from __future__ import annotations

import json
from functools import lru_cache

from multigpu import paths

PAGES = {
    "02-parameters": ("C1", "C2", "C3", "C5", "C10"),
    "04-all-reduce": ("C25", "C38", "C39", "C47"),
    "05-models": ("C14", "C30"),
    "06-precision": ("C16",),
    "08-learning": ("C32", "C34", "C46"),
    "09-waiting": ("C26", "C27", "C28", "C33", "C45", "C48"),
    "07-feeding": ("C13",),
    "10-splitting": ("C31", "C40"),
    "30-appendix-translation": ("C4", "C6", "C7", "C8", "C9", "C11", "C41", "C44"),
    "33-appendix-two-towers": ("C35", "C36", "C37", "C51"),
    "31-appendix-cnn": ("C12", "C15", "C17", "C18", "C19", "C20", "C21", "C22", "C23", "C24", "C29", "C42", "C43", "C49", "C50"),
}
"""A notebook's name -> the claims whose figures it is about."""

PAGE_OF = {number: page for page, numbers in PAGES.items() for number in numbers}


@lru_cache
def page_title(page: str) -> str:
    """The first heading of a notebook; its name where there is no such file."""
    file = paths.REPOSITORY / "notebooks" / f"{page}.ipynb"
    if not file.exists():
        return page
    lines = "".join(json.loads(file.read_text())["cells"][0]["source"]).splitlines()
    return next((line.removeprefix("# ") for line in lines if line.startswith("# ")), page)
