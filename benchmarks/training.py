r"""One training job, however a user may run it: plain PyTorch, torch.compile, TensorFlow with XLA,
and this project's own ways, on one device or on several.

Every way has processes of its own: one a device, or one that dispatches for all. One after another
the ways prepare (build, compile, warm up: told apart); then each is timed in turn, round by round,
while the others wait. All processes of a way train the same number of steps between two meetings
on the host (`run_window`, the clock of Records), and its rate is that of all devices together. The
table holds the mean of all rounds with its 95% interval, and that of the ratios to plain PyTorch
in the same round. A way that cannot run here, fails, or is not ready in time has a row that says
why, and stops no other. What was measured is on disk after each round.

On one H200, the most telling first; behind each line the seconds that it should take, of which
preparing takes most. No line takes more than its budget:

    run() {  # JOB BUDGET WAY ...
        python benchmarks/training.py --out $OUT/$1-$DEVICES.csv --devices $DEVICES \
            --jobs $1 --budget-s $2 --ways "${@:3}"
    }
    DEVICES=1
    run resnet50 560 plain ours reduce-overhead tensorflow  # 370
    run translator 420 plain ours compile tensorflow  # 290
    run gpt2 480 plain ours ours-library-loss compile reduce-overhead tensorflow  # 300
    run inception3 540 plain ours ours-fused reduce-overhead tensorflow  # 360
    run vgg16 300 plain ours compile reduce-overhead tensorflow  # 180
    run deepconn 240 plain ours ours-compiled compile reduce-overhead tensorflow  # 160

On two H200s:

    DEVICES=2
    run resnet50 590 plain ours ours-apart ours-copied reduce-overhead tensorflow  # 440
    run translator 590 plain ours ours-apart ours-copied compile tensorflow  # 410
    run gpt2 480 plain ours ours-apart compile reduce-overhead tensorflow  # 280
    run vgg16 300 plain ours ours-apart compile tensorflow  # 180
    run inception3 540 plain ours ours-apart compile tensorflow  # 380
    run deepconn 240 plain ours ours-apart compile tensorflow  # 120

Where the tree is a copy without its history, MULTIGPU_COMMIT and MULTIGPU_CLEAN=1 say what it is.
On CPUs, in half a minute: `python benchmarks/training.py --devices 2 --ways plain ours`.
"""

import argparse
import time
from collections.abc import Callable
from contextlib import ExitStack
from datetime import timedelta
from pathlib import Path
from typing import Any

import pandas as pd
from training_jobs import FURTHER, JOBS, WAYS, run_of
from training_ways import Prepare, Way, begun, prepared

from multigpu.analysis.statistics import mean_interval
from multigpu.machine.lock import memory_folder
from multigpu.machine.machine import framework_version, source_state, this_machine

COLUMNS = (
    "job",
    "batch_size",
    "way",
    "round",
    "units_per_s",
    "steps",
    "over_plain",
    "loss",
    "prepare_s",
    "devices",
    "wall_s",
    "warm_loss",
    "launch_us",
    "sm_clock_mhz",
    "why",
)
"""Of a row, before what all rows of a call share. batch_size: of a device. launch_us: a small
kernel's, the slowest process's; sm_clock_mhz: the slowest device's after the window. warm_loss:
after as many steps of each way; loss: of a window's last step. why: a way has no figures.
"""

ROUND_S = 1.2
"""What a window takes with all that is around it, over its own time."""


class Comparison:
    """The ways of one job, prepared one after another and timed in turn. rows: a row a round and
    way, and one of each way that has none, or no more.

    until: when, on `time.monotonic`, all of it has to have ended. keep: told the rows, whenever
    there are more.
    """

    def __init__(
        self,
        job: str,
        batch: int,
        devices: int,
        until: float,
        prepare: Prepare = prepared,
        keep: Callable[[pd.DataFrame], None] = lambda rows: None,
    ) -> None:
        self.job, self.batch, self.devices = job, batch, devices
        self.until, self.keep, self.prepare = until, keep, prepare
        self.rows: list[dict[str, Any]] = []
        self.ready: list[Way] = []

    def run(self, ways: list[str], rounds: int, window_s: float) -> pd.DataFrame:
        """Prepare the ways, time them, and end their processes; the table of all rows."""
        import torch.distributed as dist

        store = dist.TCPStore(
            "127.0.0.1", 0, is_master=True, wait_for_workers=False, timeout=timedelta(days=1)
        )
        with ExitStack() as closing:
            memory = closing.enter_context(memory_folder())
            closing.callback(lambda: [way.end() for way in self.ready])
            for name in ways:
                reserved_s = (len(self.ready) + 1) * rounds * ROUND_S * window_s
                shared = memory / name
                shared.mkdir()
                self.begin(name, store.port, shared, self.left_s() - reserved_s)
            for number in range(rounds):
                for way in list(self.ready):
                    if self.left_s() < ROUND_S * max(window_s, 3 * way.step_s):
                        print(f"{self.job}: the budget has ended in round {number}", flush=True)
                        return self.table()
                    self.time(way, number, window_s)
                self.keep(self.table())
        return self.table()

    def left_s(self) -> float:
        return self.until - time.monotonic()

    def begin(self, name: str, port: int, shared: Path, seconds: float) -> None:
        """Have a way prepare, in so many seconds."""
        way = None
        try:
            run = run_of(self.job, self.batch, name, self.devices)
            way = begun(name, run, port, shared, self.prepare)
            way.ready(max(0.0, seconds))
        except ValueError as error:
            if way is not None:
                way.end()
            self.leave_out(name, None, "left out", error)
            return
        self.ready.append(way)
        print(f"{self.job} {name:16} is ready after {way.told['prepare_s']:.0f} s", flush=True)

    def time(self, way: Way, number: int, window_s: float) -> None:
        """Give a way its window of a round; one that fails leaves."""
        patience_s = min(self.left_s(), 60 + 3 * max(window_s, 3 * way.step_s))
        try:
            told = {**way.told, **way.timed(window_s, patience_s)}
        except (ValueError, OSError) as error:
            self.ready.remove(way)
            way.end()
            self.leave_out(way.name, number, f"failed in round {number}", error)
            return
        self.rows.append({**self.point(way.name), "round": number, **told})

    def leave_out(self, name: str, number: int | None, how: str, error: Exception) -> None:
        """Say on a row of its own why a way has no figures, or no more."""
        print(f"{self.job} {name:16} is {how}: {error}", flush=True)
        self.rows.append({**self.point(name), "round": number, "why": f"{how}: {error}"})
        self.keep(self.table())

    def point(self, way: str) -> dict[str, Any]:
        return {"job": self.job, "batch_size": self.batch, "devices": self.devices, "way": way}

    def table(self) -> pd.DataFrame:
        """All rows so far, each rate also over plain PyTorch's in the same round."""
        rows = pd.DataFrame(self.rows, columns=list(COLUMNS))
        timed = rows[rows["way"].eq("plain") & rows["units_per_s"].notna()]
        plain = timed.set_index("round")["units_per_s"].astype(float)
        ratios = rows["units_per_s"].astype(float) / rows["round"].map(plain)
        whole = dict.fromkeys(("round", "steps", "sm_clock_mhz"), "Int64")
        return rows.assign(over_plain=ratios.astype(float).round(4)).astype(whole)


