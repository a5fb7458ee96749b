"""The LSTM operator against a layer written out, on CPUs: the same shared arithmetic and gradients
that the GPU's kernels use.
"""

import contextlib
from collections.abc import Callable

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from multigpu.kernels import lstm_launch
from multigpu.kernels.lstm import lstm, lstm_layer
from tests.refusals import refused

# what `results` returns, in its order
NAMES = ("y", "h", "c", "dx", "dh0", "dc0", "dkernel", "dbias")


def arguments(
    positions: int, batch: int, units: int, seed: int = 0, dtype: torch.dtype = torch.float64
) -> list[Tensor]:
    """x, h0, c0, kernel, bias, more_bias; variables and cells in float32 where `dtype` has 16
    bits.
    """
    generator = torch.Generator().manual_seed(seed)
    exact = torch.float32 if dtype == torch.bfloat16 else dtype

    def normal(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator, dtype=torch.float64)

    weights = [normal(2, 4 * units, units) * units**-0.5, normal(4 * units), torch.ones(4 * units)]
    x, h0 = normal(positions, batch, units).to(dtype), normal(batch, units).to(dtype)
    return [x, h0, *(w.to(exact) for w in (normal(batch, units), *weights))]


def incoming(positions: int, batch: int, units: int) -> list[Tensor]:
    """Gradients of y, h and c, in float64."""
    generator = torch.Generator().manual_seed(99)
    shapes = (positions, batch, units), (batch, units), (batch, units)
    return [torch.randn(shape, generator=generator, dtype=torch.float64) for shape in shapes]


