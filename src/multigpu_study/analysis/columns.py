"""The columns of the study's frames, as the table beside this says what they mean."""

from pathlib import Path

from multigpu.spec.tables import columns_of


def columns(frame: str) -> dict[str, str]:
    """The columns of a frame of `columns.csv`, with their dtypes."""
    return columns_of(Path(__file__).with_name("columns.csv"), frame)
