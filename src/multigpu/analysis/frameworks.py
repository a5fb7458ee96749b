"""Document 000's Exp1-Exp4 in both frameworks: which points stand beside each other, as tidy frames of numbers.

A ratio of two frameworks is formed within one precision only; every way of doing a step carries its precision in its name.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import pandas as pd

from multigpu.analysis.documents import published_experiments
from multigpu.analysis.formulas import NO_INTERVAL, Interval, pooled_rate, ratio_interval
from multigpu.analysis.metrics import scaling_table
from multigpu.analysis.wording import missing
from multigpu.grid.entries import EXPERIMENTS
from multigpu.placements import find_placement

DOCUMENT_BATCH = 128
DOCUMENT_STEPS = 50
"""Mini-batches that each of the document's totals stands for (`000_statements`, mini_batches)."""

PRECISIONS = {"tf32": "TF32", "bf16": "bf16", "fp32": "fp32"}


@dataclass(frozen=True)
class Way:
    """How a framework does the step: who dispatches it, in which form, in which arithmetic, with which batch norm (None: its own)."""

    framework: str
    processes: str
    execution: str
    precision: str
    batch_norm: str | None = None

    @property
    def name(self) -> str:
        """Short, the precision last: "PyTorch, one process, bf16"."""
        if self.framework == "tensorflow":
            kernel = f"{self.batch_norm} batch norm, " if self.batch_norm else ""
            return f"TensorFlow, {'XLA, ' if self.execution == 'xla' else ''}{kernel}{PRECISIONS[self.precision]}"
        return "PyTorch, " + ("one process, " if self.processes == "one" else "") + PRECISIONS[self.precision]


WAYS = (
    Way("tensorflow", "one", "graph", "tf32"),
    Way("torch", "per_device", "eager", "tf32"),
    Way("torch", "one", "eager", "tf32"),
    Way("torch", "per_device", "eager", "bf16"),
    Way("torch", "one", "eager", "bf16"),
    Way("tensorflow", "one", "graph", "fp32"),
    Way("torch", "per_device", "eager", "fp32"),
)
"""In the order of every table here. TensorFlow has one process for all GPUs, as the document; PyTorch has both. (Under bf16 TensorFlow's
cuDNN recurrence stays in float32: such Runs stand among its other forms.)
"""
TENSORFLOW, PYTORCH, PYTORCH_ONE = (WAYS[index].name for index in (0, 3, 4))


def same_job(frame: pd.DataFrame) -> pd.DataFrame:
    """The Records of 000's model at its batch on sentences of 100 words, gradients dense and the library's loss: what every way shares."""
    fixed = frame[(frame["model"] == "nmt000") & (frame["batch_size"] == DOCUMENT_BATCH) & (frame["scaling"] == "weak")]
    fixed = fixed[(fixed["inputs"] == "synthetic") & (fixed["sequence_length"] == 100) & (fixed["optimizer"] == "default")]
    plain = fixed["cross_entropy"].fillna("library").eq("library") & fixed["embedding_gradients"].fillna("dense").eq("dense")
    return fixed[plain & fixed["recurrence"].fillna("fused").eq("fused") & fixed["bucket_mib"].isna()]


def of_way(frame: pd.DataFrame, way: Way) -> pd.DataFrame:
    """The rows done in this way."""
    found = frame
    for field in ("framework", "processes", "execution", "precision"):
        found = found[found[field] == getattr(way, field)]
    return found[found["batch_norm"].isna() if way.batch_norm is None else found["batch_norm"].eq(way.batch_norm)]


def experiments(frame: pd.DataFrame) -> pd.DataFrame:
    """Exp1-Exp4 in every way, a row a point.

    Returns:
        placement, way, devices, n, launches, rate, rate_low, rate_high (words/s), step_time_s, speedup, speedup_low, speedup_high
        (over one GPU of the same placement and way), keys.
    """
    table = scaling_table(same_job(frame))
    table = table[table["placement"].isin(EXPERIMENTS) & (table["n"] > 0)]
    columns = ["placement", "way", "devices", "n", "launches", "rate", "rate_low", "rate_high", "step_time_s"]
    columns += ["speedup", "speedup_low", "speedup_high", "keys"]
    parts = [of_way(table, way).assign(way=way.name) for way in WAYS]
    return pd.concat(parts).sort_values(["placement", "devices"], kind="stable")[columns].reset_index(drop=True)


def document_experiments() -> pd.DataFrame:
    """The document's own Exp1-Exp4: placement, devices, rate (words/s), speedup, step_time_s (its total over 50 steps)."""
    table = published_experiments()
    table = table[(table["batch_size"] == DOCUMENT_BATCH) & table["experiment"].str.lower().isin(EXPERIMENTS)]
    return pd.DataFrame(
        {
            "placement": table["experiment"].str.lower(),
            "devices": table["gpus"].astype(int),
            "rate": table["words_per_s"],
            "speedup": table["speedup"].fillna(1.0),
            "step_time_s": table["total_time_s"] / DOCUMENT_STEPS,
        }
    ).reset_index(drop=True)


def _repeats(frame: pd.DataFrame, placement: str, devices: int) -> pd.DataFrame:
    rows = frame[(frame["placement"] == placement) & (frame["devices"] == devices) & (frame["status"] == "ok")]
    return rows.sort_values(["launch_id", "repeat"])


