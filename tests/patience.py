"""How long a test waits for what will come: where much else works on the computer, processes that
import a framework take many times as long to start or to end. Who waits goes on as soon as it is
there.
"""

import time

PATIENCE_S = 100.0
"""Below the 120 s that a test may take."""
USUAL_S = 0.15
"""CPU time of `slowness`'s loop on a processor for which limits of CPU time are set."""


def slowness() -> float:
    """How many times as long as usual this processor computes just now; at least 1. A processor
    that other machines share may be several times slower than on another day.
    """
    begun, total = time.process_time(), 0
    for number in range(2_000_000):
        total += number
    return max(1.0, (time.process_time() - begun) / USUAL_S)
