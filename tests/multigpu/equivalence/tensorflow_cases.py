"""Training every TensorFlow placement for a few steps on logical CPU devices, beside the reference.
`python -m tests.multigpu.equivalence.tensorflow_cases cuda:4 FILE` runs `device_cases` on so many
devices of a kind, in a process that fixes them.
"""

import os
import pickle
import subprocess
import sys
import tempfile
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from multigpu.engines.common.session import Opening, open_session
from multigpu.machine.process import tensorflow_environment
from multigpu.placements import placements
from multigpu.placements.resolve import shard_sizes
from multigpu.placements.row import Placement
from multigpu.placements.step_bytes import step_bytes
from multigpu.spec.run import Run
from multigpu.workloads import description_of
from multigpu.workloads.sources import open_source
from tests.installed import DEEPCONN, installed
from tests.multigpu.runner.launched import PATHS

pytest.importorskip("tensorflow")

from multigpu.engines.tensorflow import trainer as engine
from multigpu.engines.tensorflow.checked import train_reference
from multigpu.engines.tensorflow.devices import Devices, prepare
from multigpu.engines.tensorflow.feed import Feed, is_even, slices_global_batch
from multigpu.engines.tensorflow.graphs import PARTS
from multigpu.engines.tensorflow.session import build_trainer
from multigpu.engines.tensorflow.variables import initial_values

TOWERS = "deepconn" if DEEPCONN else "stacks"
"""Tables, convolutions and matrices in one model; matrices alone where that is not installed."""
STEPS = 3
SHORT = 35  # a seed that draws sentences of 7 to 20 words: the first one draws some of 95
ROOT = Path(__file__).parents[3]


def name_of(run: Run) -> str:
    more = [
        word
        for word in (run.execution, run.inputs, run.embedding_gradients)
        if word not in (None, "graph", "synthetic")
    ]
    return "-".join(
        [run.placement, run.model, str(run.devices), run.optimizer, run.precision, *more]
    )


def make_run(workload: str, placement: str, devices: int, **more: Any) -> Run:
    tiny = {
        "nmt": ("nmt_tiny", 7),
        "cnn": ("resnet_tiny", 13),
        "deepconn": ("deepconn_tiny", 7),
        "stacks": ("mlp_tiny", 7),
        "gpt": ("gpt_tiny", 7),
    }
    fields: dict[str, Any] = dict(zip(("model", "batch_size"), tiny[workload], strict=True))
    fields |= {
        "framework": "tensorflow",
        "processes": "one",
        "device_type": "cpu",
        "execution": "graph",
        "scaling": "strong",
    }
    fields |= {"sequence_length": 5} if workload == "nmt" and "inputs" not in more else {}
    return Run(
        workload=workload,
        placement=placement,
        devices=devices,
        **fields | {"warmup_steps": 1, "timed_steps": STEPS} | more,
    )


def in_graph() -> list[Placement]:
    """What TensorFlow carries out in one process."""
    return [
        p
        for p in placements().values()
        if any((e.framework, e.processes) == ("tensorflow", "one") for e in p.engines)
    ]


EVEN = {"mirrored_hierarchical": 4}  # replicas of those that refuse three


def all_cases() -> list[Run]:
    """Every TensorFlow placement that is found: two towers of tables, convolutions and matrices
    (plain images where only these have predictions) in float64 by two rules and in bfloat16; in
    float32 residual images on three or, with every other placement, translation on two; and `MORE`.
    Global batches of 7 and 13 do not divide by 2 or 3.
    """
    cases = []
    for number, placement in enumerate(in_graph()):
        name, three = placement.name, EVEN.get(placement.name, 3)
        images = placement.loss == "gpu0"
        workload, small = ("cnn", {"model": "alexnet_cifar_tiny"}) if images else (TOWERS, {})
        for devices, rule in ((1, "momentum"), (2, "adam"), (three, "adam")):
            cases.append(
                make_run(workload, name, devices, optimizer=rule, precision="fp64", **small)
            )
        # in bfloat16 optimisers let casts and reshapes change places, so that what travels has
        # names that the trace has not
        cases.append(make_run(workload, name, 2, optimizer="sgd", precision="bf16", **small))
        if images or number % 2:
            cases.append(
                make_run(
                    "cnn", name, three, optimizer="momentum", precision="fp32", model="resnet_small"
                )
            )
        else:
            cases.append(make_run("nmt", name, 2, optimizer="adam", precision="fp32"))
    return cases + [
        make_run(*point, optimizer=rule, precision=precision, **more)
        for *point, rule, precision, more in installed(MORE)
    ]


