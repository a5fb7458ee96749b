"""The LSTM operator against a layer written out, on CPUs: the same shared arithmetic and gradients that the GPU's kernels use; and what the
committed Records say of training with it: the same losses, within what 16 bits do to the library's too.
"""

import contextlib

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch._subclasses import FakeTensorMode

from multigpu.kernels import lstm_launch
from multigpu.kernels.lstm import by_gate, interleave, lstm, lstm_layer
from multigpu.record import Record
from tests.kernels.layers import NAMES, arguments, distance, incoming, reference, results, written_out
from tests.refusals import refused

UNITS = 3


def layer(values: list[Tensor], lengths: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
    y, h, c, *_ = lstm(*values, lengths, 1)
    return y, h, c


def ends(*lengths: int) -> Tensor:
    return torch.tensor(lengths, dtype=torch.int32)


@settings(max_examples=30, deadline=None)
@given(st.lists(st.integers(1, 6), min_size=1, max_size=4), st.integers(0, 2), st.booleans())
def test_results_and_gradients_equal_a_layer_written_out(lengths: list[int], padding: int, ragged: bool) -> None:
    positions, batch = max(lengths) + padding * ragged, len(lengths)
    values, given_back = arguments(positions, batch, UNITS), incoming(positions, batch, UNITS)
    told = ends(*lengths) if ragged else None
    for name, mine, theirs in zip(NAMES, results(layer, values, told, given_back), reference(values, told, given_back), strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-10, atol=1e-12, msg=lambda text, name=name: f"{name}: {text}")


def test_only_what_is_asked_for_needs_a_gradient() -> None:
    values = [value.requires_grad_() for value in arguments(4, 2, UNITS)]
    for number in range(3):
        total = layer(values, None)[number].sum()
        mine = torch.autograd.grad(total, values, retain_graph=True)
        assert all(torch.equal(a, b) for a, b in zip(mine, torch.autograd.grad(total, values), strict=True)), "twice over"
        plain = [value.detach().requires_grad_() for value in values]
        theirs = torch.autograd.grad(written_out(plain, None)[number].sum(), plain, allow_unused=True)
        for one, other in zip(mine, theirs, strict=True):
            torch.testing.assert_close(one, torch.zeros_like(one) if other is None else other)


@pytest.mark.parametrize("lengths", [None, ends(5, 1, 3)], ids=["equal lengths", "ragged"])
def test_torch_agrees_with_the_operators_registration(lengths: Tensor | None) -> None:
    values = [value.requires_grad_() for value in arguments(5, 3, UNITS)]
    found = torch.library.opcheck(lstm, (*values, lengths, 1))
    assert set(found.values()) == {"SUCCESS"}


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_the_fake_kernels_foresee_shapes_and_types(dtype: torch.dtype) -> None:
    values = [value.requires_grad_() for value in arguments(5, 3, UNITS, dtype=dtype)]
    real = lstm(*values, ends(5, 1, 3), 1)
    gradients = torch.autograd.grad([one.sum() for one in real[:3]], values[:5])
    with FakeTensorMode() as mode:
        fake_values = [mode.from_tensor(value) for value in values]
        fake = lstm(*fake_values, mode.from_tensor(ends(5, 1, 3)), 1)
        fake_gradients = torch.autograd.grad([one.sum() for one in fake[:3]], fake_values[:5])
    for one, other in zip((*real, *gradients), (*fake, *fake_gradients), strict=True):
        assert (one.shape, one.dtype, one.stride()) == (other.shape, other.dtype, other.stride())


def test_nothing_depends_on_what_stands_behind_a_sentences_end() -> None:
    values, gradients, lengths = arguments(6, 3, UNITS), incoming(6, 3, UNITS), ends(6, 2, 4)
    behind = torch.arange(6)[:, None] >= lengths  # (T, B)
    other, given_back = [value.clone() for value in values], [gradient.clone() for gradient in gradients]
    other[0][behind], given_back[0][behind] = 1e6, 1e6
    mine, theirs = results(layer, values, lengths, gradients), results(layer, other, lengths, given_back)
    for name, one, another in zip(NAMES, mine, theirs, strict=True):
        assert torch.equal(one, another), name
    assert not mine[0][behind].any() and not mine[3][behind].any()


def test_float32_variables_get_float32_gradients_of_16_bit_arithmetic() -> None:
    values, gradients = arguments(20, 8, 16, dtype=torch.bfloat16), incoming(20, 8, 16)
    mine, theirs = results(layer, values, None, gradients), reference(values, None, gradients)
    assert {name: one.dtype for name, one in zip(NAMES, mine, strict=True) if one.dtype == torch.float32}.keys() == {
        *("c", "dc0", "dkernel", "dbias")
    }
    assert max(distance(one, other) for one, other in zip(mine, theirs, strict=True)) < 0.02


def test_interleaved_rows_stand_by_unit_and_come_back() -> None:
    rows = torch.arange(12.0)[:, None]  # units 0 to 2 of gates i, f, g, o
    assert interleave(rows)[:, 0].tolist() == [0, 6, 3, 9, 1, 7, 4, 10, 2, 8, 5, 11]
    assert torch.equal(by_gate(interleave(rows)), rows)


WRONG = [
    (0, torch.zeros(0, 2, UNITS), r"x is \(0, 2, 3\): the LSTM takes \(positions, sentences, units\), none of them 0"),
    (1, torch.zeros(2, UNITS), "h0 is torch.float32"),
    (3, torch.zeros(2, 4 * UNITS, UNITS + 1, dtype=torch.float64), r"kernel is torch.float64 \(2, 12, 4\): it must be"),
    (6, torch.ones(2, dtype=torch.int64), "lengths is torch.int64"),
]


@pytest.mark.parametrize(("place", "value", "sentence"), WRONG)
def test_arguments_that_do_not_fit_are_refused(place: int, value: Tensor, sentence: str) -> None:
    values: list[Tensor | None] = [*arguments(4, 2, UNITS), None]
    values[place] = value
    refused(sentence, lstm, *values, 1)


@given(st.integers(1, 2000), st.integers(1, 9), st.sampled_from([lstm_launch.FORWARD, lstm_launch.BACKWARD]))
def test_a_batch_is_spread_over_as_many_clusters_as_run_at_once(batch: int, most: int, shapes) -> None:
    rows, parts = lstm_launch.split(batch, shapes, most)
    used = -(-batch // (rows * parts))
    larger = max(r * p for r, p in shapes)
    assert used <= most or rows * parts == larger
    assert all(-(-batch // (r * p)) > most for r, p in shapes if r * p < rows * parts)


def test_every_shape_fits_the_shared_memory_of_a_block() -> None:
    most = 227 * 1024
    assert all(lstm_launch.forward_bytes(*shape) <= most for shape in lstm_launch.FORWARD)
    assert all(lstm_launch.backward_bytes(*shape) <= most for shape in lstm_launch.BACKWARD)


def test_a_kernels_gradient_taken_apart_is_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Tensor, "record_stream", lambda self, stream: None)
    monkeypatch.setattr(torch.cuda, "stream", lambda stream: contextlib.nullcontext())
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: None)
    values, lengths, given_back = arguments(5, 3, UNITS), ends(5, 1, 3), incoming(5, 3, UNITS)

    def apart(values: list[Tensor], lengths: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
        x, h0, c0, kernel, *biases = values
        return lstm_layer(x, h0, c0, kernel, tuple(biases), lengths, 1, "another stream")

    for mine, theirs in zip(results(apart, values, lengths, given_back), results(layer, values, lengths, given_back), strict=True):
        assert torch.equal(mine, theirs)


STEPS = 300


def test_losses_stay_as_near_float32_as_the_librarys_do_in_16_bits(committed: list[Record]) -> None:
    curves = {
        (record.run.precision, record.run.recurrence, record.run.seed): np.array(record.measurement.loss)
        for record in committed
        if record.measurement and (record.run.model, record.run.inputs, record.run.batch_size) == ("nmt000", "catalogs", 64)
        if record.run.warmup_steps + record.run.timed_steps == STEPS and record.machine.name == "1x-nvidia-h200"
    }
    seeds = sorted(seed for precision, recurrence, seed in curves if recurrence == "persistent")
    assert len(seeds) >= 3
    gaps = {
        recurrence: [np.abs(curves["bf16", recurrence, seed] - curves["fp32", None, seed]) for seed in seeds]
        for recurrence in ("persistent", None)
    }
    ours, librarys = (np.mean([gap[-50:].mean() for gap in gaps[recurrence]]) for recurrence in ("persistent", None))
    assert ours <= librarys
    first = max(gap[:20].max() for gap in gaps["persistent"])  # before roundings have had the time to grow
    assert first < 0.02
