"""Every rule is in the registry, refuses what it is there for, and is the first to do so."""

import importlib
import inspect
import pkgutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from multigpu.build import build_run, case_of
from multigpu.spec import rules
from multigpu.spec.errors import Refused
from multigpu.spec.parse import parse_fields
from multigpu.spec.rules import (
    RULES,
    devices,
    engines,
    gradients,
    inputs,
    judge,
    kernels,
    model,
    partition,
    precision,
    stages,
)
from multigpu.spec.rules.case import Case
from multigpu.spec.run import Run
from tests import refusals

MODULES = [
    importlib.import_module(f"{rules.__name__}.{info.name}")
    for info in pkgutil.iter_modules(rules.__path__)
    if info.name != "case"
]
IMAGES: dict[str, Any] = {
    "workload": "cnn",
    "model": "resnet_tiny",
    "placement": "ddp",
    "batch_size": 8,
    "devices": 2,
}
WORDS = IMAGES | {"workload": "nmt", "model": "nmt_tiny"}
TOKENS = IMAGES | {"workload": "gpt", "model": "gpt_tiny"}
LAYERS = IMAGES | {"workload": "stacks", "model": "mlp_tiny", "placement": "tensor_split"}

PLANTED: dict[Callable[[Case], None], tuple[dict[str, Any], dict[str, Any]]] = {
    inputs.known_inputs: (IMAGES, {"inputs": "reviews"}),
    devices.global_batch: (IMAGES | {"scaling": "strong"}, {"batch_size": 1}),
    model.meaning: (IMAGES, {"sequence_length": 20}),
    model.context: (TOKENS | {"sequence_length": 16}, {"sequence_length": 17}),
    inputs.batching: (
        WORDS | {"inputs": "lengths_000"},
        {"inputs": "synthetic", "batching": "shared"},
    ),
    inputs.shuffle: (WORDS, {"shuffle": True}),
    model.one_framework: (WORDS, {"embedding_gradients": "sparse"}),
    gradients.bucket_mib: (IMAGES | {"bucket_mib": 4}, {"placement": "zero1"}),
    engines.captured: (IMAGES | {"execution": "captured"}, {"warmup_steps": 3}),
    precision.device_precision: (IMAGES | {"precision": "tf32"}, {"device_type": "cpu"}),
    gradients.wire_dtype: (IMAGES | {"wire_dtype": "bf16"}, {"placement": "zero1"}),
    gradients.buckets_in_a_graph: (
        IMAGES | {"bucket_send": "grouped", "execution": "captured"},
        {"execution": "eager"},
    ),
    gradients.all_reduce_spec: (
        IMAGES | {"placement": "replicated_allreduce", "all_reduce_spec": "ring"},
        {"execution": "compiled"},
    ),
    precision.bf16_params: (TOKENS | {"precision": "bf16_params"}, {"placement": "zero1"}),
    precision.half_precision: (IMAGES | {"precision": "fp16"}, {"placement": "zero1"}),
    gradients.micro_steps: (IMAGES | {"micro_steps": 4}, {"batch_size": 3}),
    gradients.micro_sync: (
        IMAGES | {"micro_steps": 2, "micro_sync": "each"},
        {"placement": "independent"},
    ),
    gradients.recompute: (
        IMAGES | {"workload": "gpt", "model": "gpt_tiny", "recompute": True},
        {"workload": "nmt", "model": "nmt_tiny"},
    ),
    gradients.sharded_over: (
        IMAGES | {"placement": "fsdp2", "devices": 4, "sharded_over": 2},
        {"sharded_over": 3},
    ),
    gradients.reshard: (IMAGES | {"placement": "fsdp2", "reshard": False}, {"placement": "ddp"}),
    gradients.local_steps: (IMAGES | {"placement": "local_sgd"}, {"timed_steps": 31}),
    gradients.gathered_predictions: (
        IMAGES | {"placement": "make_parallel", "processes": "one"},
        {"workload": "nmt", "model": "nmt_tiny"},
    ),
    engines.engine: (IMAGES, {"processes": "one"}),
    inputs.feeding: (IMAGES | {"inputs": "digits", "prefetch": 1}, {"inputs": "synthetic"}),
    devices.slicing: (
        IMAGES | {"placement": "data_parallel", "processes": "one", "slicing": "device"},
        {"workload": "nmt", "model": "nmt_tiny"},
    ),
    devices.own_layers: (
        IMAGES | {"placement": "data_parallel", "processes": "one", "layout": "channels_last"},
        {"batch_norm": "fused"},
    ),
    devices.device_ids: (IMAGES | {"device_ids": "0,3"}, {"devices": 3}),
    devices.nccl_settings: (IMAGES | {"peer_access": "off"}, {"devices": 1}),
    kernels.recurrence: (
        WORDS | {"recurrence": "persistent", "device_type": "cpu"},
        {"device_type": "cuda"},
    ),
    devices.energy: (IMAGES | {"energy_window_s": 10}, {"energy_window_s": 9}),
    kernels.persistent_batch_norm: (IMAGES, {"batch_norm": "persistent"}),
    kernels.fused_layers: (
        IMAGES | {"batch_norm": "fused", "layout": "channels_last"},
        {"layout": "channels_first"},
    ),
    kernels.stem: (
        IMAGES | {"model": "resnet50_v1.5", "stem": "folded", "layout": "channels_last"},
        {"model": "resnet_tiny"},
    ),
    kernels.weight_casts: (
        IMAGES | {"weight_casts": "grouped", "layout": "channels_last", "precision": "bf16"},
        {"precision": "fp32"},
    ),
    devices.trace_window: (
        IMAGES | {"traced_steps": 3, "traced_from": 41},
        {"traced_from": 40},
    ),
    stages.stages: (IMAGES, {"stage_devices": "01"}),
    partition.model_parallel: (LAYERS | {"devices": 4, "model_parallel": 2}, {"devices": 3}),
    partition.micro_batches: (
        LAYERS | {"placement": "layer_split", "processes": "one", "micro_batches": 2},
        {"placement": "tensor_split", "processes": "per_device"},
    ),
    partition.pipeline_schedule: (
        LAYERS | {"placement": "pipeline", "micro_batches": 2, "pipeline_schedule": "1f1b"},
        {"micro_batches": 3},
    ),
    partition.partition: (LAYERS, {"devices": 64, "batch_size": 64}),
}
"""Of each rule: fields of a Run that can be measured, and what makes it the one that refuses."""

