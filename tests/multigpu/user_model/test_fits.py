"""The memory that a step is forecast to need: bytes worked out by hand, and what PyTorch's own
profiler counts of allocations in a step of a larger batch.
"""

import gc
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.fx.experimental.proxy_tensor import make_fx
from torch.nn import functional as F

import multigpu
from multigpu.cli.main import main
from multigpu.placements.memory import StepNeeds, needed
from multigpu.spec.errors import JobError
from multigpu.user_model.activations import LiveBytes, activations_of, told_of
from multigpu.user_model.compiled import Memory
from multigpu.user_model.examine_torch import Examined as ExaminedTorch
from multigpu.user_model.examining import Request, _answered
from multigpu.user_model.fits import CUBLAS_BYTES, GIB, StepMemory, fits, step_memory
from multigpu.user_model.per_batch import (
    COMPILED,
    GIVEN,
    WRITTEN,
    PerBatch,
    lines_of,
    per_batch,
    through,
)
from multigpu.workloads.own.job import Job
from multigpu.workloads.own.structure import put_together, taken_apart
from multigpu.workloads.own.torch import loss_of, own_module, tensors_of
from tests.multigpu.placements.test_kept import model_of, run_of

JOBS = Path(__file__).parent / "jobs"


def test_bytes_of_a_batch_follow_two_counts_by_hand() -> None:
    """A moment of 200 bytes and 400 a sample, and one of 3,000 whatever the batch."""
    found = through(2, [1_000, 3_000], 4, [1_800, 3_000])
    assert [found.of(samples) for samples in (1, 7, 10)] == [3_000, 3_000, 4_200]
    assert found.most_samples(4_200) == 10 and found.most_samples(4_199) == 9
    assert found.most_samples(2_999) == 0, "not even what is fixed"
    assert through(8, [1_600, 900], 8, [1_600, 900]).of(4) == 800
    unlike = through(2, [500, 1_000], 4, [500, 700, 1_800])
    assert unlike.of(10) == 4_200, "other operators for another batch: the most of each"


def test_gradients_count_as_far_as_a_moment_has_them() -> None:
    """At one moment a sample has 1,000 bytes and no gradient is there, at one 300 and half are."""
    found = through(2, [2_000, 600], 4, [4_000, 1_200], [0.0, 0.5])
    assert [found.of(1, size) for size in (400, 1_400, 5_000)] == [1_000, 1_000, 2_800]
    assert [found.most_samples(2_400, size) for size in (400, 3_600, 3_800, 4_400)] == [2, 2, 1, 0]
    assert through(2, [100], 4, [200]).of(1, 400) == 50, "when they come is not known"
    assert through(2, [100], 4, [0, 200], [0.0, 1.0]).of(1, 400) == 50, "where moments differ"
    assert per_batch([(0.0, 50.0)]).of(1, 400) == 50, "nor was it kept before"


def test_a_step_s_memory_by_hand() -> None:
    line = PerBatch(np.array([100.0]), np.array([10.0]), np.array([0.0]))
    memory = StepMemory("ddp", False, 4, StepNeeds(5_000), line)
    assert memory.peak(9) == 5_000 + 100 + 10 * 3, "the largest of four parts has three samples"
    assert memory.largest_batch(5_400) == 4 * 30
    assert memory.largest_batch(5_000) == 0
    needed = StepNeeds(4_000, made=800, updating=100, building=4_500)
    memory = StepMemory("independent", False, 1, needed, line)
    assert [memory.peak(samples) for samples in (1, 90)] == [4_900, 5_000]
    assert memory.largest_batch(4_899) == 0 and memory.largest_batch(5_400) == 130
    assert needed.peak(800) == 4_900 and needed.peak(1_000) == 5_000
    assert StepNeeds(10, building=50).peak(30) == 50


def test_a_graph_and_what_is_ahead_hold_batches_more() -> None:
    """Of a sample 30 bytes pass, 8 of which are given; four parts pass, and all of them are there
    at once: in a graph's own memory, too, and twice ahead.
    """
    traced = {WRITTEN: per_batch([(0.0, 30.0)]), GIVEN: per_batch([(0.0, 8.0)])}
    model = model_of("samples", a_kernel=(1, 1))
    more = {"inputs": "synthetic_host", "prefetch": 2}
    for fields, parts, expected in (
        ({}, 1, 30),
        ({"execution": "captured"}, 1, 38),
        ({"execution": "captured"}, 4, (30 + 7 * 8) / 4),
        (more, 1, 46),
    ):
        run = run_of("independent", 1, micro_steps=None if parts == 1 else parts, **fields)
        memory = step_memory(run, model, traced)
        assert memory is not None
        assert memory.peak(10**9 * 4) - memory.needed.held == expected * 10**9 * 4
        assert memory.needed.held == needed(run, model).held + CUBLAS_BYTES


