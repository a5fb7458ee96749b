"""Ladders of batches: throughput and memory from a small batch to the largest that fits, by model and way."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from multigpu.analysis.metrics import POINT, summary
from multigpu.analysis.picture import Shown
from multigpu.analysis.tables import table_html, tables_by
from multigpu.analysis.wording import MODEL_NAMES, describe, devices_text, joined, missing, plural, rate_text

LEAST_RUNGS = 3
"""Batches that make a ladder."""

DRAWN = ("resnet50_v1.5", "inception3", "vgg16", "alexnet", "resnet20", "densenet40_k12")
"""Models whose ladders a page draws: the document's four large ones, and the smallest of each kind on small images."""

WORDS = ("placement", "precision", "execution", "layout")
"""What else tells ladders of a model apart, beside the number of devices."""

FULL = 0.95
"""Share of its best rate from which a batch counts as large enough."""

STRAIGHT = 0.98
"""Least r^2 of a line through memory."""

NOTHING_GIB = 0.05
"""Memory that is told as 0.0."""


def ladders(frame: pd.DataFrame) -> list[pd.DataFrame]:
    """The points of `summary` that differ in their batch alone, smallest first, a table each; at least three batches, measured or not.

    Weak scaling; independent replicas, which are no placement to choose, are left out.
    """
    points = summary(frame[frame["scaling"].eq("weak") & frame["placement"].ne("independent")])
    if points.empty:
        return []
    by = [name for name in POINT if name != "batch_size"]
    order = list(MODEL_NAMES)
    found = [group.sort_values("batch_size").reset_index(drop=True) for _, group in points.groupby(by, dropna=False, sort=False)]
    found = [group for group in found if len(group) >= LEAST_RUNGS and (group["n"] > 0).any()]
    return sorted(found, key=lambda g: (order.index(g["model"][0]) if g["model"][0] in order else 99, int(g["devices"][0])))


def parted(frame: pd.DataFrame) -> tuple[pd.DataFrame, pd.DataFrame]:
    """The rows of DRAWN models and those of the others, which a page folds; of a study without any DRAWN model all, and none."""
    own = frame["model"].isin(DRAWN)
    return (frame[own], frame[~own]) if own.any() else (frame, frame.iloc[:0])


def memory_law(ladder: pd.DataFrame) -> tuple[float, float]:
    """(fixed GiB, GiB an image) of the straight line through peak memory against batch, by least squares.

    NaN where memory does not follow a line (r^2 below 0.98, or less memory for more images): while cuDNN tries its algorithms, one
    that is not chosen in the end may need the most. So, too, where the line begins below 0, as no memory does.
    """
    known = ladder[ladder["peak_memory_gib"].notna()]
    batch, memory = known["batch_size"].to_numpy(float), known["peak_memory_gib"].to_numpy(float)
    if len(set(batch)) < LEAST_RUNGS or np.ptp(memory) == 0:
        return float("nan"), float("nan")
    slope, fixed = np.polyfit(batch, memory, 1)
    straight = np.corrcoef(batch, memory)[0, 1] ** 2 >= STRAIGHT and (np.diff(memory) > 0).all()
    return (max(0.0, float(fixed)), float(slope)) if straight and fixed > -NOTHING_GIB else (float("nan"), float("nan"))


def ladder_rows(frame: pd.DataFrame) -> pd.DataFrame:
    """A row a ladder: model, how, devices, smallest and largest measured batch with their rates, the best rate, enough (the smallest
    batch with 95% of it), first_full (the smallest batch that was out of memory, or NaN), last_fit (the largest measured below it), memory
    at the largest, fixed_gib and image_gib.
    """
    rows = []
    for ladder in ladders(frame):
        ok = ladder[ladder["n"] > 0]
        best = float(ok["rate"].max())
        full = ladder[ladder["status"].eq("out_of_memory")]["batch_size"]
        below = ok.loc[ok["batch_size"].lt(full.min()), "batch_size"] if len(full) else full
        fixed, image = memory_law(ok)
        rows.append(
            {
                "ladder": ladder.iloc[0],
                "model": ladder["model"][0],
                "devices": int(ladder["devices"][0]),
                "smallest": int(ok["batch_size"].iloc[0]),
                "smallest_rate": float(ok["rate"].iloc[0]),
                "largest": int(ok["batch_size"].iloc[-1]),
                "best": best,
                "best_batch": int(ok["batch_size"].iloc[int(ok["rate"].to_numpy().argmax())]),
                "enough": int(ok[ok["rate"] >= FULL * best]["batch_size"].iloc[0]),
                "first_full": float(full.min()) if len(full) else float("nan"),
                "last_fit": float(below.max()) if len(below) else float("nan"),
                "memory_gib": float(ok["peak_memory_gib"].iloc[-1]),
                "fixed_gib": fixed,
                "image_gib": image,
                "unit": ladder["unit"][0],
            }
        )
    return pd.DataFrame(rows)


def ladder_table(frame: pd.DataFrame) -> Shown:
    """`ladder_rows` in words."""
    table = ladder_rows(frame)
    if table.empty:
        return table_html(table, note="No model has three batches yet: the grid cnn_ladders measures them.")
    plain = [row["ladder"]["placement"] == "ddp" for _, row in table.iterrows()]
    chosen = table[plain] if any(plain) else table
    rows = [_row(row) for _, row in chosen.iterrows()]
    note = (
        "Rates a ladder, most measured once or twice a batch. Enough: the smallest batch with 95% of the best rate; “or more”: the "
        "largest measured, which more images may exceed. Memory: the most allocated on a GPU at the largest batch; fixed and an image: "
        "a straight line through all batches where it is one and begins at 0 or above, else a dash. No memory where an earlier Run's "
        "model was still in it."
    )
    note += "" if chosen["first_full"].notna().any() else " No ladder reached a batch that does not fit."
    note += f" {plural(len(table) - len(chosen), 'ladder')} of placements other than ddp: not shown." if len(table) > len(chosen) else ""
    return tables_by(pd.DataFrame(rows), "model", note, [name for name in rows[0] if name not in ("model", *WORDS)])


