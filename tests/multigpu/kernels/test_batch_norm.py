"""Fused batch norm written out, and its Triton kernels on a GPU or interpreted, against the library
in float64.
"""

import importlib.util
import os
from dataclasses import dataclass

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from multigpu.kernels import batch_norm as operators
from multigpu.kernels import batch_norm_launch as launch
from multigpu.kernels.batch_norm import (
    SecondUse,
    batch_moments,
    batch_norm,
    batch_norm_backward,
    library_instead,
)
from multigpu.workloads.cnn.description import SMALL
from multigpu.workloads.cnn.torch import build
from multigpu.workloads.cnn.torch_fused import FusedNorm
from tests.refusals import refused

MOMENTUM, EPSILON = 0.1, 1e-5
# as ResNet-50's first: a window of 3 x 3 and a stride of 2, pads at the end alone
POOL = (3, 3, 2, 0, 0)


@dataclass(frozen=True)
class Case:
    """after: something is added. twice, pool: the result is used twice, is pooled."""

    shape: tuple[int, int, int, int]
    after: bool = False
    twice: bool = False
    pool: bool = False
    relu: bool = True

    @property
    def numbers(self) -> list[int]:
        return [*POOL, self.shape[2] // 2, self.shape[3] // 2] if self.pool else []


CASES = (
    Case((1, 3, 5, 7)),
    Case((2, 1, 3, 3), relu=False),
    Case((1, 33, 4, 4), after=True),
    Case((3, 70, 6, 5), after=True, twice=True),
    Case((2, 16, 11, 9), pool=True),
    Case((1, 130, 8, 8), pool=True, twice=True),
    Case((2, 200, 2, 1), after=True, twice=True),
)


LEAVES = ("x", "after", "weight", "bias")


def inputs(case: Case, dtype: torch.dtype, device: str = "cpu") -> dict[str, Tensor]:
    """x, what is added, scale, shift, and how the gradients of the two uses of the result weigh."""
    generator = torch.Generator().manual_seed(0)

    def normal(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator, dtype=torch.float64)

    def image(values: Tensor) -> Tensor:
        return values.to(device, dtype).contiguous(memory_format=torch.channels_last)

    batch, channels = case.shape[:2]
    exact = torch.promote_types(dtype, torch.float32)
    result = (batch, channels, *case.numbers[5:]) if case.pool else case.shape
    x = image(normal(*case.shape) * 2 + 3 * normal(1, channels, 1, 1))
    found = {
        "x": x,
        "weight": (normal(channels).abs() + 0.5).to(device, exact),
        "bias": normal(channels).to(device, exact),
    }
    return found | {
        name: image(normal(*shape))
        for name, shape in (("after", case.shape), ("first", result), ("second", result))
    }


def leaves_of(given: dict[str, Tensor], dtype: torch.dtype | None = None) -> list[Tensor]:
    return [given[name].to(dtype, copy=True).requires_grad_() for name in LEAVES]


def fused(case: Case, given: dict[str, Tensor]) -> dict[str, Tensor]:
    """Results and gradients by the operators."""
    x, after, weight, bias = leaves = leaves_of(given)
    running = torch.zeros_like(given["weight"]), torch.ones_like(given["weight"])
    arrivals = torch.zeros(case.shape[1], dtype=torch.int32, device=given["x"].device)
    mean, inverse = batch_moments(x.detach(), *running, arrivals, MOMENTUM, EPSILON)
    added = after if case.after else None
    y, _, second = batch_norm(
        x, weight, bias, added, mean, inverse, arrivals, case.relu, case.numbers, case.twice
    )
    loss = (y * given["first"]).sum()
    if case.twice:
        loss = loss + (SecondUse.apply(y.detach(), second) * given["second"]).sum()
    found = told(y, running, leaves, loss)
    assert (
        torch.cuda.is_available() and torch.cuda.is_current_stream_capturing()
    ) or not arrivals.any()
    return found


def written_out(case: Case, given: dict[str, Tensor]) -> dict[str, Tensor]:
    """The same in float64, by the library's operations."""
    x, after, weight, bias = leaves = leaves_of(given, torch.float64)
    running = torch.zeros_like(weight).detach(), torch.ones_like(weight).detach()
    y = F.batch_norm(x, *running, weight, bias, True, MOMENTUM, EPSILON)
    y = y + after if case.after else y
    y = y.relu() if case.relu else y
    if case.pool:
        # which is the largest is asked of what is written
        y = y + (y.to(given["x"].dtype).double() - y).detach()
        high, wide = case.numbers[5:]
        pads = (0, (wide - 1) * 2 + 3 - case.shape[3], 0, (high - 1) * 2 + 3 - case.shape[2])
        y = F.max_pool2d(F.pad(y, pads, value=-torch.inf), 3, 2)
    weights = given["first"].double() + (given["second"].double() if case.twice else 0)
    return told(y, running, leaves, (y * weights).sum())


def told(
    y: Tensor, running: tuple[Tensor, Tensor], leaves: list[Tensor], loss: Tensor
) -> dict[str, Tensor]:
    loss.backward()
    gradients = {
        f"gradient of {name}": value.grad
        for name, value in zip(LEAVES, leaves, strict=True)
        if value.grad is not None
    }
    return {
        "y": y.detach(),
        "running mean": running[0],
        "running variance": running[1],
        **gradients,
    }


def distance(found: Tensor, exact: Tensor) -> float:
    return float((found.double() - exact.double()).norm() / exact.double().norm().clamp_min(1e-30))


SIZED = (
    Case((64, 2048, 7, 7), after=True),
    Case((33, 129, 13, 13)),
    Case((16, 64, 112, 112), pool=True),
)
LARGE = (*SIZED, Case((9, 256, 28, 28), after=True, twice=True))
TRITON = importlib.util.find_spec("triton") is not None
WITH_NORMS = [
    model
    for model in SMALL.values()
    if any(variable.kind == "norm" for variable in model.variables)
]


MISSING = not torch.cuda.is_available() or library_instead(torch.device("cuda")) is not None
on_a_gpu = [
    pytest.mark.gpu,
    pytest.mark.skipif(MISSING, reason="needs a GPU that runs the kernels"),
]


@pytest.fixture(params=["cpu", pytest.param("cuda", marks=on_a_gpu)])
def device(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """A GPU, or this CPU, on which the operators run the kernels interpreted, a few programs to a
    sum.
    """
    if request.param == "cpu":
        if not TRITON or os.environ.get("TRITON_INTERPRET") != "1":
            pytest.skip("kernels are interpreted where Triton is installed and there is no GPU")
        monkeypatch.setattr(launch, "programs_of", lambda device, each: 6)
        for name, run in (
            ("moments", launch.moments),
            ("forward", launch.forward),
            ("backward", launch.backward),
        ):
            monkeypatch.setattr(operators, name, run)
    return request.param


@pytest.mark.parametrize("case", CASES, ids=str)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_what_is_written_out_equals_the_library_in_float64(case: Case, dtype: torch.dtype) -> None:
    given = inputs(case, dtype)
    found, exact = fused(case, given), written_out(case, given)
    assert found.keys() == exact.keys()
    worst = {name: distance(found[name], exact[name]) for name in exact}
    assert max(worst.values()) < (1e-12 if dtype == torch.float64 else 3e-6), worst


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("case", CASES + LARGE, ids=str)
def test_kernels_equal_float64_and_repeat_bit_by_bit(
    case: Case, dtype: torch.dtype, device: str
) -> None:
    if device == "cpu" and (case in LARGE or dtype == torch.float16):
        pytest.skip("interpreting takes too long")
    given = inputs(case, dtype, device)
    found, exact = fused(case, given), written_out(case, given)
    worst = {name: distance(found[name], exact[name]) for name in exact}
    assert max(error for name, error in worst.items() if name.startswith("running")) < 3e-6, worst
    if case.pool and dtype != torch.float32:
        # of two equal numbers of 16 bits another may be the larger in float64
        del worst["gradient of x"]
    assert (
        max(worst.values())
        < {torch.float32: 3e-6, torch.bfloat16: 2e-2, torch.float16: 3e-3}[dtype]
    ), worst
    for _ in range(5 if device == "cuda" else 1):
        again = fused(case, given)
        assert all(torch.equal(found[name], again[name]) for name in found)


def test_a_mean_far_from_zero_costs_the_kernels_no_digits(device: str) -> None:
    x = (
        torch.randn(4, 8, 20, 20, generator=torch.Generator().manual_seed(0)).to(
            device, memory_format=torch.channels_last
        )
        + 1000
    )
    running = torch.zeros(8, device=device), torch.ones(8, device=device)
    mean, inverse = batch_moments(
        x, *running, torch.zeros(8, dtype=torch.int32, device=device), MOMENTUM, EPSILON
    )
    variance, exact = torch.var_mean(x.double(), (0, 2, 3), correction=0)
    assert distance(mean, exact) < 1e-7 and distance(inverse, (variance + EPSILON).rsqrt()) < 1e-5


def test_no_number_stays_none(device: str) -> None:
    given = inputs(CASES[0], torch.float32, device)
    given["x"][0, 1, 2, 3] = torch.nan
    found = fused(CASES[0], given)
    assert found["y"][:, 1].isnan().all() and not found["y"][:, 0].isnan().any()
    assert found["gradient of x"][:, 1].isnan().all() and found["gradient of weight"][1].isnan()


@pytest.mark.parametrize("case", [CASES[0], CASES[3], CASES[4]], ids=str)
def test_the_operators_pass_the_librarys_checks(case: Case) -> None:
    given = inputs(case, torch.float32)
    arrivals = torch.zeros(case.shape[1], dtype=torch.int32)
    running = torch.zeros_like(given["weight"]), torch.ones_like(given["weight"])
    torch.library.opcheck(batch_moments, (given["x"], *running, arrivals, MOMENTUM, EPSILON))
    mean, inverse = batch_moments(given["x"], *running, arrivals, MOMENTUM, EPSILON)
    leaves = [value.requires_grad_() for value in (given["x"], given["weight"], given["bias"])]
    after = given["after"].requires_grad_() if case.after else None
    torch.library.opcheck(
        batch_norm, (*leaves, after, mean, inverse, arrivals, case.relu, case.numbers, False)
    )
    y, taps, _ = batch_norm(*leaves, after, mean, inverse, arrivals, case.relu, case.numbers, False)
    kept = [value.detach() for value in leaves]
    more = given["second"] if case.twice else None
    shown = y.detach() if case.after else None
    arguments = (
        given["first"],
        more,
        kept[0],
        shown,
        *kept[1:],
        mean,
        inverse,
        taps,
        arrivals,
        case.relu,
        case.numbers,
    )
    torch.library.opcheck(batch_norm_backward, arguments)


def test_what_does_not_fit_is_refused_in_one_sentence() -> None:
    given = inputs(Case((2, 4, 3, 3)), torch.float32)
    arrivals, vector = torch.zeros(4, dtype=torch.int32), torch.zeros(4)
    moments, after = (vector.clone(), arrivals, MOMENTUM, EPSILON), (vector, vector, arrivals, True)
    alone = r"x is \(1, 4, 1, 1\): batch norm takes .* more than one value a channel"
    refused(alone, batch_moments, given["x"][:1, :, :1, :1], vector, *moments)
    wide = r"running_mean is torch.float64 \(4,\): it must be torch.float32 \(4,\) beside x"
    refused(wide, batch_moments, given["x"], vector.double(), *moments)
    short = r"what is added is torch.float32 \(1, 4, 3, 3\): it must be"
    refused(short, batch_norm, given["x"], vector, vector, given["after"][:1], *after, [], False)
    refused(
        "a sum is not pooled",
        batch_norm,
        given["x"],
        vector,
        vector,
        given["after"],
        *after,
        [2, 2, 1, 0, 0, 2, 2],
        False,
    )


@pytest.mark.parametrize("model", WITH_NORMS, ids=lambda model: model.name)
def test_a_model_with_fused_norms_is_the_same_function_under_the_same_names(model) -> None:
    stem = "folded" if model.config.foldable else None
    plain = build(model, "channels_last").double()
    own = build(model, "channels_last", "fused", stem).double()
    generator = torch.Generator().manual_seed(0)
    for parameter in plain.parameters():
        torch.nn.init.normal_(parameter, std=0.3, generator=generator)
    own.load_state_dict(plain.state_dict())
    images = torch.randn(4, *model.config.image_shape, dtype=torch.float64, generator=generator)
    batch = {"images": images, "labels": torch.arange(4) % model.config.classes}
    found = []
    for module in (plain, own):
        module.reset_buffers()
        torch.manual_seed(0)
        loss = module.train()(batch)
        loss.backward()
        values = {f"gradient of {name}": value.grad for name, value in module.named_parameters()}
        values |= {
            name: buffer for name, buffer in module.named_buffers() if buffer.is_floating_point()
        }
        with torch.no_grad():
            found.append({"loss": loss.detach(), **values, "evaluated": module.eval()(batch)})
    size = max(
        float(value.norm()) for name, value in found[0].items() if name.startswith("gradient")
    )
    for name, exact in found[0].items():
        scale = size if name.startswith("gradient") else float(exact.norm())
        assert float((found[1][name] - exact).norm()) < 1e-10 * scale, name
    norms = [part for part in own.modules() if isinstance(part, FusedNorm)]
    assert len(norms) == sum(
        variable.kind == "norm" and variable.name.endswith("bias") for variable in model.variables
    )


def test_without_triton_the_library_computes_and_the_record_says_why(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    monkeypatch.setattr(operators.importlib.util, "find_spec", lambda name: None)
    operators.unavailable.cache_clear()
    assert operators.library_instead(torch.device("cuda", 0)) == "Triton is not installed"
    operators.unavailable.cache_clear()
    assert operators.library_instead(torch.device("cpu")) is None


@pytest.mark.gpu
@pytest.mark.skipif(MISSING, reason="needs a GPU that runs the kernels")
@pytest.mark.parametrize("precision", [torch.bfloat16, torch.float16])
def test_a_model_under_autocast_is_as_near_float32_as_the_librarys(precision: torch.dtype) -> None:
    model = SMALL["resnet_small"]
    generator = torch.Generator(device="cuda").manual_seed(0)
    images = torch.randn(32, *model.config.image_shape, generator=generator, device="cuda")
    batch = {"images": images, "labels": torch.arange(32, device="cuda") % model.config.classes}
    modules = {name: build(model, "channels_last", name) for name in (None, "fused")}
    weights = torch.Generator().manual_seed(1)
    for name, parameter in modules[None].named_parameters():
        torch.nn.init.normal_(
            parameter,
            1.0 if "norm" in name and name.endswith("weight") else 0.0,
            0.1,
            generator=weights,
        )
    modules["fused"].load_state_dict(modules[None].state_dict())
    for module in modules.values():
        module.cuda()

    def gradients(name: str | None, kind: torch.dtype | None) -> torch.Tensor:
        modules[name].zero_grad()
        modules[name].reset_buffers()
        with torch.autocast("cuda", dtype=kind or torch.bfloat16, enabled=kind is not None):
            loss = modules[name](batch)
        loss.backward()
        return torch.cat([parameter.grad.flatten() for parameter in modules[name].parameters()])

    exact = gradients(None, None)
    assert distance(gradients("fused", None), exact) < 1e-3
    assert distance(gradients("fused", precision), exact) < 1.2 * distance(
        gradients(None, precision), exact
    )


@pytest.mark.gpu
@pytest.mark.skipif(MISSING, reason="needs a GPU that runs the kernels")
def test_a_captured_pass_equals_an_eager_one() -> None:
    case = LARGE[3]
    given = inputs(case, torch.bfloat16, "cuda")
    eager = fused(case, given)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=torch.cuda.Stream()):
        captured = fused(case, given)
    for _ in range(3):
        graph.replay()
    torch.cuda.synchronize()
    assert all(torch.equal(captured[name], eager[name]) for name in eager)
