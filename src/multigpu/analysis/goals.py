"""Speeds that this study's Runs are to reach (`data/published/goals.csv`), beside what they reached."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import pandas as pd

from multigpu.analysis.metrics import summary
from multigpu.analysis.ordinary import ordinary
from multigpu.analysis.picture import Shown
from multigpu.analysis.style import look
from multigpu.analysis.tables import RATE_FORMS, tables_by
from multigpu.analysis.wording import (
    FRAMEWORK_NAMES,
    UNIT_NAMES,
    describe,
    joined,
    missing,
    percent_text,
    plural,
    scaled,
    why_missing,
    with_interval,
)
from multigpu.published import load_published

EXACT = ("framework", "model", "placement", "processes", "batch_size", "sequence_length", "precision", "execution")
"""Fields in which a point and a goal agree; a goal's empty cell asks for none."""
LIBRARY = {"device_type": "cuda", "scaling": "weak", "inputs": "synthetic", "optimizer": "default"}
"""What else the script did."""
OURS = {
    **dict.fromkeys(("sequence_length", "devices", "n", "launches"), "Int64"),
    **dict.fromkeys(("rate", "low", "high", "share"), "float64"),
    **dict.fromkeys(("why", "keys"), "string"),
    "reached": "boolean",
}


def _trained_so(frame: pd.DataFrame, goal: Mapping[Any, Any]) -> pd.DataFrame:
    """The rows of a goal's setting, on any number of GPUs. How big a bucket is and in how many pieces the loss, may differ."""
    chosen = pd.Series(True, index=frame.index)
    wanted = {name: goal[name] for name in EXACT if not missing(goal[name])} | LIBRARY
    for name, value in wanted.items():
        chosen &= frame[name].eq(value).fillna(False).astype(bool)
    looped = frame["recurrence"].eq("stepwise").fillna(False).astype(bool)
    chosen &= looped == (goal["recurrence"] == "stepwise")
    chosen &= ~frame["embedding_gradients"].eq("sparse").fillna(False).astype(bool)
    return frame[chosen & frame["wire_dtype"].isna()]


def reached(rate: float, low: float, high: float, wanted: float) -> bool | None:
    """Whether a rate is `wanted` or more; None where its interval does not tell. One measured once is a point."""
    if missing(low) or missing(high):
        return bool(rate >= wanted)
    return True if low >= wanted else False if high < wanted else None


def _best(rows: pd.DataFrame) -> Any:
    """Of points done in several ways, one with the most repeats, and of these the fastest: a figure with an interval before a lucky one."""
    return rows.sort_values(["n", "rate"]).iloc[-1]


def _measured(point: Any, gpus: int, reference: float, wanted: float) -> dict[str, Any]:
    rate, low, high = (float(point[name]) for name in ("rate", "rate_low", "rate_high"))
    found = {name: point[name] for name in ("devices", "n", "launches", "keys")} | {"rate": rate, "low": low, "high": high}
    there = bool(point["devices"] == gpus)
    return found | {"share": rate / reference if there else math.nan, "reached": reached(rate, low, high, wanted) if there else None}


def goals(frame: pd.DataFrame, table: pd.DataFrame | None = None) -> pd.DataFrame:
    """Each goal with our point on as many GPUs; where there is none, why, and our point on the most GPUs below.

    Args:
        frame: of `load_frame`, of every machine with the goals' kind of GPU.
        table: as `data/published/goals.csv`.

    Returns:
        the table's columns, then devices (on which `rate` was measured; missing without a point), rate, low, high (units/s, 95%), n,
        launches, keys of the Records, share (rate over the reference) and reached (missing where the interval does not tell), both on the
        goal's own number of GPUs alone, and why (there is no point on it).
    """
    table = load_published("goals") if table is None else table
    own, rows = ordinary(frame), []
    for goal in table.to_dict("records"):
        gpus = int(goal["gpus"])
        points = summary(_trained_so(own, goal))
        there, known = points[points["devices"] == gpus], points[(points["n"] > 0) & (points["devices"] <= gpus)]
        why = why_missing(there.iloc[0]) if len(there) else f"not measured: needs {plural(gpus, 'GPU')}"
        found: dict[str, Any] = {"n": 0, "why": "" if (there["n"] > 0).any() else why}
        if len(known):
            best = _best(known[known["devices"] == known["devices"].max()])
            found |= _measured(best, gpus, goal["reference_per_s"], goal["wanted_per_s"])
        rows.append({str(name): value for name, value in goal.items()} | found)
    return pd.DataFrame(rows, columns=list(dict.fromkeys([*table.columns, *OURS]))).astype(OURS)


