"""Run a grid from a command line."""

import sys

from benchmarks.synchrony.measure import main

if __name__ == "__main__":
    sys.exit(main())