UNBUILT = {model.framework, partition.pieces}
"""Rules that nothing in this package can break: every workload of it is built in both frameworks,
and has no variable without a dimension, which a job of one's own may have.
"""
OF_REVIEWS = {inputs.feed}
"""Rules that only a Run on reviews can break, whose workload is the study's: its tests plant
them.
"""


def rules_in(module: Any, takes: type) -> set[Callable[..., Any]]:
    """The public functions of a module that take a case alone."""
    return {
        function
        for name, function in inspect.getmembers(module, inspect.isfunction)
        if function.__module__ == module.__name__
        and not name.startswith("_")
        and [each.annotation for each in inspect.signature(function).parameters.values()] == [takes]
    }


def test_every_rule_is_in_the_registry_once() -> None:
    found = {rule for module in MODULES for rule in rules_in(module, Case)}
    assert found == {*RULES} and len(RULES) == len({*RULES})
    assert {*PLANTED} | UNBUILT | OF_REVIEWS == found, "say in PLANTED what a new rule refuses"


@pytest.mark.parametrize("rule", PLANTED, ids=lambda rule: rule.__name__)
def test_a_rule_refuses_what_it_is_there_for_and_nothing_else_does(
    rule: Callable[[Case], None],
) -> None:
    refuses_alone(rule, *PLANTED[rule])


def said_by(rule: Callable[[Case], None], case: Case) -> str:
    """The sentence by which a rule refuses a case; "" where it does not."""
    try:
        rule(case)
    except Refused as error:
        return str(error)
    return ""


def refuses_alone(
    rule: Callable[[Case], None], possible: dict[str, Any], change: dict[str, Any]
) -> None:
    """Check that a Run of these fields is possible, and that this rule refuses the change, no other
    before it.
    """
    run = build_run(**possible)
    case = case_of(run)
    judge(case)
    planted = Run.built(**possible | change)
    sentence = said_by(rule, case_of(planted))
    assert sentence and said_by(judge, case_of(planted)) == sentence
    said = refusals.refused("[a-z]", build_run, **possible | change)
    assert said == sentence[0].lower() + sentence[1:]
    before = RULES[: RULES.index(rule)]
    assert not any(said_by(earlier, case_of(planted)) for earlier in before)


EDGES = [
    (name, *edge)
    for name, edges in yaml.safe_load((Path(__file__).parent / "edges.yaml").read_text()).items()
    for edge in edges
]


@pytest.mark.parametrize(("name", "fields", "words"), EDGES)
def test_a_rule_refuses_on_its_side_of_an_edge_only(name: str, fields: str, words: str) -> None:
    base, *changes = fields.split()
    bases = {"images": IMAGES, "words": WORDS, "tokens": TOKENS, "layers": LAYERS}
    (rule,) = (one for one in RULES if f"{one.__module__}.{one.__name__}".endswith(f".{name}"))
    changed = bases[base] | parse_fields(changes)
    sentence = said_by(rule, case_of(Run.built(**changed)))
    assert words in sentence if words else sentence == ""
    if words:
        refusals.refused("[a-z]", build_run, **changed)


def test_a_run_is_plain_data_until_it_is_judged() -> None:
    """Types and ranges are checked at once; an unknown name is refused when it is looked up."""
    run = Run.built(**IMAGES | {"placement": "nowhere", "model": "nothing"})
    assert run.digest and Run.model_validate_json(run.model_dump_json()) == run
    for fields, words in (
        ({"placement": "nowhere"}, "unknown placement 'nowhere'"),
        ({"model": "nothing"}, "unknown model 'nothing'"),
        ({"workload": "nothing"}, "unknown workload 'nothing'"),
    ):
        refusals.refused(words, build_run, **IMAGES | fields)
    refusals.refused("devices = 0", Run.built, **IMAGES | {"devices": 0})
    refusals.refused("devices = '2'", Run.built, **IMAGES | {"devices": "2"})


def test_a_workload_of_one_framework_is_not_built_in_the_other() -> None:
    case = case_of(build_run(**IMAGES))
    alone = Case(case.run, case.row, case.model, ("tensorflow",), case.inputs)
    sentence = said_by(model.framework, alone)
    assert "'torch'" in sentence and said_by(judge, alone) == sentence