def summary(rows: pd.DataFrame) -> pd.DataFrame:
    """A row a job, batch, and way: its rate, and its ratio to plain PyTorch in the same round, with
    95% intervals.
    """
    averages = []
    timed = rows[rows["units_per_s"].notna()]
    for names, group in timed.groupby(["job", "batch_size", "devices", "way"], sort=False):
        row: dict[str, Any] = dict(zip(("job", "batch", "devices", "way"), names, strict=True))
        for column, digits in (("units_per_s", 0), ("over_plain", 3)):
            low, high = mean_interval(group[column])
            row |= {
                column: f"{group[column].mean():,.{digits}f}",
                f"95% of {column}": f"{low:,.{digits}f} to {high:,.{digits}f}",
            }
        averages.append(row | {"n": len(group), "prepare_s": group["prepare_s"].iloc[0]})
    return pd.DataFrame(averages)


def conditions() -> dict[str, Any]:
    """What it was measured on."""
    import torch

    machine, (commit, clean) = this_machine(), source_state()
    versions = {
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "nccl": ".".join(map(str, torch.cuda.nccl.version())) if torch.version.cuda else None,
        "tensorflow": framework_version("tensorflow"),
        "python": machine.python,
        "driver": machine.driver,
    }
    return {"machine": machine.name, **versions, "commit": commit, "clean": clean}


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(
        description=(__doc__ or "").split("\n\n")[0],
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    made.add_argument(
        "--jobs",
        nargs="+",
        choices=JOBS,
        default=["small"],
        help="one after another; small is for CPUs",
    )
    made.add_argument(
        "--batch", type=int, nargs="+", help="of each device; the job's own where none is given"
    )
    made.add_argument("--devices", type=int, default=1)
    made.add_argument(
        "--ways",
        nargs="+",
        choices=[*WAYS, *FURTHER],
        default=list(WAYS),
        help="what is compared; the first are prepared first",
    )
    made.add_argument("--rounds", type=int, default=5)
    made.add_argument("--window-s", type=float, default=2.0, help="seconds of each round and way")
    made.add_argument(
        "--budget-s",
        type=float,
        default=900.0,
        help="seconds for all of it; each job and batch takes an equal part of what is left",
    )
    made.add_argument("--out", type=Path, help="a CSV file for every round, with its conditions")
    return made


def main(words: list[str] | None = None, prepare: Prepare = prepared) -> None:
    began, options = time.monotonic(), parser().parse_args(words)
    points = [(job, batch) for job in options.jobs for batch in options.batch or JOBS[job].batches]
    measured_on, tables = conditions(), list[pd.DataFrame]()
    if options.out:
        options.out.parent.mkdir(parents=True, exist_ok=True)
    for place, (job, batch) in enumerate(points):
        start = time.monotonic()

        def finished(rows: pd.DataFrame, start: float = start) -> pd.DataFrame:
            return rows.assign(spent_s=round(time.monotonic() - start, 1), **measured_on)

        def keep(rows: pd.DataFrame) -> None:
            if options.out:
                pd.concat([*tables, finished(rows)]).to_csv(options.out, index=False)

        part_s = (began + options.budget_s - start) / (len(points) - place)
        comparison = Comparison(job, batch, options.devices, start + part_s, prepare, keep)
        rows = comparison.run(options.ways, options.rounds, options.window_s)
        keep(rows)
        tables.append(finished(rows))
    measured = pd.concat(tables)
    if measured["units_per_s"].isna().all():
        parser().error("nothing was timed: the lines above say why")
    print(summary(measured).to_string(index=False))
    print(f"{time.monotonic() - began:.0f} s were spent on {measured_on['machine']}")


if __name__ == "__main__":
    main()
