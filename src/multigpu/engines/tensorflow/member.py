"""A process of a TensorFlow Run over several: `python -m multigpu.engines.tensorflow.member PIPE`
of `processes.py`, or `... ADDRESS:PORT RANK` of another host's program (`members.py`).
MultiWorkerMirroredStrategy's workers are sessions with one device. Under ParameterServerStrategy
the coordinator is the session; the server and the workers serve, and a worker adds what only it
knows of itself.
"""

import faulthandler
import os
import resource
import signal
import sys
from contextlib import suppress
from typing import Any

import tensorflow as tf

from multigpu.engines.common.failures import status_of
from multigpu.engines.common.session import Stage, load_hook
from multigpu.engines.tensorflow.coordinator import CoordinatorSession, alone
from multigpu.engines.tensorflow.devices import Devices, prepare_member
from multigpu.engines.tensorflow.members import STARTED_BY, join
from multigpu.engines.tensorflow.session import Session
from multigpu.machine.line import Line
from multigpu.machine.machine import DeviceState, device_state
from multigpu.machine.process import age_s, end_with_parent
from multigpu.spec.run import Run


class OneDevice(Devices):
    """The one device of a process with one replica. On CPUs it is the host."""

    def __init__(self, run: Run, rank: int) -> None:
        self._set_up(run, (rank,))
        self._forget_peaks()

    def name(self, place: int) -> str:
        return super().name(place) if self.cuda else "/device:CPU:0"

    def place(self, name: str) -> int:
        return super().place(name) if self.cuda else 0

    def state(self, index: int) -> DeviceState | None:
        return super().state(0)  # the only GPU that this process sees, whatever the replica's rank

    def synchronise(self) -> None:
        """Bring a number back, which comes after all that was asked of the device before."""
        with self.at(0):
            (tf.random.uniform([]) + 1).numpy()


class MemberSession(Session):
    """The session of one worker of MultiWorkerMirroredStrategy."""

    def __init__(
        self, run: Run, order: dict[str, Any], pipe: Line, startup_s: float, stage: Stage
    ) -> None:
        self.pipe = pipe
        super().__init__(alone(run, order["rank"], order["threads"], startup_s, stage))

    def _set_up(self, rank: int) -> tuple[Any, Devices]:
        library = tf.distribute.experimental.CommunicationImplementation
        options = tf.distribute.experimental.CommunicationOptions(
            implementation=library.NCCL if self.run.device_type == "cuda" else library.RING
        )
        return tf.distribute.MultiWorkerMirroredStrategy(communication_options=options), OneDevice(
            self.run, rank
        )

    def barrier(self) -> None:
        self.pipe.send(("barrier", None))
        self.pipe.recv()


class Server:
    """A worker or the server of a parameter-server cluster: it serves until it is ended."""

    def __init__(self, run: Run, order: dict[str, Any], stage: Stage) -> None:
        self.run, self.order, self.stage = run, order, stage
        resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
        stage("build")
        # its memory grows on demand, by TF_FORCE_GPU_ALLOW_GROWTH
        self.server = tf.distribute.Server(
            resolver.cluster_spec(),
            job_name=resolver.task_type,
            task_index=resolver.task_id,
            protocol="grpc",
            start=True,
        )

    def warm_up(self) -> None:
        self.stage("warm-up")

    def time(self) -> list[dict[str, Any]]:
        """Return a worker's own figures; asked when the steps are done."""
        self.stage("timed")
        rank = self.order["rank"]
        if rank < 0:
            return []
        if self.run.device_type == "cpu":
            return [
                {
                    "rank": rank,
                    "peak_memory_gib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20,
                }
            ]
        state, peak = device_state(0), float("nan")  # of the only GPU that this process sees
        # the allocator is the process's; where it cannot be asked, nothing is known
        with suppress(ValueError, tf.errors.OpError):
            peak = tf.config.experimental.get_memory_info("GPU:0")["peak"] / 2**30
        return [
            {"rank": rank, "peak_memory_gib": peak, "state": state.model_dump() if state else None}
        ]


def open_member(run: Run, order: dict[str, Any], pipe: Line) -> Any:
    """Open this process's part, which answers the words "warm" and "timed"."""
    startup_s = age_s()
    hook = load_hook(os.environ.get("MULTIGPU_HOOK"))

    def stage(name: str) -> None:
        hook(name, run, order["rank"])

    prepare_member(run, order["threads"])
    if order["strategy"] == "multi_worker":
        return MemberSession(run, order, pipe, startup_s, stage)
    if order["role"] != "chief":
        return Server(run, order, stage)
    return CoordinatorSession(run, order, startup_s, stage)


def serve(pipe: Line) -> None:
    """Do what is asked until the pipe is closed; the first failure is told and is the end."""
    order = pipe.recv()
    run = Run.model_validate_json(order["run"])
    member: Any = None
    with suppress(EOFError):
        while True:
            word, answer = pipe.recv(), None
            try:
                if word == "built":
                    member = open_member(run, order, pipe)
                elif word == "warm":
                    member.warm_up()
                elif word == "timed":
                    answer = member.time()
            except Exception as error:
                status, reason = status_of(error)
                pipe.send(("fault", (status, reason)))
                return
            pipe.send((word, answer))


def main() -> None:
    """Entry point. It ends without TensorFlow's farewell, which would wait for lost processes."""
    end_with_parent(int(os.environ[STARTED_BY]))
    faulthandler.register(signal.SIGTERM, chain=True)
    with suppress(BrokenPipeError, ConnectionResetError):
        where, *rest = sys.argv[1:]
        serve(join(where, int(rest[0])) if rest else Line(int(where)))
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
