"""Training every TensorFlow placement for a few steps on logical CPU devices, beside the reference.

Runs over several processes are driven from the process of the tests, as a launch drives them. `python -m
tests.equivalence.tensorflow_cases cuda:4 FILE` runs `device_cases` on so many devices of a kind, in a process that fixes them.
"""

import os
import pickle
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from multigpu.measure.process import tensorflow_environment
from multigpu.placements import placements
from multigpu.placements.row import Placement
from multigpu.placements.step_bytes import step_bytes
from multigpu.run import Run
from multigpu.workloads import open_source

STEPS = 3
SHORT = 35
"""A seed that draws sentences of 7 to 20 words: the first one draws some of 95."""
ROOT = Path(__file__).parents[2]


def name_of(run: Run) -> str:
    """Of one placement on one workload with one rule and one number of replicas."""
    more = [word for word in (run.execution, run.inputs, run.embedding_gradients) if word not in (None, "graph", "synthetic")]
    return "-".join([run.placement, run.model, str(run.devices), run.optimizer, run.precision, *more])


def _run(workload: str, placement: str, devices: int, **more: Any) -> Run:
    tiny = {"nmt": ("nmt_tiny", 7), "cnn": ("resnet_tiny", 13), "deepconn": ("deepconn_tiny", 7), "stacks": ("mlp_tiny", 7)}
    model, batch = tiny[workload]
    model = more.pop("model", model)
    common = {"framework": "tensorflow", "processes": "one", "device_type": "cpu", "execution": "graph", "warmup_steps": 1}
    if workload == "nmt" and "inputs" not in more:
        common["sequence_length"] = 5
    return Run(
        workload=workload,
        model=model,
        placement=placement,
        devices=devices,
        **({"batch_size": batch, "scaling": "strong"} | common | {"timed_steps": STEPS} | more),
    )


def in_graph() -> list[Placement]:
    """Every placement that TensorFlow carries out in one process."""
    return [p for p in placements().values() if any((e.framework, e.processes) == ("tensorflow", "one") for e in p.engines)]


EVEN = {"mirrored_hierarchical": 4}
"""Replicas of those that refuse three."""


def all_cases() -> list[Run]:
    """Every TensorFlow placement that is found: two towers of tables, convolutions and matrices (plain images where only these have
    predictions) in float64, with momentum on one device and with Adam on two and three; the same in bfloat16 on two; in float32 residual
    images on three or, with every other placement, translation on two. Each other form of execution, length and gradient once, translation
    in bfloat16, whose loops cost five times as much to trace, among them; each kind of stack under two placements. Joined batches of 7 and
    13 do not divide by 2 or 3.
    """
    cases = []
    for number, placement in enumerate(in_graph()):
        name, three = placement.name, EVEN.get(placement.name, 3)
        images = placement.loss == "gpu0"
        workload, small = ("cnn", {"model": "alexnet_cifar_tiny"}) if images else ("deepconn", {})
        for devices, rule in ((1, "momentum"), (2, "adam"), (three, "adam")):
            cases.append(_run(workload, name, devices, optimizer=rule, precision="fp64", **small))
        # in bfloat16 optimisers let casts and reshapes change places, so that what travels has names that the trace has not
        cases.append(_run(workload, name, 2, optimizer="sgd", precision="bf16", **small))
        if images or number % 2:
            cases.append(_run("cnn", name, three, optimizer="momentum", precision="fp32", model="resnet_small"))
        else:
            cases.append(_run("nmt", name, 2, optimizer="adam", precision="fp32"))
    cases.append(_run("nmt", "exp3", 2, inputs="lengths_000", optimizer="momentum", precision="fp32", seed=SHORT))
    cases.append(_run("nmt", "exp4", 2, optimizer="sgd", precision="bf16"))
    cases.append(_run("deepconn", "replicated_copy", 2, optimizer="adam", precision="fp64", execution="eager"))
    cases.append(_run("cnn", "make_parallel", 2, optimizer="adam", precision="fp64", execution="eager", model="alexnet_cifar_tiny"))
    cases.append(_run("deepconn", "exp4", 2, optimizer="momentum", precision="fp32", execution="xla"))
    cases += [
        _run("stacks", name, devices, model=model, optimizer=rule, precision=precision)
        for name, devices, model, rule, precision in (
            ("ps_gpu0", 3, "mlp_tiny", "adam", "fp64"),
            ("independent", 2, "mlp_tiny", "sgd", "bf16"),
            ("exp4", 2, "stack_convolution_tiny", "momentum", "fp32"),
            ("mirrored_nccl", 2, "stack_convolution_tiny", "adam", "fp64"),
            ("exp1", 2, "stack_recurrent_tiny", "momentum", "fp32"),
            ("replicated_allreduce", 2, "stack_recurrent_tiny", "adam", "fp64"),
        )
    ]
    cases += [
        _run(workload, name, 2, optimizer=rule, precision=precision, embedding_gradients="sparse")
        for workload, name, rule, precision in (
            ("nmt", "exp1", "adam", "fp32"),
            ("deepconn", "exp2", "adam", "fp64"),
            ("deepconn", "exp4", "adam", "fp64"),
            ("deepconn", "replicated_allreduce", "momentum", "fp64"),
        )
    ]
    return cases


