"""The documents' grids, as files that `multigpu.grid` explains; a folder a kind of experiment."""

from pathlib import Path

FOLDER = Path(__file__).parent