def _row(row: Any) -> dict[str, str]:
    form = row["ladder"]
    return {
        "model": describe(form, ["model"]),
        **{name: describe(form, [name]) for name in WORDS},
        "GPUs": str(row["devices"]),
        "batches": f"{row['smallest']:,} to {row['largest']:,}",
        "first rate": f"{row['smallest_rate']:,.0f}",
        "best rate (batch)": f"{row['best']:,.0f} ({row['best_batch']:,})",
        "enough": f"{row['enough']:,}" + (" or more" if row["enough"] == row["largest"] else ""),
        "memory (GiB)": "–" if missing(row["memory_gib"]) else f"{row['memory_gib']:.1f}",
        "fixed (GiB)": "–" if missing(row["image_gib"]) else f"{row['fixed_gib']:.1f}",
        "an image (MiB)": "–" if missing(row["image_gib"]) else f"{1024 * row['image_gib']:.1f}",
        "does not fit": "" if missing(row["first_full"]) else f"{row['first_full']:,.0f}: out of memory",
    }


def ladder_sentence(frame: pd.DataFrame) -> str:
    """From which batch on a larger one gives little, on the fewest devices measured, models of one form together; and what did not fit."""
    table = ladder_rows(frame)
    if table.empty:
        return "No model has been measured at three batches yet."
    told: dict[str, list[Any]] = {}
    for row in _told_rows(table):
        own = row["ladder"]
        told.setdefault(f"{describe(own, ['execution'])} on {devices_text(row['devices'], own['device_type'])}", []).append(row)
    said = [f"{form[0].upper()}{form[1:]}, {_enough(rows)}." for form, rows in told.items()]
    ends: dict[tuple[float, float], set[str]] = {}
    for _, row in table[table["first_full"].notna()].iterrows():
        ends.setdefault((-1.0 if missing(row["last_fit"]) else row["last_fit"], row["first_full"]), set()).add(_name(row))
    parts = [_end(low, high, joined(sorted(ends[low, high])), _unit(table.iloc[0])) for low, high in sorted(ends)]
    end = f"A GPU's memory ends {'; '.join(parts)}." if parts else "No batch measured was too large for a GPU's memory."
    return " ".join([*said, end])


def _end(low: float, high: float, names: str, unit: str) -> str:
    """Between which batches the end of memory lies: the largest that was measured to fit, and the smallest that did not."""
    return f"below {high:,.0f} {unit} of {names}" if low < 0 else f"between {low:,.0f} and {high:,.0f} {unit} of {names}"


def answer(frame: pd.DataFrame) -> str | None:
    """`ladder_sentence` in short: between which batches models have enough, and how many still gain or met the end of memory."""
    rows = _told_rows(ladder_rows(frame))
    reached = sorted((row for row in rows if row["enough"] < row["largest"]), key=lambda row: row["enough"])
    if not reached:
        return None
    first, last = reached[0], reached[-1]
    still = [row for row in rows if row["enough"] >= row["largest"]]
    ended = sum(not missing(row["first_full"]) for row in still)
    more = f", {ended} of them next to the end of memory" if ended else ""
    return (
        f"{100 * FULL:.0f}% of its best rate a model reaches at {first['enough']:,} ({_name(first)}) to {last['enough']:,} "
        f"{_unit(last)} ({_name(last)}) a device; of {plural(len(rows), 'model')} {len(still)} still gained at the largest batch "
        f"measured{more}."
    )


def _told_rows(table: pd.DataFrame) -> list[Any]:
    """A row a model: on the fewest devices measured, of those the fastest form."""
    groups: Any = table.groupby("model", sort=False) if len(table) else []
    return [group.sort_values(["devices", "best"], ascending=[True, False]).iloc[0] for _, group in groups]


def _enough(rows: list[Any]) -> str:
    """A clause for the models that had enough images, from the smallest batch on, and one for those that still gain at their largest."""
    reached = sorted((row for row in rows if row["enough"] < row["largest"]), key=lambda row: row["enough"])
    still = [row for row in rows if row["enough"] >= row["largest"]]
    ends = {
        "still gaining at the largest batch measured that fits": [row for row in still if not missing(row["first_full"])],
        "still gaining where their ladders end, with memory left": [row for row in still if missing(row["first_full"])],
    }
    enough = (
        f"{_unit(rows[0])} a device for {100 * FULL:.0f}% of the best rate: {joined([_rung(row, 'enough') for row in reached])}"
        if reached
        else ""
    )
    told = [f"{words}: {joined([_rung(row, 'largest') for row in own])}" for words, own in ends.items() if own]
    return "; ".join(filter(None, [enough, *told]))


def _rung(row: Any, batch: str) -> str:
    return f"{_name(row)} {row[batch]:,} ({rate_text(row['best'], unit=row['unit'])})"


def _unit(row: Any) -> str:
    """What a batch counts."""
    return "images" if row["unit"] == "images" else "samples"


def _name(row: Any) -> str:
    return describe(row["ladder"], ["model"])
