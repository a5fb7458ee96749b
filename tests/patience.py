"""How long a test waits for what will come: where much else works on the computer, processes that
import a framework take many times as long to start or to end. Who waits goes on as soon as it is
there.
"""

PATIENCE_S = 100.0
"""Below the 120 s that a test may take."""
