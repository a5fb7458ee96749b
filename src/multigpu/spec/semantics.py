"""Define what a placement's result equals, and what follows from that for a table, a
check, a page.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

from multigpu.spec.schema import Data

Kind = Literal["joined", "stale", "lossy", "compressed", "averaged", "independent", "asynchronous"]


class Facts(NamedTuple):
    """The meaning of a kind of semantics. words: for who compares rates. sentence: what the result
        equals, with the row's own fields. is_equal_training: it trains the global batch's model,
        exactly or within its tolerance. replicas_agree: copies of a variable are equal after every
        step. loss_is_shared: replicas' losses are shares of the joined mean; else each is a mean
        over its own shard.
    is_one_model: what all replicas learn comes together in one. is_reproducible: it is the same
        whoever comes first.
    """

    words: str
    sentence: str
    is_equal_training: bool = False
    replicas_agree: bool = True
    loss_is_shared: bool = True
    is_one_model: bool = True
    is_reproducible: bool = True


FACTS: dict[Kind, Facts] = {
    "joined": Facts(
        "", "Its result equals one process training on the global batch.", is_equal_training=True
    ),
    "lossy": Facts(
        "trains the global batch's model within a stated tolerance",
        "Its result equals the global batch within {tolerance:g} of the update.",
        is_equal_training=True,
    ),
    "stale": Facts(
        "computes with older variables",
        "Its result equals one process training with gradients {steps} updates old.",
    ),
    "compressed": Facts(
        "trains on approximated gradients",
        "Gradients are approximations of the global batch's, and what a step leaves out of them is"
        " added to the next one's: it trains another model, the same on all replicas.",
    ),
    "averaged": Facts(
        "devices train by themselves between averages of their variables",
        "Every replica equals one process training on that replica's shard, whose variables become"
        " the mean of all replicas' after every {every} steps.",
        replicas_agree=False,
        loss_is_shared=False,
    ),
    "independent": Facts(
        "every device trains a model of its own",
        "Every replica equals one process training on that replica's shard alone.",
        replicas_agree=False,
        loss_is_shared=False,
        is_one_model=False,
    ),
    "asynchronous": Facts(
        "updates meet variables that others changed since",
        "Every update is applied exactly once; on one replica its result equals one process, on"
        " more it depends on their order.",
        loss_is_shared=False,
        is_reproducible=False,
    ),
}

WIRE_TOLERANCE = {"bf16": 5e-2, "fp16": 5e-3}
"""How far gradients in 16 bits may lead from the global batch in three steps (norm of the
difference over norm of the update): a sum of P gradients makes up to P roundings of 2^-9 (bf16) or
    2^-12 (fp16), and steps of a nonlinear model make more of them.
"""


class Semantics(Data):
    """The training that a placement's result equals: `FACTS` has a sentence for each kind. steps:
    by how many updates stale gradients are old. tolerance: of lossy ones, norm of the difference
    over norm of the update. every: after so many
        steps variables are averaged.
    """

    kind: Kind = "joined"
    steps: int = 0
    tolerance: float = 0.0
    every: int = 1

    @property
    def facts(self) -> Facts:
        return FACTS[self.kind]

    def agree_after(self, steps: int) -> bool:
        return self.facts.replicas_agree or (self.every > 1 and steps % self.every == 0)

    @property
    def sentence(self) -> str:
        return self.facts.sentence.format(**self.model_dump())

    def sent_in(self, wire_dtype: str | None) -> Semantics:
        """The same where gradients travel in 16 bits (None: in their own type)."""
        if wire_dtype and self == Semantics():
            return Semantics(kind="lossy", tolerance=WIRE_TOLERANCE[wire_dtype])
        return self

    def by_parts(self, compressed: bool) -> Semantics:
        """The same where replicas exchange approximations of gradients."""
        return Semantics(kind="compressed") if compressed else self

    def on(self, devices: int) -> Semantics:
        """The same on so many devices: replicas with losses of their own are one process where
        there is but one.
        """
        return Semantics() if devices == 1 and not self.facts.loss_is_shared else self
