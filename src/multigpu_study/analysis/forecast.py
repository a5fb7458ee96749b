"""The forecast of the article's own curve, from its smaller counts."""

from __future__ import annotations

from dataclasses import replace

from multigpu.analysis.forecast import HeldOutCount, Points, held_out
from multigpu.analysis.forecast_lines import GBIT
from multigpu.analysis.forecast_reduction import Demand, Links
from multigpu_study.published import load_published, published_value


def article_held_out(links: Links) -> HeldOutCount:
    """The largest count of the IBM all-reduce article's own curve, predicted from its smaller ones
    on its own network and bytes.
    """
    table = load_published("004_step_times").sort_values("gpus")
    names = ("gpus_per_node", "network_bandwidth", "nvlink_bandwidth", "gradient_size")
    node, gbit, inside, megabytes = (published_value("004_statements", name) for name in names)
    own = replace(
        links,
        node=int(node),
        between_bytes_per_s=gbit * GBIT / node,
        inside_bytes_per_s=1e9 * inside,
    )
    times = tuple((step_ms / 1000,) for step_ms in table["step_time_ms"].tolist())
    return held_out(
        Points(tuple(table["gpus"].tolist()), times, Demand(reduced=1e6 * megabytes)), own
    )
