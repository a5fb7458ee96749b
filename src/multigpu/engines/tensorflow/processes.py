"""A TensorFlow Run over several processes: this one starts them, keeps them in step and gathers what they know. No TensorFlow here.

Every Run gets fresh processes (`member.py`), for a TensorFlow process keeps the cluster that it once joined. They end with this
one, and this one ends each of them by its process id, whatever happens.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection, Pipe, wait
from pathlib import Path
from typing import Any

from multigpu.engines.errors import Unsupported
from multigpu.measure.session import Stage
from multigpu.placements import find_placement
from multigpu.run import Run

SHARE = 0.9
"""Of a Run's time-out: after this the members are ended and the Run is a `timeout`, before the program's own watch ends it all."""

ECHO_S = 2.0
"""After the first failure, members have so long to say theirs: a death is often told by its echoes first."""

ECHOES = ("UnavailableError", "AbortedError", "CancelledError", "ClosureInputError", "WorkerPreemptionError", "PSUnavailableError")
"""Names of TensorFlow's errors that say that another process has gone."""

RAISED = {"out_of_memory": MemoryError, "unsupported": Unsupported, "timeout": TimeoutError}
"""What a member's failure becomes here, by its status."""


class Lost(SystemExit):
    """A member died without a word: this program ends too, and its launcher starts it and the Run again."""


@dataclass
class Member:
    """A process of the group. rank: of the replica that it computes, -1 for a server or a coordinator."""

    name: str
    rank: int
    process: subprocess.Popen[bytes]
    pipe: Connection


def free_ports(count: int) -> list[int]:
    """Ports of this machine that nobody listens to now."""
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]


def device_environment(device_type: str, rank: int) -> dict[str, str]:
    """What lets a process see the GPU of its rank alone (of those that this process may use), or none (rank -1, or CPUs)."""
    if device_type == "cpu" or rank < 0:
        return {"CUDA_VISIBLE_DEVICES": "-1"}
    visible = [one for one in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if one]
    if visible and rank >= len(visible):
        raise Unsupported(f"CUDA_VISIBLE_DEVICES shows {len(visible)} GPUs and replica {rank} needs one of its own")
    return {"CUDA_VISIBLE_DEVICES": visible[rank] if visible else str(rank)}


