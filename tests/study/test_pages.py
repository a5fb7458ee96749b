"""Pages run in this process, cell by cell, drawing nothing: true of the published Records, tripped
by other ones, and never stopped by a stranger's.
"""

import ast
import contextlib
import io
import re
import shlex
import subprocess
import sys
from collections import defaultdict
from collections.abc import Mapping
from functools import cache, partial
from itertools import product
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

import nbformat
import numpy as np
import pandas as pd
import pytest

from multigpu import paths
from multigpu.analysis import estimate, picture, plots, prose, read, show
from multigpu.analysis.estimate import Estimate
from multigpu.analysis.picture import Picture
from multigpu.analysis.points import where
from multigpu.analysis.show import Shown
from multigpu.cli.main import main
from multigpu.records.record import RecordStore
from multigpu.spec.parameters import ParameterError
from multigpu_study import pages
from multigpu_study.report.explorer import encoded
from tests.factory import make_machine, make_record, plant
from tests.further import but
from tests.multigpu.analysis.planted import read_on_a_telephone
from tests.refusals import cases_beside, refused

NOTEBOOKS = sorted((paths.REPOSITORY / "notebooks").glob("[0-9]*.ipynb"))
UNSCALED: dict[str, dict[str, str]] = {}
for page, said, reason in cases_beside(__file__, "unscaled.csv"):
    UNSCALED.setdefault(page, {})[said] = reason
"""page -> what a `require` of it says, or how that begins -> why no scaling of Runs' rates can trip
it.
"""
FROM_RATES = ("everywhere", "frame", "points", "host_steps")
"""What a study derives from the rates that are scaled; the rest that it has read stays."""


@cache
def code_of(path: Path) -> list[tuple[str, bool]]:
    """(source, whether it is the parameters' cell) of each code cell."""
    cells = [cell for cell in nbformat.read(path, as_version=4).cells if cell.cell_type == "code"]
    return [(cell.source, "parameters" in cell.metadata.get("tags", [])) for cell in cells]


def names_of(cell: ast.Module) -> tuple[set[str], set[str]]:
    """(names that a cell binds, names that it reads and has not bound in a line above)."""
    bound, free = set[str](), set[str]()
    for line in cell.body:
        targets = [part.target for part in ast.walk(line) if isinstance(part, ast.comprehension)]
        inner = {
            part.id for target in targets for part in ast.walk(target) if isinstance(part, ast.Name)
        }
        names = [
            part for part in ast.walk(line) if isinstance(part, ast.Name) and part.id not in inner
        ]
        free |= {name.id for name in names if isinstance(name.ctx, ast.Load)} - bound
        bound |= {name.id for name in names if isinstance(name.ctx, ast.Store)}
    return bound, free


class Page:
    """One page: `run` executes its cells; `facts` and `required` keep what each cell wrote and
    required.

    Of a published page (`told`), also the Records listed at its end, its links to the explorer with
    their rows' Records, and its figures.
    """

    def __init__(
        self, path: Path, patch: pytest.MonkeyPatch, strict: bool = True, **parameters: str
    ) -> None:
        self.cells, self.parameters = code_of(path), parameters
        self.facts: dict[int, list[Any]] = defaultdict(list)
        self.required: dict[int, list[tuple[str, bool]]] = defaultdict(list)
        self.space: dict[str, Any] = {"__name__": "__main__"}
        self.listed, self.links, self.figures = (
            set[str](),
            list[tuple[str, set[str]]](),
            list[Picture](),
        )
        self.at, self.of_a_machine = 0, False
        self.printed: list[str] = []
        write, require = Estimate.__format__, prose.require

        def note_fact(fact: Estimate, form: str) -> str:
            self.facts[self.at].append(fact)
            return write(fact, form)

        def note_required(condition: Any, why: str) -> None:
            self.required[self.at].append((why, bool(condition)))
            if strict:
                require(condition, why)

        patch.setattr(Estimate, "__format__", note_fact)
        patch.setattr(pages, "require", note_required)
        patch.setattr(picture, "save", lambda *_, **__: Shown(""))
        for name in ("dots", "lines", "bars", "timeline"):
            patch.setattr(pages, name, lambda rows, *_, **__: Picture(1, 1))
        if not strict:
            patch.setattr(pages, "table", lambda *_, **__: Shown(""))
            patch.setattr(read.Study, "header", lambda study: "")

    def run(self, last: int | None = None, kept: Mapping[str, Any] | None = None) -> None:
        """Execute the cells, all or this one and those that it rests on; kept: what the study has
        read already, by its attribute.
        """
        for number in range(len(self.cells)) if last is None else self.below(last):
            source, parameters = self.cells[number]
            self.at, cell = number, ast.parse(source)
            with contextlib.redirect_stdout(io.StringIO()) as printed:
                exec(
                    compile(
                        prose.EachCell().visit(cell) if "study" in self.space else cell,
                        f"cell {number}",
                        "exec",
                    ),
                    self.space,
                )
            self.printed.append(printed.getvalue())
            if parameters:
                self.space.update(self.parameters)
            elif number == 1:
                self.space["study"].__dict__.update(kept or {})

    def below(self, last: int) -> list[int]:
        """The first two cells, this one, and those between that bind a name which these read."""
        names = [names_of(ast.parse(source)) for source, _ in self.cells]
        needed, spoken = [last], names[last][1]
        for number in reversed(range(last)):
            bound, free = names[number]
            if number < 2 or bound & spoken:
                needed.append(number)
                spoken = spoken - bound | free
        return needed[::-1]


