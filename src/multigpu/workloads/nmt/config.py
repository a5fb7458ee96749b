"""Sizes of a translation model, and what its cells are called."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class NmtConfig:
    """Sizes of one translation model.

    units: width of every cell and of both embeddings.
    encoder_layers: cells of each of the two encoder stacks.
    forget_bias: added to the forget gate at run time and not part of its bias variable, as TensorFlow's cell does.
    initial_scale: every kernel, table and projection starts uniform in +- this; None is Glorot's law for its own shape.
    dropout: share of every cell's input that is dropped in training, at every position anew (tensorflow/nmt's `DropoutWrapper`).
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
        """One for every encoder cell, since each starts from one's last state."""
        return 2 * self.encoder_layers

    @property
    def stacks(self) -> dict[str, int]:
        """Stack of LSTM cells -> how many cells, in the order of the variables."""
        return {"encoder_forward": self.encoder_layers, "encoder_backward": self.encoder_layers, "decoder": self.decoder_cells}


def cell_names(config: NmtConfig, stack: str) -> list[str]:
    """What the names of the variables of each cell of `stack` begin with, lowest cell first."""
    return [f"{stack}_{layer}" for layer in range(config.stacks[stack])]
