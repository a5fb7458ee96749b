"""Scripts of workflow/ as modules, for tests."""

import importlib.util
from types import ModuleType

from multigpu import paths


def load(name: str) -> ModuleType:
    """Import a script of workflow/."""
    file = paths.REPOSITORY / "workflow" / f"{name}.py"
    spec = importlib.util.spec_from_file_location(f"workflow_{name}", file)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
