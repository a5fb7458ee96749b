"""Pages: true of the published Records, tripped by other ones, and never stopped by a stranger's."""

from __future__ import annotations

import re
from itertools import product
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

import pandas as pd
import pytest
import yaml

from multigpu import pages, paths
from multigpu.analysis import estimate, read, show
from multigpu.analysis.explorer import encoded
from multigpu.analysis.picture import Picture
from multigpu.analysis.points import where
from multigpu.record import RecordStore
from tests.factory import make_machine, make_record, plant
from tests.study.pages import NOTEBOOKS, Page, code_of, keys_of, points_scaled

UNSCALED = yaml.safe_load((Path(__file__).parent / "unscaled.yaml").read_text()) or {}
"""page -> what a `require` of it says, or how that begins -> why no scaling of Runs' rates can trip it."""


@pytest.fixture(params=NOTEBOOKS, ids=lambda path: path.stem)
def page(request: pytest.FixtureRequest) -> Path:
    return request.param


def test_every_sentence_is_true_of_the_published_records(page: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(paths.PUBLISH, "1")
    Page(page, monkeypatch).run()


def test_every_require_is_tripped_by_other_rates(page: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Three times or a third of the rates behind one of the facts that a block says make each `require` of that block fail."""
    told = Page(page, monkeypatch)
    told.run()
    exempt = UNSCALED.get(page.stem, {})
    for cell, required in list(told.required.items()):
        left = {why for why, _ in required if not any(why.startswith(begin) for begin in exempt)}
        sides = list({keys: None for fact in told.facts.get(cell, []) if (keys := keys_of([fact]))})
        for keys, times in product(sides, (3.0, 1 / 3)):
            if not left:
                break
            again = Page(page, monkeypatch)
            again.strict = False
            with points_scaled(monkeypatch, keys, times):
                again.run(cell)
            left -= {why for why, held in again.required.get(cell, []) if not held}
        assert not left, f"cell {cell} says {sorted(left)}, and no scaling of the rates behind its facts trips that"


def test_every_figure_leads_to_the_files_of_its_records(page: Path, monkeypatch: pytest.MonkeyPatch, explored: dict[str, Any]) -> None:
    """In two clicks: what a page writes is listed at its end; the explorer finds these Records, and points for every link."""
    listed: set[str] = set()
    links: set[str] = set()

    def sources(*tables: pd.DataFrame) -> show.Shown:
        listed.update(re.findall(r"#key=(\w+)", (shown := show.sources(*tables)).html))
        return shown

    def table(rows: pd.DataFrame, *more: Any, link: str = "", **words: Any) -> show.Shown:
        links.add(show.of_machines(link, rows))
        return show.table(rows, *more, link=link, **words)

    def plot(rows: pd.DataFrame, *_: Any, link: str = "", **__: Any) -> Picture:
        links.add(show.of_machines(link, rows))
        return Picture(1, 1)

    monkeypatch.setattr(estimate, "WRITTEN", written := set[str]())
    monkeypatch.setattr(show, "WRITTEN", written)
    told = Page(page, monkeypatch)
    for name, called in {"sources": sources, "table": table, **dict.fromkeys(("dots", "lines", "bars", "timeline"), plot)}.items():
        monkeypatch.setattr(pages, name, called)
    told.run()
    assert keys_of([fact for facts in told.facts.values() for fact in facts]) <= listed <= explored["keys"]
    assert listed or page.stem == "20-explorer"
    points = explored["points"]
    for link in links - {""}:
        assert "machine=" in link or not show.PAGE_MACHINE, f"{link} shows points of other machines than its rows"
        found = where(points, **{name: text.split("|") for name, text in parse_qsl(link)})
        assert len(found), f"no point has {link}"


@pytest.fixture(scope="module")
def explored() -> dict[str, Any]:
    """The points as the explorer knows them, in words, and the keys that it finds a file for."""
    points = read.frames(paths.RUNS)[1]
    data = encoded(points, paths.DATA)
    places = [place for row in data["records"] for place in row] + [place for *_, place in data["others"]]
    columns = {
        name: [held["values"][at] for at in held.get("at", [0] * len(points))] for name, held in data["columns"].items() if "values" in held
    }
    return {"points": pd.DataFrame(columns), "keys": {place.split()[0] for place in places if " " in place}}


def test_exemptions_name_what_a_page_requires(monkeypatch: pytest.MonkeyPatch) -> None:
    for stem, begins in UNSCALED.items():
        source = "\n".join(source for source, _ in code_of(paths.REPOSITORY / "notebooks" / f"{stem}.ipynb"))
        for begin, reason in begins.items():
            assert begin in source and len(reason) > 20, f"{stem}: {begin}"


@pytest.mark.parametrize("kind", ["empty", "cpu", "unknown"])
def test_pages_render_on_a_strangers_records(page: Path, kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is raised: what is not true or not there is left out."""
    (tmp_path / "runs").mkdir()
    if kind != "empty":
        machine = make_machine(0) if kind == "cpu" else make_machine(2, name="2x-unknown", gpu="Unknown GPU")
        fields = {"device_type": "cpu", "model": "nmt_small", "precision": "fp32"} if kind == "cpu" else {}
        records = [
            make_record(name, count, machine=machine, repeat=n, **fields) for name in ("ddp", "exp2") for count in (1, 2) for n in (0, 1)
        ]
        plant(RecordStore(tmp_path / "runs"), records)
    monkeypatch.delenv(paths.PUBLISH, raising=False)
    Page(page, monkeypatch, records=str(tmp_path)).run()


def test_notebooks_are_pages_of_a_person(page: Path) -> None:
    """No function, no class, at most three figures; every cell behind the first is a `finding`, which `page` sees to."""
    sources = [source for source, _ in code_of(page)]
    assert not any(re.search(r"^\s*(def|class)\b|\blambda\b", source, re.M) for source in sources)
    assert sum(source.count("file=") for source in sources) <= (3 if int(page.stem[:2]) < 20 else 99)
    assert "study = page(globals()" in sources[1] and not any(re.search(r"^(say|table|require)\(", sources[1], re.M) for _ in sources)
