import importlib.util
import shutil

import pytest


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip what needs a GPU where there is none."""
    if shutil.which("nvidia-smi") is None:
        for item in items:
            if "gpu" in item.keywords:
                item.add_marker(pytest.mark.skip(reason="no NVIDIA GPU here"))


if importlib.util.find_spec("tensorflow") is None:
    collect_ignore_glob = ["engines/test_t*.py", "equivalence/test_tensorflow_placements.py", "measure/test_solo.py", "test_callbacks.py"]
