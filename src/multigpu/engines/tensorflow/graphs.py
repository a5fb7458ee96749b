"""Inspect the graphs of a step: partitions, the copies between them, where each part ran."""

import math
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import tensorflow as tf
from tensorflow.python.eager import context as eager

from multigpu.engines.tensorflow.devices import Devices
from multigpu.spec.stage_graph import direction

PARTS = ("read", "lookup", "compute", "merge", "update")
"""The outermost name scopes of a step; next come a variable's name or a replica's number."""

COLLECTIVES = ("CollectiveReduce", "CollectiveReduceV2", "NcclAllReduce")


@dataclass(frozen=True)
class Graphs:
    """The partitioned graphs of one execution; of each node the traced outputs."""

    nodes: list[Any]
    outputs: dict[str, list[tf.TensorSpec]]


def collected(program: Any, execute: Callable[[], Any], marker: str) -> Graphs:
    """Execute a function for the first time and keep its graphs. marker: its own argument."""
    eager.context().enable_run_metadata()
    try:
        execute()
        metadata = eager.context().export_run_metadata()
    finally:
        eager.context().disable_run_metadata()
    # other functions may have been started too, or kept from before: ours alone has an argument of
    # this name
    found = next(
        g
        for g in metadata.function_graphs
        if any(node.name == marker for part in g.partition_graphs for node in part.node)
    )
    nodes = [node for part in found.partition_graphs for node in part.node]
    known = {
        op.name: [tf.TensorSpec(one.shape, one.dtype) for one in op.outputs]
        for op in program.graph.get_operations()
    }
    return Graphs(nodes, known)


ENDS = ("tensor_name", "send_device", "recv_device")  # what a send and its receive have in common


def _source(of: str, nodes: dict[str, Any]) -> str:
    """The tensor `of`; of a receive, what was sent."""
    node = nodes.get(of.partition(":")[0])
    if node is None or node.op not in ("_Recv", "_HostRecv"):
        return of
    ends = [node.attr[end].s for end in ENDS]
    sends = (one for one in nodes.values() if one.op in ("_Send", "_HostSend"))
    return next((one.input[0] for one in sends if [one.attr[end].s for end in ENDS] == ends), of)


def _inferred(tensor: str, nodes: dict[str, Any], graphs: Graphs) -> list[int | None]:
    """The shape of a tensor whose node an optimiser made (as under bf16), inferred from the nodes
    before it, back to what the trace knows. LookupError: none follows; it names the node.
    """
    copied = tf.compat.v1.GraphDef()
    known: dict[str, tf.Tensor] = {}
    left, done = [tensor.partition(":")[0]], set()
    with tf.Graph().as_default():
        while left:
            if (name := left.pop()) in done:
                continue
            done.add(name)
            if name not in nodes:
                raise LookupError(
                    f"neither the trace nor its partitions have a node {name!r}: the size of"
                    f" {tensor!r} is unknown"
                )
            node = copied.node.add()
            node.CopyFrom(nodes[name])
            node.device = ""
            node.attr.pop("_class", None)  # beside which other node it stands
            node.ClearField("input")
            for one in [
                _source(one, nodes) for one in nodes[name].input if not one.startswith("^")
            ]:
                node.input.append(one)
                before, _, output = one.partition(":")
                # a constant's value may be the shape
                if before in graphs.outputs and (
                    before not in nodes or nodes[before].op != "Const"
                ):
                    spec = graphs.outputs[before][int(output or 0)]
                    known[f"{before}:{output or 0}"] = tf.compat.v1.placeholder(
                        spec.dtype, spec.shape
                    )
                else:
                    left.append(before)
        try:
            wanted = tensor if ":" in tensor else f"{tensor}:0"
            (found,) = tf.graph_util.import_graph_def(
                copied, input_map=known, return_elements=[wanted]
            )
        except (ValueError, tf.errors.OpError) as error:
            raise LookupError(
                f"the trace has no node {tensor!r}, and no shape follows for it: {str(error)[:160]}"
            ) from None
        if found.shape.rank is None:
            raise LookupError(f"the trace has no node {tensor!r}, and no shape follows for it")
        return found.shape.as_list()


FILTER_WITH_BIAS = "Conv2DBackpropFilterWithBias"
"""Of a CPU's oneDNN, which makes the bias's gradient together with the filter's [height, width,
inputs, outputs], as a second output.
"""


def _size(
    source: str, nodes: dict[str, Any], graphs: Graphs, dtype: tf.DType, unknown: dict[str, int]
) -> int:
    """Bytes of the tensor `source` ("node" or "node:output")."""
    name, _, output = source.partition(":")
    traced = graphs.outputs.get(name, [])
    if int(output or 0) < len(traced):
        shape = traced[int(output or 0)].shape.as_list()
    # by its own shape function the bias has as many elements as inputs
    elif traced and nodes[name].op.endswith(FILTER_WITH_BIAS):
        shape = traced[0].shape.as_list()[-1:]
    else:
        shape = _inferred(source, nodes, graphs)
    if None in shape:  # distinct rows: as many as the batch's ids say
        towers = ((key, *key.rpartition("_")[::2]) for key in unknown)
        table = next(
            (key for key, own, rank in towers if f"/{rank}/" in f"/{name}" and own in name), None
        )
        if table is None or shape.count(None) > 1:
            raise LookupError(f"{name!r} has the shape {shape}")
        shape = [unknown[table] if size is None else size for size in shape]
    return dtype.size * math.prod(shape)


def moved_bytes(
    graphs: Graphs, devices: Devices, ids: set[str], unknown: dict[str, int]
) -> dict[str, int]:
    """Bytes between devices in one step, by kind, from the `_Send` nodes and collectives of its
    graphs; copies of arguments but `ids` are feeding. unknown: "<table>_<replica>" -> distinct
    rows, which no trace knows. LookupError names what cannot be sized.
    """
    nodes = {node.name: node for node in graphs.nodes}
    moved = Counter[str]()
    for node in graphs.nodes:
        if node.op in COLLECTIVES:
            dtype = tf.as_dtype(node.attr["T"].type)
            moved["all_reduce"] += _size(node.name, nodes, graphs, dtype, unknown)
        if node.op not in ("_Send", "_HostSend"):
            continue
        source, target = (
            devices.place(node.attr[end].s.decode()) for end in ("send_device", "recv_device")
        )
        if source == target:  # between a GPU and the host memory that belongs to it
            continue
        tensor = node.input[0]
        name = tensor.partition(":")[0]
        if nodes[name].op == "_Arg" and name not in ids:
            continue
        size = _size(tensor, nodes, graphs, tf.as_dtype(node.attr["T"].type), unknown)
        moved[direction(source, target)] += size
    return dict(+moved)
