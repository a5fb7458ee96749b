"""The bytes of a compiled step, before it is compiled: the compiler's own graphs of forward and
backward, run operator by operator, what its kernels keep to themselves left out.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor, fx
from torch._dynamo.backends.common import aot_autograd
from torch._functorch.partitioners import get_default_op_list, min_cut_rematerialization_partition
from torch._inductor.decomposition import select_decomp_table
from torch.utils._python_dispatch import _get_current_dispatch_mode, _pop_mode_temporarily

from multigpu.user_model.activations import LiveBytes

LISTS = get_default_op_list()
WRITTEN_IN_PLACE = {torch.ops.aten.full.default, torch.ops.aten.scatter.value}
"""Of a loss's targets, which the compiler makes while it reads them."""


def value_of(node: fx.Node) -> tuple[int, Any]:
    """Return elements and type of what a node makes; several tensors, or none, are (0, None)."""
    made = node.meta.get("val")
    return (made.numel(), made.dtype) if isinstance(made, Tensor) else (0, None)


class Memory:
    """What of a graph lies in memory. The compiler joins operators on single elements, and those
    that reduce them, into kernels; what only such a kernel reads again is never written. That is
    a rule of its scheduler without its exceptions: an estimate, and too low where a value is
    written because many read it.

    unmade: nodes that are never written. ends: node -> those that may be freed after it.
    overwritten: node -> one whose memory it takes, which nothing reads later.
    """

    def __init__(self, graph: fx.Graph) -> None:
        self.nodes = list(graph.nodes)
        self.unmade: set[fx.Node] = set()
        for node in reversed(self.nodes):
            if self.is_joined(node) and all(self.passes_on(user) for user in node.users):
                reads = max((value_of(each)[0] for each in node.all_input_nodes), default=0)
                if LISTS.is_view(node) or reads <= value_of(node)[0]:  # else it reduces
                    self.unmade.add(node)
        last: dict[fx.Node, int] = {}
        for place, node in enumerate(self.nodes):
            for read in [*node.all_input_nodes, *(self.sources(node) - {node})]:
                last[read] = place
        self.ends: dict[fx.Node, list[fx.Node]] = {}
        for node, place in last.items():
            self.ends.setdefault(self.nodes[place], []).append(node)
        self.overwritten: dict[fx.Node, fx.Node] = {}
        for place, node in enumerate(self.nodes):
            if self.is_joined(node) and node not in self.unmade and not LISTS.is_view(node):
                for read in self.sources(node):
                    if (
                        last[read] == place
                        and self.is_own(read)
                        and value_of(read) == value_of(node)
                    ):
                        self.overwritten.setdefault(node, read)

    def is_joined(self, node: fx.Node) -> bool:
        joined = LISTS.is_fusible(node) or LISTS.is_view(node) or node.target in WRITTEN_IN_PLACE
        return node.op == "call_function" and joined

    def passes_on(self, user: fx.Node) -> bool:
        """Whether a user reads inside a kernel, or is a view that only such read."""
        return user in self.unmade if LISTS.is_view(user) else self.is_joined(user)

    def is_own(self, node: fx.Node) -> bool:
        """Whether it is of this step: no variable, and no gradient from outside."""
        given = node.op == "placeholder" and node.name.startswith(("primals", "tangents"))
        return not given and not any(user.op == "output" for user in node.users)

    def sources(self, node: fx.Node) -> set[fx.Node]:
        """Nodes in memory that one in memory reads, through kernels and views."""
        if node in self.unmade:
            return set()
        found, left = set[fx.Node](), list(node.all_input_nodes)
        while left:
            read = left.pop()
            if read in self.unmade or LISTS.is_view(read):
                left += read.all_input_nodes
            else:
                found.add(read)
        return found


class Counted(fx.Interpreter):
    """A graph whose memory alone is counted."""

    def __init__(self, graph: fx.GraphModule) -> None:
        super().__init__(graph)
        self.memory = Memory(graph.graph)
        self.user_to_last_uses = self.memory.ends

    def run_node(self, n: fx.Node) -> Any:
        live = _get_current_dispatch_mode()
        if not isinstance(live, LiveBytes):
            return super().run_node(n)
        if n in self.memory.unmade:
            with _pop_mode_temporarily():
                return super().run_node(n)
        if (old := self.memory.overwritten.get(n)) is not None:
            live.leave_out(self.env[old])
        return super().run_node(n)


def _counted(graph: fx.GraphModule, _: Sequence[Any]) -> Callable[[list[Any]], Any]:
    interpreter = Counted(graph)

    def run(given: list[Any]) -> Any:
        taken = list(given)
        given.clear()  # so that they are freed when the graph has read them
        return interpreter.boxed_run(taken)

    run._boxed_call = True  # type: ignore[attr-defined]  # which the library asks for
    return run


counting = aot_autograd(
    fw_compiler=_counted,
    bw_compiler=_counted,
    partition_fn=partial(min_cut_rematerialization_partition, compiler="inductor"),
    decompositions=select_decomp_table,
)
"""A backend of torch.compile whose steps hold what Inductor's would, as far as `Memory` knows."""
