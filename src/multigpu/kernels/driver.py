"""Launch kernels with clusters of thread blocks by the CUDA driver, on PyTorch's streams."""

import ctypes
import functools
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor

from multigpu.kernels.build import Unavailable, built

MAX_DYNAMIC_SHARED_SIZE, NON_PORTABLE_CLUSTER_SIZE = 8, 14  # CUfunction_attribute
CLUSTER_DIMENSION, PRIORITY = 4, 8  # CUlaunchAttributeID
PORTABLE_CLUSTER = 8
# the priority of launches: before those of ordinary streams, of which many blocks wait where these
# few need a place each
FIRST = -5


class Dimensions(ctypes.Structure):
    """Of a grid, a block or a cluster."""

    _fields_ = [("x", ctypes.c_uint), ("y", ctypes.c_uint), ("z", ctypes.c_uint)]


class AttributeValue(ctypes.Union):
    """CUlaunchAttributeValue: a cluster's dimensions, or a number."""

    _fields_ = [("pad", ctypes.c_char * 64), ("cluster", Dimensions), ("number", ctypes.c_int)]


class Attribute(ctypes.Structure):
    """CUlaunchAttribute."""

    _fields_ = [("id", ctypes.c_int), ("pad", ctypes.c_char * 4), ("value", AttributeValue)]


class Configuration(ctypes.Structure):
    """CUlaunchConfig."""

    _fields_ = [
        ("grid", Dimensions),
        ("block", Dimensions),
        ("shared_bytes", ctypes.c_uint),
        ("stream", ctypes.c_void_p),
        ("attributes", ctypes.POINTER(Attribute)),
        ("count", ctypes.c_uint),
    ]


@functools.cache
def driver() -> ctypes.CDLL:
    """The CUDA driver; raises `Unavailable` where there is none."""
    try:
        return ctypes.CDLL("libcuda.so.1")
    except OSError:
        raise Unavailable("there is no NVIDIA driver") from None


def check(result: int, what: str) -> None:
    """Raise what the driver says where a call failed."""
    if result:
        text = ctypes.c_char_p()
        driver().cuGetErrorString(result, ctypes.byref(text))
        raise RuntimeError(
            f"{what} failed: {(text.value or b'unknown error').decode()} (CUDA error {result})"
        )


class Kernel:
    """One function of a built source on GPU number `device`, whose context PyTorch has made;
    `Unavailable` where it cannot be built.
    source, name, options: a file of this package, a function in it, NVRTC's options. threads,
        shared_bytes: of a block. cluster: its blocks.
    """

    def __init__(
        self,
        device: int,
        source: str,
        name: str,
        options: Sequence[str],
        threads: int,
        shared_bytes: int = 0,
        cluster: int = 1,
    ):
        self.device, self.name = device, name
        self.threads, self.shared_bytes, self.cluster = threads, shared_bytes, cluster
        image = built(source, options)
        self.module, self.function = ctypes.c_void_p(), ctypes.c_void_p()
        with self._context():
            check(driver().cuModuleLoadData(ctypes.byref(self.module), image), f"loading {name}")
            check(
                driver().cuModuleGetFunction(
                    ctypes.byref(self.function), self.module, name.encode()
                ),
                f"finding {name}",
            )
            if shared_bytes:
                check(
                    driver().cuFuncSetAttribute(
                        self.function, MAX_DYNAMIC_SHARED_SIZE, shared_bytes
                    ),
                    f"shared memory for {name}",
                )
            if cluster > PORTABLE_CLUSTER:
                check(
                    driver().cuFuncSetAttribute(self.function, NON_PORTABLE_CLUSTER_SIZE, 1),
                    f"clusters of {cluster} for {name}",
                )

    @contextmanager
    def _context(self) -> Iterator[None]:
        """The GPU's context is current in this thread, whichever was before."""
        with torch.cuda.device(self.device):
            torch.cuda.mem_get_info(self.device)  # makes it so, and waits for nothing
            yield

    def _configuration(self, blocks: int, stream: int) -> Configuration:
        attributes = (Attribute * 2)()
        attributes[0].id = PRIORITY
        attributes[0].value.number = FIRST
        attributes[1].id = CLUSTER_DIMENSION
        attributes[1].value.cluster = Dimensions(self.cluster, 1, 1)
        sizes = Dimensions(blocks, 1, 1), Dimensions(self.threads, 1, 1)
        return Configuration(*sizes, self.shared_bytes, stream, attributes, 1 + (self.cluster > 1))

    def most_clusters(self) -> int:
        """How many clusters the GPU holds at once: of 16 blocks 7 on 132 processors, not 8."""
        count, configuration = ctypes.c_int(), self._configuration(self.cluster, 0)
        with self._context():
            check(
                driver().cuOccupancyMaxActiveClusters(
                    ctypes.byref(count), self.function, ctypes.byref(configuration)
                ),
                f"asking for {self.name}",
            )
        return count.value

    def __call__(self, blocks: int, *arguments: Tensor | int | None) -> None:
        """Launch it on the current stream, captured or not; tensors as addresses, None as none."""
        values: list[ctypes.c_void_p | ctypes.c_int] = [
            ctypes.c_int(a)
            if isinstance(a, int)
            else ctypes.c_void_p(0 if a is None else a.data_ptr())
            for a in arguments
        ]
        pointers = (ctypes.c_void_p * len(values))(*[ctypes.addressof(value) for value in values])
        configuration = self._configuration(blocks, torch.cuda.current_stream().cuda_stream)
        check(
            driver().cuLaunchKernelEx(ctypes.byref(configuration), self.function, pointers, None),
            f"launching {self.name}",
        )
