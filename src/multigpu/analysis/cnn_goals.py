"""How much of independent replicas ResNet-50 keeps in a captured step, beside the study's own goals.

Independent replicas send nothing, so their rate is the ceiling of every placement that trains on the joined batch.
"""

from __future__ import annotations

import math
from typing import Any

import pandas as pd

from multigpu.analysis.cnn_page import repeats_cell
from multigpu.analysis.metrics import summary
from multigpu.analysis.ordinary import BUCKETS, USUAL_BUCKETS
from multigpu.analysis.picture import Shown
from multigpu.analysis.style import look
from multigpu.analysis.tables import tables_by
from multigpu.analysis.ways import find_point, ratio_of
from multigpu.analysis.wording import MODEL_NAMES, describe, devices_text, joined, missing, percent_text
from multigpu.placements import placements

GOALS = {64: 0.97, 256: 0.99}
"""Batch a GPU -> the least share of independent replicas' rate that ResNet-50 is to keep in its best placement. The study's own goals, no
document's; they are stated for GOAL_DEVICES and bf16, captured."""
GOAL_DEVICES = 8
MODELS = ("resnet50_v1.5", "resnet50_v1")
JOB = {"framework": "torch", "scaling": "weak", "inputs": "synthetic", "precision": "bf16", "execution": "captured"}
HOW = [*BUCKETS, "all_reduce_spec"]
"""Fields that say how a placement of JOB was carried out, where not in the usual way."""

MET, NOT_MET, HOLDS, ONCE, UNMEASURED = "met", "not met", "interval holds it", "measured once", "not measured"


def against(goal: float, ratio: float, low: float, high: float) -> str:
    """What a ratio and its interval say of a least ratio: MET, NOT_MET, HOLDS (either may be), ONCE (no interval) or UNMEASURED."""
    if missing(ratio):
        return UNMEASURED
    if missing(low) or missing(high):
        return ONCE
    return MET if low >= goal else NOT_MET if high < goal else HOLDS


def goal_rows(frame: pd.DataFrame) -> pd.DataFrame:
    """A row a batch of GOALS and number of GPUs: two or more that were measured, and GOAL_DEVICES; of ResNet-50 v1.5, or of v1 where only
    that was measured.

    The best placement is the fastest of those that train on the joined batch with gradients in their own type: among those with an
    interval, as long as there is one.

    Returns:
        model, batch_size, devices, device_type, goal; placement ("" where none was measured beside replicas), and how it was carried out
        where not in the usual way; keys: of its Records; ratio (and bounds): its rate
        over independent replicas' (`ratio_interval`); n, launches and base_n, base_launches: repeats and launches of either; so: `against`;
        one_ratio (and bounds): the same placement over the same replicas on one GPU, where nothing can be waited for.
    """
    points = _points(frame)
    model = points["model"].iloc[0] if len(points) else MODELS[0]
    rows = []
    for batch, goal in GOALS.items():
        own = points[points["batch_size"] == batch]
        for devices in sorted({GOAL_DEVICES, *(int(count) for count in own["devices"] if count > 1)}):
            head = {"model": model, "batch_size": batch, "devices": devices, "device_type": "cuda", "goal": goal}
            rows.append(head | _best(frame, points, own[own["devices"] == devices], goal))
    return pd.DataFrame(rows)


def untried_rows(frame: pd.DataFrame) -> pd.DataFrame:
    """A row a batch of GOALS whose best way on one GPU was measured on no more: what the goal's GPUs may keep with it is open.

    Returns:
        batch_size; the columns of `goal_rows` from `placement` on, of one GPU. Empty: every such way was measured on more.
    """
    points, rows = _points(frame), []
    for batch, goal in GOALS.items():
        own = points[points["batch_size"] == batch]
        best = _best(frame, points, own[own["devices"] == 1], goal)
        more = own[own["devices"] > 1].to_dict("records")
        if best["placement"] and (best["placement"], best["how"]) not in {(row["placement"], describe(row, HOW)) for row in more}:
            rows.append({"batch_size": batch} | _in_its_launches(frame, best, batch, goal))
    return pd.DataFrame(rows)


