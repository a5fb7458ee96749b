"""Whatever its fields are, a Run is built or refused in one sentence; and what is built can be named, kept and priced."""

from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from multigpu.inputs.files import check_inputs
from multigpu.measure.lanes import lanes_of
from multigpu.measure.point import key_here
from multigpu.measure.timed import check_devices
from multigpu.run import Run, build_run
from multigpu.training.run import TrainingRun, build_training_run
from tests.fuzz.strategies import examples, little_memory, one_sentence, pairs_of, run_fields

SCHEDULE = pairs_of({name: field for name, field in TrainingRun.model_fields.items() if name != "run"})


@examples(1000)
@given(run_fields())
@example({"mod\nel": 1})
@example({"workload": "nmt\u2028"})
@example({"workload": "nmt", "model": "nmt_small", "placement": "ddp", "batch_size": 8, "data": "a\nb"})
def test_a_run_is_built_or_refused_in_one_sentence(fields: dict[str, Any]) -> None:
    with little_memory():
        try:
            run = build_run(**fields)
        except ValueError as error:
            one_sentence(str(error))
            return
        assert Run.model_validate_json(run.model_dump_json()) == run and build_run(**run.model_dump()).digest == run.digest
        assert sum(run.shard_sizes) > 0 and run.label() and key_here(run, 0) and lanes_of(run) >= 1
        for check in (check_devices, lambda one: check_inputs([one])):
            try:
                check(run)
            except ValueError as error:
                one_sentence(str(error))


@examples(400)
@given(run_fields(), st.lists(st.sampled_from(SCHEDULE), min_size=1, max_size=4).map(dict))
def test_a_training_too(fields: dict[str, Any], schedule: dict[str, Any]) -> None:
    try:
        training = build_training_run(**fields | schedule)
    except ValueError as error:
        one_sentence(str(error))
        return
    assert TrainingRun.model_validate_json(training.model_dump_json()) == training and training.digest
