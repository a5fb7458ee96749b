"""Document 003's own figures, under the page's names: what it printed of epochs and profiles, and what follows from that."""

from __future__ import annotations

from dataclasses import dataclass

from multigpu.analysis.picture import Shown
from multigpu.analysis.tables import table_html
from multigpu.published import load_published, published_value
from multigpu.workloads.deepconn.description import epoch_steps

DOCUMENT_NAMES = {"single": "single", "tower_per_gpu": "reasonable", "alternating": "exaggerated"}
"""Our placement -> the document's name of it."""
NAMES = {"single": "one GPU", "tower_per_gpu": "one tower a GPU", "alternating": "alternating GPUs", "searched": "found by search"} | {
    "replicated_allreduce": "two replicas, one process",
    "ddp": "replicas, a process a GPU",
}
"""Our placements in words, in the order of the page. Replicas share the batch; one replica alone is no placement (`placement_text`)."""
EPOCHS = 5
DOCUMENT_STEPS = EPOCHS * epoch_steps(32)
"""Steps behind the document's profile: five epochs of 824 steps. Its calls over them are 19.0 and 23.0 copies a step."""

MOSTLY_IDLE = 0.5
"""A GPU that is busy for less of the time waits for the host most of it."""
MOSTLY_BUSY = 0.9
"""From this share on it is the GPU that is waited for."""
AS_LONG = 1.05
"""A step counts as long as one GPU's if it takes at most 5% more: the margin of claim C36."""


def document_epoch(placement: str) -> float | None:
    """The document's seconds an epoch."""
    table = load_published("003_epochs").set_index("placement")["seconds_per_epoch"]
    name = DOCUMENT_NAMES.get(placement)
    return float(table[name]) if name is not None and name in table else None


def document_copies() -> dict[str, dict[str, float]]:
    """Our placement -> the document's profile line of copies between GPUs: share, calls_a_step, total_s, average_us, min_us, max_us."""
    lines = {str(row["placement"]): row for row in load_published("003_nvprof").to_dict("records")}
    found = {}
    for ours, theirs in DOCUMENT_NAMES.items():
        row = lines[theirs]
        if "PtoP" in row["operation"]:
            found[ours] = {
                "share": row["time_percent"] / 100,
                "calls_a_step": row["calls"] / DOCUMENT_STEPS,
                "total_s": row["time_s"],
                **{name: row[name] for name in ("average_us", "min_us", "max_us")},
            }
    return found


@dataclass(frozen=True)
class DocumentBusy:
    """What the document's GPUs did in five epochs. gpu_s: all that its profile counts on all GPUs. wall_s: five epochs, not profiled."""

    gpu_s: float
    wall_s: float
    gpus: int

    @property
    def share(self) -> float:
        """Of its time that a GPU did anything, at most: a copy and a kernel at once count twice."""
        return self.gpu_s / (self.gpus * self.wall_s)


def document_busy() -> dict[str, DocumentBusy]:
    """Our placement -> how busy the document's GPUs were: a profile line's time over its share is the time of all lines."""
    lines = load_published("003_nvprof").set_index("placement")
    epochs = load_published("003_epochs").set_index("placement")
    return {
        ours: DocumentBusy(
            gpu_s=float(lines["time_s"][theirs]) / (float(lines["time_percent"][theirs]) / 100),
            wall_s=EPOCHS * float(epochs["seconds_per_epoch"][theirs]),
            gpus=int(epochs["gpus"][theirs]),
        )
        for ours, theirs in DOCUMENT_NAMES.items()
    }


def bound_word(busy_share: float) -> str:
    """What a step on one GPU, which copies nothing between GPUs, mostly waits for."""
    if busy_share < MOSTLY_IDLE:
        return "host-bound"
    return "bound by the GPU" if busy_share >= MOSTLY_BUSY else "bound now by the host, now by the GPU"


def copies_explain(step_without_copies: float, base: float) -> bool:
    """Whether two GPUs would be as fast as one if no copy took any time (both in one unit)."""
    return step_without_copies <= AS_LONG * base


def document_sentence() -> str:
    """Whether the document itself was host-bound or copy-bound, by its own epochs and profiles."""
    busy, copies = document_busy(), document_copies()
    one = busy["single"]
    shares = " and ".join(f"{100 * busy[name].share:.1f}% with {NAMES[name]}" for name in copies)
    longer = " and ".join(
        f"{line['total_s']:.1f} s with {NAMES[name]} ({busy[name].wall_s - one.wall_s:.1f} s slower than one GPU)"
        for name, line in copies.items()
    )
    enough = all(copies_explain(busy[name].wall_s - line["total_s"], one.wall_s) for name, line in copies.items())
    verdict = (
        "long enough to be what the second GPU cost, if nothing hid them" if enough else "too short to be all that the second GPU cost"
    )
    return (
        f"The document, over {EPOCHS} epochs: its GPU did something for {one.gpu_s:.1f} of {one.wall_s:.1f} s on one GPU, at most "
        f"{100 * one.share:.1f}%, and each GPU at most {shares}; on one GPU, with nothing to copy, it was {bound_word(one.share)}. "
        f"Copies between GPUs took {longer}: {verdict}."
    )


def companion_ratio() -> tuple[float, float, float]:
    """Seconds that the document's companion text took with a feed_dict and with an input pipeline, and the second over the first."""
    fed, ahead = (published_value("003_statements", f"companion_{name}") for name in ("feed_dict", "pipeline"))
    return fed, ahead, ahead / fed


def document_profile() -> Shown:
    """The document's own three lines."""
    table = load_published("003_nvprof").drop(columns=["printed"])
    ours = {theirs: f'{NAMES[name]} ("{theirs}")' for name, theirs in DOCUMENT_NAMES.items()}
    table["placement"] = table["placement"].map(lambda theirs: ours.get(theirs, theirs))
    names = {"time_percent": "Time(%)", "time_s": "time (s)", "average_us": "avg (µs)", "min_us": "min (µs)", "max_us": "max (µs)"}
    table = table.rename(columns=names)
    cells = table.astype({"calls": "object"}).map(lambda value: f"{value:,}" if isinstance(value, int | float) else str(value))
    note = f"Totals over {EPOCHS} epochs, {DOCUMENT_STEPS:,} steps; in brackets the document's name of the placement."
    return table_html(cells, "Document 003, nvprof", note=note, right=["calls", *names.values()])
