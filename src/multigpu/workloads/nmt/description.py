"""The translation models, framework-free: sizes, the variables as document 000 counts them, and
operations a word.

An LSTM encoder-decoder without attention. The encoder is two separate stacks, one reading forwards
and one backwards. The decoder has one cell for every encoder cell and starts from their last
states: forward 0, backward 0, forward 1, backward 1.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from math import sqrt
from pathlib import Path

from multigpu.spec.model import LSTM_PASSES, Init, Model, Optimizer, Variable
from multigpu.spec.stage_graph import Stage
from multigpu.workloads.base import models_in


@dataclass(frozen=True)
class NmtConfig:
    """Sizes of one translation model. units: width of every cell and of both embeddings.
    encoder_layers: cells of each encoder stack.
    forget_bias: added to the forget gate at run time and not part of its bias variable, as
        TensorFlow's cell does.
    initial_scale: every kernel, table and projection starts uniform in +- this; None is Glorot's
        law for its own shape.
    dropout: share of every cell's input that is dropped in training, at every position anew
        (tensorflow/nmt's `DropoutWrapper`).
    """

    units: int
    source_vocabulary: int
    target_vocabulary: int
    encoder_layers: int = 2
    forget_bias: float = 1.0
    initial_scale: float | None = None
    dropout: float = 0.0

    @property
    def decoder_cells(self) -> int:
        return 2 * self.encoder_layers

    @property
    def stacks(self) -> dict[str, int]:
        return {
            "encoder_forward": self.encoder_layers,
            "encoder_backward": self.encoder_layers,
            "decoder": self.decoder_cells,
        }

    def cell_names(self, stack: str) -> list[str]:
        """Return the prefix of the variables' names of each cell of `stack`, lowest cell first."""
        return [f"{stack}_{layer}" for layer in range(self.stacks[stack])]


def variables(config: NmtConfig) -> tuple[Variable, ...]:
    """Two tables, a kernel and a bias for each cell, a projection without bias: 19 variables with
    two encoder layers (000). A kernel is [2, 4 units, units]: of the input, then of the hidden
    state, their gates in the order i, f, g, o (TensorFlow's one matrix [2 units, 4 units]: i, g, f,
    o). Starts: 000 names none, so TensorFlow's, Glorot's uniform law over that one matrix; biases
    at 0.
    """
    n = config.units

    def uniform(rows: int, columns: int) -> Init:
        return Init("uniform", config.initial_scale or sqrt(6 / (rows + columns)))

    found = [
        Variable(
            "source_embedding",
            (config.source_vocabulary, n),
            "embedding",
            uniform(config.source_vocabulary, n),
        ),
        Variable(
            "target_embedding",
            (config.target_vocabulary, n),
            "embedding",
            uniform(config.target_vocabulary, n),
        ),
    ]
    for stack in config.stacks:
        for cell in config.cell_names(stack):
            found.append(Variable(f"{cell}_kernel", (2, 4 * n, n), "kernel", uniform(2 * n, 4 * n)))
            found.append(Variable(f"{cell}_bias", (4 * n,), "bias", Init("constant", 0.0)))
    shape = n, config.target_vocabulary
    found.append(Variable("projection", shape, "projection", uniform(*shape)))
    return tuple(found)


def forward_flops_per_word(config: NmtConfig, source_share: float = 0.5) -> float:
    """Operations of the forward pass for one word, a multiply-add counted as two. source_share: of
    the counted words (1/2: equal lengths).

    A cell multiplies a vector of `units` by two matrices [4 units, units]: 2 x 8 units^2
    operations. A source word passes the cells of both encoder stacks; a target position passes the
    decoder's cells and the projection, 2 x units x vocabulary. Look-ups, gates and the softmax are
    left out: they are bound by memory. At 000's size and equal lengths this is 42.4 million, so
        training, with two more such products in the backward pass, takes 3 x 42.4 = 127.1 million a
        word.
    """
    cell = 2 * 8 * config.units**2
    source = 2 * config.encoder_layers * cell
    target = config.decoder_cells * cell + 2 * config.units * config.target_vocabulary
    return source_share * source + (1 - source_share) * target


def memory_passes_per_word(config: NmtConfig, source_share: float = 0.5) -> float:
    """Numbers that a training step reads or writes for one word at least
    (`Model.memory_passes_per_unit`); the share as above. A word is looked up (a row read, one
    written, its gradient read and added to the table's: 4) and passes its cells; a target word also
    the projection, which reads the decoder's output, writes its gradient and reads the output again
    (3) beside logits (5).
    """
    n = config.units
    source = 4 * n + 2 * config.encoder_layers * LSTM_PASSES * n
    target = 4 * n + config.decoder_cells * LSTM_PASSES * n + 3 * n + 5 * config.target_vocabulary
    return source_share * source + (1 - source_share) * target


STATES = ("hidden", "cell")


def sections(config: NmtConfig) -> tuple[Stage, ...]:
    """11 with two encoder layers, in an order in which they can run: look-ups, cells (last states
    to the decoder's), the projection.
    """
    n = config.units

    def looked_up(side: str) -> Stage:
        name = f"{side}_embedding"
        return Stage(name, gives={f"{side}_rows": {name: n}}, variables=(name,), work={"rows": 0})

    def cell_of(
        side: str, cell: str, inputs: tuple[str, ...], gives: dict[str, dict[str, int]]
    ) -> Stage:
        own, work = (f"{cell}_kernel", f"{cell}_bias"), {f"{side}_embedding": 16 * n * n}
        return Stage(cell, inputs, gives=gives, variables=own, work=work)

    found = [looked_up("source")]
    for layer in range(config.encoder_layers):
        for stack in ("encoder_forward", "encoder_backward"):
            cell = f"{stack}_{layer}"
            gives: dict[str, dict[str, int]] = {f"{cell}_{state}": {"rows": n} for state in STATES}
            if layer + 1 < config.encoder_layers:
                gives[cell] = {"source_embedding": n}
            takes: tuple[str, ...] = (f"{stack}_{layer - 1}",) if layer else ("source_rows",)
            found.append(cell_of("source", cell, takes, gives))
    found.append(looked_up("target"))
    for layer, cell in enumerate(config.cell_names("decoder")):
        takes = (cell_below(layer), *(f"{starts_from(layer)}_{state}" for state in STATES))
        found.append(cell_of("target", cell, takes, {cell: {"target_embedding": n}}))
    work = {"target_embedding": 2 * n * config.target_vocabulary}
    below = cell_below(config.decoder_cells)
    found.append(Stage("projection", (below,), variables=("projection",), work=work))
    return tuple(found)


def cell_below(layer: int) -> str:
    """Return the input of a cell of the decoder."""
    return f"decoder_{layer - 1}" if layer else "target_rows"


def starts_from(layer: int) -> str:
    """The encoder's cell whose last state a decoder's cell starts from, directions by turns."""
    return f"{('encoder_forward', 'encoder_backward')[layer % 2]}_{layer // 2}"


def describe(name: str, config: NmtConfig, optimizer: Optimizer) -> Model:
    """The description of one translation model."""
    return Model(
        name=name,
        workload="nmt",
        unit="words",
        variables=variables(config),
        optimizer=optimizer,
        forward_flops_per_unit=forward_flops_per_word(config),
        memory_passes_per_unit=memory_passes_per_word(config),
        config=config,
        declare_sections=lambda: sections(config),
    )


MODELS: Mapping[str, Model] = models_in(Path(__file__).parent, NmtConfig, describe)
