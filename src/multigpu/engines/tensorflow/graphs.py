"""What TensorFlow made of a step: the graphs it partitioned by device, the copies between them, and where each part ran."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import tensorflow as tf
from tensorflow.python.eager import context as eager

from multigpu.engines.tensorflow.devices import Devices
from multigpu.placements.traffic import HOST

PARTS = ("read", "lookup", "compute", "merge", "update")
"""The outermost name scopes of a step, below each of which stands the name of a variable (of a replica under "compute")."""

COLLECTIVES = ("CollectiveReduce", "CollectiveReduceV2", "NcclAllReduce")


@dataclass(frozen=True)
class Graphs:
    """The partitioned graphs of one execution, and the shapes that the trace knew: node name -> shape of each output."""

    nodes: list[Any]
    shapes: dict[str, list[tf.TensorShape]]


@dataclass(frozen=True)
class Ran:
    """Where one operation of a step ran. part: one of PARTS; name: of the variable (of the replica under "compute")."""

    part: str
    name: str
    op: str
    node: str
    place: int


def collected(program: Any, execute: Callable[[], Any], marker: str) -> Graphs:
    """Execute `program`, a concrete function, for the first time, and keep the graphs that the runtime made of it.

    marker: the name of an argument that no other program of this process has.
    """
    eager.context().enable_run_metadata()
    try:
        execute()
        metadata = eager.context().export_run_metadata()
    finally:
        eager.context().disable_run_metadata()
    # other functions may have been started too, or kept from before: ours alone has an argument of this name
    found = next(g for g in metadata.function_graphs if any(node.name == marker for part in g.partition_graphs for node in part.node))
    nodes = [node for part in found.partition_graphs for node in part.node]
    return Graphs(nodes, {op.name: [output.shape for output in op.outputs] for op in program.graph.get_operations()})


def _size(source: str, nodes: dict[str, Any], graphs: Graphs, dtype: tf.DType, unknown: dict[str, int]) -> int:
    """Bytes of the tensor `source` ("node" or "node:output")."""
    name, _, output = source.partition(":")
    if name in graphs.shapes:
        shape = graphs.shapes[name][int(output or 0)].as_list()
    elif nodes[name].op == "Const":
        shape = [dim.size for dim in nodes[name].attr["value"].tensor.tensor_shape.dim]
    elif nodes[name].op == "AddN" and (summands := [one for one in nodes[name].input if one.partition(":")[0] in graphs.shapes]):
        return _size(summands[0], nodes, graphs, dtype, unknown)  # two sums on one device that were made one
    else:
        raise LookupError(f"the trace has no node {name!r}: its size is unknown")
    if None in shape:  # distinct rows: as many as the batch's ids say
        table = next((key for key in unknown if _belongs(name, key)), None)
        if table is None or shape.count(None) > 1:
            raise LookupError(f"{name!r} has the shape {shape}")
        shape = [unknown[table] if size is None else size for size in shape]
    count = dtype.size
    for size in shape:
        count *= size
    return count


def _belongs(node: str, key: str) -> bool:
    """Whether a node of replica r's tower deduplicates table t, where `key` is "t_r"."""
    table, _, rank = key.rpartition("_")
    return f"/{rank}/" in f"/{node}" and table in node


def moved_bytes(graphs: Graphs, devices: Devices, ids: set[str], unknown: dict[str, int]) -> dict[str, int]:
    """Bytes between devices in one step, by kind, from the `_Send` nodes and collectives of its partitioned graphs.

    Copies of a step's arguments are feeding, not placement, except those of the ids that are looked up.

    Args:
        ids: names of the arguments that hold ids.
        unknown: "<table>_<replica>" -> distinct rows, for what the trace cannot size.
    """
    nodes = {node.name: node for node in graphs.nodes}
    moved: dict[str, int] = {}

    def add(kind: str, count: int) -> None:
        if count:
            moved[kind] = moved.get(kind, 0) + count

    for node in graphs.nodes:
        if node.op in COLLECTIVES:
            dtype = tf.as_dtype(node.attr["T"].type)
            add("all_reduce", _size(node.name, nodes, graphs, dtype, unknown))
        if node.op not in ("_Send", "_HostSend"):
            continue
        source, target = (devices.place(node.attr[end].s.decode()) for end in ("send_device", "recv_device"))
        if source == target:  # between a GPU and the host memory that belongs to it
            continue
        tensor = node.input[0]
        name = tensor.partition(":")[0]
        if nodes[name].op == "_Arg" and name not in ids:
            continue
        kind = "host_to_device" if source == HOST else "device_to_host" if target == HOST else "device_to_device"
        add(kind, _size(tensor, nodes, graphs, tf.as_dtype(node.attr["T"].type), unknown))
    return moved


def where_ops_ran(graphs: Graphs, devices: Devices) -> list[Ran]:
    """Every operation of a step's parts with the place it truly ran on: the partition's device, not the requested one."""
    found = []
    for node in graphs.nodes:
        pieces = node.name.split("/")
        if pieces[0] in PARTS and len(pieces) > 2 and not node.op.startswith(("_", "Const")):
            found.append(Ran(pieces[0], pieces[1], node.op, node.name, devices.place(node.device)))
    return found
