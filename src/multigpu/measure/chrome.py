"""A profiler's trace in Chrome's format: what a device's events are. Imports no framework."""

from __future__ import annotations

from typing import Any

from multigpu.measure.trace import Kind

DEVICE_EVENTS = ("kernel", "gpu_memcpy", "gpu_memset")


def copy_kind(name: str, arguments: dict[str, Any]) -> Kind:
    """The kind of a "Memcpy HtoD (Pinned -> Device)"; a copy within a device is compute."""
    if "HtoD" in name:
        return "host_to_device"
    if "DtoH" in name:
        return "device_to_host"
    between = arguments.get("fromDevice") != arguments.get("toDevice")
    return "device_to_device" if "PtoP" in name or between else "compute"


def device_of(event: dict[str, Any]) -> int | None:
    """The number of the device of an event; None where it does not say."""
    arguments = event.get("args", {})
    found = arguments.get("device", arguments.get("inDevice"))
    return None if found is None else int(found)


def device_kind(event: dict[str, Any]) -> Kind:
    """What a device did in one of `DEVICE_EVENTS`."""
    if event["cat"] == "gpu_memcpy":
        return copy_kind(event["name"], event.get("args", {}))
    return "collective" if "nccl" in event["name"].lower() else "compute"
