"""Whether a user's batches and model are the same in every process, found by making both twice in
new ones (`user_model.fresh`): placements can be compared only then.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from multigpu.machine.process import end_in_order, last_words
from multigpu.spec.errors import JobError
from multigpu.user_model.fresh import ASKED, GIVEN, OTHERS, PACKED, digest
from multigpu.workloads.own.description import Described
from multigpu.workloads.own.structure import names_of

EQUAL = {"torch.float64": 1e-9, "torch.float32": 1e-5}
"""How far two losses of one computation may be apart, relative to them."""

LIBRARY = {"torch": "PyTorch's", "numpy": "numpy's", "random": "the module random's"}


def at(line: str) -> str:
    """A user's line in brackets; nothing where there is none."""
    return f" ({line})" if line else ""


class Twice:
    """Two new processes that make a job's model and batches, begun at once. Left by `close`."""

    def __init__(self, named: str, packed: bytes) -> None:
        self.scratch = tempfile.TemporaryDirectory(prefix="multigpu-twice-")
        self.folder = Path(self.scratch.name)
        (self.folder / ASKED).write_text(json.dumps({"job": named}))
        (self.folder / PACKED).write_bytes(packed)
        self.began_s = time.monotonic()
        with open(self.folder / "errors", "wb") as errors:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "multigpu.user_model.fresh", str(self.folder)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=errors,
                env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            )

    def give(
        self,
        values: dict[str, torch.Tensor],
        structure: Any,
        arrays: Sequence[np.ndarray],
        rows: int,
        replicas: int,
    ) -> None:
        """Send both processes the start: the first values of all variables and a batch; and how
        many samples they draw, as one of so many devices.
        """
        given = {
            "values": values,
            "structure": json.dumps(structure),
            "arrays": [torch.from_numpy(np.array(array)) for array in arrays],
            "rows": rows,
            "replicas": replicas,
        }
        part = self.folder / "given.part"
        torch.save(given, part)
        part.rename(self.folder / GIVEN)

    def found(self, limit_s: float) -> list[dict[str, Any]] | None:
        """Return what each process found; None: they took longer. JobError: one ended too soon."""
        try:
            self.process.wait(max(0.1, limit_s - (time.monotonic() - self.began_s)))
        except subprocess.TimeoutExpired:
            return None
        paths = [self.folder / f"found-{place}.json" for place in range(2)]
        if not all(path.is_file() for path in paths):
            said = (self.folder / "errors").read_text(errors="replace")
            raise JobError(
                "a new process that loads the job, makes its model and draws batches ends without a"
                f" word of what went wrong: {last_words(said)}"
            )
        return [json.loads(path.read_text()) for path in paths]

    def close(self) -> None:
        end_in_order([self.process])
        self.scratch.cleanup()

    def __enter__(self) -> "Twice":
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def cause_of(both: list[dict[str, Any]], phases: Sequence[str]) -> tuple[str, str]:
    """Return what they asked the system for in these phases, and the user's line; "": nothing."""
    for phase in phases:
        for found in both:
            for own_phase, cause, line in found["watched"]:
                if own_phase == phase:
                    return cause, line
    return "", ""


def different_batch(described: Described, both: list[dict[str, Any]]) -> str:
    """Which tensor of a batch two draws gave differently, and why; "" where none."""
    first, second = (found["draws"] for found in both)
    names = names_of(described.structure)
    for drawn, digests in first.items():
        pairs = list(zip(names, digests, second[drawn], strict=False))
        apart = [name for name, one, other in pairs if one != other]
        if not apart and len(digests) == len(second[drawn]):
            continue
        which = apart[0] if apart else "the number of its tensors"
        cause, line = cause_of(both, ("batch", "load"))
        told = f": it draws from {cause}{at(line)}" if cause else at(both[0]["line"])
        if both[0]["by_function"]:
            return f"batch ignores its generator: two draws for one seed differ in {which}{told}"
        return f"batch gives other samples when it is read again: they differ in {which}{told}"
    return ""


def different_model(title: str, both: list[dict[str, Any]]) -> str:
    """How a model that is made twice differs, and why; "" where it does not."""
    losses = [found["loss"] for found in both]
    if None in losses or both[0]["kind"] != both[1]["kind"]:
        if losses == [None, None]:
            return ""
        told = "computes in one new process and fails in another"
    else:
        first, second = losses
        if abs(first - second) <= EQUAL[both[0]["kind"]] * max(1e-12, abs(first)):
            return ""
        told = f"gives a loss of {first:.5g} and, made again, of {second:.5g} on one batch"
    cause, line = cause_of(both, ("model", "load"))
    drawn = f": it draws from {cause}{at(line)}" if cause else at(both[0]["made_at"])
    return f"model {title!r} with the same parameters {told}{drawn}"


def notes_of(both: list[dict[str, Any]]) -> list[str]:
    """List what a user should know of how their batches are drawn."""
    found = both[0]
    notes = []
    if found["moved"]:
        libraries = " and ".join(LIBRARY[name] for name in found["moved"])
        if found["used"] is False:
            given = ", and ignores the one that it is given"
        elif found["used"]:
            given = ", beside the one that it is given"
        else:
            given = ""
        notes.append(
            f"batch draws from {libraries} own generator{given}: it was seeded by step and device,"
            f" so that all placements see the same samples{at(found['line'])}"
        )
    if asking := [line for _, cause, line in found["watched"] if cause == OTHERS]:
        notes.append(
            "the job asks torch.distributed for other processes, and may compute otherwise on"
            f" several devices than on one, which placements are compared with{at(asking[0])}"
        )
    values = list(found["draws"].values())
    if (
        not found["moved"]
        and found["used"] is False
        and all(value == values[0] for value in values)
    ):
        notes.append(
            "batch gives the same samples in every step and to every device: it ignores its"
            f" generator{at(found['line'])}"
        )
    return notes


def told_of(
    described: Described, title: str, both: list[dict[str, Any]] | None, here: Sequence[np.ndarray]
) -> Described:
    """The description with what two new processes found; a JobError where one failed. here: the
    first batch of the first device as this process drew it.
    """
    if both is None:
        note = "whether batch and model are the same in two processes was not found out in time"
        return described.model_copy(update={"notes": [*described.notes, note]})
    for found in both:
        if found["error"]:
            raise JobError(f"in a new process {found['error']}")
    reasons = [different_batch(described, both), different_model(title, both)]
    # a model that differs is known from here too, without what it draws from
    before = "" if reasons[1] else described.unchecked
    unchecked = "; ".join(reason for reason in [*reasons, before] if reason)
    notes = [*described.notes, *(notes_of(both) if not reasons[0] else [])]
    if not reasons[0] and both[0]["draws"]["0,0"] != [digest(array) for array in here]:
        notes.append(
            "batch follows what is another in another interpreter, such as the order of a set or"
            " hash(): processes of one launch are forked from one, and draw alike"
            + at(both[0]["line"])
        )
    changed: dict[str, Any] = {"notes": list(dict.fromkeys(notes)), "reused": both[0]["reused"]}
    if any(reasons):
        changed |= {"unchecked": unchecked, "checked_in": None}
    return described.model_copy(update=changed)
