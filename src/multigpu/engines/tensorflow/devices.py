"""The devices of one TensorFlow process: GPUs, or logical CPU devices, and the host."""

import resource
import time
from typing import Any

import tensorflow as tf

from multigpu.machine.machine import DeviceState, device_state
from multigpu.placements.traffic import HOST
from multigpu.spec.errors import Unsupported
from multigpu.spec.run import Run

DTYPES = {"fp64": tf.float64, "fp32": tf.float32, "tf32": tf.float32, "bf16": tf.float32}
"""The type of variables: under bf16 they stay float32 and products are computed in bfloat16."""


def prepare(device_type: str, devices: int) -> None:
    """Fix this process's devices, once (`Unsupported`: it has fewer); on CPUs logical device 0 is
    the host and others stand in for GPUs.
    """
    if device_type == "cuda":
        found = tf.config.list_physical_devices("GPU")
        if len(found) < devices:
            raise Unsupported(
                f"TensorFlow sees {len(found)} GPUs here and {devices} were asked for: its CUDA"
                " libraries may be missing"
            )
        for gpu in found:
            if not tf.config.experimental.get_memory_growth(gpu):
                tf.config.experimental.set_memory_growth(gpu, True)
        return
    cpu = tf.config.list_physical_devices("CPU")[0]
    made = tf.config.get_logical_device_configuration(cpu)
    if made is None:
        tf.config.set_logical_device_configuration(
            cpu, [tf.config.LogicalDeviceConfiguration()] * (devices + 1)
        )
    elif len(made) < devices + 1:
        raise Unsupported(
            f"this process has {len(made) - 1} stand-ins for GPUs and {devices} were asked for:"
            " start another process"
        )


def prepare_member(run: Run, threads: int) -> None:
    """The same for a process with at most one GPU. threads: of the host, for one operation."""
    tf.config.threading.set_intra_op_parallelism_threads(threads)
    for gpu in tf.config.list_physical_devices("GPU"):
        tf.config.experimental.set_memory_growth(gpu, True)
    if run.device_type == "cuda":
        tf.config.experimental.enable_tensor_float_32_execution(run.precision in ("tf32", "bf16"))


def rewrite(arithmetic: bool) -> None:
    """Let TensorFlow rewrite sums and products in graphs from now on, never NHWC into NCHW."""
    tf.config.optimizer.set_experimental_options(
        {"layout_optimizer": False, "arithmetic_optimization": arithmetic}
    )


class Devices:
    """One Run's devices in this process; the host's clock. ranks: of their replicas."""

    def __init__(self, run: Run) -> None:
        # the two kinds of threads of document 000's time; both are this process's for good
        if run.host_cores:
            tf.config.threading.set_intra_op_parallelism_threads(run.host_cores)
            tf.config.threading.set_inter_op_parallelism_threads(run.host_cores)
        prepare(run.device_type, run.devices)
        self._set_up(run, tuple(range(run.devices)))
        self._forget_peaks()

    def _set_up(self, run: Run, ranks: tuple[int, ...]) -> None:
        rewrite(arithmetic=True)
        # nothing of the study is placed softly; a user's model may hold what GPUs have no kernel
        # for, as for its loss in fp64
        tf.config.set_soft_device_placement(run.workload == "own")
        self.run = run
        self.cuda = run.device_type == "cuda"
        self.ranks = ranks
        self.count = len(ranks)
        self.dtype = DTYPES[run.precision]
        self.compute = tf.bfloat16 if run.precision == "bf16" else self.dtype
        if self.cuda:
            tf.config.experimental.enable_tensor_float_32_execution(
                run.precision in ("tf32", "bf16")
            )

    def _forget_peaks(self) -> None:
        for index in range(self.count if self.cuda else 0):
            tf.config.experimental.reset_memory_stats(f"GPU:{index}")

    def name(self, place: int) -> str:
        """TensorFlow's name of a place: HOST, or a device's index."""
        if place == HOST:
            return "/device:CPU:0"
        return f"/device:GPU:{place}" if self.cuda else f"/device:CPU:{place + 1}"

    def place(self, name: str) -> int:
        """The place that a (full) device name means."""
        kind, _, index = name.rpartition("/device:")[2].rpartition(":")
        if kind == "GPU":
            return int(index)
        return int(index) - 1 if int(index) and not self.cuda else HOST

    def at(self, place: int) -> Any:
        return tf.device(self.name(place))

    def mark(self) -> float:
        """The host's clock: TensorFlow has no events that would not drain the devices."""
        return time.perf_counter()

    def seconds_between(self, first: float, last: float) -> float:
        return last - first

    def synchronise(self) -> None:
        tf.test.experimental.sync_devices()

    def peak_memory_gib(self, index: int) -> float:
        """Most memory allocated on the GPU since the Run began; on CPUs the peak resident set."""
        if self.cuda:
            return tf.config.experimental.get_memory_info(f"GPU:{index}")["peak"] / 2**30
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20

    def state(self, index: int) -> DeviceState | None:
        return device_state(index) if self.cuda else None