def keys_of(facts: list[Any]) -> frozenset[str]:
    """The Records that these facts follow."""
    return frozenset(key for fact in facts if isinstance(fact, Estimate) for key in fact.keys)


def points_scaled(keys: frozenset[str], times: float) -> tuple[pd.DataFrame, pd.DataFrame]:
    """The Runs and points that pages read, the rates of these Records' points multiplied."""
    frame, table = read.frames(paths.RUNS)
    hit = np.array([not keys.isdisjoint(own.split(", ")) for own in table["keys"].astype(str)])
    table = table.copy()
    table.loc[hit, ["rate", "rate_low", "rate_high"]] *= times
    table.loc[hit, ["step_time_s", "median_step_s"]] /= times
    table.loc[hit, "sample"] = [one.scaled(times) for one in table.loc[hit, "sample"]]
    return frame, table


def counts_are_of(rows: pd.DataFrame, text: str) -> None:
    """`n = 3 to 8, 95% intervals` below a figure or table: the least and most repeats of its rows,
    or of these and what they are compared with.
    """
    told = re.search(r"\bn = (\d+)(?: (?:to|or) (\d+))?, (?:95% intervals|bands)", text)
    if told is None or "n" not in rows:
        return
    ends = {int(told[1]), int(told[2] or told[1])}
    kept = [rows, rows[rows["n"].gt(1)]] if "ingle run" in text else [rows]
    counts = [part.filter(names).stack() for part in kept for names in (["n"], ["n", "base_n"])]
    found = [{int(part.min()), int(part.max())} for part in counts]
    assert ends in found, f"{told[0]!r} is said of {found}: {text[:200]}"


OFTEN = ("00", "13", "20", "34")
"""By number: short pages, whose every sentence is tried in `make test`. Building the report tries
those of all, and `make jobs` all that is tried here.
"""
MANY = but([path for path in NOTEBOOKS if path.stem.startswith(OFTEN)], NOTEBOOKS)


@pytest.fixture(scope="module", params=MANY, ids=lambda path: path.stem)
def path(request: pytest.FixtureRequest) -> Path:
    return request.param


