"""Experiments for real on one machine: a server and workers as processes, with the law's times injected as delays."""

from __future__ import annotations

import multiprocessing
from collections.abc import Sequence
from contextlib import suppress
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from multiprocessing.shared_memory import SharedMemory
from pathlib import Path

from multigpu.measure.machine import gpu_count
from multigpu.synchrony.checkpoint import checkpoint_path, read_checkpoint
from multigpu.synchrony.exchange import shared_bytes
from multigpu.synchrony.experiment import Experiment
from multigpu.synchrony.processes import last_words_path, server_main, worker_main
from multigpu.synchrony.server import Outcome

MOST_WORKERS = 64
"""On one machine; the simulator goes further."""
JOIN_S = 10.0


class RealRun:
    """Processes of one run, from `start` to `wait`. They end with the process that started them, however it ends."""

    def __init__(self, server: BaseProcess, workers: Sequence[BaseProcess], result: Connection, memory: SharedMemory, folder: Path) -> None:
        self.server, self.workers, self.folder = server, workers, folder
        self._result, self._memory = result, memory

    def wait(self) -> Outcome:
        """The outcome, once the budget is spent. All processes are gone then.

        Raises:
            RuntimeError: the server ended (it was killed or failed), or too few workers are left; one sentence.
        """
        outcome: Outcome | None = None
        sentence = ""
        try:
            wait([self._result, self.server.sentinel])
            if self._result.poll():
                with suppress(EOFError):
                    outcome, sentence = self._result.recv()
            if outcome is None and not sentence:
                self.server.join(JOIN_S)
                sentence = f"the server ended (exit code {self.server.exitcode}): resume from {checkpoint_path(self.folder)}"
        finally:
            self.close()
        if outcome is None:
            raise RuntimeError(sentence)
        return outcome

    def close(self) -> None:
        """End what still runs and free the shared memory."""
        for process in (self.server, *self.workers):
            process.join(JOIN_S)
            if process.is_alive():
                process.kill()
                process.join()
        self._result.close()
        self._memory.close()
        self._memory.unlink()


def start(
    experiment: Experiment,
    folder: Path,
    *,
    resume: bool = False,
    checkpoint_updates: int = 100,
    stall_s: float = 60.0,
) -> RealRun:
    """Start the processes of `experiment` and return at once.

    Args:
        folder: for the checkpoint, and a sentence of every worker that outlived its server. Made if missing.
        resume: go on from the folder's checkpoint.
        checkpoint_updates: updates between two checkpoints (one is written at the start and one at the end, too).
        stall_s: the run ends with a sentence if nothing arrives for so long.

    Raises:
        ValueError: the experiment is not for the real clock and processes, has too many workers or needs a GPU that
            is not there; there is no checkpoint to resume from.
    """
    if experiment.clock != "real":
        raise ValueError("this experiment has clock 'virtual': simulate it, or choose clock 'real'")
    if experiment.engine != "processes":
        raise ValueError(f"this experiment has engine {experiment.engine!r}: run it with over_ray.run_over_ray, or leave engine out")
    if experiment.workers > MOST_WORKERS:
        raise ValueError(f"{experiment.workers} workers are too many for one machine's real clock: {MOST_WORKERS} at most, simulate more")
    if experiment.server_device == "cuda" and not gpu_count():
        raise ValueError("server_device 'cuda' needs a GPU, and this machine has none: choose 'cpu' or 'host'")
    if checkpoint_updates < 1:
        raise ValueError(f"checkpoint_updates must be at least 1, not {checkpoint_updates}")
    folder.mkdir(parents=True, exist_ok=True)
    if resume:
        read_checkpoint(folder, experiment)
    for worker in range(experiment.workers):
        last_words_path(folder, worker).unlink(missing_ok=True)
    problem = experiment.open()
    # spawned, not forked: the process that starts a run may hold threads and a framework, and CUDA does not survive a fork
    context = multiprocessing.get_context("spawn")
    memory = SharedMemory(create=True, size=shared_bytes(experiment, problem))
    pairs = [context.Pipe() for _ in range(experiment.workers)]
    result, result_end = context.Pipe(duplex=False)
    text = experiment.model_dump_json()
    workers = [
        context.Process(target=worker_main, args=(theirs, memory.name, text, number, folder), name=f"worker-{number}", daemon=True)
        for number, (_, theirs) in enumerate(pairs)
    ]
    ours = [pair[0] for pair in pairs]
    arguments = (ours, memory.name, text, folder, resume, checkpoint_updates, stall_s, result_end)
    server = context.Process(target=server_main, args=arguments, name="server", daemon=True)
    run = RealRun(server, workers, result, memory, folder)
    try:
        for process in (server, *workers):
            process.start()
    except BaseException:
        # those that have started end by themselves: their pipes close with this call
        memory.close()
        memory.unlink()
        raise
    # only the two processes of a pipe may hold it, or the end of one would stay unnoticed by the other
    for connection in (*ours, *(pair[1] for pair in pairs), result_end):
        connection.close()
    return run


def run_real(
    experiment: Experiment, folder: Path, *, resume: bool = False, checkpoint_updates: int = 100, stall_s: float = 60.0
) -> Outcome:
    """`start` and `wait`."""
    return start(experiment, folder, resume=resume, checkpoint_updates=checkpoint_updates, stall_s=stall_s).wait()
