"""The study's figures. Each takes the frame and returns a `Picture` (a matplotlib Figure with title, caption, alternative text, data).

Titles are findings computed from the frame, or absent. `save(picture, name)` writes figures/<name>.svg and .csv.
"""

from multigpu.analysis.figure_bytes import figure_bytes
from multigpu.analysis.figure_scaling import figure_scaling
from multigpu.analysis.figure_steps import figure_steps
from multigpu.analysis.figure_throughput import figure_throughput
from multigpu.analysis.picture import Picture, Shown, save, shown

__all__ = ["Picture", "Shown", "figure_bytes", "figure_scaling", "figure_steps", "figure_throughput", "save", "shown"]
