"""One training job, however a user may run it: plain PyTorch, torch.compile, TensorFlow with XLA, and this project's own ways.

python benchmarks/training.py [--job resnet50 | translator | small] [--batch 64] [--rounds 5] [--seconds 2] [--ways WAY ...] [--out FILE]

Every way is a process of its own. One after another they prepare (build, compile, warm up: told apart); then each is timed in turn, round
by round, while the others wait. The table holds the mean of all rounds with its 95% interval, and how it compares with plain PyTorch.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from math import exp
from pathlib import Path
from typing import Any

from multigpu.analysis.statistics import interval, sample
from multigpu.measure.machine import this_machine
from multigpu.run import Run, build_run

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
        {**CAPTURED, "recurrence": "persistent", "cross_entropy": "fused", "bucket_update": "in_backward"},
    ),
    "small": ({"workload": "cnn", "model": "resnet_small", "layout": "channels_last", "device_type": "cpu"}, 32, {"batch_norm": "fused"}),
}
"""Job -> what all ways have in common, its batch, and this project's best way of training it."""

COMPILED = {"compile": "default", "reduce-overhead": "reduce-overhead"}
TENSORFLOW = {"framework": "tensorflow", "placement": "exp4", "processes": "one"}
WARMUP_STEPS, BLOCK = 12, 5
MARK = "@@"
"""Begins the lines that a way's process says to the one that asked."""


def run_of(job: str, batch: int, way: str) -> Run:
    """What a way trains.

    Raises:
        ValueError: this job has no such way; the sentence says why.
    """
    common, _, best = JOBS[job]
    more: dict[str, Any] = {"placement": "independent"}
    if way == "tensorflow":
        more = {**TENSORFLOW, "execution": "graph" if common["workload"] == "nmt" else "xla"}
        if common.get("device_type") == "cpu":
            more["layout"] = "channels_last"
    elif way == "captured":
        more = CAPTURED
    elif way == "ours":
        more |= best
    return build_run(**{**common, "batch_size": batch, **more})


def prepared(run: Run, way: str) -> tuple[Callable[[int], Any], Callable[[], None], Callable[[int], int]]:
    """A step by its number, what waits for the device, and how many units a step trains on."""
    from multigpu.measure.session import open_session

    session = open_session(run, 0, os.cpu_count() or 1, Path(tempfile.mkdtemp()), 60.0, 0.0, lambda name: None)
    device = getattr(session, "device", None) or session.devices
    if way in ("captured", "ours", "tensorflow"):
        return session.step, device.synchronise, lambda step: units_of(session.batches[step])
    import torch

    module = session.trainer.module
    call = torch.compile(module, mode=COMPILED[way]) if way in COMPILED else module
    rule = run.rule
    kind = {"sgd": torch.optim.SGD, "adam": torch.optim.Adam}[rule.name]
    named = {"momentum": rule.momentum, "weight_decay": rule.weight_decay} if rule.name == "sgd" else {}
    optimizer = kind(module.parameters(), lr=rule.rate, fused=True, **named)

    def step(number: int) -> Any:
        shard = session.shard(number)
        optimizer.zero_grad(set_to_none=True)
        with device.autocast():
            loss = call(shard.device) / shard.batch.joined_loss_terms
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step, device.synchronise, lambda number: units_of(session.batches[number])


def units_of(batches: Any) -> int:
    """Of one step: of one batch, or of each replica's."""
    return sum(batch.units for batch in (batches if isinstance(batches, list) else [batches]))


def child(job: str, batch: int, way: str) -> None:
    """Prepare, and then train for as long as each line of the input says."""
    began = time.perf_counter()
    run = run_of(job, batch, way)
    step, wait, units = prepared(run, way)
    for number in range(WARMUP_STEPS):
        loss = step(number)
    wait()
    print(MARK + json.dumps({"prepare_s": time.perf_counter() - began, "loss": float(loss)}), flush=True)
    done = WARMUP_STEPS
    for line in sys.stdin:
        first, start = done, time.perf_counter()
        while time.perf_counter() - start < float(line):
            for _ in range(BLOCK):
                loss = step(done)
                done += 1
            wait()
        wall_s = time.perf_counter() - start
        rate = sum(units(number) for number in range(first, done)) / wall_s
        print(MARK + json.dumps({"units_per_s": rate, "steps": done - first, "loss": float(loss)}), flush=True)


