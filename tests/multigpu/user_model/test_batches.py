"""How a user's batches are taken apart, put together, read and seeded, without any process of a
placement.
"""

import dataclasses
import gc
import itertools
import multiprocessing
import random
from collections import OrderedDict, UserDict
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset

import multigpu as mg
from multigpu.spec.errors import JobError
from multigpu.user_model.drawn import several
from multigpu.user_model.joined import halves as cut_in_halves
from multigpu.user_model.joined import is_mean, left_out, note_of
from multigpu.workloads.own.batches import DrawnBatches, Streamed, arrays_of_step, batches_of
from multigpu.workloads.own.job import Job
from multigpu.workloads.own.loaded import own_order
from multigpu.workloads.own.seeding import drawing_alike, seed_all, seeds_of, states, undisturbed
from multigpu.workloads.own.structure import names_of, put_together, taken_apart


class Pair(NamedTuple):
    x: Any
    y: Any


@dataclasses.dataclass
class Parts:
    x: Any
    y: Any = None


class Output(OrderedDict):
    """As the outputs of libraries of models: read by key and by attribute."""

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            raise AttributeError(name) from None


def together_again(batch: Any) -> Any:
    structure, arrays = taken_apart(batch)
    tensors = {str(at): torch.from_numpy(np.array(array)) for at, array in enumerate(arrays)}
    return put_together(structure, tensors)


def test_a_batch_is_put_together_as_it_was_built() -> None:
    x, y = torch.rand(3, 2), torch.arange(3)
    assert isinstance(together_again(Pair(x, y)), Pair)
    parts = together_again(Parts(x))
    assert isinstance(parts, Parts) and torch.equal(parts.x, x) and parts.y is None
    output = together_again((Output(ids=x), UserDict(labels=y)))
    assert torch.equal(output[0].ids, x) and torch.equal(output[1]["labels"], y)
    assert list(together_again({"b": x, 2: y})) == ["b", 2]
    nested = together_again([[x, [y]], (y,)])
    assert torch.equal(nested[0][1][0], y)


def test_what_stands_twice_is_one_tensor_and_keeps_its_memory() -> None:
    x = torch.rand(4, 2)
    structure, arrays = taken_apart((x, {"again": x, "view": x[:, :1]}))
    assert len(arrays) == 2
    assert names_of(structure) == ["batch[0]", "batch[1]['view']"]
    assert np.shares_memory(arrays[0], x.numpy()) and np.shares_memory(arrays[1], x.numpy())
    made = put_together(structure, {"0": x, "1": x[:, :1]})
    assert made[0] is made[1]["again"]


def made_anew() -> Iterator[Any]:
    """Values that live no longer than they are looked at."""

    class Anew(UserDict):
        def items(self) -> Any:
            return [(name, torch.full((2,), float(name[1:]))) for name in self.data]

        def __getitem__(self, name: str) -> Tensor:
            return torch.full((2,), float(name[1:]))

    yield Anew({f"k{at}": None for at in range(50)})


def test_values_that_are_made_when_they_are_read_stay_apart() -> None:
    structure, arrays = taken_apart(next(made_anew()))
    assert [array[0] for array in arrays] == list(range(50))
    assert len(names_of(structure)) == 50


@pytest.mark.parametrize(
    ("kind", "given"),
    [
        (torch.bfloat16, torch.float32),
        (torch.float16, torch.float32),
        (torch.float64, torch.float64),
        (torch.complex64, torch.complex64),
        (torch.uint8, torch.uint8),
        (torch.bool, torch.bool),
        (torch.int16, torch.int16),
    ],
)
def test_types_of_numbers_stay_or_grow(kind: torch.dtype, given: torch.dtype) -> None:
    x = torch.tensor([[0, 1], [1, 0], [1, 1]]).to(kind).T
    found = together_again((x, x.flip(0)))
    assert found[0].dtype == given and torch.equal(found[0], x.to(given))
    assert torch.equal(found[1], x.flip(0).to(given))


def test_arrays_of_numpy_in_any_order_of_bytes_and_axes() -> None:
    array = np.arange(6.0).reshape(3, 2)
    for given in (array[::-1], array.T, array.astype(">f4"), array.astype(np.longdouble)):
        (found,) = together_again((given,))
        assert torch.equal(found.double(), torch.from_numpy(np.array(given, np.float64)))


