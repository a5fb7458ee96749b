"""Models as users write them, drawn brick by brick: each is examined, and what is examined trains
as plain PyTorch trains the user's own module; under placements, as one process on the global batch.
"""

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from multigpu.spec.errors import JobError
from multigpu.spec.run import Run
from multigpu.user_model.candidates import candidate_runs
from multigpu.user_model.describe import describe
from multigpu.workloads.own.description import Described, know
from multigpu.workloads.own.job import Job
from tests.further import but
from tests.multigpu.fuzz.bricks import BLOCKS, FORMS, LOSSES, READS, RULES, TABLES, Recipe, job_of
from tests.multigpu.fuzz.placed import Processes
from tests.multigpu.fuzz.strategies import examples, one_sentence
from tests.multigpu.user_model import oracle
from tests.multigpu.user_model.examined import train_here

STEPS = 3
SHARDS_APART = "global batch|global batch's"
"""What a note says where the mean of shards' gradients is not the global batch's."""


@st.composite
def recipes(draw: st.DrawFn) -> Recipe:
    blocks = draw(st.lists(st.sampled_from(BLOCKS), max_size=3))
    return Recipe(
        reads=draw(st.sampled_from(READS)),
        table=draw(st.sampled_from(TABLES)),
        blocks=tuple(blocks),
        loss=draw(st.sampled_from(LOSSES)),
        form=draw(st.sampled_from(FORMS)),
        rule=draw(st.sampled_from(sorted(RULES))),
        width=draw(st.integers(1, 6)),
        length=draw(st.integers(1, 5)),
        size=draw(st.integers(1, 6)),
        small_ids=draw(st.booleans()),
        given=draw(st.booleans()),
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("models")
    know(root)
    return root


@pytest.fixture(scope="module")
def processes() -> Iterator[Processes]:
    pair = Processes()
    yield pair
    pair.end()


def is_right_to_refuse(recipe: Recipe, said: str) -> bool:
    """Whether a drawn model may be refused in these words."""
    one_sentence(said)
    blocks = {*recipe.blocks}
    right = {
        "more than 1 value per channel": recipe.size == 1,
        "register_post_accumulate_grad_hook": "late_hook" in blocks,
        "has a hook on": recipe.given and blocks & {"parameter_hook", "late_hook"},
        "cannot be handed to other": recipe.given and blocks & {"weight_norm", "orthogonal"},
        "gets one in a later step": "experts" in blocks,  # one that no examined sample chose
    }
    return any(may for words, may in right.items() if words in said)


def examined(recipe: Recipe, job: Job, folder: Path) -> Described | None:
    """The description; None where the job is refused as it must be."""
    try:
        return describe(job, folder, 2, timed=False)
    except JobError as error:
        assert is_right_to_refuse(recipe, str(error)), error
        return None


def apart(found: dict[str, Tensor], expected: dict[str, Tensor]) -> float:
    """The largest difference over the largest number."""
    return max(
        (
            float((found[name] - value).abs().max() / (value.abs().max() + 1e-3))
            for name, value in expected.items()
            if value.numel()
        ),
        default=0.0,
    )


def check_examined(recipe: Recipe, job: Job, found: Described) -> None:
    """What engines train of it equals the user's module in plain PyTorch; whether shards' means are
    the global batch's is said.
    """
    run = oracle.run_of(job, found, precision="fp64")
    values, losses = train_here(run, STEPS)
    expected, plain = oracle.trained(job, 2, STEPS, seed=run.seed)
    moved = {name.removeprefix("model."): value for name, value in values.items()}
    start = dict(oracle.module_of(job).named_parameters())
    still = {name: start[name].detach() for name in expected if name not in moved}
    assert {f"model.{name}" for name in still} <= set(found.fixed)
    distance = apart(moved | still, expected)
    if distance < 1e-6:
        assert losses == pytest.approx(plain, rel=1e-7, abs=1e-12)
    else:
        assert any("momentum and decay go on" in note for note in found.notes), distance
    joined, _ = oracle.trained(job, 2, 1, together=True, seed=run.seed)
    halves, _ = oracle.trained(job, 2, 1, seed=run.seed)
    # a branch that a whole batch decides is met by chance
    if apart(halves, joined) > 1e-8 and "seldom" not in recipe.blocks:
        assert any(re.search(SHARDS_APART, note) for note in found.notes), found.notes


def may_stop(recipe: Recipe, failure: str) -> bool:
    """Whether a Run may stop, in a sentence, at what no examination of first batches can tell: a
    parameter that gets its first gradient once it was trained for some steps.
    """
    seldom = {"experts", "seldom"} & {*recipe.blocks}
    return bool(seldom) and "gets one in a later step" in failure


def may_fail(recipe: Recipe, placement: str, failure: str) -> bool:
    """Whether a placement may fail: those that pack variables into one memory, with a parameter
    that must lie at an even place there; and the library's sharded ones, with an expert that was
    asked by every first batch and is asked by no sample of a later shard.
    """
    if "storage_offset divisible by 2" in failure:
        return "complex" in recipe.blocks
    if "read them inside of the block" in failure:
        return recipe.loss == "penalty"
    late = ("ddp", "fsdp2", "zero2")
    return placement in late and "experts" in recipe.blocks and bool(failure)


def check_placed(
    recipe: Recipe, job: Job, found: Described, folder: Path, processes: Processes, names: Any
) -> list[str]:
    """Each placement trains what its semantics says; returns those that were tried."""
    runs, _ = candidate_runs(job, found, folder, "all", 2, "cpu", a_repeat_s=0)
    several = [run for run in runs if run.devices > 1]
    chosen = [run for run in several if run.placement in names(several)]
    for run in chosen:
        told, failure = processes.compared(folder, run)
        if may_stop(recipe, failure) or may_fail(recipe, run.placement, failure):
            continue
        assert not failure, f"{run.placement}: {failure}"
        assert told is not None and told["distance"] <= told["tolerance"], (run.placement, told)
    return [run.placement for run in chosen]


def check(
    recipe: Recipe, folder: Path, processes: Processes, names: Callable[[list[Run]], set[str]]
) -> None:
    """Examine a drawn model, and train it under these placements."""
    job = job_of(recipe)
    found = examined(recipe, job, folder)
    if found is None:
        return
    assert found.checked_in == "fp64", found.unchecked
    try:
        check_examined(recipe, job, found)
    except JobError as error:
        assert may_stop(recipe, str(error)), error
        return
    check_placed(recipe, job, found, folder, processes, names)


# what was wrong once
FOUND = (
    # a rank without a piece of any variable: "optimizer got an empty parameter list" (fsdp2)
    Recipe("sequence", blocks=("frozen", "tall"), loss="float64", rule="momentum", width=1, size=2),
    # a parameter without axes, which the library does not cut
    Recipe("vector", blocks=("gate", "in_place", "pre_hook"), rule="adam", width=3, size=3),
    # batches of fewer than four samples: nothing was said of how they are shared out
    Recipe("image", blocks=("batch_norm",), loss="classes", form="dict", width=3, size=2),
    Recipe("ids", "function", blocks=(), loss="sum", rule="momentum", length=1, size=2),
    Recipe("vector", blocks=(), loss="sum", form="nested", rule="adamw", width=2, size=1),
    Recipe("sequence", blocks=("frozen", "clamped"), loss="weighted", rule="adam", width=2, size=3),
    # a hook on a parameter, which FSDP2 replaces: "NOT equal" without a word why
    Recipe("vector", blocks=("parameter_hook",), loss="own", rule="adam"),
    # a hook after accumulation, called twice in the reference and once under placements
    Recipe("vector", blocks=("late_hook",), loss="own"),
    # a mean over tokens whose first four samples have equally many
    Recipe(
        "sequence", blocks=("tall",), loss="tokens", form="dict", rule="adamw", width=6, length=4
    ),
    # FSDP2 by blocks: gradients of zero came outside of them; weights are read outside of them
    Recipe("ids", "two_names", ("seldom", "scalar", "seldom"), "mse", rule="adamw", size=5),
    Recipe("mixed", "shifted", ("own_function", "gradient_hook"), "penalty", rule="adam"),
    # a model that PyTorch does not pickle was refused in several lines
    Recipe("sequence", blocks=("orthogonal",), loss="own_dataclass", length=1, given=True),
)


@pytest.mark.parametrize(
    "recipe", but(FOUND[::3], FOUND), ids=lambda recipe: "-".join((recipe.reads, *recipe.blocks))
)
def test_what_was_wrong_once_is_right(folder: Path, processes: Processes, recipe: Recipe) -> None:
    check(recipe, folder, processes, lambda runs: {run.placement for run in runs})


@examples(30)
@given(recipes(), st.randoms(use_true_random=False))
def test_a_drawn_model_trains_as_in_plain_pytorch(
    folder: Path, processes: Processes, recipe: Recipe, random: Any
) -> None:
    def drawn(runs: list[Run]) -> set[str]:
        return {run.placement for run in random.sample(runs, min(2, len(runs)))}

    check(recipe, folder, processes, drawn)
