"""Small models as hypothesis draws them: a `Recipe` names what a model reads, of which blocks it
is made, how its loss is computed and how its batches look; `job_of` makes the job.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils import parametrizations
from torch.utils.checkpoint import checkpoint

import multigpu
from multigpu.workloads.own.job import Job

ROWS = 7  # of every embedding table
CLASSES = 3

READS = ("ids", "vector", "image", "sequence", "mixed")
TABLES = (
    *("plain", "padded", "bag", "function", "subclassed", "scaled", "tied", "twice", "two_names"),
    *("penalised", "positions", "shifted", "frozen_table", "hooked_table", "reversed"),
)
BLOCKS = (
    *("linear", "mlp", "layer_norm", "batch_norm", "group_norm", "residual", "dropout"),
    *("lstm", "gru", "rnn", "attention", "encoder", "convolution", "convolution_norm"),
    *("experts", "buffer", "wide_buffer", "unsaved_buffer", "counter", "whole_buffer"),
    *("hook", "pre_hook", "gradient_hook", "parameter_hook", "late_hook", "backward_hook"),
    *("frozen", "half_frozen", "unused", "empty", "gate", "scalar", "weight_norm", "orthogonal"),
    *("shared", "list", "dictionary", "recomputed", "own_function", "odd_view", "tall", "clamped"),
    *("seldom", "detached", "loop", "complex", "bilinear", "prelu", "einsum", "in_place"),
)
LOSSES = (
    *(
        "mse",
        "mse",
        "smooth",
        "classes",
        "smoothed",
        "own",
        "own_dict",
        "own_dataclass",
        "own_named",
    ),
    *("penalty", "sum", "tokens", "contrastive", "weighted", "float64"),
)
FORMS = ("tuple", "dict", "named", "nested", "list")
RULES = {
    "sgd": lambda: multigpu.SGD(0.01),
    "momentum": lambda: multigpu.SGD(0.005, momentum=0.9, weight_decay=0.01),
    "adam": lambda: multigpu.Adam(0.01),
    "adamw": lambda: multigpu.AdamW(0.01, weight_decay=0.1),
}


@dataclass(frozen=True)
class Recipe:
    """What a drawn model is. width, length: of what it reads; size: of a batch; seed: of values."""

    reads: str = "vector"
    table: str = "plain"
    blocks: tuple[str, ...] = ("linear",)
    loss: str = "mse"
    form: str = "tuple"
    rule: str = "sgd"
    width: int = 4
    length: int = 3
    size: int = 4
    small_ids: bool = False
    given: bool = False

    @property
    def positions(self) -> int:
        """Of a sample, as the model gives them."""
        if self.reads == "vector" or (self.reads in ("ids", "mixed") and self.table == "bag"):
            return 1
        return 4 * (self.length + 1) if self.reads == "image" else self.length


class Pair(NamedTuple):
    """A batch of named parts."""

    first: Tensor
    second: Tensor


@dataclass
class Output:
    """What a model of a library gives."""

    loss: Tensor
    logits: Tensor


class Tripled(nn.Embedding):
    """Rows times three."""

    def forward(self, ids: Tensor) -> Tensor:
        return 3 * super().forward(ids)


class Doubled(torch.autograd.Function):
    """A function with a backward of its own."""

    @staticmethod
    def forward(context: Any, x: Tensor) -> Tensor:
        context.save_for_backward(x)
        return x * x.sign() * 2

    @staticmethod
    def backward(context: Any, gradient: Tensor) -> Tensor:
        (x,) = context.saved_tensors
        return gradient * x.sign() * 2


def halve(parameter: Tensor) -> None:
    parameter.grad.mul_(0.5)


def as_sequence(x: Tensor) -> Tensor:
    """Of (n, D) a sequence of one."""
    return x if x.ndim == 3 else x.unsqueeze(1)


class Recurrent(nn.Module):
    """A recurrent layer whose states are added to its input."""

    def __init__(self, kind: type[nn.RNNBase], width: int, both: bool) -> None:
        super().__init__()
        self.layer = kind(width, width, batch_first=True, bidirectional=both)
        self.out = nn.Linear(width * (2 if both else 1), width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        found, _ = self.layer(as_sequence(x))
        return self.out(found).reshape(x.shape) + x


class Attention(nn.Module):
    """The library's attention over positions, causal."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.layer = nn.MultiheadAttention(width, 1, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        s = as_sequence(x)
        mask = torch.ones(s.shape[1], s.shape[1], dtype=torch.bool).triu(1)
        found, _ = self.layer(s, s, s, attn_mask=mask, need_weights=False)
        return found.reshape(x.shape)


