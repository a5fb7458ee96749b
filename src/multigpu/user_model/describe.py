"""Describe a user's job: examine it here, and write what placements must know into a folder."""

import contextlib
import importlib
import inspect
import sys
import time
from pathlib import Path
from statistics import median
from typing import Any, Literal

from multigpu.machine.machine import gpu_count
from multigpu.user_model.code import code_of, code_of_file
from multigpu.user_model.drawn import several
from multigpu.user_model.examine import SAMPLES, Examination
from multigpu.workloads.own.batches import arrays_of_step, batches_of
from multigpu.workloads.own.description import Described
from multigpu.workloads.own.job import Job, pack, telling
from multigpu.workloads.own.seals import keep_packed
from multigpu.workloads.own.seeding import undisturbed


def framework_of(job: Job) -> Literal["torch", "tensorflow"]:
    """Find the framework of a job's model, class or maker (else a JobError)."""
    made = job.model
    if inspect.isroutine(made):
        with telling(f"model {job.title!r}", job.made_at):
            made = made()
    # nobody has made a model of Keras who has not imported it by now
    keras = sys.modules.get("keras")
    found = made if isinstance(made, type) else type(made)
    if keras and issubclass(found, keras.Model) and keras.backend.backend() != "torch":
        return "tensorflow"
    return "torch"


def begun(
    framework: Literal["torch", "tensorflow"], job: Job, replicas: int, device: str
) -> Examination:
    """Begin the examination of a job, on this device where the framework is PyTorch."""
    library = importlib.import_module(f"multigpu.user_model.examine_{framework}")
    given = (device,) if framework == "torch" else ()
    return library.Examined(job, replicas, *given)


def on_a_gpu(
    examination: Examination,
    named: str,
    code: bytes,
    compared: bool = True,
    device: str = "cuda",
) -> Described:
    """Examine a job on the GPU that will train it, where a model of usual size passes whole batches
    in a fraction of a CPU's time; by the given examination, on the CPU, where that fails.
    """
    torch = importlib.import_module("torch")  # not above: a Keras job needs none
    # products of full precision, as they are compared
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    try:
        there = begun("torch", examination.job, examination.replicas, device)
        return there.described(named, bool(named), code, False, compared)
    except Exception as error:  # too little memory, or the job's own code
        told = " ".join(str(error).split())[:200]
    examination.notes.append(f"it was examined on the CPU, since on a GPU it fails: {told}")
    return examination.described(named, bool(named), code, False, compared)


def describe(
    job: Job,
    folder: Path,
    replicas: int,
    named: str = "",
    timed: bool = True,
    packed: bytes = b"",
    code: bytes = b"",
    twice_s: float = 0.0,
    compiled: bool = False,
    compared: bool = True,
) -> Described:
    """The job's description, written into a folder with its values; a JobError names what failed.
    named: "FILE.py:NAME" of a file's. packed, code: of any other job, as the process that made it
    has them. twice_s: so long it may take to make batches and model again, in new processes (0:
    they are not). compiled: follow the memory of a compiled step, too. compared:
    whether placements will be.
    """
    code = code or (code_of_file(named) if named else code_of(job))
    packed = packed or (b"" if named else pack(job))
    framework = framework_of(job)
    with contextlib.ExitStack() as ending:
        ending.enter_context(undisturbed())
        again = None
        if twice_s and framework == "torch":
            from multigpu.user_model.reproducible import Twice

            again = ending.enter_context(Twice(named, packed))
        examination = begun(framework, job, replicas, "cpu")
        structure, arrays = examination.structure, examination.arrays
        few = min(SAMPLES, job.batch_size)
        drawn = several(framework, job, replicas, structure, arrays, few)
        if again is not None:
            rows = few if drawn.few else job.batch_size
            again.give(examination.stored, structure, arrays, rows, replicas)
        on_gpus = framework == "torch" and not timed and gpu_count() > 0
        if on_gpus:
            described = on_a_gpu(examination, named, code, compared)
        else:
            described = examination.described(named, bool(named), code, timed, compared)
        described = described.model_copy(
            update={
                "ragged": drawn.ragged,
                "any_rows": described.any_rows and drawn.few,
                "notes": [*described.notes, *drawn.notes],
            }
        )
        described = described.model_copy(update=making_of(job, framework, replicas))
        if framework == "torch":
            library = importlib.import_module("multigpu.user_model.activations")
            described = described.model_copy(
                update=library.told_of(job, ("cuda", "cpu") if on_gpus else ("cpu",), compiled)
            )
            library = importlib.import_module("multigpu.user_model.scored")
            described = described.model_copy(update=library.score_of(job))
        if again is not None:
            from multigpu.user_model.reproducible import told_of

            described = told_of(described, job.title, again.found(twice_s), drawn.small)
    folder.mkdir(parents=True, exist_ok=True)
    examination.store(folder / described.values)
    if packed:
        keep_packed(described.job, packed)
    (folder / f"{described.name}.json").write_text(described.model_dump_json(indent=1))
    return described


LOOKED_S, MOST = 0.5, 20
"""Batches are made for so many seconds, and so many at most, after a first one; a first one that
takes as long by itself is what is told.
"""


def making_of(job: Job, framework: str, replicas: int) -> dict[str, Any]:
    """Time the making of one device's batch with nothing beside it: `batch_s`, the median of
    several after a first one, in seconds, and who makes it, `batch_by`.
    """
    batches = batches_of(framework, job, job.batch_size, replicas, 0, 0)
    took_s = [_made_s(batches, 0)]
    if took_s[0] < LOOKED_S:
        took_s = [_made_s(batches, 1)]
    while sum(took_s) < LOOKED_S and len(took_s) < MOST:
        took_s.append(_made_s(batches, 1 + len(took_s)))
    drawn = callable(job.batch) and not hasattr(job.batch, "__iter__")
    return {"batch_s": median(took_s), "batch_by": "batch()" if drawn else type(job.batch).__name__}


def _made_s(batches: Any, step: int) -> float:
    began = time.perf_counter()
    arrays_of_step(batches, step)
    return time.perf_counter() - began
