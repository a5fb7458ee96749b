"""A CollectiveRecord: all that one CollectiveRun measured; written once, never edited."""

from statistics import median

from multigpu.collectives.algorithm import Cost
from multigpu.records.base import RecordBase
from multigpu.records.store import Store
from multigpu.spec.collective import CollectiveRun
from multigpu.spec.schema import Data


def bus_factor(devices: int) -> float:
    """2(P-1)/P (nccl-tests, PERFORMANCE.md): of N bytes every process must send 2N(P-1)/P at least,
    so bus bandwidth is what its link carries one way if no byte is wasted.
    """
    return 2 * (devices - 1) / devices


class CollectiveMeasurement(Data):
    """It exists only where every process held the exact sum before and after the samples.

    time_s: seconds a call, of each sample: the slowest process's time for all calls of the sample,
        over their number.
    counted, predicted: of one call, of algorithms written out here (None of a library's).
    interface_bytes: by process, what its host's network interface sent and received during one
        call, headers included (None: not read).
    """

    time_s: list[float]
    counted: Cost | None = None
    predicted: Cost | None = None
    interface_bytes: list[tuple[int, int]] | None = None
    total_s: float
    flags: list[str] = []


class CollectiveRecord(RecordBase):
    """One measured CollectiveRun, or the reason why there is no measurement."""

    key_words = ("all_reduce",)
    meaning = 1

    run: CollectiveRun
    timing_version: int = meaning
    measurement: CollectiveMeasurement | None = None

    @property
    def time_s(self) -> float | None:
        """The median sample, in seconds a call."""
        return median(self.measurement.time_s) if self.measurement else None


class CollectiveStore(Store[CollectiveRecord]):
    """CollectiveRecords in `<root>/<machine>/`."""

    kind = CollectiveRecord
