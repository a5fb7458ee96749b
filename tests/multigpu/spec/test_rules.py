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
from multigpu.spec.rules import RULES, inputs, judge, model, partition
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

HERE = Path(__file__).parent
BASES = {"images": IMAGES, "words": WORDS, "tokens": TOKENS, "layers": LAYERS}


def fields_of(words: str) -> dict[str, Any]:
    """Fields of a Run from words: one of `BASES`, with some fields changed."""
    base, *changes = words.split()
    return BASES[base] | parse_fields(changes)


def named(name: str) -> Callable[[Case], None]:
    """The rule of this name, as "module.rule"."""
    (rule,) = (one for one in RULES if f"{one.__module__}.{one.__name__}".endswith(f".{name}"))
    return rule


PLANTED = {
    named(name): (fields_of(possible), parse_fields(change.split()))
    for name, (possible, change) in yaml.safe_load((HERE / "planted.yaml").read_text()).items()
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
    for name, edges in yaml.safe_load((HERE / "edges.yaml").read_text()).items()
    for edge in edges
]


@pytest.mark.parametrize(("name", "fields", "words"), EDGES)
def test_a_rule_refuses_on_its_side_of_an_edge_only(name: str, fields: str, words: str) -> None:
    changed = fields_of(fields)
    sentence = said_by(named(name), case_of(Run.built(**changed)))
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
