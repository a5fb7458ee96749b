"""The study's figures: each takes the frame and returns a `Picture`; `save(picture, name)` writes figures/<name>.svg and .csv."""

from multigpu.analysis.figure_step import figure_step
from multigpu.analysis.picture import Picture, Shown, save, shown

__all__ = ["Picture", "Shown", "figure_step", "save", "shown"]
