"""What SECURITY.md promises is held by the tests that it names; markup in a name is text."""

import re
from pathlib import Path

import pandas as pd
import pytest

from multigpu import paths
from multigpu.analysis import show
from multigpu.analysis.frame import frame_of
from multigpu.analysis.points import points
from multigpu.records.record import RecordStore
from multigpu.report.explorer import explorer
from tests.factory import make_record, plant

MARKUP = "<img src=x onerror=alert(1)></script>"


def test_every_promise_names_a_test_that_there_is() -> None:
    named = re.findall(
        r"`(tests/[\w/]+\.py)::(\w+)`", (paths.REPOSITORY / "SECURITY.md").read_text()
    )
    assert len(named) >= 10
    for file, test in named:
        assert f"def {test}(" in (paths.REPOSITORY / file).read_text(), f"{file}::{test}"


def test_markup_in_a_name_is_text_on_a_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(paths, "figures", lambda: tmp_path / "figures")
    record = make_record()
    store = plant(RecordStore(tmp_path / "data" / "runs"), [record])
    table = points(frame_of([record])).assign(model=MARKUP, placement=MARKUP)
    page = explorer(table, store.root, "..").html
    assert MARKUP not in page and "alert(1)" in page
    assert page.count("</script>") == 2, "of the data, and of the program that reads them"
    rows = pd.DataFrame({"model": [MARKUP], "devices": [1]})
    shown = show.table(rows, "model | devices", title=MARKUP, note=MARKUP).html
    assert "<img" not in shown and shown.count("&lt;img") == 3
