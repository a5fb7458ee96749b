"""Sentences that a person writes and Records fill. On a page every cell is a finding: it stands or
is left out.

    loss = 1 - estimate(pairs, placement="exp2")
    require(0.3 < loss, "parameters on the host cost the translator at least 30% on four GPUs")
    say(f"Keeping parameters on the host costs the translator {loss:percent} of its speed.")

On the published Records a `require` that fails stops the build and names its sentence: a person
writes it anew. On other Records the rest of its cell is left out, and one line says why.
"""

import ast
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from IPython.core.getipython import get_ipython
from IPython.display import Markdown, display

from multigpu.analysis.estimate import Estimate
from multigpu.analysis.picture import Picture
from multigpu.analysis.points import Missing
from multigpu.analysis.show import EXPLORER, records_query
from multigpu.paths import publishing


class NotTrue(AssertionError):
    """Raised where a sentence's condition does not hold for these Records."""

    def _render_traceback_(self) -> list[str]:
        return [f"{type(self).__name__}: {self}"]


def require(condition: Any, why: str) -> None:
    """NotTrue unless the condition holds, as NaN does not; why: what must be true, in words."""
    if not bool(condition):
        raise NotTrue(f"it is not true of these Records that {why}")


@contextmanager
def finding() -> Iterator[None]:
    """Keep sentences together, so that they stand or fall as one: one line says what fails; the
    published report raises it. A name that was left out fails too.
    """
    try:
        yield
    except (NotTrue, Missing, NameError) as error:
        if publishing():
            raise
        why = "it rests on what is left out above" if isinstance(error, NameError) else error
        display(Sentence(f"*Left out here: {why}.*"))


class Sentence(Markdown):
    """Markdown that is its own text where no Markdown is shown, as in papermill's log."""

    def __repr__(self) -> str:
        return str(self.data)


def say(text: str) -> Markdown:
    """A sentence, or several paragraphs of Markdown: an f-string whose figures are Estimates and
    write themselves.
    """
    return Sentence(text)


def linked(value: Any, form: str) -> str:
    """A figure of a sentence as it writes itself, leading to its points in the explorer; anything
    without Records as it is.
    """
    text = format(value, form)
    if not isinstance(value, Estimate) or not value.keys:
        return text
    return f"[{text}]({EXPLORER}#{records_query(sorted(value.keys))})"


def show(value: Any) -> None:
    """Show what a line of a cell gives, if anything; a picture that has a name is saved under
    it.
    """
    if value is not None:
        display(value.saved() if isinstance(value, Picture) else value)


class EachCell(ast.NodeTransformer):
    """Makes a cell one `finding` in which every line that has a value shows it (`show`), and every
    figure of a sentence (`say`) leads to its points (`linked`) where there is an explorer.
    """

    def __init__(self, explorer: bool = True) -> None:
        self.explorer = explorer

    def visit_Call(self, node: ast.Call) -> ast.Call:
        if self.explorer and isinstance(node.func, ast.Name) and node.func.id == "say":
            for text in node.args:
                if isinstance(text, ast.JoinedStr):
                    _link(text)
        return node

    def visit_Module(self, node: ast.Module) -> ast.Module:
        if node.body:
            block = ast.parse("with finding():\n    pass").body[0]
            assert isinstance(block, ast.With)
            self.generic_visit(node)
            block.body = [
                _shown(line) if isinstance(line, ast.Expr) else line for line in node.body
            ]
            node.body = [block]
        return ast.fix_missing_locations(node)


def _link(text: ast.JoinedStr) -> None:
    """Have each figure of an f-string `linked`."""
    for part in text.values:
        if isinstance(part, ast.FormattedValue) and part.conversion == -1:
            form = part.format_spec or ast.Constant("")
            part.value = ast.Call(ast.Name("linked", ast.Load()), [part.value, form], [])
            part.format_spec = None


def _shown(line: ast.Expr) -> ast.Expr:
    call = ast.Call(ast.Name("show", ast.Load()), [line.value], [])
    return ast.copy_location(ast.Expr(ast.copy_location(call, line)), line)


def each_cell_is_a_finding(explorer: bool = True) -> None:
    """From the next cell on, in a notebook; nothing elsewhere. explorer: as of `EachCell`."""
    shell = get_ipython()
    if shell is not None and not any(isinstance(one, EachCell) for one in shell.ast_transformers):
        shell.ast_transformers.append(EachCell(explorer))
