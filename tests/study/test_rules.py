"""What the rules refuse of the two towers, and of other workloads where only these can be had; and
that every rule of training is in its registry.
"""

from collections.abc import Callable
from typing import Any

import pytest

from multigpu.build import build_run
from multigpu.spec.rules import inputs, stages
from multigpu.spec.rules.case import Case
from multigpu_study.training import rules
from tests.multigpu.spec.test_rules import refuses_alone, rules_in
from tests.refusals import refused

REVIEWS = {
    "workload": "deepconn",
    "model": "deepconn_tiny",
    "placement": "ddp",
    "batch_size": 8,
    "devices": 2,
    "scaling": "strong",
}
ONE_PROCESS = REVIEWS | {"processes": "one"}
STAGES = ONE_PROCESS | {"placement": "tower_per_gpu", "inputs": "planted_reviews"}


@pytest.mark.parametrize(
    ("rule", "possible", "change"),
    [
        (
            inputs.feed,
            REVIEWS | {"feed": "arrays", "placement": "replicated_allreduce"},
            {"execution": "captured"},
        ),
        (stages.stages, STAGES, {"devices": 3, "batch_size": 9}),
    ],
    ids=["feed", "stages"],
)
def test_a_rule_refuses_what_it_is_there_for_and_nothing_else_does(
    rule: Callable[[Case], None], possible: dict[str, Any], change: dict[str, Any]
) -> None:
    refuses_alone(rule, possible, change)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        (ONE_PROCESS | {"placement": "layer_split"}, "declares its sections"),
        (ONE_PROCESS | {"placement": "make_parallel"}, "choose an image model"),
        (
            STAGES | {"workload": "cnn", "model": "resnet_tiny", "inputs": "synthetic"},
            "choose deepconn$",
        ),
    ],
    ids=["sections", "predictions", "stages"],
)
def test_what_cannot_be_had_is_refused_in_one_sentence(fields: dict[str, Any], words: str) -> None:
    refused(words, build_run, **fields)


def test_every_rule_of_training_is_in_the_registry() -> None:
    found = rules_in(rules, rules.TrainingCase) - {rules.judge_training}
    assert found == {*rules.TRAINING_RULES}
