"""Whether one joined batch gives one curve on however many devices: it does without batch norm, which sees each shard by itself."""

from __future__ import annotations

from typing import Any

import pandas as pd

from multigpu.analysis.picture import Shown, paragraphs
from multigpu.analysis.training import curve_distance, job_name
from multigpu.analysis.wording import joined
from multigpu.workloads import find_model

SAME = ["machine", "workload", "model", "inputs", "joined_batch", "seed", "base_rate", "rate_scaling", "schedule", "epochs"]
"""What runs have in common that differ in the number of devices and in precision alone."""


def spread_points(frame: pd.DataFrame, curves: pd.DataFrame) -> pd.DataFrame:
    """A row a run of ddp on several devices that has one on one device, equal in all else: columns of SAME, precision, devices, key,
    distance (of its curve to that of one device in its precision, as `curve_distance`), rounding (of one device in this precision to one
    device in fp64; NaN: none was trained, or this is it), norm (whether the model has batch norm).
    """
    where = {"status": "ok", "placement": "ddp", "workload": "cnn", "scaling": "strong", "execution": "eager"}
    own = frame[pd.concat([frame[name] == value for name, value in where.items()], axis=1).all(axis=1)]
    losses = {key: group["loss"].to_numpy() for key, group in curves.groupby("key")}
    rows: list[dict[str, Any]] = []
    groups: Any = own.groupby(SAME, sort=False, dropna=False)
    for values, job in groups:
        alone = job[job["devices"] == 1].drop_duplicates("precision").set_index("precision")["key"]
        for _, row in job[job["devices"] > 1].iterrows():
            if row["precision"] not in alone.index:
                continue
            reference, exact = losses[alone[row["precision"]]], alone.get("fp64")
            known = exact is not None and row["precision"] != "fp64"
            rows.append(
                {
                    **dict(zip(SAME, values, strict=True)),
                    **{name: row[name] for name in ("precision", "devices", "key")},
                    "distance": curve_distance(losses[row["key"]], reference),
                    "rounding": curve_distance(reference, losses[exact]) if known else float("nan"),
                    "norm": any(variable.kind == "norm" for variable in find_model("cnn", row["model"]).variables),
                }
            )
    columns = [*SAME, "precision", "devices", "key", "distance", "rounding", "norm"]
    return pd.DataFrame(rows, columns=columns).sort_values(["norm"], kind="stable", ignore_index=True)


def spread_said(points: pd.DataFrame) -> Shown:
    """A sentence a job, those without batch norm first; nothing without runs on one device and several."""
    said = []
    jobs: Any = points.groupby(["norm", "machine", "model", "inputs", "base_rate"], sort=False)
    for (norm, machine, model, inputs, _), own in jobs:
        counts = joined([str(count) for count in sorted(set(own["devices"]))])
        parts = []
        for precision, at in own.groupby("precision", sort=False):
            far, rounding = at["distance"].max(), at["rounding"].max()
            apart = f"by at most {far:.1e} of the loss in {precision}" if far else f"in no digit that a Record keeps in {precision}"
            parts.append(apart + ("" if pd.isna(rounding) else f" (where rounding alone leads one device {rounding:.1e} from fp64)"))
        how = "whose batch norm sees each shard by itself" if norm else "which has no batch norm"
        said.append(
            f"{job_name(str(model), str(inputs))} ({machine}), {how}: under ddp the curves of one joined batch over {counts} devices "
            f"differ from that of one device {joined(parts)}."
        )
    return paragraphs(*said, kind="said")