def answer(process: subprocess.Popen[str], log: Any = None) -> dict[str, Any]:
    """What a way's process says next.

    Raises:
        ValueError: it has ended.
    """
    assert process.stdout is not None
    for line in process.stdout:
        if line.startswith(MARK):
            return json.loads(line[len(MARK) :])
    code = process.wait()
    last = "" if log is None else (log.seek(0), *log.read().strip().splitlines())[-1]
    raise ValueError(f"it ended with exit code {code}: {last}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--job", choices=JOBS, default="small")
    parser.add_argument("--batch", type=int, help="the job's own by default")
    ways = ("plain", *COMPILED, "tensorflow", "captured", "ours")
    parser.add_argument("--ways", nargs="+", choices=ways, default=ways, help="all of them by default; what cannot run here says why")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=2.0, help="of each round and way")
    parser.add_argument("--out", type=Path, help="a CSV file for every round, with its conditions")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    options = parser.parse_args()
    batch = options.batch or JOBS[options.job][1]
    if options.child:
        child(options.job, batch, options.child)
        return
    running: dict[str, subprocess.Popen[str]] = {}
    told: dict[str, dict[str, Any]] = {}
    for way in options.ways:
        command = [sys.executable, __file__, "--job", options.job, "--batch", str(batch), "--child", way]
        try:
            run_of(options.job, batch, way)
            log = tempfile.TemporaryFile("w+")  # noqa: SIM115 - as long as the process
            process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True)
            told[way] = answer(process, log)
            print(f"{way:16} is ready after {told[way]['prepare_s']:.0f} s", flush=True)
            running[way] = process
        except ValueError as error:
            print(f"{way:16} is left out: {error}", flush=True)
    rows = []
    for number in range(options.rounds):
        for way, process in running.items():
            assert process.stdin is not None
            process.stdin.write(f"{options.seconds}\n")
            process.stdin.flush()
            rows.append({"job": options.job, "batch_size": batch, "way": way, "round": number, **answer(process), **told[way]})
        if options.out:
            keep(rows, options.out)
    for process in running.values():
        assert process.stdin is not None
        process.stdin.close()
        process.wait()
    report(rows)


def report(rows: list[dict[str, Any]]) -> None:
    """One line a way: its rate, and the ratio to plain PyTorch, with 95% intervals."""
    rates: dict[str, list[float]] = {}
    for row in rows:
        rates.setdefault(row["way"], []).append(row["units_per_s"])
    samples = {way: sample(values, [0] * len(values)) for way, values in rates.items()}
    base = samples.get("plain")
    print(f"{'way':16} {'units/s':>10} {'':17} {'over plain':>10}")
    for way, own in samples.items():
        half = interval([own])
        line = f"{way:16} {exp(own.mean):10.0f} [{exp(own.mean - half):7.0f}, {exp(own.mean + half):7.0f}]"
        if base is not None:
            ratio, wide = own.mean - base.mean, interval([own, base])
            line += f" {exp(ratio):6.3f} [{exp(ratio - wide):.3f}, {exp(ratio + wide):.3f}]"
        print(line, flush=True)


def keep(rows: list[dict[str, Any]], path: Path) -> None:
    """Every round, with what it was measured on."""
    import torch

    machine = this_machine()
    conditions = {
        "machine": machine.name,
        "driver": machine.driver,
        "torch": torch.__version__,
        "commit": os.environ.get("MULTIGPU_COMMIT", ""),
    }
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, [*rows[0], *conditions])
        writer.writeheader()
        writer.writerows({**row, **conditions} for row in rows)


if __name__ == "__main__":
    main()
