"""What holds for every input: any rank works out any shard alone, a batch counts what it holds, and an epoch reads every item."""

import threading
from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from multigpu.inputs.batch import Batch, Feeding, Source
from multigpu.inputs.encoded import made_folder
from multigpu.inputs.plans import Epochs
from multigpu.run import build_run
from multigpu.workloads import workloads
from multigpu.workloads.deepconn.description import TABLE
from tests.inputs.stand_ins import make_run, same
from tests.refusals import refused

MODELS = {"nmt": "nmt_small", "cnn": "resnet_tiny", "deepconn": "deepconn_tiny"}
SIZES = [6, 5]
"""Of the shards: a joined batch of 11 on two devices."""
INPUTS = [
    *(("nmt", name) for name in ("synthetic", "lengths_000", "bucket_means_000", "catalogs")),
    *(("cnn", name) for name in ("synthetic", "synthetic_host", "digits", "digits_split", "teacher_small", "jpeg_folder")),
    *(("deepconn", name) for name in ("synthetic", "planted_reviews")),
]
DRAWN = {"synthetic", "synthetic_host", "lengths_000", "bucket_means_000", "planted_reviews"}
"""Whose seed decides what there is, and not only in which order it comes."""


@pytest.fixture(scope="module")
def opened(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The source of an input, on two devices."""
    folder = made_folder(tmp_path_factory.mktemp("cache"), 16)

    def make(workload: str, inputs: str, seed: int = 0) -> Source:
        more: dict[str, Any] = {"data": (str(folder),)} if inputs == "jpeg_folder" else {}
        fields = {"placement": "ddp", "device_type": "cpu", "devices": 2, "batch_size": 11, "scaling": "strong"}
        run = build_run(workload=workload, model=MODELS[workload], inputs=inputs, seed=seed, **fields, **more)
        return workloads()[workload].inputs[inputs](run, run.description)

    return make


def shards_of(source: Source, step: int) -> list[Batch]:
    return [source.batch(step, rank) for rank in range(2)]


def differ(one: Batch, other: Batch) -> bool:
    """Whether no array of the one is the other's, rows that one has more left out, and draws by their seeds."""
    pairs = [(one.arrays[name], other.arrays[name]) for name in one.arrays if not name.endswith("_length")]
    return all(
        not np.array_equal(a[:5], b[:5]) if isinstance(a, np.ndarray) and isinstance(b, np.ndarray) else a.seed != b.seed  # type: ignore[union-attr]
        for a, b in pairs
        if np.shape(a)[1:] == np.shape(b)[1:]
    )


@pytest.mark.parametrize(("workload", "inputs"), INPUTS)
def test_every_rank_works_out_the_same_and_a_batch_counts_what_it_holds(opened: Any, workload: str, inputs: str) -> None:
    source, twin, other = opened(workload, inputs), opened(workload, inputs), opened(workload, inputs, seed=1)
    for step in (3, 0, 1):
        batches = shards_of(source, step)
        for rank, batch in enumerate(batches):
            assert same(batch, twin.batch(step, rank)), "not the same whoever asks, and in whatever order"
            rows = {array.shape[0] for array in batch.arrays.values()}
            assert (batch.rank, rows) == (rank, {SIZES[rank]}) and batch.units <= batch.padded_units
            assert batch.loss_terms == batches[0].loss_terms and batch.lookups == batches[0].lookups and batch.joined_loss_terms >= 11
            assert all(rows <= source.capacity[name] for lookups in batch.lookups for name, rows in lookups.items())
            if workload != "nmt":
                assert batch.units == batch.padded_units == SIZES[rank] and batch.loss_terms == tuple(SIZES)
        assert differ(*batches)
        assert differ(batches[0], other.batch(step, 0)) is (inputs != "catalogs"), "of an order that is the corpus's, whatever the seed"
        if workload == "deepconn":
            assert all(batch.lookups[batch.rank] == {TABLE: np.size(batch.arrays["words"])} for batch in batches)
    if source.period:
        assert same(source.batch(1, 1), source.batch(1 + source.period, 1))
    assert source.label and source.fingerprint == twin.fingerprint
    assert (source.fingerprint != other.fingerprint) is (inputs in DRAWN)


@pytest.mark.parametrize("inputs", ["digits", "digits_split", "jpeg_folder"])
def test_items_are_what_the_batch_holds(opened: Any, inputs: str) -> None:
    """The audit of shards trusts `items`: equal numbers must be equal images, or images of one file that is cropped anew."""
    source, seen = opened("cnn", inputs), {}
    for step in (0, 1, source.steps_per_epoch, source.steps_per_epoch + 1):
        for batch in shards_of(source, step):
            items = source.items(step, batch.rank).tolist()
            held = batch.arrays["labels"] if inputs == "jpeg_folder" else batch.arrays["images"]
            assert len(items) == batch.units
            assert all(seen.setdefault(item, row.tobytes()) == row.tobytes() for item, row in zip(items, held, strict=True))


class Numbers(Epochs):
    """A data set of numbers."""

    def batch(self, step: int, rank: int) -> Batch:
        raise NotImplementedError


@given(st.data(), st.lists(st.integers(1, 7), min_size=1, max_size=8), st.integers(0, 2**31))
def test_an_epoch_covers_everything_in_an_order_of_its_own_and_shards_are_disjoint(
    data: st.DataObject, sizes: list[int], seed: int
) -> None:
    joined = sum(sizes)
    count = data.draw(st.integers(joined, joined + 100))
    plan, orders = Numbers(make_run(sizes, seed=seed), count), []
    for epoch in range(2):
        seen: Counter[int] = Counter()
        for step in range(epoch * plan.steps_per_epoch, (epoch + 1) * plan.steps_per_epoch):
            shards = [plan.items(step, rank).tolist() for rank in range(len(sizes))]
            assert [len(shard) for shard in shards] == sizes
            assert len({item for shard in shards for item in shard}) == joined
            seen.update(item for shard in shards for item in shard)
        assert set(seen) == set(range(count)) and sum(seen.values()) - count < joined
        orders.append(list(seen))
    assert count < 20 or orders[0] != orders[1]
    refused("^a joined batch of 9 rows needs at least as many: the data set has 8$", Numbers, make_run([4, 5]), 8, "rows")


class Numbered(Source):
    """Batches that hold their step and rank, or with a period their place in it; notes who asked for which."""

    label, capacity, fingerprint = "numbered", {}, ""

    def __init__(self, period: int | None) -> None:
        self.period = period
        self.asked: list[tuple[int, int, str]] = []

    def batch(self, step: int, rank: int) -> Batch:
        self.asked.append((step, rank, threading.current_thread().name))
        return Batch({"numbers": np.array([step, rank])}, rank, 1, 1, (1, 1), ({}, {}))


class Copied(Feeding[list[np.ndarray]]):
    """Gives a step copies of its shards' numbers."""

    ranks = (0, 1)

    def put_all(self, batches: list[Batch]) -> list[np.ndarray]:
        return [np.array(batch.arrays["numbers"]) for batch in batches]


def steps_of(given: list[np.ndarray]) -> list[int]:
    assert [int(numbers[1]) for numbers in given] == [0, 1]
    return [int(numbers[0]) for numbers in given]


def test_what_repeats_is_kept_and_nobody_waits() -> None:
    source = Numbered(3)
    feed = Copied(source, None)
    first = [feed.given(step) for step in range(3)]
    assert [steps_of(given) for given in first] == [[0, 0], [1, 1], [2, 2]]
    assert all(feed.given(step) is first[step % 3] for step in (3, 4, 5, 7))
    assert [asked[:2] for asked in source.asked] == [(0, 0), (0, 1), (1, 0), (1, 1), (2, 0), (2, 1)]
    assert feed.waits == {} and feed.thread is None


@pytest.mark.parametrize("mode", ["arrays", "strings"])
def test_what_the_step_asks_for_is_copied_by_its_own_thread_every_time(mode: str) -> None:
    source = Numbered(2)
    feed = Copied(source, mode)
    given = [feed.given(step) for step in range(4)]
    assert [steps_of(each) for each in given] == [[0, 0], [1, 1], [0, 0], [1, 1]]
    assert given[2][0] is not given[0][0], "a copy every time, of a batch that is made once"
    assert [asked[:2] for asked in source.asked] == [(0, 0), (0, 1), (1, 0), (1, 1)]
    assert {name for _, _, name in source.asked} == {threading.current_thread().name}
    assert sorted(feed.waits) == [0, 1, 2, 3]
    feed.close()


@pytest.mark.parametrize(("period", "mode"), [(None, None), (None, "pipeline"), (9, "pipeline")])
def test_one_step_ahead_is_made_by_another_thread_whatever_the_order(period: int | None, mode: str | None) -> None:
    source = Numbered(period)
    feed = Copied(source, mode)
    assert [steps_of(feed.given(step)) for step in (0, 1, 7, 8)] == [[0, 0], [1, 1], [7, 7], [8, 8]]
    feed.close()
    own = threading.current_thread().name
    by_own = [step for step, rank, name in source.asked if name == own and rank == 0]
    by_other = {step for step, _, name in source.asked if name != own}
    assert by_own == [0, 7], "what no step before asked for"
    assert {1, 2, 8} <= by_other and sorted(feed.waits) == [0, 1, 7, 8]