SPARSE = {"embedding_gradients": "sparse"}
MORE: list[tuple[Any, ...]] = [
    ("nmt", "exp3", 2, "momentum", "fp32", {"inputs": "lengths_000", "seed": SHORT}),
    ("nmt", "exp4", 2, "sgd", "bf16", {}),
    ("deepconn", "replicated_copy", 2, "adam", "fp64", {"execution": "eager"}),
    (
        "cnn",
        "make_parallel",
        2,
        "adam",
        "fp64",
        {"execution": "eager", "model": "alexnet_cifar_tiny"},
    ),
    ("deepconn", "exp4", 2, "momentum", "fp32", {"execution": "xla"}),
    ("stacks", "ps_gpu0", 3, "adam", "fp64", {"model": "mlp_tiny"}),
    ("stacks", "independent", 2, "sgd", "bf16", {"model": "mlp_tiny"}),
    ("stacks", "exp4", 2, "momentum", "fp32", {"model": "stack_convolution_tiny"}),
    ("stacks", "mirrored_nccl", 2, "adam", "fp64", {"model": "stack_convolution_tiny"}),
    ("stacks", "exp1", 2, "momentum", "fp32", {"model": "stack_recurrent_tiny"}),
    ("stacks", "replicated_allreduce", 2, "adam", "fp64", {"model": "stack_recurrent_tiny"}),
    *(("gpt", name, 2, "default", "fp64", {}) for name in ("mirrored_nccl", "exp1", "exp4")),
    ("gpt", "replicated_allreduce", 2, "default", "fp32", {"execution": "xla"}),
    ("gpt", "independent", 2, "sgd", "bf16", {}),
    ("nmt", "exp1", 2, "adam", "fp32", SPARSE),
    ("deepconn", "exp2", 2, "adam", "fp64", SPARSE),
    ("deepconn", "exp4", 2, "adam", "fp64", SPARSE),
    ("deepconn", "replicated_allreduce", 2, "momentum", "fp64", SPARSE),
]


def device_cases(device_type: str, devices: int) -> list[Run]:
    """Every placement on these devices, whose global batches do not divide: translation, also in
    bfloat16, and images, in float32; two placements with a stack of each kind; Exp4's two towers of
    tables compiled, and with sparse gradients.
    """
    cases = []
    for placement in in_graph():
        count = devices - devices % 2 if placement.name in EVEN else devices
        common = {"device_type": device_type, "batch_size": 4 * count + 1, "optimizer": "momentum"}
        cases.append(make_run("cnn", placement.name, count, precision="fp32", **common))
        if placement.name in ("exp4", "replicated_allreduce"):
            stacks = ("mlp_tiny", "stack_convolution_tiny", "stack_recurrent_tiny")
            cases += [
                make_run("stacks", placement.name, count, precision="fp32", model=model, **common)
                for model in stacks
            ]
        if placement.name == "exp4":
            cases.append(
                make_run(TOWERS, placement.name, count, precision="fp32", execution="xla", **common)
            )
            if DEEPCONN:
                cases.append(
                    make_run(
                        TOWERS,
                        placement.name,
                        count,
                        precision="fp32",
                        embedding_gradients="sparse",
                        **common,
                    )
                )
        if placement.loss != "gpu0":
            cases += [
                make_run("nmt", placement.name, count, precision=precision, **common)
                for precision in ("fp32", "bf16")
            ]
    return cases


def process_cases() -> list[Run]:
    """Runs over several processes: training on the global batch, and what must equal it when it is
    alone.
    """
    form = {
        "processes": "per_device",
        "timed_steps": STEPS - 1,
        "optimizer": "adam",
        "precision": "fp64",
    }
    return [
        make_run(TOWERS, "multi_worker", 2, **form),
        make_run(TOWERS, "parameter_server_async", 1, **form),
    ]


REFERENCES: dict[tuple[Any, ...], Any] = {}


