"""How long readers wait: each command as a whole process, several times; prints minimum, median and
maximum in seconds.

python benchmarks/reading.py [--times 3]
"""

import argparse
import statistics
import subprocess
import sys
import time

COMMANDS = {
    "claims (at most 2 s)": ["claims", "--format", "json"],
    "advise": ["advise", "workload=cnn", "model=vgg16", "devices=2", "batch_size=64"],
    "explain": [
        "explain",
        "workload=nmt",
        "model=nmt000",
        "placement=exp2",
        "devices=4",
        "batch_size=128",
    ],
    "one page (at most 20 s)": ["report", "--only", "02-parameters"],
}


def seconds(words: list[str]) -> float:
    """Wall-clock time of one command."""
    start = time.perf_counter()
    subprocess.run([sys.executable, "-m", "multigpu", *words], check=True, capture_output=True)
    return time.perf_counter() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--times",
        type=int,
        default=3,
        help="how often each command runs, after one run that fills the cache",
    )
    times = parser.parse_args().times
    for name, words in COMMANDS.items():
        seconds(words)
        taken = [seconds(words) for _ in range(times)]
        print(
            f"{name:26} {min(taken):6.2f} {statistics.median(taken):6.2f} {max(taken):6.2f}",
            flush=True,
        )


if __name__ == "__main__":
    main()
