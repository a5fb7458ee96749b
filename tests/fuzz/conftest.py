"""A folder in which any command may be tried: nothing that it reads or writes is the study's."""

import os
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

import pytest

from multigpu import cli_measure, cli_read, paths, store
from multigpu.measure.machine import this_machine
from multigpu.record import RecordStore
from multigpu.stages import measure as stages
from tests.conftest import FOLDERS
from tests.factory import make_point, make_record, plant


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The folder, with a few Records in `runs`; the current one, too."""
    root = tmp_path_factory.mktemp("fuzz")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(root)
        for name in FOLDERS:
            (root / name.lower()).mkdir()
            patch.setattr(paths, name, root / name.lower())
        patch.setattr(cli_measure, "measure_ceilings", lambda folder: folder)
        patch.setattr(stages, "measure_stages", mock.Mock(side_effect=RuntimeError("nothing is measured")))
        patch.setattr(cli_read, "measured_again", lambda *_: iter(()))
        patch.setattr(store, "_told", set())
        others = [make_record("exp4"), make_record(devices=1), make_record(status="failed", repeat=9)]
        plant(RecordStore(root / "runs"), [*others, *make_point([1e6, 1.1e6, 0.9e6, 1e6, 1e6])])
        with mock.patch.dict(os.environ):  # commands tell the processes that they start things this way
            yield root
    this_machine.cache_clear()
