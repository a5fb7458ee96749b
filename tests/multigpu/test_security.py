"""What SECURITY.md promises is held by the tests that it names; markup in a name is text."""

import re

from multigpu import paths


def test_every_promise_names_a_test_that_there_is() -> None:
    named = re.findall(
        r"`(tests/[\w/]+\.py)::(\w+)`", (paths.REPOSITORY / "SECURITY.md").read_text()
    )
    assert len(named) >= 10
    for file, test in named:
        assert f"def {test}(" in (paths.REPOSITORY / file).read_text(), f"{file}::{test}"
