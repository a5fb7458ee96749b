"""Export the names that the notebook of one experiment uses, for `from multigpu.report.pages import
*`: no framework is loaded; each thing is documented where it is made.
"""

from multigpu.analysis.answers import advising, explanation
from multigpu.analysis.estimate import estimate
from multigpu.analysis.parts import shown_parts
from multigpu.analysis.plots import dots, lines, timeline
from multigpu.analysis.points import where
from multigpu.analysis.prose import each_cell_is_a_finding, finding, linked, require, say, show
from multigpu.analysis.read import Study, need
from multigpu.analysis.show import table
from multigpu.analysis.traces import causes_frame, phases_frame, with_untraced_steps
from multigpu.analysis.words import devices_text
from multigpu.paths import RUNS
from multigpu.spec.parameters import check_parameters
