"""Classify a Run's failure without importing its framework."""

from multigpu.records.base import Status
from multigpu.spec.errors import JobError, Unsupported, own_line

Fault = tuple[Status, str]  # of a Run that cannot be measured, and why

# names of the classes, of PyTorch, TensorFlow and Python
MEMORY_ERRORS = {"OutOfMemoryError", "ResourceExhaustedError", "MemoryError"}

MEMORY_WORDS = ("can't allocate memory", "out of memory", "oom when allocating")

LOST_PEER = (
    "connection closed by peer",
    "connection reset by peer",
    "connection refused",
    "broken pipe",
    "remote process",
    "nccl",
    "gloo",
)
"""Words in the errors of a collective whose other end is gone: an echo, not a cause."""

CAUSES: tuple[Status, ...] = ("out_of_memory", "unsupported")  # what a replica says of itself alone


class Stuck(Exception):
    """A replica did not answer in time: the launch must restart, since it may wait for ever."""


def is_echo(reason: str, status: Status = "failed") -> bool:
    """Whether a failure only says that another replica has gone; a cause never does."""
    return status not in CAUSES and any(words in reason.lower() for words in LOST_PEER)


def status_of(error: BaseException) -> Fault:
    """The status of a Run that ended with `error`, and the sentence for its Record."""
    text = printable(" ".join(str(error).split()))
    status = _status(error, text.lower())
    text = f"{type(error).__name__}: {text}" if status == "failed" else text
    # a JobError names the line itself
    if not isinstance(error, JobError) and (place := own_line(error)):
        text = f"{text} ({printable(place)})"
    # of a long one the middle goes: TensorFlow names the operation first and the cause last
    return status, text if len(text) <= 300 else f"{text[:175]} ... {text[-120:]}"


def _status(error: BaseException, text: str) -> Status:
    full = any(words in text for words in MEMORY_WORDS) or getattr(error, "errno", None) in (12, 28)
    if full or MEMORY_ERRORS & {kind.__name__ for kind in type(error).__mro__}:
        return "out_of_memory"
    if isinstance(error, Unsupported):
        return "unsupported"
    return "timeout" if isinstance(error, (TimeoutError, Stuck)) else "failed"


def printable(text: str) -> str:
    """The text with what no file in UTF-8 can hold (bytes of a name that is none) written out."""
    return text.encode(errors="backslashreplace").decode()