@pytest.fixture(scope="module")
def told(path: Path) -> Page:
    """The page of the published Records: a sentence that is not true of them would raise."""

    def sources(*tables: pd.DataFrame) -> Shown:
        page.listed.update(re.findall(r"#key=(\w+)", (shown := show.sources(*tables)).html))
        return shown

    def linked(of: Any, rows: pd.DataFrame, *more: Any, link: str = "", **words: Any) -> Any:
        counts_are_of(rows, " ".join(map(str, [*more, *words.values()])))
        if link:
            keys = rows["keys"].dropna() if "keys" in rows else []
            page.links.append(
                (show.of_machines(link, rows), set(", ".join(keys).split(", ")) - {""})
            )
        return of(rows, *more, link=link, **words)

    def plot(of: Any, *more: Any, **words: Any) -> Picture:
        page.figures.append(linked(of, *more, **words))
        return Picture(1, 1)

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(paths.PUBLISH, "1")
        patch.setattr(estimate, "WRITTEN", written := set[str]())
        patch.setattr(show, "WRITTEN", written)
        page = Page(path, patch)
        drawn = {
            name: partial(plot, getattr(plots, name))
            for name in ("dots", "lines", "bars", "timeline")
        }
        for name, called in {
            "sources": sources,
            "table": partial(linked, show.table),
            **drawn,
        }.items():
            patch.setattr(pages, name, called)
        page.run()
    page.of_a_machine = bool(show.PAGE_MACHINE)
    return page


