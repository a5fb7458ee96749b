"""Whatever is typed ends with 0, 1 or 2, and bad input with one sentence."""

import argparse
import contextlib
import io
import subprocess
import sys
from pathlib import Path

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

HARMLESS = {"measure", "batch", "records", "explain", "advise", "collectives", "hosts", "synchrony", "train"}
"""Commands that read and write nothing but what is named, also where nothing of them is replaced."""

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


def check(code: int, out: str, err: str) -> None:
    """Check an end: bad input says one sentence, and what stopped says why."""
    assert code in (0, 1, 2) and "Traceback" not in out + err, err[-3000:]
    said = [
        line for line in err.splitlines() if not line.startswith("multigpu: left out:") and not line.startswith("multigpu: more is left")
    ]
    if code == 2:
        one_sentence("\n".join(said))
        assert said[0].startswith("multigpu: "), said


def typed(words: list[str]) -> tuple[int, str, str]:
    """What comes of a command line in this process."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err), little_memory():
        try:
            code = main(words)
        except SystemExit as end:
            code = int(end.code or 0)
    return code, out.getvalue(), err.getvalue()


@pytest.mark.usefixtures("place")
@examples(60)
@given(lines())
def test_in_this_process(words: list[str]) -> None:
    check(*typed(words))


@examples(2)
@given(words=lines().filter(lambda words: HARMLESS & {*words}))
def test_in_a_process_of_its_own(words: list[str], place: Path) -> None:
    """With its imports, its signals and its end."""
    words = ["--records", "runs", *words[words.index(next(word for word in words if word in HARMLESS)) :]]
    told = {"capture_output": True, "text": True, "errors": "replace", "stdin": subprocess.DEVNULL}
    found = subprocess.run([sys.executable, "-m", "multigpu", *words], cwd=place, timeout=100, **told)
    check(found.returncode, found.stdout, found.stderr)
