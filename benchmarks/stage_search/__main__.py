"""Run the search from a command line."""

import sys

from benchmarks.stage_search.measure import main

if __name__ == "__main__":
    sys.exit(main())