class Encoder(nn.Module):
    """The library's layer of a transformer."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.layer = nn.TransformerEncoderLayer(width, 1, 2 * width, 0.1, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(as_sequence(x)).reshape(x.shape)


class Convolution(nn.Module):
    """A convolution over positions, and a norm behind it."""

    def __init__(self, width: int, norm: bool) -> None:
        super().__init__()
        self.layer = nn.Conv1d(width, width, 3, padding=1, bias=not norm)
        self.norm = nn.BatchNorm1d(width) if norm else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        found = self.norm(self.layer(as_sequence(x).transpose(1, 2)))
        return found.transpose(1, 2).reshape(x.shape)


class OverWidth(nn.Module):
    """A norm that wants the width as its second axis."""

    def __init__(self, norm: nn.Module) -> None:
        super().__init__()
        self.norm = norm

    def forward(self, x: Tensor) -> Tensor:
        return self.norm(as_sequence(x).transpose(1, 2)).transpose(1, 2).reshape(x.shape)


class Experts(nn.Module):
    """Each sample goes to one of three experts; those that nobody asks for get no gradient."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.chooser = nn.Linear(width, 3)
        self.experts = nn.ModuleList(nn.Linear(width, width) for _ in range(3))

    def forward(self, x: Tensor) -> Tensor:
        scores = self.chooser(x).softmax(-1)
        chosen = scores.argmax(-1)
        out = x.clone()
        for place, expert in enumerate(self.experts):
            asked = chosen == place
            if asked.any():
                out[asked] = expert(x[asked]) * scores[..., place][asked].unsqueeze(-1)
        return out


