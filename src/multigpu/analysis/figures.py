"""The study's figures. Each takes the frame and returns a `Picture` (a matplotlib Figure with title, caption, alternative text, data).

Titles are findings computed from the frame, or absent. `save(picture, name)` writes figures/<name>.svg and .csv.
"""

from multigpu.analysis.figure_bytes import figure_bytes
from multigpu.analysis.figure_forms import figure_forms
from multigpu.analysis.figure_ladder import figure_ladder
from multigpu.analysis.figure_models import figure_models
from multigpu.analysis.figure_ratios import figure_ratios
from multigpu.analysis.figure_scaling import figure_scaling
from multigpu.analysis.figure_step import figure_step
from multigpu.analysis.figure_steps import figure_steps
from multigpu.analysis.figure_strong import figure_strong
from multigpu.analysis.figure_throughput import figure_throughput
from multigpu.analysis.picture import Picture, Shown, save, shown

__all__ = [
    "Picture",
    "Shown",
    "figure_bytes",
    "figure_forms",
    "figure_ladder",
    "figure_models",
    "figure_ratios",
    "figure_scaling",
    "figure_step",
    "figure_steps",
    "figure_strong",
    "figure_throughput",
    "save",
    "shown",
]
