"""What a model asks of links: bytes of gradients for each operation of a step, and the efficiency that links at their best allow.

Summing S bytes of gradients over N devices takes at least 2 (N - 1)/N S / L seconds, with L the bytes a second that a device sends
(Patarasu and Yuan 2009). A step that takes t on one device therefore keeps at most t / (t + links) of its speed if none of the summing
runs beside computing.
"""

from __future__ import annotations

import math
from typing import Any

import pandas as pd

from multigpu.analysis.fields import POINT
from multigpu.analysis.limits import TRAINING_PASSES, ceilings
from multigpu.workloads import find_model


def links_s(gradient_bytes: Any, devices: Any, link_bytes_per_s: Any) -> Any:
    """Least time to sum the gradients, s: 2 (N - 1)/N S / L; 0 on one device."""
    return 2 * (devices - 1) / devices * gradient_bytes / link_bytes_per_s


def link_bounds(points: pd.DataFrame) -> pd.DataFrame:
    """The measured points with what each asks of the links between its devices.

    Args:
        points: rows of `points.points`; the same series on one device, where it is among them, gives `one_step_s`.

    Returns:
        The rows of n > 0 and, beside their columns: parameters; bytes_per_mflop: of float32 gradients, over the operations of one device
        (three forward passes of its share of the batch); links_s (the least time to sum the gradients); one_step_s (the step on one
        device); bound_exposed: the most efficiency if no summing hides behind computing. NaN where no link of such a device was measured,
        or no step on one.
    """
    own = points[points["n"] > 0].reset_index(drop=True)
    on = [field for field in POINT if field != "devices"]
    ones = own.loc[own["devices"].eq(1), [*on, "step_time_s"]].rename(columns={"step_time_s": "one_step_s"})
    own = own.merge(ones, on=on, how="left", validate="m:1")
    models = [find_model(workload, model) for workload, model in zip(own["workload"], own["model"], strict=True)]
    known = {gpu: ceilings(gpu).get("device_link") if gpu else None for gpu in own["gpu"].unique()}
    link = own["gpu"].map({gpu: ceiling.value if ceiling else math.nan for gpu, ceiling in known.items()}).astype("float64")
    size = pd.Series([model.parameter_bytes for model in models], dtype="float64")
    flops = TRAINING_PASSES * pd.Series([model.forward_flops_per_unit for model in models], dtype="float64")
    alone_s = links_s(size, own["devices"], link)
    return own.assign(
        parameters=[model.parameters for model in models],
        bytes_per_mflop=1e6 * size / (flops * own["rate"] * own["step_time_s"] / own["devices"]),
        links_s=alone_s,
        bound_exposed=own["one_step_s"] / (own["one_step_s"] + alone_s),
    )
