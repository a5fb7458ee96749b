"""A job is examined in a process of its own, which may hang, crash or end itself: the one that
asked says in a sentence where it stood, in time. `python -m multigpu.user_model.examining REQUEST`
is that process.
"""

import contextlib
import faulthandler
import json
import os
import signal
import subprocess
import sys
import time
import traceback
from dataclasses import dataclass
from pathlib import Path

from multigpu.engines.common.stacks import ENDED, ending_told, how_ended, own_call, read_stacks
from multigpu.machine.lock import scratch_folder
from multigpu.machine.process import WITH_KERAS, end_with_parent
from multigpu.runner.launch_environment import launch_environment
from multigpu.spec.errors import JobError, of_a_signal
from multigpu.spec.schema import Data
from multigpu.user_model.describe import code_of, describe
from multigpu.workloads.own.description import Described
from multigpu.workloads.own.job import Job, Precision, load_job, pack, sentence, unpack

PATIENT = {"OMP_WAIT_POLICY": "PASSIVE"}
"""In the environment of an examination, which shares its cores with two further processes: threads
that wait for each other in a loop keep them from working.
"""

GRACE_S = 1.0  # a process that is past its time gets so long to say where it stands


@dataclass(frozen=True)
class Examined:
    """Facts that an examination found of a job, and that a comparison asks of the job itself."""

    described: Described
    batch_size: int
    precision: Precision


class Request(Data):
    """The job to examine. named: "FILE.py:NAME"; else packed: a file with the job, code: its text.
    folder: for the description. ends_s: when its time is over, by the monotonic clock. answer,
    stacks: files that the process writes.
    """

    named: str = ""
    packed: Path = Path()
    code: str = ""
    folder: Path
    replicas: int
    timed: bool
    compiled: bool
    compared: bool
    ends_s: float
    answer: Path
    stacks: Path


def examine_apart(
    job: Job | str,
    folder: Path,
    replicas: int,
    timed: bool,
    within_s: float,
    compiled: bool = False,
    compared: bool = True,
) -> Examined:
    """Examine a job in a process of its own, within so many seconds; a JobError says what is wrong
    with it, or where it stood when its time was over or its process ended.

    compiled: follow the memory of a compiled step, too. compared: whether placements will be.
    """
    began_s = time.monotonic()
    with scratch_folder("multigpu-examine-") as scratch:
        packed, code = Path(), ""
        if isinstance(job, Job):
            packed, code = scratch / "job", code_of(job).hex()
            packed.write_bytes(pack(job))
        request = Request(
            named=job if isinstance(job, str) else "",
            packed=packed,
            code=code,
            folder=folder,
            replicas=replicas,
            timed=timed,
            compiled=compiled,
            compared=compared,
            ends_s=began_s + within_s,
            answer=scratch / "answer.json",
            stacks=scratch / "stacks",
        )
        (scratch / "request.json").write_text(request.model_dump_json())
        code_of_exit = _ended(scratch / "request.json", request.ends_s)
        if request.answer.is_file():
            answer = json.loads(request.answer.read_text())
            if "error" in answer:
                raise JobError(answer["error"])
            described = (folder / f"{answer['name']}.json").read_text()
            return Examined(
                Described.model_validate_json(described), answer["batch_size"], answer["precision"]
            )
        raise JobError(_unanswered(job, code_of_exit, within_s, read_stacks(request.stacks)))


def _ended(request: Path, ends_s: float) -> int | None:
    """Run the process to its end, and end it and all that it started however this is left: its exit
    code, or None where its time was over.
    """
    process = subprocess.Popen(
        [sys.executable, "-m", __name__, str(request)],
        env=PATIENT | launch_environment() | WITH_KERAS,
        stdin=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        return process.wait(ends_s + GRACE_S - time.monotonic())
    except subprocess.TimeoutExpired:
        return None
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _unanswered(job: Job | str, code: int | None, within_s: float, stacks: str) -> str:
    """Why there is no answer."""
    called = job if isinstance(job, str) else f"job {job.title!r} ({job.made_at})"
    place = own_call(stacks)
    if ENDED in stacks:
        how = stacks.partition(ENDED)[2].partition("\n")[0]
        return f"{called} ends its own process with os._exit{how}" + (
            f" ({place})" if place else ""
        )
    if code is None or "Timeout (" in stacks:
        stood = f"it stood in {place}" if place else "it had not reached the job's own code"
        return (
            f"{called} was not examined within {within_s:.0f} s: {stood}; give a larger budget_s if"
            " that is merely slow"
        )
    return (
        f"the process that examined {called} {how_ended(code)}"
        + (f", in {place}" if place else "")
        + ": nothing in a job may end its process"
    )


def _answered(request: Request) -> dict[str, str | int]:
    """Write the job's description; give what else was asked, or the sentence that says why not."""
    job: Job | None = None
    try:
        job = load_job(request.named) if request.named else unpack(request.packed)
        described = describe(
            job,
            request.folder,
            request.replicas,
            request.named,
            request.timed,
            b"" if request.named else request.packed.read_bytes(),
            bytes.fromhex(request.code),
            twice_s=max(0.1, (request.ends_s - time.monotonic()) / 2),
            compiled=request.compiled,
            compared=request.compared,
        )
    except JobError as error:
        return {"error": str(error)}
    except BaseException as error:
        if of_a_signal(error):
            raise
        if os.environ.get("MULTIGPU_TRACEBACKS"):
            traceback.print_exc()
        what = f"job {job.title!r}" if job else request.named or "the job"
        return {"error": sentence(what, error, job.made_at if job else "")}
    return {"name": described.name, "batch_size": job.batch_size, "precision": job.precision}


def main() -> None:
    """Entry point: `python -m multigpu.user_model.examining REQUEST`."""
    end_with_parent()
    request = Request.model_validate_json(Path(sys.argv[1]).read_text())
    with open(request.stacks, "w") as stacks:
        left_s = max(0.1, request.ends_s - time.monotonic())
        faulthandler.dump_traceback_later(left_s, exit=True, file=stacks)
        with ending_told(stacks):
            answer = json.dumps(_answered(request))
        faulthandler.cancel_dump_traceback_later()
    part = request.answer.with_suffix(".part")
    part.write_text(answer)
    part.rename(request.answer)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)  # threads that the job has started would be waited for


if __name__ == "__main__":
    main()