def written_out(values: list[Tensor], lengths: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
    """y, h and c of a layer in which a sentence stops at its end; all in the arguments' own
    type.
    """
    x, h, c, kernel, bias, more_bias = values
    outputs = []
    for t, value in enumerate(x):
        i, f, g, o = (value @ kernel[0].t() + h @ kernel[1].t() + bias + more_bias).chunk(4, 1)
        new_c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
        new_h = torch.sigmoid(o) * torch.tanh(new_c)
        running = (
            torch.ones(len(h), 1, dtype=torch.bool, device=h.device)
            if lengths is None
            else (t < lengths)[:, None]
        )
        h, c = torch.where(running, new_h, h), torch.where(running, new_c, c)
        outputs.append(torch.where(running, new_h, torch.zeros_like(h)))
    return torch.stack(outputs), h, c


def results(
    layer, values: list[Tensor], lengths: Tensor | None, gradients: list[Tensor]
) -> list[Tensor]:  # type: ignore[no-untyped-def]
    """The layer's three results and the gradients of its first five arguments."""
    leaves = [value.detach().requires_grad_() for value in values]
    found = layer(leaves, lengths)
    given = [gradient.to(one) for gradient, one in zip(gradients, found, strict=True)]
    return [one.detach() for one in (*found, *torch.autograd.grad(found, leaves[:5], given))]


def reference(
    values: list[Tensor], lengths: Tensor | None, gradients: list[Tensor]
) -> list[Tensor]:
    """`results` of the layer written out in float64."""
    return results(written_out, [value.double() for value in values], lengths, gradients)


def distance(mine: Tensor, theirs: Tensor) -> float:
    """Norm of the difference over the norm of `theirs`."""
    return float((mine.double() - theirs.double()).norm() / theirs.double().norm())


UNITS = 3


def layer(
    values: list[Tensor], lengths: Tensor | None, beside: int = 1
) -> tuple[Tensor, Tensor, Tensor]:
    y, h, c, *_ = lstm(*values, lengths, beside)
    return y, h, c


def apart(side: object) -> Callable[[list[Tensor], Tensor | None], tuple[Tensor, Tensor, Tensor]]:
    """The layer whose backward computes the kernel's gradient on another stream."""
    return lambda values, lengths: lstm_layer(*values[:4], (values[4], values[5]), lengths, 1, side)


def ends(*lengths: int) -> Tensor:
    return torch.tensor(lengths, dtype=torch.int32)


@settings(max_examples=30, deadline=None)
@given(st.lists(st.integers(1, 6), min_size=1, max_size=4), st.integers(0, 2), st.booleans())
def test_results_and_gradients_equal_a_layer_written_out(
    lengths: list[int], padding: int, ragged: bool
) -> None:
    positions, batch = max(lengths) + padding * ragged, len(lengths)
    values, given_back = arguments(positions, batch, UNITS), incoming(positions, batch, UNITS)
    told = ends(*lengths) if ragged else None
    for name, mine, theirs in zip(
        NAMES,
        results(layer, values, told, given_back),
        reference(values, told, given_back),
        strict=True,
    ):
        torch.testing.assert_close(
            mine, theirs, rtol=1e-10, atol=1e-12, msg=lambda text, name=name: f"{name}: {text}"
        )


def test_only_what_is_asked_for_needs_a_gradient() -> None:
    values = [value.requires_grad_() for value in arguments(4, 2, UNITS)]
    for number in range(3):
        total = layer(values, None)[number].sum()
        mine = torch.autograd.grad(total, values, retain_graph=True)
        assert all(
            torch.equal(a, b) for a, b in zip(mine, torch.autograd.grad(total, values), strict=True)
        ), "twice over"
        plain = [value.detach().requires_grad_() for value in values]
        theirs = torch.autograd.grad(
            written_out(plain, None)[number].sum(), plain, allow_unused=True
        )
        for one, other in zip(mine, theirs, strict=True):
            torch.testing.assert_close(one, torch.zeros_like(one) if other is None else other)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
@pytest.mark.parametrize("lengths", [None, ends(5, 1, 3)], ids=["equal lengths", "ragged"])
def test_torch_agrees_with_the_operators_registration(
    lengths: Tensor | None, dtype: torch.dtype
) -> None:
    """Its fake kernels foresee shapes, types and strides of results and of gradients among it."""
    values = [value.requires_grad_() for value in arguments(5, 3, UNITS, dtype=dtype)]
    found = torch.library.opcheck(lstm, (*values, lengths, 1))
    assert set(found.values()) == {"SUCCESS"}


def test_float32_variables_get_float32_gradients_of_16_bit_arithmetic() -> None:
    values, gradients = arguments(20, 8, 16, dtype=torch.bfloat16), incoming(20, 8, 16)
    mine, theirs = results(layer, values, None, gradients), reference(values, None, gradients)
    assert {
        name: one.dtype for name, one in zip(NAMES, mine, strict=True) if one.dtype == torch.float32
    }.keys() == {*("c", "dc0", "dkernel", "dbias")}
    assert max(distance(one, other) for one, other in zip(mine, theirs, strict=True)) < 0.02


WRONG = [
    (
        0,
        torch.zeros(0, 2, UNITS),
        r"x is \(0, 2, 3\): the LSTM takes \(positions, sentences, units\), none of them 0",
    ),
    (1, torch.zeros(2, UNITS), "h0 is torch.float32"),
    (
        3,
        torch.zeros(2, 4 * UNITS, UNITS + 1, dtype=torch.float64),
        r"kernel is torch.float64 \(2, 12, 4\): it must be",
    ),
    (6, torch.ones(2, dtype=torch.int64), "lengths is torch.int64"),
]


@pytest.mark.parametrize(("place", "value", "sentence"), WRONG)
def test_arguments_that_do_not_fit_are_refused(place: int, value: Tensor, sentence: str) -> None:
    values: list[Tensor | None] = [*arguments(4, 2, UNITS), None]
    values[place] = value
    refused(sentence, lstm, *values, 1)


@given(
    st.integers(1, 2000),
    st.integers(1, 9),
    st.sampled_from([lstm_launch.FORWARD, lstm_launch.BACKWARD]),
)
def test_a_batch_is_spread_over_as_many_clusters_as_run_at_once(
    batch: int, most: int, shapes
) -> None:
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
    for mine, theirs in zip(
        results(apart("another stream"), values, lengths, given_back),
        results(layer, values, lengths, given_back),
        strict=True,
    ):
        assert torch.equal(mine, theirs)