class Session:
    """A Run of a placement with a process a device, as `measure.session.Session` wants it.

    Raises:
        TimeoutError: the members took longer than the Run may.
        Lost: one of them was killed.
    """

    def __init__(self, run: Run, rank: int, threads: int, shared: Path, timeout_s: float, startup_s: float, stage: Stage) -> None:
        if run.traced_steps:
            raise Unsupported(f"traced_steps {run.traced_steps}: a Run over several TensorFlow processes is not traced; leave it out")
        self.deadline, self.timeout_s = time.monotonic() + SHARE * timeout_s, timeout_s
        self.run, self.startup_s = run, startup_s
        self.members: list[Member] = []
        strategy = next(engine.strategy for engine in find_placement(run.placement).engines if engine.framework == "tensorflow")
        replicas = [("worker", rank) for rank in range(run.devices)]
        roles = replicas if strategy == "multi_worker" else [("ps", -1), *replicas, ("chief", -1)]
        ports = free_ports(len(roles))
        cluster: dict[str, list[str]] = {}
        for (role, _), port in zip(roles, ports, strict=True):
            cluster.setdefault(role, []).append(f"127.0.0.1:{port}")
        try:
            for role, at in roles:
                self._start(role, at, cluster, {"strategy": strategy, "role": role, "rank": at, "threads": max(1, threads // run.devices)})
            self._all("built", self.members)
        except BaseException:
            self.close()
            raise

    def _start(self, role: str, rank: int, cluster: dict[str, list[str]], order: dict[str, Any]) -> None:
        ours, theirs = Pipe()
        task = {"cluster": cluster, "task": {"type": role, "index": max(rank, 0)}}
        environment = os.environ | device_environment(self.run.device_type, rank)
        environment |= {"TF_CONFIG": json.dumps(task), "TF_FORCE_GPU_ALLOW_GROWTH": "true"}
        command = [sys.executable, "-m", "multigpu.engines.tensorflow.member", str(theirs.fileno())]
        process = subprocess.Popen(command, env=environment, pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL)
        theirs.close()
        self.members.append(Member(f"{role} {max(rank, 0)}", rank, process, ours))
        ours.send(order | {"run": self.run.model_dump_json(exclude_defaults=True)})

    # --- what is asked of the members ---------------------------------------------------------------------------------------

    def warm_up(self) -> None:
        """The first step, whose bytes are counted where they can be, and the rest of the warm-up."""
        self._all("warm", self.members)

    def time(self) -> list[dict[str, Any]]:
        """The timed steps; what every member knows of its replicas, by rank. Who only serves is asked when they are done."""
        steppers = [member for member in self.members if member.name == "chief 0"] or self.members
        servers = [member for member in self.members if member not in steppers]
        known: dict[int, dict[str, Any]] = {}
        for answer in [*self._all("timed", steppers), *self._all("timed", servers)]:
            for part in answer or ():
                known.setdefault(part["rank"], {}).update(part)
        return [known[rank] for rank in sorted(known)]

    def _all(self, word: str, asked: list[Member]) -> list[Any]:
        """Ask members for `word` and wait for their answers; on the way, let those go on together that meet at a barrier."""
        with suppress(BrokenPipeError):
            for member in asked:
                member.pipe.send(word)
        answers: dict[str, Any] = {}
        waiting: list[Member] = []
        while len(answers) < len(asked):
            # all are listened to: what those can say that were not asked, or have answered, is that they are gone
            ready = wait([member.pipe for member in self.members], max(0.0, self.deadline - time.monotonic()))
            if not ready:
                missing = [member.name for member in asked if member.name not in answers]
                raise TimeoutError(f"{', '.join(missing)} did not answer within {SHARE:.0%} of {self.timeout_s:g} s")
            for member in self.members:
                if member.pipe in ready:
                    said = self._hear(member)
                    if said[0] == "barrier":
                        waiting.append(member)
                    else:
                        answers[member.name] = said[1]
            if waiting and len(waiting) == len(asked):
                for member in waiting:
                    member.pipe.send("go")
                waiting = []
        return [answers[member.name] for member in asked]

    def _hear(self, member: Member) -> tuple[str, Any]:
        """What a member says; a failure ends the Run, by the first cause among all members."""
        said = self._one(member)
        if said is not None and said[0] != "fault":
            return said
        faults = [said[1]] if said else []
        until = time.monotonic() + ECHO_S
        others = [other for other in self.members if other is not member]
        while others and (left := until - time.monotonic()) > 0:
            for pipe in wait([other.pipe for other in others], left):
                other = next(other for other in others if other.pipe is pipe)
                heard = self._one(other)
                if heard is None or heard[0] == "fault":
                    others.remove(other)
                if heard is not None and heard[0] == "fault":
                    faults.append(heard[1])
        for status, reason in faults:
            if not reason.startswith(ECHOES):
                raise RAISED.get(status, RuntimeError)(reason)
        raise Lost(f"{member.name} of {self.run.label()} ended without a cause of its own")

    @staticmethod
    def _one(member: Member) -> tuple[str, Any] | None:
        """The next message, or None from a process that is gone."""
        try:
            said: tuple[str, Any] = member.pipe.recv()
            return said
        except (EOFError, ConnectionResetError):
            return None

    def close(self) -> None:
        """End every member by its process id: politely, which leaves its stacks in the log if it hangs, then surely."""
        for member in self.members:
            with suppress(OSError):
                member.pipe.close()  # who waits for the next word ends by itself
        until = time.monotonic() + 3.0
        for kind in ("wait", "terminate", "kill"):
            for member in self.members:
                if kind != "wait" and member.process.poll() is None:
                    getattr(member.process, kind)()
            for member in self.members:
                with suppress(subprocess.TimeoutExpired):
                    member.process.wait(max(0.1, until - time.monotonic()))
            until = time.monotonic() + 5.0
        self.members = []