def _in_its_launches(frame: pd.DataFrame, best: dict[str, Any], batch: int, goal: float) -> dict[str, Any]:
    """The same way on one GPU over the replicas of its own launches, where these were measured there: what it keeps differs from theirs by
    less than launches do.
    """
    launches = set(frame.loc[frame["key"].isin(best["keys"].split(", ")), "launch_id"])
    own = frame[frame["launch_id"].isin(launches)]
    points = _points(own)
    found = _best(own, points, points[points["batch_size"].eq(batch) & points["devices"].eq(1)], goal)
    return found if (found["placement"], found["how"]) == (best["placement"], best["how"]) else best


def _points(frame: pd.DataFrame) -> pd.DataFrame:
    """The measured points of JOB: of ResNet-50 v1.5, or of v1 where only that was measured."""
    points = summary(frame)
    points = points[points["n"] > 0]
    for name, value in JOB.items():
        points = points[points[name] == value]
    model = next((name for name in MODELS if points["model"].eq(name).any()), MODELS[0])
    return points[points["model"] == model]


def _best(frame: pd.DataFrame, points: pd.DataFrame, own: pd.DataFrame, goal: float) -> dict[str, Any]:
    same = [name for name, row in placements().items() if row.semantics.kind == "joined"]
    own = own[own["placement"].isin(same) & own["wire_dtype"].isna() & own["loss_scale"].isna()]
    found = []
    for _, row in own.iterrows():
        base = _replicas(points, row)
        ratio, bounds = ratio_of(frame, row, base)
        if base is not None:
            found.append((not missing(bounds[0]), float(row["rate"]), row, base, ratio, bounds))
    if not found:
        empty = dict.fromkeys(("ratio", "ratio_low", "ratio_high", "one_ratio", "one_ratio_low", "one_ratio_high"), math.nan)
        return {"placement": "", "how": "", **empty, "keys": "", "n": 0, "launches": 0, "base_n": 0, "base_launches": 0, "so": UNMEASURED}
    _, _, row, base, ratio, (low, high) = max(found, key=lambda one: one[:2])
    alone = find_point(points, row, devices=1)
    one, (one_low, one_high) = (math.nan, (math.nan, math.nan)) if alone is None else ratio_of(frame, alone, _replicas(points, alone))
    return {
        "placement": row["placement"],
        "how": describe(row, HOW),
        "keys": row["keys"],
        **{"ratio": ratio, "ratio_low": low, "ratio_high": high, "one_ratio": one, "one_ratio_low": one_low, "one_ratio_high": one_high},
        **{"n": row["n"], "launches": row["launches"], "base_n": base["n"], "base_launches": base["launches"]},
        "so": against(goal, ratio, low, high),
    }


def _replicas(points: pd.DataFrame, row: Any) -> pd.Series | None:
    """Independent replicas in the same form, which have a process a GPU and nothing to merge."""
    return find_point(points, row, placement="independent", processes="per_device", **USUAL_BUCKETS, all_reduce_spec=None)


def goal_table(frame: pd.DataFrame) -> Shown:
    """`goal_rows` in words."""
    rows = [
        {
            "model": MODEL_NAMES.get(row["model"], row["model"]),
            "job": f"batch {row['batch_size']} a GPU; goal: {row['goal']:.2f} of independent replicas",
            "GPUs": str(row["devices"]),
            "best placement": _way(row) if row["placement"] else UNMEASURED,
            "over independent replicas": _cell(row, "ratio"),
            "goal is": row["so"],
            "the same on 1 GPU": _cell(row, "one_ratio"),
            "repeats (theirs)": f"{repeats_cell(row['n'], row['launches'])} ({repeats_cell(row['base_n'], row['base_launches'])})"
            if row["n"]
            else "–",
        }
        for _, row in goal_rows(frame).iterrows()
    ]
    note = (
        "PyTorch, bf16, captured, weak scaling. Rates over independent replicas' with a process a GPU; 95% intervals, none where either "
        f"side was measured once. The goals are the study's own, for {GOAL_DEVICES} GPUs; other counts stand beside them. The same on "
        "1 GPU: what the placement loses there, with nobody to wait for. Repeats/launches, in brackets the replicas'."
    )
    return tables_by(pd.DataFrame(rows), "job", note, ["over independent replicas", "the same on 1 GPU"])


