"""One training job, however a user may run it: plain PyTorch, torch.compile, TensorFlow with XLA,
and this project's own ways.

    python benchmarks/training.py --jobs resnet50 translator --budget-s 250 --out
    data/benchmarks/training.csv

Every way is a process of its own. One after another they prepare (build, compile, warm up: told
apart); then each is timed in turn, round by round, while the others wait. The table holds the mean
of all rounds with its 95% interval, and that of the ratios to plain PyTorch in the same round. What
cannot run here, or is not ready in time, is left out and says why.
"""

import argparse
import multiprocessing
import os
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess
from pathlib import Path
from typing import Any

import pandas as pd

from multigpu.analysis.statistics import mean_interval
from multigpu.build import build_run
from multigpu.engines.common.session import open_session
from multigpu.machine.machine import source_state, this_machine
from multigpu.spec.run import Run
from multigpu.workloads import optimizer_of

GPU = {"devices": 1, "precision": "bf16"}
CAPTURED = {"execution": "captured", "placement": "ddp"}
JOBS: dict[str, tuple[dict[str, Any], int, dict[str, Any]]] = {
    "resnet50": (
        {**GPU, "workload": "cnn", "model": "resnet50_v1.5", "layout": "channels_last"},
        64,
        {**CAPTURED, "batch_norm": "fused", "stem": "folded", "bucket_update": "in_backward"},
    ),
    "translator": (
        {**GPU, "workload": "nmt", "model": "nmt000", "sequence_length": 100},
        128,
        {
            **CAPTURED,
            "recurrence": "persistent",
            "cross_entropy": "fused",
            "bucket_update": "in_backward",
        },
    ),
    "small": (
        {
            "workload": "cnn",
            "model": "resnet_small",
            "layout": "channels_last",
            "device_type": "cpu",
        },
        32,
        {"batch_norm": "fused"},
    ),
}
"""Job -> what all ways have in common, its batch, and this project's best way of training it."""

WAYS = ("plain", "ours", "reduce-overhead", "compile", "captured", "tensorflow")
"""In the order in which they prepare. "plain" has autocast, cuDNN's LSTM (nn.LSTM), images with
channels last and a fused update.
"""
COMPILED = {"compile": "default", "reduce-overhead": "reduce-overhead"}
TENSORFLOW = {"framework": "tensorflow", "placement": "exp4", "processes": "one"}
WARMUP_STEPS, BLOCK, MOST_STEPS = 12, 5, 100_000


def run_of(job: str, batch: int, way: str) -> Run:
    """What a way trains.

    Raises:
        ValueError: this job has no such way; the sentence says why.
    """
    common, _, best = JOBS[job]
    more: dict[str, Any] = {"placement": "independent", "timed_steps": MOST_STEPS}
    if way == "tensorflow":
        more |= {**TENSORFLOW, "execution": "graph" if common["workload"] == "nmt" else "xla"}
    elif way == "captured":
        more |= CAPTURED
    elif way == "ours":
        more |= best
    return build_run(**{**common, "batch_size": batch, **more})


def prepared(
    run: Run, way: str
) -> tuple[Callable[[int], Any], Callable[[], None], Callable[[int], int]]:
    """A step by its number, what waits for the device, and how many units a step trains on."""
    session = open_session(
        run, 0, os.cpu_count() or 1, Path(tempfile.mkdtemp()), 60.0, 0.0, lambda name: None
    )
    device = getattr(session, "device", None) or session.devices
    if way in ("captured", "ours", "tensorflow"):
        return session.step, device.synchronise, lambda step: units_of(session.batches[step])
    import torch

    module = session.trainer.module
    if hasattr(module, "recurrence"):  # torch.compile leaves nn.LSTM to cuDNN, too
        module.recurrence = torch.compiler.disable(module.recurrence)
    call = torch.compile(module, mode=COMPILED[way]) if way in COMPILED else module
    rule = optimizer_of(run)
    kind = {"sgd": torch.optim.SGD, "adam": torch.optim.Adam}[rule.name]
    named = (
        {"momentum": rule.momentum, "weight_decay": rule.weight_decay} if rule.name == "sgd" else {}
    )
    optimizer = kind(module.parameters(), lr=rule.rate, fused=True, **named)

    def step(number: int) -> Any:
        (shard,) = session.shards(number)
        optimizer.zero_grad(set_to_none=True)
        with device.autocast():
            loss = call(shard.device) / shard.batch.global_loss_terms
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step, device.synchronise, lambda number: units_of(session.batches[number])


def units_of(batches: Any) -> int:
    """Of one step: of one batch, or of each replica's."""
    return sum(batch.units for batch in (batches if isinstance(batches, list) else [batches]))


def train(run: Run, way: str, asked: Connection) -> None:
    """The process of a way: prepare, and then train for as many seconds as it is asked for, until
    it is asked for none.
    """
    began = time.perf_counter()
    try:
        step, wait, units = prepared(run, way)
        for number in range(WARMUP_STEPS):
            loss = step(number)
        wait()
    except Exception as error:
        asked.send(f"{type(error).__name__}: {str(error).splitlines()[0]}")
        return
    asked.send({"prepare_s": round(time.perf_counter() - began, 2)})
    done = WARMUP_STEPS
    while seconds := asked.recv():
        first, start = done, time.perf_counter()
        while time.perf_counter() - start < seconds:
            for _ in range(BLOCK):
                loss = step(done)
                done += 1
            wait()
        rate = sum(units(number) for number in range(first, done)) / (time.perf_counter() - start)
        last = sum(loss) if isinstance(loss, list) else loss  # of each replica its share
        asked.send(
            {
                "units_per_s": round(rate, 2),
                "steps": done - first,
                "loss": None if last is None else round(float(last), 5),
            }
        )