@pytest.mark.timeout(300)
def test_every_require_is_tripped_by_other_rates(
    path: Path, told: Page, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three times or a third of the rates behind one of the facts that a block says make each
    `require` of that block fail.
    """
    exempt = UNSCALED.get(path.stem, {})
    every = [why for required in told.required.values() for why, _ in required]
    assert all(
        any(why.startswith(begin) for why in every) and len(reason) > 20
        for begin, reason in exempt.items()
    )
    kept = {
        name: read for name, read in vars(told.space["study"]).items() if name not in FROM_RATES
    }
    for cell, required in told.required.items():
        left = {why for why, _ in required if not any(why.startswith(begin) for begin in exempt)}
        sides = list({keys: None for fact in told.facts.get(cell, []) if (keys := keys_of([fact]))})
        for keys, times in product(sides, (3.0, 1 / 3)):
            if not left:
                break
            found = points_scaled(keys, times)
            with monkeypatch.context() as patch:
                patch.setattr(read, "frames", lambda runs, found=found: found)
                again = Page(path, patch, strict=False)
                again.run(cell, kept)
            left -= {why for why, held in again.required.get(cell, []) if not held}
        assert not left, (
            f"cell {cell} says {sorted(left)}, and no scaling of the rates behind its facts trips"
            " that"
        )


def test_every_figure_leads_to_its_records_and_is_read_on_a_telephone(
    path: Path, told: Page, explored: dict[str, Any]
) -> None:
    """In two clicks: what a page writes is listed at its end; the explorer finds these Records, and
    points for every link.
    """
    assert (
        keys_of([fact for facts in told.facts.values() for fact in facts])
        <= told.listed
        <= explored["keys"]
    )
    assert told.listed or path.stem == "20-explorer"
    for link, keys in told.links:
        if link.startswith("key="):
            begins = tuple(link.removeprefix("key=").split("|"))
            hit = [any(key.startswith(begins) for key in own) for own in explored["points"]["own"]]
            own = explored["points"].loc[hit, "own"]
            others = keys - set().union(*explored["points"]["own"])
            missed = keys - set().union(*own, others)
            assert len(own) <= len(begins) and not missed, f"{link[:60]} misses {missed}"
            continue
        asked = {name: text.split("|") for name, text in parse_qsl(link)}
        begins = tuple(asked.pop("key", ()))
        assert begins or "machine=" in link or not told.of_a_machine, (
            f"{link} shows points of other machines than its rows"
        )
        found = where(explored["points"], **asked)
        if begins:
            found = found[[any(key.startswith(begins) for key in own) for own in found["own"]]]
        assert len(found), f"no point has {link}"
        assert keys <= set().union(*found["own"]), f"{link} leaves out Records of its rows"
    assert all(map(read_on_a_telephone, told.figures))


@pytest.fixture(scope="module")
def explored() -> dict[str, Any]:
    """The points as the explorer knows them, in words, and the keys that it finds a file for."""
    points = read.frames(paths.RUNS)[1]
    data = encoded(points, paths.DATA)
    places = [place for row in data["records"] for place in row] + [
        place for *_, place in data["others"]
    ]
    held = {name: one for name, one in data["columns"].items() if "values" in one}
    columns = {
        name: [one["values"][at] for at in one.get("at", [0] * len(points))]
        for name, one in held.items()
    }
    own = [[place.split()[0] for place in row] for row in data["records"]]
    return {
        "points": pd.DataFrame(columns).assign(own=own),
        "keys": {place.split()[0] for place in places if " " in place},
    }


STRANGERS = ("empty", "cpu", "unknown")
VISITS = [*product(STRANGERS, NOTEBOOKS)]
"""Whose Records meet which page: in `make test` each page those of one stranger, in turn."""
IN_TURN = [(STRANGERS[at % len(STRANGERS)], path) for at, path in enumerate(NOTEBOOKS)]


@pytest.fixture(scope="module")
def strangers(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The data of somebody else's machine, or of nobody's yet."""
    folder = tmp_path_factory.mktemp(request.param)
    (folder / "runs").mkdir()
    if request.param != "empty":
        machine = (
            make_machine(0)
            if request.param == "cpu"
            else make_machine(2, name="2x-unknown", gpu="Unknown GPU")
        )
        fields = (
            {"device_type": "cpu", "model": "nmt_small", "precision": "fp32"}
            if request.param == "cpu"
            else {}
        )
        repeats = product(("ddp", "exp2"), (1, 2), (0, 1))
        plant(
            RecordStore(folder / "runs"),
            [
                make_record(name, count, machine=machine, repeat=n, **fields)
                for name, count, n in repeats
            ],
        )
    return folder


@pytest.mark.parametrize(
    ("strangers", "path"),
    [
        pytest.param(who, path, id=f"{who}-{path.stem}", marks=marks)
        for (who, path), marks in (
            (visit, () if visit in IN_TURN else pytest.mark.further) for visit in VISITS
        )
    ],
    indirect=["strangers"],
    scope="module",
)
def test_pages_render_on_a_strangers_records(
    strangers: Path, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is raised: what is not true or not there is left out."""
    monkeypatch.delenv(paths.PUBLISH, raising=False)
    Page(path, monkeypatch, records=str(strangers)).run()


ASKING = r"python -m multigpu (?:explain|advise) "
PRINTED = re.compile(rf"\$ ({ASKING}[^\n]*)\n(.*)", re.S)


def test_a_printed_command_gives_what_stands_below_it(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each `$ python -m multigpu explain ...` that a page prints with its answer, run as it stands:
    a field left out of the printed line would answer for another point.
    """
    monkeypatch.chdir(paths.REPOSITORY)
    printed = 0
    for path in NOTEBOOKS:
        for cell, (source, _) in enumerate(code_of(path)):
            if not re.search(rf"\$ {ASKING}", source):
                continue
            page = Page(path, monkeypatch)
            page.run(cell)
            capsys.readouterr()
            match = PRINTED.fullmatch(page.printed[-1])
            if match:
                command, answer = match.groups()
                assert main(shlex.split(command)[3:]) == 0
                assert capsys.readouterr().out.strip() == answer.strip()
                printed += 1
    assert printed


def test_a_command_that_a_sentence_names_answers(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """`explain` and `advise` with fields, as sentences of a page and the page of commands name
    them: of what was measured, and where a step's time goes too.
    """
    monkeypatch.chdir(paths.REPOSITORY)
    texts = [source for path in NOTEBOOKS for source, _ in code_of(path)]
    texts.append((paths.REPOSITORY / "report" / "use.md").read_text(encoding="utf8"))
    asked = rf"{ASKING}workload=[^`{{#\n]+"
    named = {one for text in texts for one in re.findall(asked, text)}
    assert len(named) > 3
    for command in named:
        assert main(shlex.split(command)[3:]) == 0, command
        said = capsys.readouterr().out
        assert "was not measured" not in said, f"{command}\n{said}"


def test_an_unknown_parameter_of_a_page_is_found() -> None:
    given = {"records": "data", "machine": "", "In": ["", "# Parameters\nmachin = 1"]}
    refused("did you mean 'machine'", pages.page, given, error=ParameterError)


def test_pages_load_no_framework() -> None:
    program = "import sys, multigpu_study.pages\nprint([*{'torch', 'tensorflow'} & {*sys.modules}])"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout == "[]\n", done.stderr
