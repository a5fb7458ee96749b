"""The documents' grids, as files that `multigpu.grids` explains; a folder a kind of experiment."""

from pathlib import Path

FOLDER = Path(__file__).parent
