"""A way of training one job, ready in processes of its own: one a device, or one for all."""

import multiprocessing
import os
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from pathlib import Path
from typing import Any

from training_jobs import BY_HAND

from multigpu.engines.common.session import Opening, open_session
from multigpu.engines.common.timing import run_window
from multigpu.machine.machine import confine, device_state, threads_for
from multigpu.machine.process import end_with_parent, tensorflow_environment
from multigpu.placements import find_placement
from multigpu.runner.launch_environment import launch_environment
from multigpu.spec.run import Run
from multigpu.workloads import optimizer_of

WARMUP_STEPS = 12
"""Steps after which all ways have updated equally often: their loss is told, `warm_loss`."""

PROBE_STEPS = 4
"""Further steps, timed, that say how many fill the first window."""

FIRST_STEPS = 2
"""Steps before each window, outside of its clock: memory that was given back comes again."""

TIMEOUT_S = 60.0


@dataclass
class Prepared:
    """What a process trains with. session: has the data and the devices. step: by its number.
    scale: what the sum of a step's results is multiplied by, for a share of the global loss.
    """

    session: Any
    step: Callable[[int], Any]
    scale: float = 1.0


Prepare = Callable[[Run, str, int, Path], Prepared]


def processes_of(run: Run) -> int:
    """How many processes a way has: one a device, or one that dispatches for all."""
    return run.devices if run.processes == "per_device" else 1


def prepared(run: Run, way: str, rank: int, shared: Path) -> Prepared:
    """Open the way's session, and write its step where users write their own."""
    several = run.devices > 1
    threads = threads_for(processes_of(run), run.host_cores)
    opening = Opening(run, rank, threads, shared, TIMEOUT_S, 0.0, lambda name: None)
    session = open_session(opening)
    if way not in BY_HAND:
        is_shared = find_placement(run.placement).semantics.facts.loss_is_shared
        return Prepared(session, session.step, 1.0 if is_shared else 1 / run.devices)
    import torch
    from torch.nn.parallel import DistributedDataParallel

    from multigpu.engines.torch.variables import make_optimizer

    module, device = session.trainer.module, session.device
    if hasattr(module, "recurrence"):  # torch.compile leaves nn.LSTM to cuDNN, too
        module.recurrence = torch.compiler.disable(module.recurrence)
    call = module
    if way == "reduce-overhead":
        # inside DistributedDataParallel: around it, the compiler cuts the model at its buckets and
        # takes the pieces' running statistics for inputs that change, which no CUDA graph may have
        call = torch.compile(call, mode=way)
    if several:
        with warnings.catch_warnings():  # newer releases deprecate it and have nothing else yet
            warnings.simplefilter("ignore", FutureWarning)
            # running statistics stay each replica's own, as in all other ways: a broadcast before
            # each step would take time
            call = DistributedDataParallel(
                call, broadcast_buffers=False, gradient_as_bucket_view=True
            )
    if way == "compile":
        call = torch.compile(call)
    optimizer = make_optimizer(optimizer_of(run), list(module.parameters()))

    def step(number: int) -> Any:
        (shard,) = session.shards(number)
        if way == "reduce-overhead":
            torch.compiler.cudagraph_mark_step_begin()
        optimizer.zero_grad(set_to_none=True)
        with device.autocast():
            # DistributedDataParallel averages gradients of each replica's own mean
            loss = call(shard.device) / shard.batch.loss_terms[rank]
        loss.backward()
        optimizer.step()
        return loss.detach()

    return Prepared(session, step, 1 / run.devices)


def share_of_loss(ready: Prepared, result: Any) -> float:
    """This process's share of the global loss, from what the last step returned."""
    if result is None:  # TensorFlow keeps losses on its devices
        return ready.scale * sum(own[-1] for own in ready.session.trainer.loss_shares())
    return ready.scale * float(sum(result) if isinstance(result, list) else result)


def units_of(ready: Prepared, first: int, count: int) -> int:
    """On how many units this process trained in so many steps."""
    batches = ready.session.batches
    return sum(own.units for step in range(first, first + count) for own in batches[step])


def meeting(run: Run, way: str, rank: int, port: int) -> Callable[[], None]:
    """Make the group of the way's processes, also of one, which DistributedDataParallel wants; what
    lets them wait for each other. port: of the store where they meet.
    """
    if run.framework != "torch":
        return lambda: None
    import torch.distributed as dist

    from multigpu.engines.torch.wire import barrier
    from multigpu.runner.worker import join_group

    store = dist.TCPStore("127.0.0.1", port, is_master=False)
    join_group(run, rank, dist.PrefixStore(way, store))
    return barrier


