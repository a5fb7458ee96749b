"""Whatever is typed ends with 0, 1 or 2, and bad input with one sentence."""

import argparse
import contextlib
import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from multigpu.cli import main
from multigpu.grid import GRIDS
from multigpu.run import Run
from tests.factory import make_record
from tests.fuzz.strategies import WORDS, examples, known_runs, little_memory, one_sentence, pairs_of, parsers, words_of

NOTHING_ELSE: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("stages", "page", "ceilings", "doctor", "records", "verify", "explain", "advise", "claims"), ()),
    **{"report": ("--only", "no such page"), "study": ("--grid", "no such grid")},
}
"""What keeps a command from measuring or executing pages; others have `--dry-run`."""


FIELDS = st.one_of(
    st.sampled_from(pairs_of(Run.model_fields)).map(lambda pair: "=".join(map(str, pair))),
    st.deferred(lambda: st.sampled_from([f"{name}={value}" for fields in known_runs()[::40] for name, value in fields.items()])),
)
TEXTS = [
    *(word for word in WORDS if word.isprintable()),
    *list(GRIDS)[:20],
    *(make_record().key, "runs", "collectives", "points.yaml", "out", "table.csv", "table.parquet", "status=ok"),
]
PARSERS = parsers()


@st.composite
def lines(draw: st.DrawFn) -> list[str]:
    """A command with a few of its options and operands."""
    command = draw(st.sampled_from(list(PARSERS)))
    actions = [action for action in PARSERS[command]._actions if not isinstance(action, argparse._HelpAction)]
    words = []
    for action in draw(st.lists(st.sampled_from(actions), max_size=4, unique_by=id)) if actions else ():
        words += draw(words_of(action, TEXTS))
    if any(not action.option_strings for action in actions):
        words += draw(st.lists(FIELDS, max_size=5))
    if draw(st.integers(0, 9)) == 0:
        words.insert(draw(st.integers(0, len(words))), draw(st.sampled_from(TEXTS)))
    first = draw(st.sampled_from([[], [], [], ["--records", "runs"], ["--records", draw(st.sampled_from(TEXTS))]]))
    return [*first, command, *words, *NOTHING_ELSE.get(command, ["--dry-run"])]


@pytest.mark.usefixtures("place")
@examples(60)
@given(lines())
def test_a_command_ends_well_or_with_one_sentence(words: list[str]) -> None:
    """Bad input says one sentence, and what stopped says why."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err), little_memory():
        try:
            code = main(words)
        except SystemExit as end:
            code = int(end.code or 0)
    assert code in (0, 1, 2) and "Traceback" not in out.getvalue() + err.getvalue(), err.getvalue()[-3000:]
    if code == 2:
        said = [line for line in err.getvalue().splitlines() if not line.startswith(("multigpu: left out:", "multigpu: more is left"))]
        one_sentence("\n".join(said))
        assert said[0].startswith("multigpu: "), said
