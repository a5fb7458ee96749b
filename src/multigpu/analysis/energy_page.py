"""What an image or word costs in joules, in a sentence."""

from __future__ import annotations

import pandas as pd

from multigpu.analysis.wording import MODEL_NAMES, devices_text, execution_text, plural

JOB = ["unit", "devices", "model", "batch_size", "placement", "execution", "precision"]
NO_ENERGY = "Energy has not been measured yet."


def energy_points(frame: pd.DataFrame) -> pd.DataFrame:
    """The windows of `hardware.energy_frame` that are long enough, those of a job pooled: joules_per_unit, the largest of what counters'
    steps leave open (`uncertain`), and n.
    """
    known = frame[frame["joules_per_unit"].notna()]
    grouped = known.groupby(JOB, sort=True, dropna=False)
    return grouped.agg(n=("key", "size"), joules_per_unit=("joules_per_unit", "mean"), uncertain=("uncertain", "max")).reset_index()


def _job(row: pd.Series) -> str:
    return f"{MODEL_NAMES.get(row['model'], row['model'])}, batch {row['batch_size']}, {execution_text(row['execution'])}"


def energy_finding(frame: pd.DataFrame) -> str:
    """The least and the most joules a unit, of each unit and number of GPUs."""
    said = []
    points = energy_points(frame)
    for _, rows in points.groupby(["unit", "devices"], sort=True):
        ordered = rows.sort_values("joules_per_unit")
        least, most = ordered.iloc[0], ordered.iloc[-1]
        one = str(least["unit"]).removesuffix("s")
        figures = f"{least['joules_per_unit']:.3g} J ({_job(least)})"
        figures += f" to {most['joules_per_unit']:.3g} J ({_job(most)})" if len(rows) > 1 else ""
        low, high = int(rows["n"].min()), int(rows["n"].max())
        repeats = "each measured once" if high == 1 else f"n = {low}" if low == high else f"n = {low} to {high}"
        said.append(
            f"On {devices_text(int(least['devices']), 'cuda')} training takes {figures} {'an' if one == 'image' else 'a'} {one}, by the "
            f"GPUs' own counters (± {100 * rows['uncertain'].max():.1f}% at most; {plural(len(rows), 'job')}, {repeats}); the host's "
            "energy is not in it."
        )
    return " ".join([*said, *_against_one(points)]) or NO_ENERGY


def _against_one(points: pd.DataFrame) -> list[str]:
    """What a unit takes on several GPUs over what it takes on one, a sentence a number of GPUs; a job measured on both alone counts."""
    job = [name for name in JOB if name != "devices"]
    alone = points[points["devices"] == 1].set_index(job)
    said = []
    for (unit, devices), rows in points[points["devices"] > 1].groupby(["unit", "devices"]):
        own = rows.set_index(job).join(alone, rsuffix="_one", how="inner")
        if own.empty:
            continue
        ratios = own["joules_per_unit"] / own["joules_per_unit_one"]
        ends = " to ".join(dict.fromkeys(f"{value:.2f}" for value in (ratios.min(), ratios.max())))
        once = ", each measured once" if own[["n", "n_one"]].to_numpy().max() == 1 else ""
        one = str(unit).removesuffix("s")
        named = f"{'an' if one == 'image' else 'a'} {one}"
        said.append(
            f"On {devices_text(int(str(devices)), 'cuda')} {named} takes {ends} times as much as on one ({plural(len(own), 'job')}{once})."
        )
    return said
