"""Python as where `multigpu_study` is not installed: on PYTHONPATH for a process and its
children, wherever these work.
"""

import os
import sys
from importlib.abc import MetaPathFinder
from typing import Any


class Blocker(MetaPathFinder):
    """Finds no module of the study, whatever path it lies on."""

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> None:
        if fullname.partition(".")[0] == "multigpu_study":
            raise ModuleNotFoundError(f"{fullname} is blocked", name=fullname)


sys.meta_path.insert(0, Blocker())
paths = os.environ["PYTHONPATH"].split(os.pathsep)
os.environ["PYTHONPATH"] = os.pathsep.join(os.path.abspath(path) for path in paths)
