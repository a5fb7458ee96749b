"""What a model asks of links: bytes of gradients for each operation of a step, and the efficiency that links at their best allow.

Summing S bytes of gradients over N devices takes at least 2 (N - 1)/N S / L seconds, with L the bytes a second that a device sends
(Patarasu and Yuan 2009). A step that takes t on one device therefore keeps at most t / max(t, links) of its speed if all of the summing
runs beside computing, and t / (t + links) if none does.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from multigpu.analysis.fields import POINT
from multigpu.analysis.limits import TRAINING_PASSES, ceilings
from multigpu.workloads import find_model

LINK_COLUMNS = ("parameters", "gradient_bytes", "step_flops", "bytes_per_mflop", "links_s", "one_step_s", "bound_hidden", "bound_exposed")


def links_s(gradient_bytes: float, devices: int, link_bytes_per_s: float) -> float:
    """Least time to sum the gradients, s: 2 (N - 1)/N S / L; 0 on one device."""
    return 2 * (devices - 1) / devices * gradient_bytes / link_bytes_per_s


def own_bounds(gradient_bytes: float, step_time_s: float, devices: int, link_bytes_per_s: float) -> tuple[float, float]:
    """The most efficiency of a model whose step on one device takes `step_time_s`: (all of the summing hidden, none of it)."""
    alone_s = links_s(gradient_bytes, devices, link_bytes_per_s)
    return step_time_s / max(step_time_s, alone_s), step_time_s / (step_time_s + alone_s)


def link_bounds(points: pd.DataFrame) -> pd.DataFrame:
    """The measured points with what each asks of the links between its devices.

    Args:
        points: rows of `points.points`; the same series on one device, where it is among them, gives `one_step_s`.

    Returns:
        The rows of n > 0 and, beside their columns: parameters; gradient_bytes (float32); step_flops of one device (three forward passes of
        its share of the batch); bytes_per_mflop; links_s (the least time to sum the gradients); one_step_s (the step on one device);
        bound_hidden and bound_exposed (`own_bounds`). NaN where no link of such a device was measured, or no step on one.
    """
    own = points[points["n"] > 0].reset_index(drop=True)
    on = [field for field in POINT if field != "devices"]
    ones = own.loc[own["devices"].eq(1), [*on, "step_time_s"]].rename(columns={"step_time_s": "one_step_s"})
    own = own.merge(ones, on=on, how="left", validate="m:1")
    found = []
    for _, row in own.iterrows():
        model = find_model(row["workload"], row["model"])
        flops = TRAINING_PASSES * model.forward_flops_per_unit * row["rate"] * row["step_time_s"] / row["devices"]
        known = ceilings(row["gpu"]) if row["gpu"] else {}
        link = known["device_link"].value if "device_link" in known else np.nan
        hidden, exposed = own_bounds(model.parameter_bytes, row["one_step_s"], row["devices"], link)
        per_mflop = 1e6 * model.parameter_bytes / flops
        alone_s = links_s(model.parameter_bytes, row["devices"], link)
        found.append((model.parameters, model.parameter_bytes, flops, per_mflop, alone_s, hidden, exposed))
    named = [name for name in LINK_COLUMNS if name != "one_step_s"]
    return pd.concat([own, pd.DataFrame(found, columns=named, index=own.index)], axis=1)