class Part(nn.Module):
    """A block with a parameter, a buffer or a hook of its own; `kind` says what it does."""

    def __init__(self, kind: str, width: int) -> None:
        super().__init__()
        self.kind = kind
        self.layer = nn.Linear(width, width)
        getattr(self, f"make_{kind}", lambda width: None)(width)

    def make_buffer(self, width: int) -> None:
        self.register_buffer("scale", torch.linspace(0.5, 1.5, width))

    def make_wide_buffer(self, width: int) -> None:
        self.register_buffer("scale", torch.linspace(0.5, 1.5, width, dtype=torch.float64))

    def make_unsaved_buffer(self, width: int) -> None:
        self.register_buffer("scale", torch.linspace(0.5, 1.5, width), persistent=False)

    def make_counter(self, width: int) -> None:
        self.register_buffer("seen", torch.zeros((), dtype=torch.int64))

    def make_whole_buffer(self, width: int) -> None:
        self.register_buffer("order", torch.arange(width).flip(0))

    def make_hook(self, width: int) -> None:
        self.layer.register_forward_hook(lambda layer, inputs, output: 2 * output)

    def make_pre_hook(self, width: int) -> None:
        self.layer.register_forward_pre_hook(lambda layer, inputs: (inputs[0] + 1,))

    def make_parameter_hook(self, width: int) -> None:
        self.layer.weight.register_hook(lambda gradient: gradient * 0.5)

    def make_late_hook(self, width: int) -> None:
        self.layer.bias.register_post_accumulate_grad_hook(halve)

    def make_backward_hook(self, width: int) -> None:
        self.layer.register_full_backward_hook(
            lambda layer, inputs, outputs: tuple(None if g is None else 3 * g for g in inputs)
        )

    def make_frozen(self, width: int) -> None:
        self.layer.requires_grad_(False)

    def make_half_frozen(self, width: int) -> None:
        self.layer.weight.requires_grad_(False)

    def make_unused(self, width: int) -> None:
        self.left_out = nn.Linear(width, 2)

    def make_empty(self, width: int) -> None:
        self.nothing = nn.Parameter(torch.zeros(0, width))

    def make_gate(self, width: int) -> None:
        self.gate = nn.Parameter(torch.tensor(0.3))

    def make_scalar(self, width: int) -> None:
        self.gate = nn.Parameter(torch.full((1, 1, 1), 0.7))

    def make_weight_norm(self, width: int) -> None:
        parametrizations.weight_norm(self.layer)

    def make_orthogonal(self, width: int) -> None:
        parametrizations.orthogonal(self.layer)

    def make_list(self, width: int) -> None:
        self.rows = nn.ParameterList(torch.full((width,), 0.1 * place) for place in range(1, 3))

    def make_dictionary(self, width: int) -> None:
        self.rows = nn.ParameterDict({"a-b": torch.ones(width), "c": torch.ones(1, width)})

    def make_tall(self, width: int) -> None:
        self.column = nn.Parameter(torch.linspace(-1, 1, width).reshape(width, 1).t())

    def make_complex(self, width: int) -> None:
        self.phases = nn.Parameter(torch.linspace(0, 1, 2 * (width // 2 + 1)).reshape(-1, 2))

    def make_bilinear(self, width: int) -> None:
        self.both = nn.Bilinear(width, width, width)

    def make_prelu(self, width: int) -> None:
        self.slope = nn.PReLU()

    def make_einsum(self, width: int) -> None:
        self.mix = nn.Parameter(torch.eye(width).unsqueeze(0).repeat(2, 1, 1))

    def forward(self, x: Tensor) -> Tensor:
        return getattr(self, f"do_{self.kind}", self.through)(x)

    def through(self, x: Tensor) -> Tensor:
        return self.layer(x)

    def scaled(self, x: Tensor) -> Tensor:
        return self.layer(x) * self.scale.to(x.dtype)

    do_buffer = do_wide_buffer = do_unsaved_buffer = scaled

    def do_counter(self, x: Tensor) -> Tensor:
        self.seen += 1
        return self.layer(x)

    def do_whole_buffer(self, x: Tensor) -> Tensor:
        return self.layer(x[..., self.order])

    def do_gradient_hook(self, x: Tensor) -> Tensor:
        out = self.layer(x)
        out.register_hook(lambda gradient: gradient * 2)
        return out

    def gated(self, x: Tensor) -> Tensor:
        return self.layer(x) * self.gate.reshape(())

    do_gate = do_scalar = gated

    def do_shared(self, x: Tensor) -> Tensor:
        return self.layer(self.layer(x).tanh())

    def do_list(self, x: Tensor) -> Tensor:
        return self.layer(x) + sum(row for row in self.rows)

    def do_dictionary(self, x: Tensor) -> Tensor:
        return self.layer(x) * self.rows["a-b"] + self.rows["c"].reshape(-1)

    def do_recomputed(self, x: Tensor) -> Tensor:
        return checkpoint(self.layer, x, use_reentrant=False)

    def do_own_function(self, x: Tensor) -> Tensor:
        return Doubled.apply(self.layer(x))

    def do_odd_view(self, x: Tensor) -> Tensor:
        flat = x.reshape(-1, x.shape[-1]).t()
        return (self.layer.weight @ flat).t().reshape(x.shape)

    def do_tall(self, x: Tensor) -> Tensor:
        return self.layer(x) * (1 + self.column.reshape(-1))

    def do_clamped(self, x: Tensor) -> Tensor:
        return F.linear(x, self.layer.weight.clamp(-0.3, 0.3), self.layer.bias)

    def do_seldom(self, x: Tensor) -> Tensor:
        return self.layer(x) if float(x.detach().sum()) > 0 else 2 * x

    def do_detached(self, x: Tensor) -> Tensor:
        return x + self.layer(x).detach()

    def do_loop(self, x: Tensor) -> Tensor:
        for _ in range(3):
            x = x + 0.1 * self.layer(x)
        return x

    def do_complex(self, x: Tensor) -> Tensor:
        waves = torch.fft.rfft(self.layer(x)) * torch.view_as_complex(self.phases)
        return torch.fft.irfft(waves, n=x.shape[-1])

    def do_bilinear(self, x: Tensor) -> Tensor:
        return self.both(x, x.tanh())

    def do_prelu(self, x: Tensor) -> Tensor:
        return self.slope(self.layer(x))

    def do_einsum(self, x: Tensor) -> Tensor:
        return self.layer(torch.einsum("...d,kde->...e", x, self.mix))

    def do_in_place(self, x: Tensor) -> Tensor:
        out = self.layer(x)
        out[..., 0] *= 2
        return out.relu_()

    def do_residual(self, x: Tensor) -> Tensor:
        return x + self.layer(x).tanh()


MADE: dict[str, Callable[[int], nn.Module]] = {
    "linear": lambda w: nn.Linear(w, w),
    "mlp": lambda w: nn.Sequential(nn.Linear(w, 2 * w), nn.GELU(), nn.Linear(2 * w, w)),
    "layer_norm": nn.LayerNorm,
    "batch_norm": lambda w: OverWidth(nn.BatchNorm1d(w)),
    "group_norm": lambda w: OverWidth(nn.GroupNorm(1, w)),
    "dropout": lambda w: nn.Sequential(nn.Dropout(0.5), nn.Linear(w, w)),
    "lstm": lambda w: Recurrent(nn.LSTM, w, True),
    "gru": lambda w: Recurrent(nn.GRU, w, False),
    "rnn": lambda w: Recurrent(nn.RNN, w, True),
    "attention": Attention,
    "encoder": Encoder,
    "convolution": lambda w: Convolution(w, False),
    "convolution_norm": lambda w: Convolution(w, True),
    "experts": Experts,
}


class Reader(nn.Module):
    """From ids to vectors, as the recipe's table says."""

    def __init__(self, kind: str, width: int) -> None:
        super().__init__()
        self.kind = kind
        layer = Tripled if kind == "subclassed" else nn.Embedding
        if kind == "bag":
            self.table: nn.Module = nn.EmbeddingBag(ROWS, width, mode="mean")
        else:
            self.table = layer(ROWS, width, padding_idx=0 if kind == "padded" else None)
        if kind == "frozen_table":
            self.table.requires_grad_(False)
        if kind == "hooked_table":
            self.table.register_forward_hook(lambda part, inputs, output: output * 2)
        if kind == "two_names":
            self.other = nn.Embedding(ROWS, width)
            self.other.weight = self.table.weight
        if kind == "positions":
            self.places = nn.Embedding(ROWS, width)

    def forward(self, ids: Tensor) -> Tensor:
        table = self.table
        if self.kind == "bag":
            return table(ids)
        if self.kind == "function":
            return F.embedding(ids, table.weight)
        if self.kind == "scaled":
            return table(ids) * table.embedding_dim**0.5
        if self.kind == "twice":
            return table(ids) + table(ids.flip(1)).tanh()
        if self.kind == "two_names":
            return table(ids) + self.other(ids)
        if self.kind == "positions":
            return table(ids) + self.places(torch.arange(ids.shape[1]))
        if self.kind == "shifted":
            return table((ids + 1) % ROWS)
        if self.kind == "reversed":
            return table(ids.flip(1))
        return table(ids)


class Net(nn.Module):
    """The drawn model."""

    def __init__(self, recipe: Recipe) -> None:
        super().__init__()
        self.recipe = recipe
        width = recipe.width
        if recipe.reads in ("ids", "mixed"):
            self.reader = Reader(recipe.table, width)
        if recipe.reads == "image":
            self.stem = nn.Conv2d(2, width, (3, 2), padding=1)
        if recipe.reads in ("vector", "sequence", "mixed"):
            self.enter = nn.Linear(width, width)
        self.blocks = nn.ModuleList(
            MADE[kind](width) if kind in MADE else Part(kind, width) for kind in recipe.blocks
        )
        outputs = CLASSES if recipe.loss in ("classes", "smoothed", "weighted", "tokens") else 1
        is_tied = recipe.table == "tied" and recipe.reads == "ids" and recipe.loss != "weighted"
        self.head = nn.Linear(width, ROWS if is_tied else outputs)
        if is_tied:
            self.head.weight = self.reader.table.weight

    def features(self, first: Tensor, second: Tensor | None) -> Tensor:
        reads = self.recipe.reads
        if reads == "ids":
            return self.reader(first)
        if reads == "mixed":
            assert second is not None
            found = self.reader(first)
            more = self.enter(second)
            return found + (more.unsqueeze(1) if found.ndim == 3 else more)
        if reads == "image":
            return self.stem(first).flatten(2).transpose(1, 2)
        return self.enter(first)

    def forward(
        self, first: Any, second: Tensor | None = None, target: Tensor | None = None
    ) -> Any:
        if isinstance(first, list | tuple):
            first, second = first
        x = self.features(first, second)
        for block in self.blocks:
            x = block(x)
        out = self.head(x)
        if self.recipe.loss != "tokens" and out.ndim == 3:
            out = out.mean(1)
        kind = self.recipe.loss
        if not kind.startswith("own"):
            return out
        assert target is not None
        loss = F.mse_loss(out[:, 0], target)
        if kind == "own_dict":
            return {"loss": loss, "logits": out}
        return (
            Output(loss, out)
            if kind == "own_dataclass"
            else (loss if kind == "own" else out_of(loss, out))
        )


class Named(NamedTuple):
    """A model's output of named parts."""

    loss: Tensor
    logits: Tensor


def out_of(loss: Tensor, out: Tensor) -> Named:
    return Named(loss, out)


def token_loss(out: Tensor, target: Tensor) -> Tensor:
    """A mean over the tokens that count, of which samples have unequally many."""
    return F.cross_entropy(out.reshape(-1, out.shape[-1]), target.reshape(-1), ignore_index=-1)


def contrastive_loss(out: Tensor, target: Tensor) -> Tensor:
    """Each sample against all others of its batch."""
    scores = out @ out.t() - (out.square().sum(1) / 2)
    return F.cross_entropy(scores, torch.arange(len(out)))


def weighted_loss(out: Tensor, target: Tensor) -> Tensor:
    """A mean weighted by classes, as the library divides it: by the weights of the batch."""
    return F.cross_entropy(out, target, weight=torch.tensor([1.0, 5.0, 0.2], dtype=out.dtype))


def first_of(function: Callable[..., Tensor], out: Tensor, target: Tensor) -> Tensor:
    return function(out[:, 0], target)


def penalised(model: list[nn.Module], out: Tensor, target: Tensor) -> Tensor:
    return F.mse_loss(out[:, 0], target) + out.square().mean() * 0.1


class Penalised(Net):
    """A loss of its own with a penalty on all that is trained, tables among it."""

    def forward(self, first: Any, second: Any = None, target: Any = None) -> Any:
        out = super().forward(first, second)
        weights = sum(p.square().sum() for p in self.parameters() if p.requires_grad)
        return F.mse_loss(out[:, 0], target) + 0.01 * weights


LOSS_OF: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "mse": partial(first_of, F.mse_loss),
    "smooth": partial(first_of, F.smooth_l1_loss),
    "classes": F.cross_entropy,
    "smoothed": partial(F.cross_entropy, label_smoothing=0.1),
    "sum": partial(first_of, partial(F.mse_loss, reduction="sum")),
    "float64": lambda out, target: F.mse_loss(out[:, 0].double(), target.double()),
    "tokens": token_loss,
    "contrastive": contrastive_loss,
    "weighted": weighted_loss,
}


def batch_of(recipe: Recipe, n: int, generator: torch.Generator) -> Any:
    """A batch, drawn from the generator, in the recipe's form."""
    width, length = recipe.width, recipe.length

    def numbers(*shape: int) -> Tensor:
        return torch.rand(*shape, generator=generator) * 2 - 1

    kind = torch.int32 if recipe.small_ids else torch.int64
    ids = torch.randint(ROWS, (n, length), generator=generator).to(kind)
    first = {
        "ids": lambda: ids,
        "mixed": lambda: ids,
        "vector": lambda: numbers(n, width),
        "sequence": lambda: numbers(n, length, width),
        "image": lambda: numbers(n, 2, length + 1, 3),
    }[recipe.reads]()
    second = numbers(n, width) if recipe.reads == "mixed" else None
    classes = torch.randint(CLASSES, (n,), generator=generator)
    if recipe.loss == "tokens":
        target = torch.randint(CLASSES, (n, recipe.positions), generator=generator)
        left = torch.rand(n, recipe.positions, generator=generator) < 0.4
        left[:, 0] = False
        target = target.masked_fill(left, -1)
    elif recipe.loss in ("classes", "smoothed", "weighted"):
        target = classes
    else:
        target = numbers(n)
    return laid_out(recipe, first, second, target)


def laid_out(recipe: Recipe, first: Tensor, second: Tensor | None, target: Tensor) -> Any:
    """These tensors in the recipe's form; all in one where the model computes its loss."""
    inputs = {"first": first} | ({} if second is None else {"second": second})
    if recipe.loss.startswith("own") or recipe.loss == "penalty":
        return inputs | {"target": target}
    if recipe.form == "dict":
        return inputs, target
    if second is None:
        return (first, target) if recipe.form != "list" else ([first], target)
    if recipe.form == "named":
        return Pair(first, second), target
    if recipe.form == "nested":
        return ((first, second),), target
    return (first, second), target


def job_of(recipe: Recipe) -> Job:
    """The job of a recipe."""
    own = recipe.loss.startswith("own") or recipe.loss == "penalty"
    make = partial(Penalised if recipe.loss == "penalty" else Net, recipe)
    model: Any = make
    if recipe.given:
        torch.manual_seed(5)
        model = make()
    return Job(
        model,
        partial(batch_of, recipe),
        None if own else LOSS_OF[recipe.loss],
        RULES[recipe.rule](),
        batch_size=recipe.size,
        name="drawn",
    )