def test_whole_models_alone_are_compiled_as_they_are_followed() -> None:
    """Under fsdp2 each block is compiled by itself, and needs at most what is written."""
    traced = {WRITTEN: per_batch([(0.0, 30.0)]), WRITTEN + COMPILED: per_batch([(0.0, 20.0)])}
    for placement, each in (("ddp", 20), ("fsdp2", 30)):
        run = run_of(placement, 2, execution="compiled")
        memory = step_memory(run, model_of("samples", a_kernel=(1, 1)), traced)
        assert memory is not None and memory.is_compiled == (placement == "ddp")
        assert memory.peak(10**9) - memory.needed.held == each * 10**9


def test_sparse_gradients_are_forecast_as_placements_make_them() -> None:
    def looked_up(sparse: bool) -> Job:
        table = partial(nn.EmbeddingBag, 900, 40, sparse=sparse)
        return Job(table, ids, lambda out, target: F.mse_loss(out.sum(1), target), batch_size=8)

    assert told_of(looked_up(True)) == told_of(looked_up(False)) != {}
    assert "unforecast" not in told_of(looked_up(True))


def ids(n: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    return torch.randint(900, (n, 5), generator=generator), torch.rand(n, generator=generator)


def test_the_lines_that_are_kept_tell_as_much_as_every_moment() -> None:
    draw = np.random.default_rng(0)
    for count in (1, 2, 50):
        ends = ((0, 1e6), (0, 1e4), (0, 1))
        found = PerBatch(*(draw.uniform(*each, count) for each in ends))
        kept = per_batch(lines_of(found))
        assert len(kept.each) <= count
        for size in (0.0, 1e5, 1e8):
            for samples in (1, 3, 40, 1_000, 10**6):
                assert kept.of(samples, size) == found.of(samples, size)
            for room in (1e4, 1e6, 3e7):
                assert kept.most_samples(room, size) == found.most_samples(room, size)


def test_what_cannot_be_followed_is_told_and_stops_nothing() -> None:
    job = Job(Net, pair, lambda out, target: (out - target).mean(), batch_size=16)
    assert told_of(job, ("nowhere", "cpu")) == told_of(job) != told_of(job, ("nowhere",))
    why = told_of(job, ("nowhere",))["unforecast"]
    assert why.startswith("RuntimeError: Expected one of cpu")
    broken = Job(Net, pair, lambda out, target: out[:, 3, 3].mean(), batch_size=4)
    assert told_of(broken).keys() == {"unforecast"}
    deep = told_of(MODELS["deep"])["activations"]
    plain, recomputed = (per_batch(deep[way]) for way in ("as written", "recomputed"))
    assert recomputed.of(LARGE) < 0.5 * plain.of(LARGE)


def test_storages_are_counted_while_they_live_and_views_are_not() -> None:
    given = torch.zeros(100)
    with LiveBytes() as live:
        first = given + 1  # 400 bytes
        view = first[10:]
        second = first * 2  # 800
        del first
        assert live.now == 800, "the view keeps its storage"
        del view
        assert live.now == 400
        second.mul_(2)
        third = torch.cat([second, second])  # 400 + 800
        assert live.now == 1_200 and max(live.after) == 1_200
    del second, third


class Net(nn.Module):
    """One layer, of which each byte is known."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(50, 100, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x).square().sum(1)


def pair(n: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    return torch.rand(n, 50, generator=generator), torch.rand(n, generator=generator)


def test_a_layer_s_bytes_by_hand() -> None:
    """Alive at most: where the square's gradient is made. Of a sample there are x (200 bytes), the
    target and one gradient (4 each), the layer's output, which the square keeps, and of its own
    gradient the output's power, twice that, and the product (400 each). The weight's gradient
    (20,000) is made where these are gone.
    """
    job = Job(Net, pair, lambda out, target: (out - target).mean(), batch_size=16)
    found = activations_of(job, "fp32")
    assert found is not None
    assert found.of(1) == pytest.approx(20_000 + 600, abs=250)
    assert found.of(1_000) / 1_000 == pytest.approx(200 + 4 + 4 + 4 * 400, abs=1)


class Waves(Net):
    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x).sin().exp().tanh().sum(1)


def test_a_compiled_layer_s_bytes_by_hand() -> None:
    """As it is written a sample has x (200 bytes), target and a gradient (4 each), and 400 each
    for what the layer, exp and tanh gave, and for a gradient. A compiler keeps of the four what the
    layer gave, in whose place comes its gradient, and the sample's output (4).
    """
    job = Job(Waves, pair, lambda out, target: (out - target).mean(), batch_size=16)
    plain, compiled = (activations_of(job, "fp32", compiled=each) for each in (False, True))
    assert plain is not None and compiled is not None
    assert plain.of(10**6) / 10**6 == pytest.approx(200 + 2 * 4 + 4 * 400, abs=0.1)
    assert compiled.of(10**6) / 10**6 == pytest.approx(200 + 3 * 4 + 400, abs=0.1)


def test_what_only_kernels_read_is_no_memory_and_what_is_read_no_more_is_taken() -> None:
    def step(x: Tensor, variable: Tensor) -> Tensor:
        wide = x.exp() * 2  # read by a product: in memory, where x was
        return ((wide @ variable).cos() + wide).sum()  # the sum of both is inside a kernel

    given = torch.ones(4, 4), torch.ones(4, 4)
    memory = Memory(make_fx(step, tracing_mode="fake")(*given).graph)
    assert {node.name for node in memory.unmade} == {"exp", "cos", "add"}
    assert {(new.name, old.name) for new, old in memory.overwritten.items()} == {("mul", "x_1")}


class Convolutions(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.parts = nn.ModuleList(
            nn.Sequential(nn.Conv2d(c, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU())
            for c in (3, 16, 16)
        )
        self.head = nn.Linear(16, 5)

    def forward(self, x: Tensor) -> Tensor:
        for part in self.parts:
            x = part(x)
        return self.head(x.mean((2, 3)))


class Deep(nn.Module):
    """Blocks of which much is kept unless it is recomputed."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.Linear(32, 128), nn.GELU(), nn.Linear(128, 32), nn.Tanh())
            for _ in range(8)
        )

    def forward(self, x: Tensor) -> Tensor:
        for block in self.blocks:
            x = x + block(x)
        return x.mean(1)


