"""Sentences that a person writes and Records fill: `say`, `require`, and `finding` around both.

    with finding():
        loss = 1 - estimate(one(pairs, placement="exp2"), "ratio")
        require(loss.low > 0.3, "parameters on the host cost the translator at least 30% on four GPUs")
        say("Keeping parameters on the host costs the translator {loss:percent} of its speed.", loss=loss)

On the published Records a `require` that fails stops the build and names its sentence: a person writes it anew. On other Records the
block is left out, and one line says why.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from string import Formatter
from typing import Any

from IPython.display import Markdown, display

from multigpu.analysis.estimate import Estimate
from multigpu.analysis.points import Missing
from multigpu.paths import publishing


class NotTrue(AssertionError):
    """What a sentence rests on does not hold for these Records."""

    def _render_traceback_(self) -> list[str]:
        return [f"{type(self).__name__}: {self}"]


def require(condition: Any, why: str) -> None:
    """Stop unless the condition holds; NaN counts as not holding.

    Args:
        why: what must be true, in words.

    Raises:
        NotTrue: it does not hold.
    """
    if not bool(condition):
        raise NotTrue(f"it is not true of these Records that {why}")


@contextmanager
def finding() -> Iterator[None]:
    """What stands and falls together: where a `require` fails or a point is missing, the rest of the block is left out with one line.

    Raises:
        NotTrue, Missing: while the published report is built.
    """
    try:
        yield
    except (NotTrue, Missing) as error:
        if publishing():
            raise
        display(Markdown(f"*Left out here: {error}.*"))


class _Facts(Formatter):
    """Plain numbers take the forms of an Estimate too."""

    def format_field(self, value: Any, format_spec: str) -> str:
        if isinstance(value, int | float) and format_spec and not isinstance(value, bool):
            value = Estimate(float(value))
        return super().format_field(value, format_spec)


def told(template: str, **facts: Any) -> str:
    """The template with its facts filled in, as `Estimate` writes figures.

    Raises:
        ValueError: a fact is named that the template does not use, or the other way round.
    """
    used = {name.split(".")[0].split("[")[0] for _, name, _, _ in Formatter().parse(template) if name is not None}
    if used != set(facts):
        odd = ", ".join(sorted(used ^ set(facts)))
        raise ValueError(f"the template and its facts disagree on {odd}: name each fact that the sentence uses, and no other")
    return _Facts().format(template, **facts)


def say(template: str, **facts: Any) -> None:
    """Show a sentence, or several paragraphs of Markdown, with the facts filled in."""
    display(Markdown(told(template, **facts)))
