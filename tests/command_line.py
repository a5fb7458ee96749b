"""Command lines of tests: the fields of a tiny Run, a folder of files and what comes of a line."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from multigpu.cli.command import OWN_RECORDS
from multigpu.cli.main import main
from multigpu.machine.machine import framework_version, this_machine
from multigpu.records.record import TIMING_VERSION, Record
from multigpu.spec.run import Run
from tests.factory import make_machine, make_record

Ran = Callable[..., tuple[int, str, str]]
TINY = [
    "workload=nmt",
    "model=nmt_tiny",
    "placement=ddp",
    "device_type=cpu",
    "devices=1",
    "batch_size=4",
    "sequence_length=5",
]
IMAGES = [
    "workload=cnn",
    "model=resnet_tiny",
    "placement=ddp",
    "device_type=cpu",
    "devices=1",
    "batch_size=4",
]


def fields(*changes: str, base: list[str] = TINY) -> list[str]:
    """The tiny Run's fields, some changed."""
    changed = {text.partition("=")[0]: text for text in changes}
    return [changed.pop(text.partition("=")[0], text) for text in base] + list(changed.values())


@pytest.fixture
def here(tmp_path: Path) -> Path:
    """A folder with one for Records, `runs`, and with files of which none can be trained on."""
    for name in ("runs", "cifar"):
        (tmp_path / name).mkdir()
    row = "- {workload: nmt, model: nmt_tiny, placement: ddp, batch_size: 2}"
    for name, text in (
        ("a.en", "one two\nthree four\n" * 20),
        ("a.de", "eins zwei\n" * 20),
        ("blocked", ""),
        ("list.json", "[1, 2]"),
        ("nul.yaml", 'records: "a\\0b"'),
        ("points.yaml", row),
    ):
        (tmp_path / name).write_text(text)
    (tmp_path / "cifar" / "data_batch_1.bin").symlink_to("/nowhere.bin")
    return tmp_path


@pytest.fixture
def run(here: Path, capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    """Gives what comes of a command line, with `runs` for its Records unless it names another
    folder: (exit code, output, errors).
    """

    def ran(*words: str) -> tuple[int, str, str]:
        try:
            own = words[0] == "--records" or words[0] in OWN_RECORDS
            code = main([*(() if own else ("--records", str(here / "runs"))), *words])
        except SystemExit as end:
            code = int(end.code or 0)
        return code, *capsys.readouterr()

    return ran


def refused_words(words: list[str], said: list[str], run: Ran, here: Path) -> None:
    """Check that these words end with one sentence that holds what is said, and measure nothing."""
    code, out, err = run(*(word.replace("{here}", str(here)) for word in words))
    assert (code, out) == (2, "")
    assert (
        len(err.strip().splitlines()) == 1
        and "Traceback" not in err
        and "invalid literal" not in err
    )
    assert len(err) < 2000 and "9" * 100 not in err
    for word in said:
        assert word.replace("{here}", str(here)) in err, err
    assert not list(here.rglob("*.json.gz"))


def measured_here(run: Run, repeat: int = 0, **more: Any) -> Record:
    """A planted Record of this machine, of the PyTorch that is installed and of today's timer,
    unless `more` says otherwise.
    """
    fields: dict[str, Any] = run.model_dump(exclude={"placement", "devices"})
    fields |= {"machine": make_machine(0, this_machine().name), "timing_version": TIMING_VERSION}
    return make_record(
        run.placement,
        run.devices,
        repeat=repeat,
        **fields | {"versions": {"torch": framework_version("torch")}} | more,
    )
