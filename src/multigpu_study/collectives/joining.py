"""Join what all ranks tell of an all-reduce into its measurement."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from multigpu.collectives import algorithms
from multigpu.collectives.algorithm import counted_cost
from multigpu.records.collective import CollectiveMeasurement
from multigpu.spec.collective import ITEM_BYTES, CollectiveRun


def joined(
    run: CollectiveRun, parts: Sequence[Mapping[str, Any]], total_s: float
) -> CollectiveMeasurement:
    """Combine all ranks' parts."""
    samples = [
        max(part["times"][index] for part in parts) / run.calls for index in range(run.samples)
    ]
    carried = [part["interface"] for part in parts if part.get("interface")]
    found: dict[str, Any] = {
        "time_s": [float(f"{seconds:.6g}") for seconds in samples],
        "total_s": round(total_s, 3),
        "interface_bytes": carried if len(carried) == len(parts) else None,
    }
    if run.method in algorithms():
        links = Counter(
            {
                (rank, int(target)): count
                for rank, part in enumerate(parts)
                for target, count in part["counted"].items()
            }
        )
        predicted = algorithms()[run.method].cost(run.elements, ITEM_BYTES, run.devices)
        # messages' order is not observed here
        counted = counted_cost(links, predicted.latency_terms)
        found |= {"predicted": asdict(predicted), "counted": asdict(counted)}
        if counted.total_bytes != predicted.total_bytes:
            found["flags"] = [
                f"{counted.total_bytes:.0f} bytes were sent and {predicted.total_bytes:.0f}"
                " predicted"
            ]
    return CollectiveMeasurement.model_validate(found)