def _way(row: Any) -> str:
    """The placement's label, and how it was carried out where that is not the usual way."""
    return look(row["placement"]).label + (f", {row['how']}" if row["how"] else "")


def _cell(row: Any, name: str) -> str:
    """A ratio with its interval in four digits, so that a bound just below a goal does not read like it."""
    if missing(row[name]):
        return "–"
    low, high = row[f"{name}_low"], row[f"{name}_high"]
    return f"{row[name]:.4f}" if missing(low) else f"{row[name]:.4f} ({low:.4f} to {high:.4f})"


def goal_sentence(frame: pd.DataFrame) -> str:
    """Of each batch: the share kept on GOAL_DEVICES, else on the most GPUs measured with an interval, and what one GPU loses already."""
    table, parts = goal_rows(frame), []
    for _, group in table.groupby("batch_size", sort=False):
        measured = group[group["placement"] != ""]
        if measured.empty:
            goal = group.iloc[0]
            parts.append(f"at {goal['batch_size']} a GPU (goal {goal['goal']:.2f}) no placement was measured beside independent replicas")
            continue
        row = _told(measured)
        text = f"at {row['batch_size']} a GPU {_way(row)} keeps {_cell(row, 'ratio')} of independent replicas on"
        text += f" {devices_text(row['devices'], row['device_type'])} (goal {row['goal']:.2f}: {row['so']}"
        lost, alone = 1 - row["ratio"], 1 - row["one_ratio"]
        if missing(row["one_ratio"]):
            text += "; not measured on 1 GPU)"
        else:
            text += f"; it loses {percent_text(lost)} there and {percent_text(alone)} on 1 GPU)" if lost > 0 < alone else ")"
        parts.append(text)
    last = table[(table["devices"] == GOAL_DEVICES) & table["placement"].eq("")]
    lacking = f" On {GOAL_DEVICES} GPUs, for which the goals are stated, neither was measured." if len(last) == len(GOALS) else ""
    return f"{MODEL_NAMES[table['model'].iloc[0]]}, captured, bf16: {'; '.join(parts)}.{lacking}{_untried_words(frame)}"


def _told(measured: pd.DataFrame) -> Any:
    """The row that speaks for a batch: on the most GPUs measured with an interval, else on the most."""
    exact = measured[measured["ratio_low"].notna()]
    return (exact if len(exact) else measured).sort_values("devices").iloc[-1]


def goal_answer(frame: pd.DataFrame) -> str | None:
    """`goal_sentence` in short: the shares kept, beside the goals; None where nothing was measured beside replicas."""
    table = goal_rows(frame)
    told = [_told(group) for _, group in table[table["placement"] != ""].groupby("batch_size", sort=False)]
    if not told:
        return None
    kept = [
        f"{_cell(row, 'ratio')} at {row['batch_size']} images a GPU on {devices_text(row['devices'], row['device_type'])} "
        f"(goal on {GOAL_DEVICES}: {row['goal']:.2f})"
        for row in told
    ]
    return f"Of independent replicas' rate {MODEL_NAMES[table['model'].iloc[0]]} keeps, captured, {joined(kept)}.{_untried_short(frame)}"


def _untried_short(frame: pd.DataFrame) -> str:
    """`untried_rows` in short, each way by its name; "" without any."""
    rows, said = untried_rows(frame), []
    for way, group in rows.groupby(rows.apply(lambda row: row["how"] or _way(row), axis=1), sort=False) if len(rows) else []:
        kept = [f"{_cell(row, 'ratio')} at {row['batch_size']}" for _, row in group.iterrows()]
        said.append(f" With {way}, tried on 1 GPU alone, it keeps {joined(kept)} there.")
    return "".join(said)


def _untried_words(frame: pd.DataFrame) -> str:
    """`untried_rows` in a sentence of its own, "" where there are none."""
    rows = untried_rows(frame)
    if rows.empty:
        return ""
    said = []
    for way, group in rows.groupby(rows.apply(_way, axis=1), sort=False):
        kept = [f"{_cell(row, 'ratio')} at {row['batch_size']} a GPU" for _, row in group.iterrows()]
        said.append(f"{', '.join(kept)} with {way}")
    return f" On 1 GPU the best way keeps {'; '.join(said)}; how much of that remains on more is not measured."