@pytest.mark.parametrize(
    ("batch", "why"),
    [
        ((torch.rand(2), "yes"), r"batch\[1\] is a str where a tensor is due"),
        ((torch.rand(2), 3), r"batch\[1\] is a int .* torch.full"),
        ((np.array(["a", "b"]),), r"batch\[0\] is a ndarray of <U1 where numbers are due"),
        ((np.array([None, 1]),), r"of object where numbers are due"),
        ((torch.rand(2, 2).to_sparse(),), "sparse or nested"),
        ((torch.nested.nested_tensor([torch.rand(2), torch.rand(3)]),), "sparse or nested"),
        ((torch.rand(2, device="meta"),), "on the device meta"),
        ({(1, 2): torch.rand(2)}, r"batch has a key \(1, 2\)"),
        ((), "holds no tensor"),
    ],
)
def test_what_is_no_batch_is_named(batch: Any, why: str) -> None:
    with pytest.raises(JobError, match=why):
        taken_apart(batch)


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Linear(2, 1)

    def forward(self, x: Tensor) -> Tensor:
        return self.a(x).squeeze(1)


def job_of(batch: Any, size: int = 4) -> Job:
    return Job(Net, batch, F.mse_loss, mg.SGD(0.1), size)


def drawn(reader: DrawnBatches | Streamed, step: int) -> list[np.ndarray]:
    return [array.copy() for array in arrays_of_step(reader, step)[1]]


def same(one: list[np.ndarray], other: list[np.ndarray]) -> bool:
    return all(np.array_equal(a, b) for a, b in zip(one, other, strict=True))


class Noisy(Dataset):
    """Samples 0, 1, ... with noise of three libraries beside them."""

    def __init__(self, count: int = 30) -> None:
        self.count = count

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        noise = torch.randn(1).item() + float(np.random.rand()) + random.random()  # noqa: NPY002
        return torch.tensor([float(index), noise]), torch.tensor(float(index))


class Stream(IterableDataset):
    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        yield from (Noisy()[index] for index in range(30))


