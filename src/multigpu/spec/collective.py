"""A CollectiveRun: one all-reduce to be timed, frozen and validated when it is built; and which are
worth timing first.
"""

from typing import ClassVar, Literal, Self

from pydantic import Field, model_validator

from multigpu.collectives import algorithms
from multigpu.spec.schema import Spec

DeviceType = Literal["cuda", "cpu"]

ITEM_BYTES = 4  # of an element: fp32
# two_shot is torch's over symmetric memory (`symm_mem::two_shot_all_reduce_`)
LIBRARIES = ("nccl", "gloo", "two_shot")
# in a sample: each multiplies the values by P, at most 16, and 16^20 times 208 is still a number in
# fp32
MOST_CALLS = 20


class CollectiveRun(Spec):
    """Method x message x processes x type x execution.

    method: an algorithm written out here, by name, or a library's. bytes: N, of the tensor on each
        process.
    execution: captured: the calls of a sample are one CUDA graph, so that no time of the host
        enters.
    warmup_calls are not timed. calls: back to back in one sample. samples: timed one after the
        other.
    delay_us: slept before every exchange of messages, as a distant host's latency (algorithms
        written out here only).
    compute_ms: slept before every timed call, where a training step would compute.
    """

    method: str
    bytes: int = Field(ge=1)
    devices: int = Field(ge=1, le=16)
    device_type: DeviceType = "cuda"
    dtype: Literal["fp32"] = "fp32"
    execution: Literal["eager", "captured"] = "eager"
    warmup_calls: int = Field(default=5, ge=1)
    calls: int = Field(default=MOST_CALLS, ge=1, le=MOST_CALLS)
    samples: int = Field(default=10, ge=1)
    delay_us: int = Field(default=0, ge=0, le=10**6)
    compute_ms: int = Field(default=0, ge=0, le=10**4)

    @model_validator(mode="after")
    def _possible(self) -> Self:
        known = (*LIBRARIES, *algorithms())
        if self.method not in known:
            raise ValueError(f"unknown method {self.method!r}: choose one of {', '.join(known)}")
        if self.devices == 1 and not self.compute_ms:
            raise ValueError(
                "one process has nothing to reduce: choose at least 2 devices, or compute_ms for a"
                " step without messages"
            )
        if self.bytes % ITEM_BYTES:
            raise ValueError(
                f"{self.bytes} bytes are no whole number of fp32 elements: choose a multiple of"
                f" {ITEM_BYTES}"
            )
        if self.method in ("nccl", "two_shot") and self.device_type == "cpu":
            raise ValueError(
                f"method {self.method!r} exists on GPUs only: choose 'gloo' or an algorithm on"
                " device_type 'cpu'"
            )
        if self.method == "gloo" and self.device_type == "cuda":
            raise ValueError(
                "method 'gloo' is measured on CPUs only: choose 'nccl' on device_type 'cuda'"
            )
        if (self.delay_us or self.compute_ms) and self.device_type == "cuda":
            raise ValueError(
                "delay_us and compute_ms are slept by the host, which a GPU does not wait for:"
                " leave them out or choose 'cpu'"
            )
        if self.delay_us and self.method in LIBRARIES:
            raise ValueError(
                f"delay_us {self.delay_us} is slept between our own messages, not those of"
                f" {self.method!r}: leave it out"
            )
        if self.execution == "captured" and self.device_type == "cpu":
            raise ValueError(
                "execution 'captured' exists on GPUs only: choose 'eager' on device_type 'cpu'"
            )
        return self

    framework: ClassVar[str] = "torch"
    processes: ClassVar[str] = "per_device"
    host_cores: ClassVar[None] = None
    device_ids: ClassVar[None] = None

    @property
    def chosen_devices(self) -> tuple[int, ...]:
        return tuple(range(self.devices))

    @property
    def elements(self) -> int:
        return self.bytes // ITEM_BYTES

    def label(self) -> str:
        slept = ((self.compute_ms, " after {} ms"), (self.delay_us, " delayed by {} us"))
        extra = "".join(text.format(amount) for amount, text in slept if amount)
        return (
            f"{self.method} {size_text(self.bytes)} x{self.devices} {self.dtype}"
            f" {self.execution}{extra}"
        )


def size_text(count: int) -> str:
    """Bytes in binary units, without a fraction where there is none: "4 B", "64 KiB", "1 GiB"."""
    for power, unit in ((30, "GiB"), (20, "MiB"), (10, "KiB")):
        if count >= 2**power:
            return f"{count / 2**power:g} {unit}"
    return f"{count} B"


def methods_for(device_type: DeviceType) -> list[str]:
    """Every method that exists there: libraries first, then those that the documents compare, then
    the others.
    """
    libraries = ["nccl", "two_shot"] if device_type == "cuda" else ["gloo"]
    return list(dict.fromkeys([*libraries, "ring", "central_server", *algorithms()]))


def repetition(size: int, device_type: DeviceType) -> dict[str, int]:
    """Small messages are noisy, large ones take long."""
    if device_type == "cuda":
        calls = 20 if size <= 2**20 else 10 if size <= 2**25 else 4
        return {"warmup_calls": 5 if size <= 2**25 else 2, "calls": calls, "samples": 10}
    calls = 20 if size <= 2**16 else 5 if size <= 2**20 else 2
    return {"warmup_calls": 3 if size <= 2**20 else 1, "calls": calls, "samples": 5}
