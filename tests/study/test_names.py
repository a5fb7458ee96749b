"""One name a thing: what the glossary says is not said stands in no page and in no help."""

import argparse
import ast
import re
from collections.abc import Iterator

import nbformat
import pytest

from multigpu.analysis.words import OF_A_JOB, SAYS, WORDS, field_words
from multigpu.cli.main import build_parser, main
from multigpu.paths import REPOSITORY
from multigpu.placements import placements
from multigpu.report.site import grids_page
from tests.names import not_said, said

NOTEBOOKS = sorted((REPOSITORY / "notebooks").glob("*.ipynb"))
WRITTEN = ("README.md", "report/use.md", "report/method.md", "CONTRIBUTING.md", "report/claims.md")


def test_what_is_not_said_is_read_from_the_glossary_and_found() -> None:
    assert not_said()["variables on the CPU"] == "parameters on the host"
    assert len(not_said()) >= 15 and len(set(not_said().values())) >= 10
    for synonym, name in not_said().items():
        assert list(said(f"Its {synonym.capitalize()}, here.")), synonym
        assert list(said(f"two {synonym}s\nmore")) or synonym.endswith("s"), synonym
        assert not list(said(f"{name}: `{synonym}` and field_{synonym}_1 and x={synonym}")), synonym
    (found,) = said("with variables on\nthe CPU")
    assert "'variables on the CPU' for 'parameters on the host'" in found


def texts(path: object) -> Iterator[str]:
    """Markdown, and what code has in quotes, of a notebook."""
    for cell in nbformat.read(path, as_version=4).cells:
        if cell.cell_type == "markdown":
            yield cell.source
            continue
        for part in ast.walk(ast.parse(cell.source)):
            if isinstance(part, ast.Constant) and isinstance(part.value, str) and " " in part.value:
                yield part.value


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_no_notebook_says_it(path: object) -> None:
    assert [found for text in texts(path) for found in said(text)] == []


def test_no_page_says_it_nor_what_tables_and_figures_are_written_with() -> None:
    assert [
        f"{name}: {found}" for name in WRITTEN for found in said((REPOSITORY / name).read_text())
    ] == []
    glossary = (REPOSITORY / "report" / "glossary.md").read_text()
    assert list(said(re.sub(r" Not said: .+", "", glossary))) == []
    titles = [row.title for row in placements().values()]
    values = [text for column in WORDS.values() for text in column.values()]
    ways = [field_words(name, "2") for name in {**SAYS, **OF_A_JOB}]
    ways += [
        field_words(name, value)
        for name, value in {"cross_entropy": "fused", "processes": "one"}.items()
    ]
    assert [found for text in (*titles, *values, *ways, grids_page()) for found in said(text)] == []


def helps() -> Iterator[tuple[str, argparse.ArgumentParser]]:
    parser = build_parser()
    (commands,) = (
        action for action in parser._actions if isinstance(action, argparse._SubParsersAction)
    )
    yield from commands.choices.items()


def test_no_help_says_it(capsys: pytest.CaptureFixture[str]) -> None:
    for name, parser in helps():
        if parser.get_default("own_parser"):
            with pytest.raises(SystemExit):
                main([name, "--help"])
            text = capsys.readouterr().out
        else:
            text = parser.format_help()
        assert len(text) > 100 and list(said(text)) == [], name