def of_shape(*shape: int, classes: int = 0) -> Callable[[int, torch.Generator], Any]:
    def batch(n: int, generator: torch.Generator) -> Any:
        x = torch.rand(n, *shape, generator=generator)
        if classes:
            return x, torch.randint(classes, (n,), generator=generator)
        return x, torch.rand(n, generator=generator)

    return batch


def tagged(found: Any, target: Tensor) -> Tensor:
    return F.mse_loss(found[0].mean((1, 2)), target)


MODELS = {
    "convolutions": Job(
        Convolutions, of_shape(3, 16, 16, classes=5), F.cross_entropy, batch_size=8
    ),
    "deep": Job(Deep, of_shape(32), F.mse_loss, batch_size=8),
    "recurrent": Job(
        lambda: nn.LSTM(16, 24, batch_first=True), of_shape(12, 16), tagged, batch_size=8
    ),
    "attention": Job(
        lambda: nn.TransformerEncoderLayer(32, 4, 64, batch_first=True),
        of_shape(20, 32),
        lambda out, target: F.mse_loss(out.mean((1, 2)), target),
        batch_size=8,
    ),
}
LARGE = 64


def allocated(job: Job, samples: int, anew: bool = False, **update: Any) -> int:
    """The most bytes above the start that PyTorch's profiler counts in a step of so many samples,
    its gradients there before, or made anew. update: settings of AdamW, which then updates, too.
    """
    module = own_module(job)
    for parameter in module.parameters():
        parameter.grad = torch.zeros_like(parameter)
    structure, arrays = taken_apart(job.batch(samples, torch.Generator().manual_seed(0)))
    batch = tensors_of(arrays, torch.float32)
    optimizer = torch.optim.AdamW(module.parameters(), **update)
    loss_of(job, module, put_together(structure, batch)).backward()
    optimizer.step()
    optimizer.zero_grad(set_to_none=anew)
    gc.collect()
    with torch.profiler.profile(profile_memory=True) as profile:
        loss = loss_of(job, module, put_together(structure, batch))
        loss.backward()
        if update:
            optimizer.step()
    now = most = 0
    events = [
        each for each in profile.profiler.kineto_results.events() if each.name() == "[memory]"
    ]
    for event in sorted(events, key=lambda each: each.start_ns()):
        now += event.nbytes()
        most = max(most, now)
    return most + sum(tensor.nbytes for tensor in batch.values())