def reference(context: Any, source: Any, ranks: list[int]) -> Any:
    """Variables and losses of one process that accumulates the shards of `ranks`; trained once for
    all that decides it.
    """
    run = context.run
    key = (
        run.model,
        run.inputs,
        run.optimizer,
        run.precision,
        tuple(shard_sizes(run)),
        tuple(ranks),
    )
    if key not in REFERENCES:
        feed = Feed(source, context.devices)
        REFERENCES[key] = train_reference(context, map(feed.shards, range(STEPS)), ranks)
        feed.close()
    return REFERENCES[key]


def opened(run: Run) -> tuple[engine.Context, Any]:
    source, devices = open_source(run), Devices(run)
    return engine.Context(
        run, devices, is_even(source, run.devices), dynamic=source.period != 1
    ), source


def train_case(run: Run) -> dict[str, Any]:
    """Three steps: what was trained, moved, compiled and ran where, and the reference."""
    context, source = opened(run)
    devices = context.devices
    trainer = build_trainer(context)
    feed = Feed(source, devices, run.feed, slices_global_batch(run))
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
    # part, variable (or replica), node and place: the partition's device, not the requested one
    parts = [
        (*node.name.split("/")[:2], node, devices.place(node.device))
        for node in trainer.graphs.nodes
        if node.name.count("/") > 1
    ]
    # what calls a function that XLA compiles as a whole; the runtime fails rather than run it
    # otherwise
    compiled = [
        node
        for node in trainer.graphs.nodes
        if "_XlaMustCompile" in node.attr and node.attr["_XlaMustCompile"].b
    ]
    return {
        "values": values,
        "losses": trainer.loss_shares(),
        "counted": counted,
        "predicted": step_bytes(run, description_of(run), first[0].batch.lookups, distinct),
        "compiled": [(*node.name.split("/")[:2], devices.place(node.device)) for node in compiled],
        "ran": [
            (part, own, node.op, at)
            for part, own, node, at in parts
            if part in PARTS and not node.op.startswith(("_", "Const"))
        ],
        "references": [reference(context, source, ranks) for ranks in groups],
        "start": {
            variable.name: value
            for variable, value in initial_values(description_of(run), run.seed)
        },
    }


def expect_case(run: Run) -> dict[str, Any]:
    """What a Run over several processes must equal: losses, and of each variable its sum and its
    distance from the start.
    """
    context, source = opened(run)
    values, losses = reference(context, source, list(range(run.devices)))
    start = {
        variable.name: value for variable, value in initial_values(description_of(run), run.seed)
    }
    distance = {
        name: float(np.linalg.norm((value - start[name]).ravel())) for name, value in values.items()
    }
    return {
        "losses": losses,
        "prints": {name: float(value.sum()) for name, value in values.items()},
        "distance": distance,
    }


def measured_case(run: Run, folder: Path) -> list[dict[str, Any]]:
    """What the processes of a Run over several know at its end, by rank."""
    opening = Opening(run, 0, 2, folder, 240.0, 0.0, lambda stage: None)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", PATHS)
        with closing(open_session(opening)) as session:
            session.warm_up()
            return session.time()


def main() -> None:
    """`device_cases` on so many devices of a kind ("cuda:4"), by name; an error is told as a
    sentence.
    """
    kind, count = sys.argv[1].split(":")
    prepare(kind, int(count))
    results: dict[str, Any] = {}
    for run in device_cases(kind, int(count)):
        try:
            results[name_of(run)] = train_case(run)
        except Exception as error:
            results[name_of(run)] = f"{type(error).__name__}: {error}"
    Path(sys.argv[2]).write_bytes(pickle.dumps(results))


def run_devices(device_type: str, devices: int) -> dict[str, Any]:
    """Results of `device_cases`, by name, from a process of their own."""
    paths = os.pathsep.join(
        filter(None, [str(ROOT / "src"), str(ROOT), os.environ.get("PYTHONPATH")])
    )
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "devices.pickle"
        command = [
            sys.executable,
            "-m",
            "tests.multigpu.equivalence.tensorflow_cases",
            f"{device_type}:{devices}",
            str(file),
        ]
        environment = {
            **os.environ,
            **tensorflow_environment(sys.path, os.environ),
            "TF_CPP_MIN_LOG_LEVEL": "3",
            "PYTHONPATH": paths,
        }
        done = subprocess.run(command, env=environment, stderr=subprocess.PIPE)
        assert done.returncode == 0, done.stderr.decode(errors="replace")[-2000:]
        return pickle.loads(file.read_bytes())


if __name__ == "__main__":
    main()
