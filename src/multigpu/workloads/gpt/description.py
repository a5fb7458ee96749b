"""Decoder-only transformers as GPT-2 was published, framework-free: sizes, variables, sections and
operations a token.

A block normalises what it reads before its attention and before its two dense layers, and adds what
each gives to what it read. The table of tokens is also the projection to the vocabulary (a tied
head), so it is a matrix that is always used whole, and no table whose rows alone are looked up.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, partial
from math import sqrt
from pathlib import Path

from multigpu.spec.model import Exchange, Init, Model, Optimizer, Splitting, Variable
from multigpu.spec.stage_graph import Stage
from multigpu.workloads.base import models_in

VOCABULARY = 50_304
"""GPT-2's 50,257 entries, filled up to a multiple of 128, as nanoGPT and llm.c do."""


@dataclass(frozen=True)
class GptConfig:
    """Sizes of one transformer. context: the most tokens of a sequence, each of which has a row of
    `positions`. dropout: share of the embedded tokens, of the attention's weights and of what each
    branch adds that is dropped in training.
    """

    layers: int
    width: int
    heads: int
    vocabulary: int = VOCABULARY
    context: int = 1024
    dropout: float = 0.0


def block_variables(config: GptConfig, layer: int) -> tuple[Variable, ...]:
    """Return one block's, in the order of the module's parameters; kernels are [outputs, inputs].

    The rows of `qkv` are head after head: of each its query's, its key's and its value's rows, so
    that a stretch of them is some heads. Starts: normal of 0.02, of what is added to the residual
    sum 0.02 / sqrt(2 layers); biases at 0.
    """
    n, name = config.width, f"blocks.{layer}"
    branch = Init("normal", 0.02 / sqrt(2 * config.layers))

    def norm(which: str) -> tuple[Variable, Variable]:
        return (
            Variable(f"{name}.{which}.weight", (n,), "norm", Init("constant", 1.0)),
            Variable(f"{name}.{which}.bias", (n,), "norm", Init("constant", 0.0)),
        )

    def dense(which: str, outputs: int, inputs: int, start: Init) -> tuple[Variable, Variable]:
        return (
            Variable(f"{name}.{which}.weight", (outputs, inputs), "dense", start),
            Variable(f"{name}.{which}.bias", (outputs,), "bias", Init("constant", 0.0)),
        )

    plain = Init("normal", 0.02)
    return (
        *norm("norm_1"),
        *dense("qkv", 3 * n, n, plain),
        *dense("out", n, n, branch),
        *norm("norm_2"),
        *dense("up", 4 * n, n, plain),
        *dense("down", n, 4 * n, branch),
    )


def variables(config: GptConfig) -> tuple[Variable, ...]:
    """Return the table, the positions, each block's twelve and the last norm's two: with V entries,
    T positions, L blocks of width C, (V + T) C + L (12 C^2 + 13 C) + 2 C parameters.
    """
    n = config.width
    return (
        Variable("table", (config.vocabulary, n), "projection", Init("normal", 0.02)),
        Variable("positions", (config.context, n), "projection", Init("normal", 0.02)),
        *(v for layer in range(config.layers) for v in block_variables(config, layer)),
        Variable("norm.weight", (n,), "norm", Init("constant", 1.0)),
        Variable("norm.bias", (n,), "norm", Init("constant", 0.0)),
    )


def forward_flops_per_token(config: GptConfig, length: int) -> float:
    """Return the operations of the forward pass for one token of a sequence of `length`:
    2 N + 4 L C T, a third of the 6 N + 12 L C T of training.

    N: all parameters, of which the table computes as the head; norms, biases and positions, 1% of
    the smallest published model, are counted as if they were matrices. T: all positions are
    counted, although causal kernels skip those after the token.
    """
    parameters = sum(v.elements for v in variables(config))
    return 2.0 * parameters + 4.0 * config.layers * config.width * length


def memory_passes_per_token(config: GptConfig) -> float:
    """Return how many numbers a training step reads or writes for one token at least
    (`Model.memory_passes_per_unit`): a dense layer 3 for each input and output; attention that
    keeps no weights its three inputs and its output forward (4 C), these and the output's gradient
    backward, with three gradients written (8 C); the logits 5; the look-up 4. What a compiler may
    join with these, norms, sums and activations, is left out.
    """
    n = config.width
    block = 3 * (4 * n + 2 * n + 5 * n + 5 * n) + 12 * n
    return float(config.layers * block + 4 * n + 3 * n + 5 * config.vocabulary)


def sections(config: GptConfig, length: int) -> tuple[Stage, ...]:
    """Return the embedding, each block, and the head, to which the embedding hands the table itself
    (`once` a pass, however many rows): its gradient comes back with the tokens'.
    """
    n, vocabulary = config.width, config.vocabulary
    passed = {"rows": length * n}
    looked_up = {"embedded": passed, "shared_table": {"once": vocabulary * n}}
    tables = ("table", "positions")
    found = [Stage("embedding", gives=looked_up, variables=tables, work={"rows": 0})]
    below = "embedded"
    for layer in range(config.layers):
        name, own = f"blocks.{layer}", tuple(v.name for v in block_variables(config, layer))
        work = {"rows": 2 * 12 * n * n * length + 4 * n * length * length}
        found.append(Stage(name, (below,), gives={name: passed}, variables=own, work=work))
        below = name
    norm, work = ("norm.weight", "norm.bias"), {"rows": 2 * n * vocabulary * length}
    found.append(Stage("head", (below, "shared_table"), variables=norm, work=work))
    return tuple(found)


def splitting(config: GptConfig, length: int) -> Splitting | None:
    """Return how the matrices are cut as Megatron-LM does; None with dropout, whose draws would
    differ between devices that hold the same.

    Each branch is joined once forward and its input's gradient once backward, float32 under
    autocast, as layer norm's output is; so too the embedded tokens and the head. Of a token's loss
    its largest logit travels, then two sums.
    """
    if config.dropout:
        return None
    by_outputs = ("qkv.weight", "qkv.bias", "up.weight", "up.bias")
    axes = {"table": 0}
    for layer in range(config.layers):
        axes |= {f"blocks.{layer}.{name}": 0 for name in by_outputs}
        axes |= {f"blocks.{layer}.{name}": 1 for name in ("out.weight", "down.weight")}
    passed = length * config.width
    return Splitting(
        axes,
        (
            Exchange("all_reduce", passed * 2 * config.layers),
            Exchange("all_reduce", passed * (2 * config.layers + 2) + 3 * length, exact=True),
        ),
        equal=config.heads,
        equal_of="heads",
    )


def describe(name: str, config: GptConfig, optimizer: Optimizer, length: int = 0) -> Model:
    """Describe one transformer that reads sequences of `length` tokens (0: as many as it can)."""
    length = length or config.context
    return Model(
        name=name,
        workload="gpt",
        unit="tokens",
        variables=variables(config),
        optimizer=optimizer,
        forward_flops_per_unit=forward_flops_per_token(config, length),
        memory_passes_per_unit=memory_passes_per_token(config),
        config=config,
        declare_sections=lambda: sections(config, length),
        splitting=splitting(config, length),
        context=config.context,
        at_length=cache(partial(describe, name, config, optimizer)),
    )


MODELS: Mapping[str, Model] = models_in(Path(__file__).parent, GptConfig, describe)