def device_cases(device_type: str, devices: int) -> list[Run]:
    """Every placement on these devices, whose joined batches do not divide: translation, also in bfloat16, and images, in float32; two
    placements with a stack of each kind; Exp4's two towers of tables compiled, and with sparse gradients.
    """
    cases = []
    for placement in in_graph():
        count = devices - devices % 2 if placement.name in EVEN else devices
        common = {"device_type": device_type, "batch_size": 4 * count + 1, "optimizer": "momentum"}
        cases.append(_run("cnn", placement.name, count, precision="fp32", **common))
        if placement.name in ("exp4", "replicated_allreduce"):
            stacks = ("mlp_tiny", "stack_convolution_tiny", "stack_recurrent_tiny")
            cases += [_run("stacks", placement.name, count, precision="fp32", model=model, **common) for model in stacks]
        if placement.name == "exp4":
            cases.append(_run("deepconn", placement.name, count, precision="fp32", execution="xla", **common))
            cases.append(_run("deepconn", placement.name, count, precision="fp32", embedding_gradients="sparse", **common))
        if placement.loss != "gpu0":
            cases += [_run("nmt", placement.name, count, precision=precision, **common) for precision in ("fp32", "bf16")]
    return cases


REFUSED = _run("deepconn", "mirrored_hierarchical", 3, optimizer="adam", precision="fp64")
"""What the library would compute without the last device's gradients."""


def process_cases() -> list[Run]:
    """Runs over several processes: training on the joined batch, and what must equal it when it is alone."""
    form = {"processes": "per_device", "timed_steps": STEPS - 1, "optimizer": "adam", "precision": "fp64"}
    return [_run("deepconn", "multi_worker", 2, **form), _run("deepconn", "parameter_server_async", 1, **form)]


REFERENCES: dict[tuple[Any, ...], Any] = {}
"""What was trained before in this process, by all that decides it."""


def reference(context: Any, source: Any, ranks: list[int]) -> Any:
    """Variables and losses of one process that accumulates the shards of `ranks`."""
    from multigpu.engines.tensorflow.checked import train_reference
    from multigpu.engines.tensorflow.feed import Feed

    run = context.run
    key = (run.model, run.inputs, run.optimizer, run.precision, tuple(run.shard_sizes), tuple(ranks))
    if key not in REFERENCES:
        feed = Feed(source, context.devices)
        REFERENCES[key] = train_reference(context, map(feed.shards, range(STEPS)), ranks)
        feed.close()
    return REFERENCES[key]


def must_compile(node: Any) -> bool:
    """Whether a node calls a function that XLA compiles as a whole; the runtime fails rather than run it otherwise."""
    return "_XlaMustCompile" in node.attr and node.attr["_XlaMustCompile"].b


def where_ops_ran(nodes: list[Any], devices: Any) -> list[tuple[str, str, str, int]]:
    """Part, variable (or replica), kind and place of every operation of a step's parts: the partition's device, not the requested one."""
    from multigpu.engines.tensorflow.graphs import PARTS

    parts = [(node.name.split("/"), node) for node in nodes if not node.op.startswith(("_", "Const"))]
    return [(own[0], own[1], node.op, devices.place(node.device)) for own, node in parts if own[0] in PARTS and len(own) > 2]


def train_case(run: Run) -> dict[str, Any]:
    """Three steps: variables of every part, losses, counted and predicted bytes, where operations ran, what was
    compiled where, and the reference."""
    from multigpu.engines.tensorflow.devices import Devices
    from multigpu.engines.tensorflow.feed import is_even, make_feed
    from multigpu.engines.tensorflow.session import build_trainer
    from multigpu.engines.tensorflow.trainer import Context
    from multigpu.engines.tensorflow.variables import initial_values

    source = open_source(run)
    devices = Devices(run)
    context = Context(run, devices, is_even(source, run.devices), dynamic=source.period != 1)
    trainer, feed = build_trainer(context), make_feed(source, devices)
    first = feed.shards(0)
    counted = trainer.counted_step(first)
    for step in range(1, STEPS):
        trainer.step(feed.shards(step))
    replicated = placements()[run.placement].variables == "replica"
    values = [trainer.full_values(rank) for rank in range(run.devices if replicated else 1)]
    distinct = trainer.distinct_rows(first) if context.sparse else None
    alone = not placements()[run.placement].semantics.facts.is_one_model
    groups = [[rank] for rank in range(run.devices)] if alone else [list(range(run.devices))]
    assert trainer.graphs
    return {
        "values": values,
        "losses": trainer.loss_shares(),
        "counted": counted,
        "predicted": step_bytes(run, first[0].batch.lookups, distinct),
        "compiled": [(*node.name.split("/")[:2], devices.place(node.device)) for node in trainer.graphs.nodes if must_compile(node)],
        "ran": where_ops_ran(trainer.graphs.nodes, devices),
        "references": [reference(context, source, ranks) for ranks in groups],
        "start": {variable.name: value for variable, value in initial_values(run.description, run.seed)},
    }


