"""How the package is built: by setuptools; a wheel takes the tables of the committed Records along
(`multigpu.records.published`), which `publish.py` makes of data/ beforehand.
"""

import subprocess
import sys
from pathlib import Path
from typing import Any

from setuptools.build_meta import *  # noqa: F403 # the hooks of a build backend
from setuptools.build_meta import build_wheel as build_by_setuptools

NEEDED = ["numpy>=2", "pandas>=2.2", "psutil>=5.9", "pyarrow>=16", "pydantic>=2.10", "pyyaml>=6"]
NEEDED += ["cloudpickle>=3", "scipy>=1.13"]
"""What making the tables imports."""


def get_requires_for_build_wheel(config_settings: Any = None) -> list[str]:
    """Return the packages that a wheel's build needs beside setuptools."""
    return NEEDED


def build_wheel(
    wheel_directory: str, config_settings: Any = None, metadata_directory: str | None = None
) -> str:
    """Build a wheel with the tables in it; returns its file's name."""
    source = Path("src").resolve()
    tables = source / "multigpu" / "records" / "published.parquet"
    program = (
        "import runpy, sys; sys.path.insert(0, sys.argv.pop(1));"
        " runpy.run_path(sys.argv.pop(1), run_name='__main__')"
    )
    script = str(Path(__file__).with_name("publish.py"))
    subprocess.run([sys.executable, "-c", program, str(source), script], check=True)
    try:
        return build_by_setuptools(wheel_directory, config_settings, metadata_directory)
    finally:
        tables.unlink()