def train(
    run: Run,
    way: str,
    rank: int,
    port: int,
    shared: Path,
    asked: Connection,
    prepare: Prepare,
) -> None:
    """The process of a way: prepare, and then train as many steps as it is asked for, until it is
    asked for none. port: of the store where a way's processes meet.
    """
    end_with_parent()
    began = time.perf_counter()
    try:
        torch_runs = run.framework == "torch"
        confine(run.host_cores)
        barrier = meeting(run, way, rank, port)
        ready = prepare(run, way, rank, shared)
        for number in range(WARMUP_STEPS):
            result = ready.step(number)
        devices = ready.session.devices
        devices.synchronise()
        told: dict[str, Any] = {"warm_loss": share_of_loss(ready, result)}
        told["prepare_s"] = round(time.perf_counter() - began, 2)
        probe = run_window(ready.step, WARMUP_STEPS, PROBE_STEPS, devices, barrier)
        asked.send({**told, "step_s": probe.wall_s / PROBE_STEPS})
        done = WARMUP_STEPS + PROBE_STEPS
        while count := asked.recv():
            for number in range(done, done + FIRST_STEPS):
                ready.step(number)
            done += FIRST_STEPS
            window = run_window(ready.step, done, count, devices, barrier)
            state = device_state(run.chosen_devices[rank]) if devices.cuda else None
            launch_s = ready.session.device.launch_s() if torch_runs else None
            asked.send(
                {
                    "units": units_of(ready, done, count),
                    "wall_s": window.wall_s,
                    "loss": share_of_loss(ready, window.results[-1]),
                    "launch_us": None if launch_s is None else round(1e6 * launch_s, 2),
                    "sm_clock_mhz": None if state is None else state.sm_clock_mhz,
                }
            )
            done += count
            del window
            if torch_runs and devices.cuda:  # for the ways beside it; a graph keeps its memory
                import torch

                torch.cuda.empty_cache()
    except Exception as error:
        lines = str(error).strip().splitlines() or ["it says no more"]
        asked.send(f"{type(error).__name__}: {lines[0]}")


@dataclass
class Way:
    """A way's processes, and what they said of their preparation."""

    name: str
    run: Run
    processes: list[SpawnProcess]
    pipes: list[Connection]
    told: dict[str, Any]

    def answers(self, seconds: float) -> list[dict[str, Any]]:
        """What each process says within so many seconds.

        Raises:
            ValueError: one says nothing, ends, or fails.
        """
        until = time.monotonic() + seconds
        said: dict[int, Any] = {}
        while len(said) < len(self.pipes):
            open_ones = [pipe for rank, pipe in enumerate(self.pipes) if rank not in said]
            heard = wait(open_ones, max(0.0, until - time.monotonic()))
            if not heard:
                raise ValueError(f"it was not ready after {seconds:.0f} s more")
            for pipe in heard:
                rank = self.pipes.index(pipe)
                try:
                    said[rank] = pipe.recv()
                except (EOFError, OSError):
                    self.processes[rank].join()
                    code = self.processes[rank].exitcode
                    raise ValueError(f"its process ended with exit code {code}") from None
                if isinstance(said[rank], str):
                    raise ValueError(said[rank])
        return [said[rank] for rank in range(len(self.pipes))]

    def ready(self, seconds: float) -> None:
        """Wait until it has prepared; as `answers`."""
        parts = self.answers(seconds)
        self.told = {
            "prepare_s": max(part["prepare_s"] for part in parts),
            "warm_loss": float(f"{sum(part['warm_loss'] for part in parts):.9g}"),
        }
        self.step_s = max(part["step_s"] for part in parts)

    def timed(self, window_s: float, seconds: float) -> dict[str, Any]:
        """Train for a window of about so many seconds; seconds, and errors: as `answers`."""
        steps = self.steps_of(window_s)
        for pipe in self.pipes:
            pipe.send(steps)
        parts = self.answers(seconds)
        wall_s = max(part["wall_s"] for part in parts)
        self.step_s = wall_s / steps

        def least_or_most(name: str, chosen: Callable[[Any], Any]) -> Any:
            told = [part[name] for part in parts if part[name] is not None]
            return chosen(told) if told else None

        return {
            "units_per_s": round(sum(part["units"] for part in parts) / wall_s, 2),
            "steps": steps,
            "wall_s": round(wall_s, 4),
            "loss": round(sum(part["loss"] for part in parts), 5),
            "launch_us": least_or_most("launch_us", max),
            "sm_clock_mhz": least_or_most("sm_clock_mhz", min),
        }

    def steps_of(self, window_s: float) -> int:
        """Return how many steps fill a window, by the last one."""
        return max(3, round(window_s / self.step_s))

    def end(self) -> None:
        for process in self.processes:
            process.kill()
        for process in self.processes:
            process.join()


def begun(name: str, run: Run, port: int, shared: Path, prepare: Prepare = prepared) -> Way:
    """Start a way's processes."""
    context = multiprocessing.get_context("spawn")
    way = Way(name, run, [], [], {})
    with environment_of(run):
        for rank in range(processes_of(run)):
            asked, given = context.Pipe()
            arguments = (run, name, rank, port, shared, given, prepare)
            process = context.Process(target=train, args=arguments, daemon=True)
            process.start()
            given.close()
            way.processes.append(process)
            way.pipes.append(asked)
    return way


@contextmanager
def environment_of(run: Run) -> Iterator[None]:
    """Set what the Run's processes must find in their environment before they start."""
    before = dict(os.environ)
    os.environ.update(launch_environment() | run.environment)
    if run.framework == "tensorflow":
        os.environ.update(tensorflow_environment(sys.path, os.environ))
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)