UNSIZED = _run("deepconn", "exp2", 2, optimizer="sgd", precision="fp32")


def unsized_case(run: Run) -> dict[str, Any]:
    """A counted step one of whose gradients nobody can size: what is counted, and what is said of it."""
    from multigpu.engines.tensorflow import trainer as engine
    from multigpu.engines.tensorflow.devices import Devices
    from multigpu.engines.tensorflow.feed import Feed
    from multigpu.engines.tensorflow.graphs import Graphs, collected
    from multigpu.engines.tensorflow.session import build_trainer

    def forgotten(*arguments: Any) -> Graphs:
        graphs = collected(*arguments)
        sent = next(node.input[0] for node in graphs.nodes if node.op == "_Send" and node.input[0].startswith("gradient_tape/"))
        next(node for node in graphs.nodes if node.name == sent).op = "MadeByAnOptimiser"
        return Graphs(graphs.nodes, {name: outputs for name, outputs in graphs.outputs.items() if name != sent})

    source = open_source(run)
    devices = Devices(run)
    trainer = build_trainer(engine.Context(run, devices, even=True, dynamic=False))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(engine, "collected", forgotten)
        counted = trainer.counted_step(Feed(source, devices).shards(0))
    return {"counted": counted, "uncounted": trainer.uncounted, "steps": trainer.steps_done}


def expect_case(run: Run) -> dict[str, Any]:
    """What a Run over several processes must equal: losses, and of each variable its sum and its distance from the start."""
    import numpy as np

    from multigpu.engines.tensorflow.devices import Devices
    from multigpu.engines.tensorflow.feed import is_even
    from multigpu.engines.tensorflow.trainer import Context
    from multigpu.engines.tensorflow.variables import initial_values

    source = open_source(run)
    context = Context(run, Devices(run), is_even(source, run.devices), dynamic=source.period != 1)
    values, losses = reference(context, source, list(range(run.devices)))
    start = {variable.name: value for variable, value in initial_values(run.description, run.seed)}
    distance = {name: float(np.linalg.norm((value - start[name]).ravel())) for name, value in values.items()}
    return {"losses": losses, "prints": {name: float(value.sum()) for name, value in values.items()}, "distance": distance}


def measured_case(run: Run, folder: Path) -> list[dict[str, Any]]:
    """What the processes of a Run over several know at its end, by rank."""
    from multigpu.measure.session import open_session

    session = open_session(run, 0, 2, folder, 240.0, 0.0, lambda stage: None)
    try:
        session.warm_up()
        return session.time()
    finally:
        session.close()


def results_of(work: list[tuple[Run, Callable[[Run], dict[str, Any]]]]) -> dict[str, dict[str, Any]]:
    """What each action says of its case, by the case's name; an error is told as a sentence."""
    results = {}
    for run, action in work:
        try:
            results[name_of(run)] = action(run)
        except Exception as error:
            results[name_of(run)] = {"error": f"{type(error).__name__}: {error}"}
    return results


def main() -> None:
    """`device_cases` on so many devices of a kind ("cuda:4"), by name."""
    from multigpu.engines.tensorflow.devices import prepare

    kind, count = sys.argv[1].split(":")
    prepare(kind, int(count))
    Path(sys.argv[2]).write_bytes(pickle.dumps(results_of([(run, train_case) for run in device_cases(kind, int(count))])))


def run_devices(device_type: str, devices: int) -> dict[str, dict[str, Any]]:
    """Results of `device_cases`, by name, from a process of their own."""
    paths = os.pathsep.join(filter(None, [str(ROOT / "src"), str(ROOT), os.environ.get("PYTHONPATH")]))
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "devices.pickle"
        command = [sys.executable, "-m", "tests.equivalence.tensorflow_cases", f"{device_type}:{devices}", str(file)]
        environment = {**os.environ, **tensorflow_environment(sys.path, os.environ), "TF_CPP_MIN_LOG_LEVEL": "3", "PYTHONPATH": paths}
        done = subprocess.run(command, env=environment, stderr=subprocess.PIPE)
        assert done.returncode == 0, done.stderr.decode(errors="replace")[-2000:]
        return pickle.loads(file.read_bytes())


def run_cases(names: set[str]) -> dict[str, dict[str, Any]]:
    """Results of these cases, by name, from this process; of Runs over several processes also what those told."""
    work = [(run, train_case) for run in [*all_cases(), REFUSED]] + [(run, expect_case) for run in process_cases()]
    work.append((UNSIZED, unsized_case))
    found = results_of([(run, action) for run, action in work if name_of(run) in names])
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT / "src"), str(ROOT)]))
        for run in process_cases():
            if name_of(run) in names:
                found[name_of(run)]["parts"] = measured_case(run, Path(folder))
    return found


if __name__ == "__main__":
    main()
