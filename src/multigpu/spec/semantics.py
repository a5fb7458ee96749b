"""Define what a placement's result equals, and what follows from that for a table, a
check, a page.
"""

from pathlib import Path
from typing import Literal, NamedTuple

from multigpu.spec.schema import Data
from multigpu.spec.tables import table

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
    is_equal_training: bool
    replicas_agree: bool
    loss_is_shared: bool
    is_one_model: bool
    is_reproducible: bool


FACTS: dict[str, Facts] = {
    row["kind"]: Facts(
        row["words"], row["sentence"], *(row[name] == "yes" for name in Facts._fields[2:])
    )
    for row in table(Path(__file__).with_name("semantics.csv"))
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

    @property
    def sentence(self) -> str:
        return self.facts.sentence.format(**self.model_dump())

    def sent_in(self, wire_dtype: str | None) -> "Semantics":
        """The same where gradients travel in 16 bits (None: in their own type)."""
        if wire_dtype and self == Semantics():
            return Semantics(kind="lossy", tolerance=WIRE_TOLERANCE[wire_dtype])
        return self

    def by_parts(self, compressed: bool) -> "Semantics":
        """The same where replicas exchange approximations of gradients."""
        return Semantics(kind="compressed") if compressed else self

    def on(self, devices: int) -> "Semantics":
        """The same on so many devices: replicas with losses of their own are one process where
        there is but one.
        """
        return Semantics() if devices == 1 and not self.facts.loss_is_shared else self
