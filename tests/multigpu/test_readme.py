"""README and the page of commands say what is so: what they name is there, and what they print can
be typed.
"""

import json
import re
import shlex
from pathlib import Path
from typing import Any

import pytest

from multigpu import paths
from multigpu.cli.main import build_parser
from multigpu.grids import GRIDS
from multigpu.paths import REPOSITORY
from multigpu.report.batch_rows import read_tasks
from multigpu.report.experiment import PARAMETERS, planned
from multigpu.report.notebooks import parameter_names
from multigpu.report.site import grids_page
from multigpu.spec.parse import parse_fields
from tests.installed import needs_deepconn
from tests.multigpu.test_experiment import defaults

PAGES = {name: (REPOSITORY / name).read_text() for name in ("README.md", "report/use.md")}
LINES = [
    (name, line.removeprefix("$ ").partition("  #")[0].strip())
    for name, text in PAGES.items()
    for block in re.findall(r"```console\n(.*?)```", text, re.DOTALL)
    for line in block.splitlines()
]
COMMANDS = [
    re.split(r" [|]|\)", line.partition("-m multigpu ")[2])[0]
    for _, line in LINES
    if "-m multigpu " in line
]
TARGETS = set(re.findall(r"^([a-z]+):.*## ", (REPOSITORY / "Makefile").read_text(), re.MULTILINE))


def test_readme_is_three_screens() -> None:
    text = PAGES["README.md"]
    assert len(text) <= 9000
    assert len(re.findall(r"!\[", text)) == 1
    for name in re.findall(r"\]\((?!http)([^)#]+)\)", text):
        assert (REPOSITORY / name).is_file(), name
    for name in re.findall(
        r"`((?:notebooks|examples|src|data|report)/[\w./-]+)`", "".join(PAGES.values())
    ):
        assert (REPOSITORY / name).exists(), name


@needs_deepconn
@pytest.mark.parametrize("line", COMMANDS)
def test_every_command_that_is_printed_can_be_typed(line: str) -> None:
    """Its options exist, its grids too, and its fields are fields."""
    parsed, left = build_parser().parse_known_args(shlex.split(line))
    assert parsed.own_parser or not left, left
    words = [*left, *shlex.split(line)]
    for place, word in enumerate(words[:-1]):
        if word == "--grid" and parsed.command != "train":
            assert set(words[place + 1].split(",")) <= set(GRIDS)
    parse_fields([word for word in getattr(parsed, "fields", []) if "=" in word])


def test_what_make_is_asked_for_is_there() -> None:
    for name, text in PAGES.items():
        asked = set(re.findall(r"(?:\$ |`)make ([a-z]+)", text))
        assert asked and asked <= TARGETS, (name, asked - TARGETS)


def test_the_batch_and_the_notebooks_parameters_can_be_run(tmp_path: Path) -> None:
    (rows,) = re.findall(r"```yaml\n(.*?)```", PAGES["README.md"], re.DOTALL)
    (tmp_path / "points.yaml").write_text(rows)
    tasks, impossible, _ = read_tasks(tmp_path / "points.yaml", [1, 2])
    assert len(tasks) == 6 and not impossible
    for _, line in LINES:
        if "papermill" in line:
            words = shlex.split(line.rpartition("papermill ")[2])
            names = parameter_names(REPOSITORY / words[0])
            places = [place for place, word in enumerate(words) if word == "-p"]
            given = {words[place + 1]: words[place + 2] for place in places}
            assert set(given) <= set(names)
            if "experiment" in words[0]:
                known: dict[str, Any] = defaults()
                read = {name: int(v) if v.isdecimal() else v for name, v in given.items()}
                assert planned(known | read | {"device_type": "cpu"}).trace == 3
                assert set(known) == set(PARAMETERS)


def test_the_table_of_grids_says_what_their_files_ask() -> None:
    page = grids_page()
    for name in ("headline", "cpu_study", "deepconn_small"):
        if name in GRIDS:
            assert f"| `{name}` | " in page
    assert page.count("?") >= page.count("\n") - 2 and paths.CHECKOUT is not None


def test_jupyter_opens_a_page_of_three_notebooks_and_asks_nothing() -> None:
    folder = REPOSITORY / "notebooks"
    start = (folder / "start.md").read_text()
    linked = re.findall(r"\]\(([^)]+)\)", start)
    assert linked == ["experiment.ipynb", "your-model.ipynb", "00-front.ipynb"]
    assert all((folder / name).is_file() for name in linked)
    recipe = (REPOSITORY / "Makefile").read_text().partition("\nlab: ")[2].partition("\n\n")[0]
    assert "default_url=/lab/tree/notebooks/start.md" in recipe
    assert "app_settings_dir=$(CURDIR)/notebooks/lab" in recipe
    settings = json.loads((folder / "lab" / "overrides.json").read_text())
    asked = settings["@jupyterlab/apputils-extension:notification"]
    assert asked == {"fetchNews": "false", "checkForUpdates": False}