@pytest.mark.parametrize("name", MODELS)
def test_few_samples_tell_what_pytorch_allocates_for_many(name: str) -> None:
    found = activations_of(MODELS[name], "fp32")
    assert found is not None
    # what a recurrent kernel works with inside is no operator's
    near = 0.2 if name == "recurrent" else 0.05
    assert found.of(LARGE) == pytest.approx(allocated(MODELS[name], LARGE), rel=near)


class Wide(nn.Module):
    """Layers as wide as their input, of which a batch of 256 holds about what gradients do."""

    def __init__(self, layers: int = 8, width: int = 256) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            *(nn.Sequential(nn.Linear(width, width), nn.GELU()) for _ in range(layers))
        )

    def forward(self, x: Tensor) -> Tensor:
        return self.layers(x).mean(1)


class Tied(nn.Module):
    """A table that is looked up and is the last layer, too, whose gradient waits for both."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.layer = nn.Embedding(2_000, 32), nn.Linear(32, 32)

    def forward(self, x: Tensor) -> Tensor:
        state = self.layer(self.table((x * 2_000).long()))
        return (state @ self.table.weight.T).logsumexp(2).mean(1)


STEPS = {
    "activations": (MODELS["deep"], 1_024),
    "variables": (Job(partial(Wide, 4, 512), of_shape(512), F.mse_loss, batch_size=8), 16),
    "as much of both": (Job(Wide, of_shape(256), F.mse_loss, batch_size=8), 256),
    "a table used twice": (Job(Tied, of_shape(20), F.mse_loss, batch_size=8), 16),
}


def forecast(job: Job, placement: str, more: int = 0) -> StepMemory:
    """What a step of a job under a placement needs of one device. more: arrays of an update."""
    named = dict(own_module(job).named_parameters())
    model = model_of("samples", **{name: tuple(each.shape) for name, each in named.items()})
    size = more * sum(each.nbytes for each in named.values())
    lines = activations_of(job, "fp32")
    assert lines is not None
    found = replace(needed(run_of(placement, 1), model), updating=size)
    return StepMemory(placement, False, 1, found, lines)


@pytest.mark.parametrize("name", STEPS)
@pytest.mark.parametrize("update", ["fused", "foreach"])
@pytest.mark.parametrize("placement", ["independent", "replicated_allreduce"])
def test_a_whole_step_peaks_as_forecast(placement: str, update: str, name: str) -> None:
    """Its gradients made anew or kept, whichever is the most: activations, gradients at the end of
    backward, or what an update makes.
    """
    job, samples = STEPS[name]
    size = sum(parameter.nbytes for parameter in own_module(job).parameters())
    anew = placement == "independent"
    there = (3 if anew else 4) * size  # variables, two states, and kept gradients
    true = there + allocated(job, samples, anew, **{update: True})
    found = forecast(job, placement, int(update == "foreach"))
    assert found.peak(samples) == pytest.approx(true, rel=0.03)
    assert found.largest_batch(1.05 * true) >= samples > found.largest_batch(0.95 * true)


def test_recomputed_blocks_hold_less() -> None:
    plain, recomputed = (activations_of(MODELS["deep"], "fp32", again) for again in (False, True))
    assert plain is not None and recomputed is not None
    assert recomputed.of(LARGE) < 0.5 * plain.of(LARGE)
    assert activations_of(MODELS["recurrent"], "fp32", True) is None, "no block repeats"


def test_sixteen_bits_hold_less() -> None:
    full, half = (activations_of(MODELS["deep"], kind) for kind in ("fp32", "bf16"))
    assert full is not None and half is not None
    assert 0.4 * full.of(LARGE) < half.of(LARGE) < 0.9 * full.of(LARGE)


def test_a_model_of_whole_batches_is_counted_by_them() -> None:
    job = Job(
        Net,
        pair,
        lambda out, target: (out.view(2, 8).mean() - target.view(2, 8).mean()) ** 2,
        batch_size=16,
    )
    found = activations_of(job, "fp32")
    assert found is not None and found.of(8) == found.of(16) / 2 > 800 * 8


@pytest.mark.usefixtures("examined_here")
@pytest.mark.timeout(300)
def test_placements_are_judged_by_what_they_keep(capsys: pytest.CaptureFixture[str]) -> None:
    wide = Job(lambda: nn.Linear(512, 512), of_shape(512), tagged_wide, multigpu.Adam(1e-3), 16)
    found = fits(wide, memory_gib=80, devices=4, names=["ddp", "zero1", "fsdp2", "exp4"])
    once = found[found["micro_steps"].eq(1)].set_index("placement")
    size = 4 * (512 * 512 + 512) / GIB
    kept = (once["kept_gib"] - CUBLAS_BYTES / GIB) / size
    assert kept["ddp"] == pytest.approx(5), "variables, gradients twice at first, two states"
    assert kept["zero1"] == pytest.approx(2 + 2 / 4, rel=0.01)
    assert kept["ddp"] < kept["fsdp2"], "the one layer is gathered whole, beside its pieces"
    assert (once["peak_gib"] > once["kept_gib"]).tolist() == [True, False, True, True]
    assert once["fits"].all() and once.index[1] == "fsdp2", "gathered, it is most after backward"
    own = fits(replace(wide, optimizer=torch.optim.AdamW), 80, 4, ["zero1"])["kept_gib"]
    own = (own - CUBLAS_BYTES / GIB) / size
    assert own.tolist() == pytest.approx([2 + 3 / 4] * 2, rel=0.01), "an array for its update"
    parts = found[found["placement"].eq("zero1")].set_index("micro_steps")
    given, passing = 4 * 513, 79 * GIB / parts.loc[1, "largest_batch"]  # bytes of a sample
    most = 4 * 79 * GIB / (passing + 3 * given)  # the batch is there whole
    assert parts.loc[4, "largest_batch"] == pytest.approx(most, rel=0.002)
    none = fits(wide, memory_gib=1.0, devices=4, names=["ddp"])
    assert not none["fits"].any() and not none["largest_batch"].any(), "CUDA keeps a GiB"
    assert (
        main(["fits", f"{JOBS / 'gpt.py'}:job", "--memory", "80", "--placements", "ddp,exp4"]) == 0
    )
    said = capsys.readouterr().out
    assert "recomputed, 4 micro-steps" in said and "exp4" in said


def tagged_wide(out: Tensor, target: Tensor) -> Tensor:
    return F.mse_loss(out.mean(1), target)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ((), "no GPU is here: say how many GiB one has by --memory, such as 80"),
        (("--memory", "nan"), "'nan' is no size: give GiB"),
        (("--memory", "80", "--placements", "best"), "unknown placement 'best'"),
        (("--memory", "80", "--budget-s", "1"), "job was not examined within 1 s: it "),
    ],
)
def test_what_cannot_be_asked_is_told_in_a_sentence(
    words: tuple[str, ...], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    try:
        code = main(["fits", f"{JOBS / 'gpt.py'}:job", *words])
    except SystemExit as ended:
        code = ended.code
    said = capsys.readouterr().err
    assert code == 2 and told in said and said.count("\n") == 1


@pytest.mark.usefixtures("examined_here")
def test_a_forecast_compares_nothing_and_passes_few_samples(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A comparison's passes of whole batches took a model of usual size more than ten minutes."""
    asked = []
    whole_batch = ExaminedTorch.whole_batch
    monkeypatch.setattr(ExaminedTorch, "comparability", None)
    monkeypatch.setattr(
        ExaminedTorch,
        "whole_batch",
        lambda self, number, rows: asked.append(rows) or whole_batch(self, number, rows),
    )
    found = fits(
        Job(Net, pair, lambda out, target: (out - target[:, None]).square().mean(), batch_size=64),
        80,
        2,
        ["ddp"],
    )
    assert found["fits"].all() and asked and max(asked) < 4


def test_a_packed_job_that_cannot_be_read_has_a_sentence_with_a_subject(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unpack(packed: Path) -> Job:
        raise ModuleNotFoundError("No module named 'beside'")

    monkeypatch.setattr("multigpu.user_model.examining.unpack", unpack)
    paths = dict.fromkeys(("packed", "folder", "answer", "stacks"), tmp_path)
    how = dict.fromkeys(("timed", "compiled", "compared"), False)
    told = _answered(Request(replicas=2, ends_s=0.0, **paths, **how))["error"]
    assert str(told).startswith("the job fails with ModuleNotFoundError")


@pytest.mark.usefixtures("examined_here")
def test_a_job_that_does_not_compute_is_refused() -> None:
    broken = Job(Net, pair, lambda out, target: out[:, 3, 3].mean(), batch_size=4)
    with pytest.raises(JobError, match="loss fails with"):
        fits(broken, memory_gib=80)
