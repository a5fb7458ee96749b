"""Pages: true of the published Records, tripped by other ones, and never stopped by a stranger's."""

import re
from dataclasses import dataclass
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

import pandas as pd
import pytest
import yaml

from multigpu import pages, paths
from multigpu.analysis import estimate, plots, read, show
from multigpu.analysis.picture import Picture
from multigpu.analysis.points import where
from multigpu.explorer import encoded
from tests.analysis.planted import read_on_a_telephone
from tests.study.pages import NOTEBOOKS, Page, code_of, keys_of, points_scaled

UNSCALED = yaml.safe_load((Path(__file__).parent / "unscaled.yaml").read_text()) or {}
"""page -> what a `require` of it says, or how that begins -> why no scaling of Runs' rates can trip it."""
FROM_RATES = ("everywhere", "frame", "points", "host_steps")
"""What a study derives from the rates that are scaled; the rest that it has read stays."""


@dataclass
class Told:
    """A published page: itself, the Records listed at its end, its links to the explorer with their rows' Records, its figures, of what."""

    page: Page
    listed: set[str]
    links: list[tuple[str, set[str]]]
    figures: list[Picture]
    of_a_machine: bool


@pytest.fixture(scope="module", params=NOTEBOOKS, ids=lambda path: path.stem)
def path(request: pytest.FixtureRequest) -> Path:
    return request.param


@pytest.fixture(scope="module")
def told(path: Path) -> Told:
    """The page of the published Records: a sentence that is not true of them would raise."""
    listed, links, figures = set[str](), list[tuple[str, set[str]]](), list[Picture]()

    def sources(*tables: pd.DataFrame) -> show.Shown:
        listed.update(re.findall(r"#key=(\w+)", (shown := show.sources(*tables)).html))
        return shown

    def linked(of: Any, rows: pd.DataFrame, *more: Any, link: str = "", **words: Any) -> Any:
        if link:
            keys = rows["keys"].dropna() if "keys" in rows else []
            links.append((show.of_machines(link, rows), set(", ".join(keys).split(", ")) - {""}))
        return of(rows, *more, link=link, **words)

    def plot(of: Any, *more: Any, **words: Any) -> Picture:
        figures.append(linked(of, *more, **words))
        return Picture(1, 1)

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(paths.PUBLISH, "1")
        patch.setattr(estimate, "WRITTEN", written := set[str]())
        patch.setattr(show, "WRITTEN", written)
        page = Page(path, patch)
        drawn = {name: partial(plot, getattr(plots, name)) for name in ("dots", "lines", "bars", "timeline")}
        for name, called in {"sources": sources, "table": partial(linked, show.table), **drawn}.items():
            patch.setattr(pages, name, called)
        page.run()
    return Told(page, listed, links, figures, bool(show.PAGE_MACHINE))


def test_every_require_is_tripped_by_other_rates(path: Path, told: Told, monkeypatch: pytest.MonkeyPatch) -> None:
    """Three times or a third of the rates behind one of the facts that a block says make each `require` of that block fail."""
    exempt = UNSCALED.get(path.stem, {})
    kept = {name: read for name, read in vars(told.page.space["study"]).items() if name not in FROM_RATES}
    for cell, required in told.page.required.items():
        left = {why for why, _ in required if not any(why.startswith(begin) for begin in exempt)}
        sides = list({keys: None for fact in told.page.facts.get(cell, []) if (keys := keys_of([fact]))})
        for keys, times in product(sides, (3.0, 1 / 3)):
            if not left:
                break
            with monkeypatch.context() as patch, points_scaled(patch, keys, times):
                again = Page(path, patch, strict=False)
                again.run(cell, kept)
            left -= {why for why, held in again.required.get(cell, []) if not held}
        assert not left, f"cell {cell} says {sorted(left)}, and no scaling of the rates behind its facts trips that"


def test_every_figure_leads_to_the_files_of_its_records(path: Path, told: Told, explored: dict[str, Any]) -> None:
    """In two clicks: what a page writes is listed at its end; the explorer finds these Records, and points for every link."""
    assert keys_of([fact for facts in told.page.facts.values() for fact in facts]) <= told.listed <= explored["keys"]
    assert told.listed or path.stem == "20-explorer"
    for link, keys in told.links:
        assert "machine=" in link or not told.of_a_machine, f"{link} shows points of other machines than its rows"
        found = where(explored["points"], **{name: text.split("|") for name, text in parse_qsl(link)})
        assert len(found), f"no point has {link}"
        assert keys <= set().union(*found["own"]), f"{link} leaves out Records of its rows"


def test_every_figure_is_read_on_a_telephone(told: Told) -> None:
    for figure in told.figures:
        assert read_on_a_telephone(figure), figure.name


@pytest.fixture(scope="module")
def explored() -> dict[str, Any]:
    """The points as the explorer knows them, in words, and the keys that it finds a file for."""
    points = read.frames(paths.RUNS)[1]
    data = encoded(points, paths.DATA)
    places = [place for row in data["records"] for place in row] + [place for *_, place in data["others"]]
    columns = {
        name: [held["values"][at] for at in held.get("at", [0] * len(points))] for name, held in data["columns"].items() if "values" in held
    }
    own = [[place.split()[0] for place in row] for row in data["records"]]
    return {"points": pd.DataFrame(columns).assign(own=own), "keys": {place.split()[0] for place in places if " " in place}}


def test_exemptions_name_what_a_page_requires() -> None:
    for stem, begins in UNSCALED.items():
        source = "\n".join(source for source, _ in code_of(paths.REPOSITORY / "notebooks" / f"{stem}.ipynb"))
        for begin, reason in begins.items():
            assert begin in source and len(reason) > 20, f"{stem}: {begin}"


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebooks_are_pages_of_a_person(notebook: Path) -> None:
    """At most three figures; every cell behind the first is a `finding`, which `page` sees to."""
    sources = [source for source, _ in code_of(notebook)]
    assert sum(source.count("file=") for source in sources) <= (3 if int(notebook.stem[:2]) < 20 else 99)
    assert "study = page(globals()" in sources[1] and not re.search(r"^(say|table|require)\(", sources[1], re.M)