def global_batch(n: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    return torch.randn(n, 2), torch.tensor([random.random() for _ in range(n)])


SOURCES = {
    "function": global_batch,
    "loader": DataLoader(Noisy(), 4, shuffle=True),
    "workers": DataLoader(Noisy(), 4, num_workers=2),
    "stream": DataLoader(Stream(), 4),
}


@pytest.mark.parametrize("name", SOURCES)
def test_a_batch_depends_on_its_step_and_device_alone(name: str) -> None:
    """Whatever was drawn before, in which order, and by whom."""
    job = job_of(SOURCES[name])
    forward = batches_of("torch", job, 4, 2, 0, 0)
    told = [drawn(forward, step) for step in range(5)]
    seed_all(99)
    again = batches_of("torch", job, 4, 2, 0, 0)
    for step in (4, 0, 2):
        assert same(drawn(again, step), told[step])
        np.random.rand(7)  # noqa: NPY002
    assert not same(told[0], told[1])
    other = batches_of("torch", job, 4, 2, 1, 0)
    assert not same(drawn(other, 0), told[0])


def test_workers_end_with_the_reader() -> None:
    before = set(multiprocessing.active_children())
    reader = batches_of("torch", job_of(SOURCES["workers"]), 4, 1, 0, 0)
    drawn(reader, 0)
    workers = set(multiprocessing.active_children()) - before
    assert len(workers) == 2
    gc.disable()
    try:
        del reader
        for worker in workers:
            worker.join(20)
        assert not [worker for worker in workers if worker.is_alive()]
    finally:
        gc.enable()


def test_generators_of_the_process_go_on_as_if_nothing_was_drawn() -> None:
    seed_all(3)
    before = states()
    with drawing_alike(5):
        first = random.random(), float(np.random.rand()), float(torch.rand(()))  # noqa: NPY002
    assert states() == before
    with undisturbed():
        torch.rand(3)
        random.random()
        assert states() != before
    assert states() == before
    torch.rand(5)
    with drawing_alike(5):
        again = random.random(), float(np.random.rand()), float(torch.rand(()))  # noqa: NPY002
    assert first == again


def test_the_generator_that_a_batch_is_given_is_the_one_of_before() -> None:
    """Committed Records of users' jobs were measured with it."""
    seed = int(np.random.SeedSequence([7, 3, 1]).generate_state(1)[0])
    given, others = seeds_of(7, 3, 1)
    assert given == seed != others


def test_samplers_of_ones_own_are_obeyed() -> None:
    class Odd(torch.utils.data.Sampler):
        def __iter__(self) -> Iterator[int]:
            return iter(range(1, 30, 2))

    loader = DataLoader(Noisy(), 4, sampler=Odd())
    assert own_order(loader) == "sampler" and not own_order(SOURCES["loader"])
    readers = [batches_of("torch", job_of(loader), 3, 2, rank, 0) for rank in range(2)]
    seen = [drawn(reader, step)[1].tolist() for step in range(3) for reader in readers]
    assert seen[:4] == [[1, 3, 5], [7, 9, 11], [13, 15, 17], [19, 21, 23]]
    assert seen[4] == [1, 3, 5], "an epoch that gives no further step begins anew"
    batches = [[0, 1, 2, 3], [4, 5], [6, 7, 8, 9, 10], [11, 12, 13, 14]]
    loader = DataLoader(Noisy(), batch_sampler=batches)
    reader = batches_of("torch", job_of(loader), 4, 1, 0, 0)
    seen = [drawn(reader, step)[1].tolist() for step in range(4)]
    assert seen == [[0, 1, 2, 3], [6, 7, 8, 9], [11, 12, 13, 14], [0, 1, 2, 3]]


def test_a_shorter_batch_of_a_stream_is_left_out() -> None:
    reader = batches_of("torch", job_of(SOURCES["stream"]), 4, 1, 0, 0)
    seen = [drawn(reader, step)[1].tolist() for step in range(8)]
    assert seen[6] == [24, 25, 26, 27] and seen[7] == [0, 1, 2, 3]
    with pytest.raises(JobError, match="no batch of batch has 5 samples"):
        drawn(batches_of("torch", job_of(SOURCES["stream"]), 5, 1, 0, 0), 0)


def test_what_can_be_read_once_is_refused() -> None:
    batches = ((torch.rand(4, 2), torch.rand(4)) for _ in itertools.count())
    with pytest.raises(JobError, match="a generator, which can be read once"):
        batches_of("torch", job_of(batches), 4, 1, 0, 0)


def test_a_loader_without_samples_of_a_whole_step_is_refused() -> None:
    loader = DataLoader(TensorDataset(torch.rand(9, 2), torch.rand(9)), batch_sampler=[[0], [1]])
    with pytest.raises(JobError, match="batch_sampler gives no step of 4 samples for each of 2"):
        drawn(batches_of("torch", job_of(loader), 4, 2, 0, 0), 0)


def looked_at(batch: Any, size: int = 8) -> Any:
    job = job_of(batch, size)
    structure, arrays = arrays_of_step(batches_of("torch", job, size, 2, 0, 0), 0)
    return several("torch", job, 2, structure, arrays, 4)


def test_batches_that_differ_in_length_are_noticed() -> None:
    def ragged(n: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        length = int(torch.randint(3, 40, (), generator=generator))
        return torch.rand(n, 2), torch.rand(n, length)

    found = looked_at(ragged)
    assert found.ragged and "batch[1]: [" in found.notes[-1] and "batch[0]" not in found.notes[-1]
    assert not looked_at(global_batch).ragged


def test_a_function_of_one_size_is_noticed() -> None:
    def fixed(n: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        return torch.rand(8, 2), torch.rand(8)

    assert not looked_at(fixed).few
    assert looked_at(global_batch).few


class Norms:
    """What `note_of` asks for where there is no batch norm."""

    def __enter__(self) -> bool:
        return False

    def __exit__(self, *error: object) -> None:
        pass


def gradients(loss: Any) -> Any:
    """A step of one parameter vector w on (x, valid): `loss(w, x, valid)`."""

    def step(arrays: list[np.ndarray]) -> tuple[float, dict[str, np.ndarray | None]]:
        w = torch.tensor([0.3, -0.7, 1.1], dtype=torch.float64, requires_grad=True)
        x, valid = (torch.from_numpy(array) for array in arrays)
        value = loss(w, x, valid)
        value.backward()
        assert w.grad is not None
        return float(value.detach()), {"w": w.grad.numpy(), "none": None}

    return step


def each(w: Tensor, x: Tensor) -> Tensor:
    return torch.tanh(x @ w)  # (samples, positions)


LOSSES = {
    "": lambda w, x, valid: ((each(w, x) * valid).sum(1) / valid.sum(1)).mean(),
    "its tokens x devices": lambda w, x, valid: (each(w, x) * valid).sum() / valid.sum(),
    "a sum over samples": lambda w, x, valid: (each(w, x) * valid).sum(),
    "looks at several samples": lambda w, x, valid: each(w, x)[:, 0].var(),
}


@pytest.mark.parametrize("told", LOSSES)
def test_why_shards_do_not_make_up_the_global_batch(told: str) -> None:
    """Also where the first samples, which are looked at first, show nothing."""
    generator = np.random.default_rng(0)
    x = generator.standard_normal((12, 5, 3))
    lengths = np.array([5] * 8 + [1, 2, 3, 4])
    valid = (np.arange(5) < lengths[:, None]).astype(np.float64)
    note = note_of(gradients(LOSSES[told]), [x, valid], 4, Norms())  # type: ignore[arg-type]
    assert told in note and bool(note) == bool(told)


def test_halves_count_by_their_tokens() -> None:
    x = np.random.default_rng(1).standard_normal((2, 4, 3))
    valid = np.array([[1.0, 1, 1, 1], [1, 0, 0, 0]])
    found, losses = cut_in_halves(gradients(LOSSES["its tokens x devices"]), [x, valid])
    assert found.share() == pytest.approx(0.8) and is_mean(found, losses, 0.8)
    assert not is_mean(found, losses)
    assert left_out(valid) is not None and left_out(x) is None
