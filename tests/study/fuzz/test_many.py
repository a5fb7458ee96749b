"""A small draw of `benchmarks.fuzz_many`, which tells what breaks."""

import pytest
from benchmarks import fuzz_many


def test_what_is_drawn_is_built_or_refused_and_ends_well(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert fuzz_many.main(["--fields", "400", "--lines", "40", "--seed", "3"]) == 0
    told = capsys.readouterr().out.splitlines()
    assert told[0].startswith("400 field combinations") and " built, " in told[0]
    assert told[1].startswith("40 command lines") and "with code 2" in told[1]


def test_what_breaks_is_told(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(fields: dict[str, object]) -> bool:
        raise KeyError(len(fields))

    monkeypatch.setattr(fuzz_many, "built_or_refused", broken)
    assert fuzz_many.main(["--fields", "2", "--lines", "1"]) == 1
    said = capsys.readouterr()
    assert "2 broken" in said.out and "KeyError" in said.err and "2 broke\n" in said.err
