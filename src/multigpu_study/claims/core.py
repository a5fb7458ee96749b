"""A Claim: a sentence of the documents, its figure, and a test over Records, which is data: nothing
here touches a Record.

`documents/NNN.yaml` hold them, one file a document; other packages may add files of their own. A
side of a contrast is the fields of its Runs, with `devices` where these are fixed, or a list of
such. Two shapes have names of their own: `scaling: true` compares the speedups of two kinds of Run,
each against its own single device, and `efficiency_over: M` the rate a device on N against that on
M. Where the document states an effect of its own, `effect`, half of it is the margin.
"""

import hashlib
import json
from collections.abc import Iterable
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any, Literal, Self, get_args

import yaml
from pydantic import Field, model_validator

from multigpu.analysis.fields import FOLLOWS
from multigpu.spec.schema import Data

Verdict = Literal[
    "holds",
    "holds here only",
    "does not hold",
    "does not hold here",
    "inconclusive",
    "out of reach",
    "not yet measured",
    "cannot be tested here",
]
VERDICTS: tuple[Verdict, ...] = get_args(Verdict)
DECIDED: tuple[Verdict, ...] = ("holds", "holds here only", "does not hold", "does not hold here")
OPEN: tuple[Verdict, ...] = ("inconclusive", "not yet measured")
"""What further Records would decide."""

Selection = tuple[tuple[str, tuple[str | bool | int | float | None, ...]], ...]
"""Fields of a Run with the values each may take, in alphabetical order of the field."""

POOLED_FREEDOM = 20
"""Lags of an autocorrelation, of which a `pooled` quantity is the mean."""
LEVEL = 0.025
"""Of a one-sided test; two of them are a 95% interval."""
WORDS = frozenset({"label", "unit", "scope", "protocol"})
"""Fields of a test that say something and decide nothing."""
HERE = Path(__file__).parent


def data_of(file: Traversable) -> Any:
    """Parse a YAML file."""
    return yaml.load(file.read_text(), Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))


KINDS: dict[str, dict[str, Any]] = data_of(HERE / "kinds.yaml")


def digest_of(tests: Iterable[dict[str, Any]]) -> str:
    """A hash of what decides in predicates, which names a test in the ledger: of no words, and of
    nothing that is as usual, so that a new field changes no digest. tests: as JSON, of today or as
    an earlier commit had them, which told the `kind` of their Records otherwise.
    """
    usual = Contrast(label="", over=(Term(),)).model_dump(
        mode="json", exclude={"over", "label"}
    ) | Term().model_dump(mode="json")

    def kept(found: dict[str, Any]) -> dict[str, Any]:
        told = {
            name: sorted(value) if name in ("where", "select") else value
            for name, value in sorted(found.items())
        }
        return {
            name: value
            for name, value in told.items()
            if name not in WORDS and not (name in usual and value == usual[name])
        }

    essences = [json.loads(json.dumps(one), object_hook=kept) for one in tests]
    for one in essences:
        one["kind"] = KINDS[one.pop("of")]["digested"] if "of" in one else one["kind"]
    return hashlib.sha256(json.dumps(essences, sort_keys=True).encode()).hexdigest()[:16]


class Term(Data):
    """A factor of a contrast: Runs with these fields, on its N devices or on a fixed number."""

    select: Selection = ()
    devices: int | None = Field(default=None, ge=1)


class Contrast(Data):
    """The product of the `over` terms by that of the `under` terms, each the geometric mean of a
    quantity over repeats.

    Every field that no term names is equal on all terms (machine, versions, placement, batch,
    precision ...), so a baseline is always the same placement's own. Terms of equal `select` take
    the same Runs, apart from their device count. What still varies makes settings.

    quantity: a column of the tidy table, positive. per_device: over a term's device count (a
        speedup then reads as an efficiency).
    direction: "above" and "below" `bound`; "within" (equal) and "outside" (different): [1/bound,
        bound]. effect: the document's own ratio; the bound is then half way between it and 1 (else
            an effect is real from 5% on). size: it says how large the effect is alone.
    counts: the device counts N to look at: those named, each measured one, or the highest measured
        one.
    across: how settings join. "same": all that have enough data must agree; "all": one
        counterexample refutes; "any": one example suffices; "most": more than half decide. apart:
        fields whose values are scopes of their own, which may hold here only.
    models_at_least: different models needed before it can hold (or, with "any", be refuted).
        steps_at_least: beyond the predicate's; earlier tests in the history name it.
    form: "ratio": as above. "share": of what the first `over` term has more than the second, how
        much is not in the same difference of the `under` terms (a cause's share of an added time).
        "pooled": mean squares of POOLED_FREEDOM degrees of freedom (F or chi-squared).
    paired: repeats of equal number began alike and saw the same batches, so each is compared with
        its own: for what training does.
    """

    label: str
    over: tuple[Term, ...] = Field(min_length=1)
    under: tuple[Term, ...] = ()
    quantity: str = "units_per_s"
    per_device: bool = False
    direction: Literal["above", "below", "within", "outside"] = "above"
    bound: float = Field(default=1.05, gt=0)
    effect: float | None = Field(default=None, gt=0)
    counts: tuple[int, ...] | Literal["each", "highest"] = "highest"
    count_at_least: int = Field(default=1, ge=1)
    across: Literal["same", "all", "any", "most"] = "same"
    models_at_least: int = Field(default=1, ge=1)
    steps_at_least: int = 0
    paired: bool = False
    apart: tuple[str, ...] = ()
    form: Literal["ratio", "share", "pooled"] = "ratio"
    size: bool = False
    where: Selection = ()
    unit: str = "x"

    @model_validator(mode="after")
    def _margin(self) -> Self:
        if len(self.bounds) > 1 and self.bound <= 1:
            raise ValueError(
                f"{self.label}: {self.direction!r} reads [1/bound, bound] and needs a bound above"
                f" 1, not {self.bound}"
            )
        return self

    @property
    def bounds(self) -> tuple[float, ...]:
        if self.direction in ("within", "outside"):
            return (self.bound, 1 / self.bound)
        return (self.bound,)

    @property
    def terms(self) -> tuple[Term, ...]:
        return self.over + self.under

    @property
    def varied(self) -> frozenset[str]:
        """Fields that may differ between terms, the device count aside."""
        named = {field for term in self.terms for field, _ in term.select}
        return frozenset(named.union(*(FOLLOWS.get(field, ()) for field in named)))