def _titles(goal: Any) -> tuple[str, str]:
    """What the goal's table is of, and its row: "TensorFlow: NMT of 000, 100 words a sentence, tf32", "Exp4: batch 128 a GPU, a loop of
    cells".
    """
    row = {**goal, "device_type": "cuda", "scaling": "weak"}
    table = f"{FRAMEWORK_NAMES[goal['framework']]}: {describe(row, ['model', 'sequence_length', 'precision'])}"
    return table, f"{look(goal['placement']).label}: {describe(row, ['batch_size'])}, {goal['setting']}"


def _rate(goal: Any, factor: float) -> str:
    form = RATE_FORMS[factor]
    low, high = (goal[name] / factor for name in ("low", "high"))
    return with_interval(f"{goal['rate'] / factor:{form}}", low, high, form)


def _each(goal: Any, factor: float, form: str) -> str:
    """What each GPU did where there were fewer, beside what each of the reference's did."""
    return f"{goal['rate'] / goal['devices'] / factor:{form}} ({goal['reference_per_s'] / goal['gpus'] / factor:{form}})"


def _repeats(goal: Any) -> str:
    return f"{goal['n']} over {goal['launches']}" if goal["n"] > 1 else str(goal["n"])


def _verdict(goal: Any) -> str:
    if missing(goal["share"]):
        early = goal["n"] > 0 and reached(goal["rate"], goal["low"], goal["high"], goal["wanted_per_s"])
        return f"on {plural(int(goal['devices']), 'GPU')} already" if early else "–"
    return "cannot be told" if missing(goal["reached"]) else "yes" if goal["reached"] else "no"


def words_a_pair(frame: pd.DataFrame, goal: Mapping[Any, Any]) -> tuple[float, float]:
    """Words that our Records of a goal's setting count for a pair of sentences, and that the script counted by its own step time.

    Either is not a number where it is not known.
    """
    rows = _trained_so(ordinary(frame), goal)
    rows = rows[rows["status"].eq("ok")]
    pairs = float((rows["timed_steps"] * rows["devices"] * rows["batch_size"]).sum())
    ours = float(rows["units"].sum()) / pairs if pairs else math.nan
    step_s = goal["step_time_ms"] / 1000
    return ours, goal["reference_per_s"] * step_s / (goal["gpus"] * goal["batch_size"])


def _counting(frame: pd.DataFrame, table: pd.DataFrame) -> str:
    """What a word is on either side."""
    known = [words_a_pair(frame, goal) for goal in table[table["unit"] == "words"].to_dict("records")]
    ours, theirs = (sorted({f"{pair[side]:.0f}" for pair in known if not missing(pair[side])}) for side in (0, 1))
    sentences = ["Words are those of source and target, padding left out."]
    if ours:
        sentences.append(f"Our Records count {joined(ours)} a pair of sentences, the target's end mark among them.")
    if theirs:
        sentences.append(
            f"The script's rate and the step time noted beside it give {joined(theirs)}: it counted both sides too; whether it counted "
            "end marks (0.5%) cannot be told. Where none was noted, it is taken to count alike."
        )
    return " ".join(sentences)


def goals_table(frame: pd.DataFrame, table: pd.DataFrame | None = None) -> Shown:
    """`goals` in words, a table a framework and model."""
    table = goals(frame, table)
    rows = []
    for goal in table.to_dict("records"):
        gpus, below = int(goal["gpus"]), missing(goal["share"]) and goal["n"] > 0
        job, setting = _titles(goal)
        alike = table[(table["framework"] == goal["framework"]) & (table["model"] == goal["model"])]
        factor, letter = scaled(alike["reference_per_s"].max())
        form = RATE_FORMS[factor]
        rows.append(
            {
                "job": f"{job}:{letter} {UNIT_NAMES[goal['unit']]}",
                "setting": setting,
                "GPUs": str(gpus),
                "reference": f"{goal['reference_per_s'] / factor:{form}}",
                "at least": f"{goal['wanted_per_s'] / factor:{form}}",
                "ours": ("not measured" if str(goal["why"]).startswith("not measured") else goal["why"]) or _rate(goal, factor),
                "of the reference": "–" if missing(goal["share"]) else percent_text(goal["share"]),
                "reached": _verdict(goal),
                "ours on fewer GPUs": f"{plural(int(goal['devices']), 'GPU')}: {_rate(goal, factor)}" if below else "–",
                "each GPU (the reference's)": _each(goal, factor, form) if below else "–",
                "n": _repeats(goal),
            }
        )
    script = joined(list(dict.fromkeys(table["source"])))
    needed = joined(sorted({plural(int(goal["gpus"]), "GPU") for goal in table[table["share"].isna()].to_dict("records")}))
    lacking = f"What is not measured needs {needed}. Fewer GPUs have less to merge: what each does there shows what to expect of more. "
    note = f"Reference: {script}. n: repeats over launches. {lacking if needed else ''}{_counting(frame, table)}"
    figures = ["GPUs", "reference", "at least", "of the reference"]
    return tables_by(pd.DataFrame(rows), "job", note, figures, wide=["setting"])
