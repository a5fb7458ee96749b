"""Measuring must not need what only analysis, reports or one framework needs: GPU hosts may have none of it."""

from __future__ import annotations

import subprocess
import sys

import pytest

HEAVY = ("torch", "tensorflow", "pandas", "matplotlib", "great_tables", "papermill", "sphinx", "sklearn", "polib")


@pytest.mark.parametrize("module", ["multigpu.cli", "multigpu.grid", "multigpu.measure.launch", "multigpu.record", "multigpu.placements"])
def test_measuring_imports_little(module: str) -> None:
    code = f"import sys, {module}; print(*[name for name in {HEAVY} if name in sys.modules])"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == ""


def test_reading_loads_no_framework() -> None:
    """`analysis`, `claims` and what advises and explains answer without PyTorch or TensorFlow."""
    modules = "read, points, compare, estimate, prose, show, plots, advise, explain_text"
    found = "[name for name in ('torch', 'tensorflow', 'keras') if name in sys.modules]"
    code = f"import sys; from multigpu.analysis import {modules}; import multigpu.pages; print({found})"
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert said.stdout.strip() == "[]"