@dataclass
class Way:
    """A way's process, and what it said of its preparation."""

    name: str
    process: SpawnProcess
    asked: Connection
    told: dict[str, Any]

    def answer(self, seconds: float) -> Any:
        """What it says within so many seconds.

        Raises:
            ValueError: it says nothing, ends, or fails.
        """
        try:
            said = (
                self.asked.recv()
                if self.asked.poll(seconds)
                else f"it was not ready after {seconds:.0f} s more"
            )
        except EOFError:
            self.process.join()
            said = f"its process ended with exit code {self.process.exitcode}"
        if isinstance(said, str):
            raise ValueError(said)
        return said

    def end(self) -> None:
        self.process.kill()
        self.process.join()


def begun(name: str, run: Run) -> Way:
    context = multiprocessing.get_context("spawn")
    asked, given = context.Pipe()
    process = context.Process(target=train, args=(run, name, given), daemon=True)
    process.start()
    given.close()
    return Way(name, process, asked, {})


def compare(
    job: str, batch: int, ways: list[str], rounds: int, window_s: float, until: float
) -> pd.DataFrame:
    """A row a round and way. until: when, on `time.monotonic`, all of it has to have ended."""
    ready: list[Way] = []
    try:
        for name in ways:
            left_s = max(0.0, until - time.monotonic() - (len(ready) + 1) * rounds * window_s)
            try:
                ready.append(begun(name, run_of(job, batch, name)))
                ready[-1].told = ready[-1].answer(left_s)
                print(
                    f"{job} {name:16} is ready after {ready[-1].told['prepare_s']:.0f} s",
                    flush=True,
                )
            except ValueError as error:
                print(f"{job} {name:16} is left out: {error}", flush=True)
                if ready and not ready[-1].told:
                    ready.pop().end()
        rows: list[dict[str, Any]] = []
        for number in range(rounds):
            for way in list(ready):
                try:
                    way.asked.send(window_s)
                    told = {**way.answer(60 + window_s), **way.told}
                    rows.append(
                        {"job": job, "batch_size": batch, "way": way.name, "round": number, **told}
                    )
                except (ValueError, OSError) as error:
                    print(f"{job} {way.name:16} has failed in round {number}: {error}", flush=True)
                    ready.remove(way)
                    way.end()
    finally:
        for way in ready:
            way.end()
    return pd.DataFrame(rows)


def beside_plain(rows: pd.DataFrame) -> pd.DataFrame:
    """The rows of a job with `over_plain`, each rate over plain PyTorch's in the same round."""
    plain = rows[rows["way"] == "plain"].set_index("round")["units_per_s"]
    return rows.assign(over_plain=(rows["units_per_s"] / rows["round"].map(plain)).round(4))


def summary(rows: pd.DataFrame) -> pd.DataFrame:
    """A row a job and way: its rate, and its ratio to plain PyTorch in the same round, with 95%
    intervals.
    """
    found = []
    for (job, way), group in rows.groupby(["job", "way"], sort=False):
        row: dict[str, Any] = {"job": job, "way": way}
        for column, digits in (("units_per_s", 0), ("over_plain", 3)):
            low, high = mean_interval(group[column])
            row |= {
                column: f"{group[column].mean():,.{digits}f}",
                f"95% of {column}": f"{low:,.{digits}f} to {high:,.{digits}f}",
            }
        found.append(row | {"n": len(group), "prepare_s": group["prepare_s"].iloc[0]})
    return pd.DataFrame(found)


def conditions() -> dict[str, Any]:
    """What it was measured on."""
    import torch

    machine, (commit, clean) = this_machine(), source_state()
    versions = {
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "python": machine.python,
        "driver": machine.driver,
    }
    return {"machine": machine.name, **versions, "commit": commit, "clean": clean}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__.split("\n\n")[0], formatter_class=argparse.ArgumentDefaultsHelpFormatter
    )
    parser.add_argument(
        "--jobs",
        nargs="+",
        choices=JOBS,
        default=["small"],
        help="one after another; small is for CPUs",
    )
    parser.add_argument("--batch", type=int, help="the job's own where none is given")
    parser.add_argument(
        "--ways",
        nargs="+",
        choices=WAYS,
        default=list(WAYS),
        help="what is compared; the first are prepared first",
    )
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--window-s", type=float, default=1.0, help="seconds of each round and way")
    parser.add_argument(
        "--budget-s",
        type=float,
        default=900.0,
        help="seconds for all of it; each job takes an equal part of what is left",
    )
    parser.add_argument("--out", type=Path, help="a CSV file for every round, with its conditions")
    options = parser.parse_args()
    began, tables = time.monotonic(), []
    for place, job in enumerate(options.jobs):
        start = time.monotonic()
        until = start + (began + options.budget_s - start) / (len(options.jobs) - place)
        rows = compare(
            job,
            options.batch or JOBS[job][1],
            options.ways,
            options.rounds,
            options.window_s,
            until,
        )
        if rows.empty:
            continue
        tables.append(
            beside_plain(rows).assign(spent_s=round(time.monotonic() - start, 1), **conditions())
        )
        if options.out:
            options.out.parent.mkdir(parents=True, exist_ok=True)
            pd.concat(tables).to_csv(options.out, index=False)
    if not tables:
        parser.error("nothing was timed: the lines above say why")
    print(summary(pd.concat(tables)).to_string(index=False))
    print(f"{time.monotonic() - began:.0f} s were spent on {tables[0]['machine'].iloc[0]}")


if __name__ == "__main__":
    main()