class Predicate(Data):
    """The test that decides a claim: every contrast must hold; one that does not refutes it. of:
    the kind of Records, of KINDS. where: fields that all must have. frameworks: each is decided
    alone; those that are must agree.
    machines: only GPUs decide what the documents say of GPUs. min_n, min_launches: least repeats of
        every term, and launches they spread over. warmup_steps, timed_steps: least steps of a
        Record. protocol, scope: the same in words, and what the test does not cover.
    """

    of: str = "runs"
    contrasts: tuple[Contrast, ...] = Field(min_length=1)
    where: Selection = ()
    frameworks: tuple[Literal["torch", "tensorflow", "numpy"], ...] = ("torch", "tensorflow")
    machines: Literal["gpu", "any"] = "gpu"
    min_n: int = Field(default=5, ge=2)
    min_launches: int = Field(default=2, ge=1)
    warmup_steps: int = Field(default=10, ge=0)
    timed_steps: int = Field(default=20, ge=1)
    protocol: str = (
        "Warm-up left out; units over host time between barriers; weak scaling unless the Runs say"
        " otherwise."
    )
    scope: str = ""

    @property
    def groups(self) -> list[tuple[str, ...]]:
        joined = any("framework" in contrast.varied for contrast in self.contrasts)
        return [tuple(self.frameworks)] if joined else [(name,) for name in self.frameworks]


class Claim(Data):
    """A sentence of the documents in plain words, and what can be said of it.
    figure: the document's own. page: the notebook that shows what decides it. untestable: why it
        cannot be tested here.
    further: what else must hold, over other kinds of Records: each predicate is decided alone, and
        one that does not hold refutes all.
    decides: what would decide it while it is open, in so many `seconds` of so many `gpus`, or of
        two CPU cores where these are none.
    refuted_on: of a sentence about machines of another kind, on what those are that refute it: it
        then does not hold here.
    """

    number: str = Field(pattern=r"^C[1-9]\d*$")
    sentence: str
    documents: tuple[str, ...] = Field(min_length=1)
    figure: str
    page: str = ""
    predicate: Predicate | None = None
    further: tuple[Predicate, ...] = ()
    decides: str = ""
    gpus: int = Field(default=0, ge=0)
    seconds: int = Field(default=0, ge=0)
    untestable: str = ""
    refuted_on: str = ""

    @model_validator(mode="after")
    def _one_way(self) -> Self:
        if bool(self.untestable) == bool(self.predicate or self.decides):
            raise ValueError(
                f"{self.number} must have a predicate, or say what would decide it, or say why it"
                " cannot be tested here"
            )
        if bool(self.decides) != bool(self.seconds):
            raise ValueError(
                f"{self.number} must say what would decide it together with the seconds and gpus"
                " that this takes, or nothing"
            )
        if len({one.of for one in self.predicates}) < len(self.predicates) or (
            self.further and not self.predicate
        ):
            raise ValueError(
                f"{self.number} has several predicates: each must be of another kind of Records,"
                " the first one `predicate`"
            )
        return self

    @property
    def predicates(self) -> tuple[Predicate, ...]:
        return ((self.predicate,) if self.predicate else ()) + self.further

    @property
    def digest(self) -> str:
        if self.predicates:
            return digest_of(one.model_dump(mode="json") for one in self.predicates)
        return ""

    @property
    def takes(self) -> str:
        """The measurements that would decide it, and their cost, in words; "" without any."""
        on = f"{self.gpus} GPU{'s' * (self.gpus > 1)}" if self.gpus else "two CPU cores, no GPU"
        return f"{self.decides} (about {self.seconds:,} s of {on})" if self.decides else ""
