"""The report built twice from the same Records differs in nothing but its date."""

import contextlib
import io
import re
from pathlib import Path

import pytest

from multigpu import paths
from multigpu.notebooks import execute_one
from multigpu.report import build_report

PAGES = ("00-front", "33-appendix-two-towers")
DATE = re.compile(rb"\b\d{4}-\d\d-\d\d( \d\d:\d\d)?\b|\b\d{1,2} \w+ 20\d\d\b|\b\w+ \d{1,2}, 20\d\d\b")


def built(folder: Path) -> dict[str, bytes]:
    """Every page of a site of these two, without its dates."""
    notebooks = paths.REPOSITORY / "notebooks"
    (folder / "executed").mkdir(parents=True)
    (folder / "figures").mkdir()
    with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stderr(io.StringIO()):
        patch.setattr(paths, "figures", lambda: folder / "figures")
        for page in PAGES:
            execute_one(notebooks / f"{page}.ipynb", folder / "executed" / f"{page}.ipynb", {"records": str(paths.DATA)})
        site = build_report(folder / "html", folder / "executed").parent
    return {str(file.relative_to(site)): DATE.sub(b"", file.read_bytes()) for file in site.rglob("*.html")}


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_two_builds_differ_in_nothing_but_their_date(tmp_path: Path) -> None:
    one, other = built(tmp_path / "one"), built(tmp_path / "other")
    assert one.keys() == other.keys() and "index.html" in one and f"{PAGES[1]}.html" in one
    different = [name for name in one if one[name] != other[name]]
    assert not different
