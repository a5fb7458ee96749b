"""The study's figures. Each takes the frame and returns a `Picture` (a matplotlib Figure with title, caption, alternative text, data).

Titles are findings computed from the frame, or absent. `save(picture, name)` writes figures/<name>.svg and .csv.
"""

from multigpu.analysis.figure_bytes import figure_bytes
from multigpu.analysis.figure_collectives import figure_collectives
from multigpu.analysis.figure_framework_models import figure_framework_models
from multigpu.analysis.figure_frameworks import figure_frameworks
from multigpu.analysis.figure_scaling import figure_scaling
from multigpu.analysis.figure_step import figure_step
from multigpu.analysis.figure_steps import figure_steps
from multigpu.analysis.figure_throughput import figure_throughput
from multigpu.analysis.figure_waterfall import figure_waterfall
from multigpu.analysis.picture import Picture, Shown, save, shown

__all__ = [
    "Picture",
    "Shown",
    "figure_bytes",
    "figure_collectives",
    "figure_framework_models",
    "figure_frameworks",
    "figure_scaling",
    "figure_step",
    "figure_steps",
    "figure_throughput",
    "figure_waterfall",
    "save",
    "shown",
]
