"""Pages of a stranger's Records: whatever is not there or not true is left out, and none stops."""

from itertools import product
from pathlib import Path

import pytest

from multigpu import paths
from multigpu.record import RecordStore
from tests.factory import make_machine, make_record, plant
from tests.study.pages import NOTEBOOKS, Page


@pytest.fixture(scope="module", params=["empty", "cpu", "unknown"])
def strangers(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The data of somebody else's machine, or of nobody's yet."""
    folder = tmp_path_factory.mktemp(request.param)
    (folder / "runs").mkdir()
    if request.param != "empty":
        machine = make_machine(0) if request.param == "cpu" else make_machine(2, name="2x-unknown", gpu="Unknown GPU")
        fields = {"device_type": "cpu", "model": "nmt_small", "precision": "fp32"} if request.param == "cpu" else {}
        repeats = product(("ddp", "exp2"), (1, 2), (0, 1))
        plant(RecordStore(folder / "runs"), [make_record(name, count, machine=machine, repeat=n, **fields) for name, count, n in repeats])
    return folder


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_pages_render_on_a_strangers_records(strangers: Path, notebook: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is raised: what is not true or not there is left out."""
    monkeypatch.delenv(paths.PUBLISH, raising=False)
    Page(notebook, monkeypatch, records=str(strangers)).run()
