"""Everyone to everyone with elements that travel as fp16: formula and error bound stand in `everyone.py`."""

from multigpu.collectives.algorithms.everyone import compressed

ALGORITHM = compressed("fp16")