def step_times_by_devices(frame: pd.DataFrame, placements: tuple[str, ...] = ("exp1", "exp2")) -> pd.DataFrame:
    """C11's table: a step's time by placement and GPUs in TensorFlow, beside the document's.

    Returns:
        placement, devices, n, launches, step_time_s (all time over all steps), fastest_s, slowest_s (of the repeats), document_s.
    """
    own = of_way(same_job(frame), WAYS[0])
    document = document_experiments().set_index(["placement", "devices"])["step_time_s"]
    rows: list[dict[str, Any]] = []
    for placement in placements:
        measured = own[(own["placement"] == placement) & (own["status"] == "ok")]
        for devices in sorted(set(measured["devices"])):
            repeats = _repeats(own, placement, int(devices))
            times = repeats["step_time_s"]
            rows.append(
                {
                    "placement": placement,
                    "devices": int(devices),
                    "n": len(repeats),
                    "launches": repeats["launch_id"].nunique(),
                    "step_time_s": float(repeats["wall_s"].sum() / repeats["timed_steps"].sum()),
                    "fastest_s": float(times.min()),
                    "slowest_s": float(times.max()),
                    "document_s": float(document.get((placement, int(devices)), math.nan)),
                }
            )
    columns = ["placement", "devices", "n", "launches", "step_time_s", "fastest_s", "slowest_s", "document_s"]
    return pd.DataFrame(rows, columns=columns)


@dataclass(frozen=True)
class Longer:
    """A step's time on `first` GPUs over that on `second`, with its 95% interval (NaN where one was measured once)."""

    placement: str
    first: int
    second: int
    ratio: float
    bounds: Interval
    document: float

    @property
    def verdict(self) -> str:
        """What the interval supports: longer, shorter, not told apart, or once."""
        if math.isnan(self.bounds.low):
            return "once"
        return "longer" if self.bounds.low > 1 else "shorter" if self.bounds.high < 1 else "not told apart"


def longer(frame: pd.DataFrame, placement: str, first: int, second: int) -> Longer | None:
    """How much longer a TensorFlow step takes on `first` GPUs than on `second`; None unless both were measured.

    Both do the same work a GPU, so the ratio is that of steps a second: (steps/time on second) over (steps/time on first).
    """
    own = of_way(same_job(frame), WAYS[0])
    a, b = (_repeats(own, placement, count) for count in (first, second))
    if a.empty or b.empty:
        return None
    groups = [(group["timed_steps"].to_numpy(float), group["wall_s"].to_numpy(float)) for group in (b, a)]
    launches = [list(group["launch_id"]) for group in (b, a)]
    ratio = pooled_rate(*groups[0]) / pooled_rate(*groups[1])
    bounds = NO_INTERVAL
    if min(len(a), len(b)) > 1:
        bounds = ratio_interval(*groups[0], *groups[1], launches_n=launches[0], launches_1=launches[1])
    times = document_experiments().set_index(["placement", "devices"])["step_time_s"]
    known = (placement, first) in times.index and (placement, second) in times.index
    theirs = float(times[placement, first] / times[placement, second]) if known else math.nan
    return Longer(placement, first, second, ratio, bounds, theirs)


def forms(frame: pd.DataFrame, devices: int) -> pd.DataFrame:
    """Everything that TensorFlow trained of 000's model on `devices` GPUs at batch 128, grouped by what differs.

    Returns:
        group (one of GROUPS), placement, precision, n, launches, rate, rate_low, rate_high, step_time_s, moved_bytes (all GPUs, a step),
        and of_reference: the rate over that of the same placement in the group "in-graph towers" (of Exp4 for strategies of
        tf.distribute); NaN for other lengths, whose words a second count other work.
    """
    table = scaling_table(frame[(frame["framework"] == "tensorflow") & (frame["model"] == "nmt000")])
    table = table[(table["devices"] == devices) & (table["n"] > 0) & (table["batch_size"] == DOCUMENT_BATCH)].copy()
    table = table[table["batching"].fillna("own").eq("own")]
    table["group"] = [_group(row) for _, row in table.iterrows()]
    base = table[table["group"] == IN_GRAPH].set_index("placement")["rate"]
    references = []
    for _, row in table.iterrows():
        beside = "exp4" if row["group"] == STRATEGIES else row["placement"]
        comparable = row["group"] != LENGTHS and beside in base.index
        references.append(row["rate"] / base[beside] if comparable else math.nan)
    table["of_reference"] = references
    table["order"] = [GROUPS.index(group) for group in table["group"]]
    columns = ["group", "placement", "precision", "n", "launches", "rate", "rate_low", "rate_high", "step_time_s", "moved_bytes"]
    columns += ["of_reference", "keys"]
    return table.sort_values(["order", "rate"], ascending=[True, False])[columns].reset_index(drop=True)


IN_GRAPH, STRATEGIES, LOOP, LENGTHS = "in-graph towers", "tf.distribute", "loop of cells", "the document's lengths"
SPARSE, ARITHMETIC = "sparse gradients of tables", "other arithmetic"
GROUPS = (IN_GRAPH, STRATEGIES, LOOP, SPARSE, ARITHMETIC, LENGTHS)


def _group(row: Any) -> str:
    if row["inputs"] != "synthetic":
        return LENGTHS
    if row["precision"] != "tf32":
        return ARITHMETIC
    if not missing(row["recurrence"]) and row["recurrence"] == "stepwise":
        return LOOP
    if not missing(row["embedding_gradients"]) and row["embedding_gradients"] == "sparse":
        return SPARSE
    return STRATEGIES if any(engine.strategy for engine in find_placement(str(row["placement"])).engines) else IN_GRAPH
