"""What forecasts say, as tables: the counts ahead, the count that was held out, and a document's own curve."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pandas as pd

from multigpu.analysis.fields import SERIES
from multigpu.analysis.forecast import PARTS, HeldOut, Points, forecast, held_out
from multigpu.analysis.forecast_lines import GBIT, Line
from multigpu.analysis.forecast_merge import Demand, Links
from multigpu.published import load_published, published_value

DOCUMENT_NETWORKS = {"002": ("gpus_per_server", "network_bandwidth"), "004": ("gpus_per_node", "network_bandwidth")}


def _series(line: Line) -> dict[str, object]:
    return {name: line.first[name] for name in SERIES} | {"keys": ", ".join(line.rows["keys"])}


def ahead_table(lines: Sequence[Line]) -> pd.DataFrame:
    """A row a line and count of its forecast.

    Returns:
        the fields of the series, devices, efficiency over the same placement on one device and step_s, each with `_low` and `_high` (95%),
        a column of seconds a part of the step (`forecast.PARTS`), longest (the part that takes most besides computation), slope (x or h as
        fitted), measured (whether this count is among those fitted), keys.
    """
    rows = []
    for line in lines:
        found = line.forecast
        if found is None:
            continue
        bands = [*found.band(), *found.band(efficiency=False)]
        for at, count in enumerate(found.devices):
            values = dict(
                zip(("efficiency_low", "efficiency_high", "step_s_low", "step_s_high"), (band[at] for band in bands), strict=True)
            )
            rest = [(share, name) for name, share in found.binding(at) if name != "computation"]
            rows.append(
                _series(line)
                | {"devices": count, "efficiency": found.efficiency[at], "step_s": found.step_s[at], **values}
                | {f"{name.replace(' ', '_')}_s": seconds for name, seconds in zip(PARTS, found.parts_s[:, at], strict=True)}
                | {
                    "longest": max(rest)[1] if max(rest)[0] > 0 else "",
                    "slope": found.slope,
                    "measured": count in set(line.rows["devices"]),
                }
            )
    return pd.DataFrame(rows)


def held_out_table(lines: Sequence[Line]) -> pd.DataFrame:
    """A row a line with a held-out count: what the smaller counts say of it, beside its measurement.

    Returns:
        the fields of the series, devices (held out), efficiency (predicted, over the fitted step on one device) with `_low` and `_high`,
        measured (efficiency), error (predicted step over measured, less 1), inside (whether the measured step lies in the band, as text),
        spread, n (repeats of the held-out count), keys.
    """
    rows = []
    for line in lines:
        held = line.held_out
        if held is None or line.points is None:
            continue
        one_s = float(line.points.means_s[0])
        rows.append(
            _series(line)
            | {"devices": held.devices, "efficiency": one_s / held.predicted_s, "measured": one_s / held.measured_s}
            | {"efficiency_low": one_s / held.high_s, "efficiency_high": one_s / held.low_s, "error": held.error}
            | {"inside": {None: "", True: "yes", False: "no"}[held.inside], "spread": line.spread, "n": int(line.rows["n"].iloc[-1])}
        )
    return pd.DataFrame(rows)


def article_points() -> Points:
    """The IBM all-reduce article's own step by number of GPUs, with the bytes that it says it merges."""
    table = load_published("004_step_times").sort_values("gpus")
    size = 1e6 * published_value("004_statements", "gradient_size")
    return Points(tuple(int(n) for n in table["gpus"]), tuple((float(t) / 1000,) for t in table["step_time_ms"]), Demand(reduced=size))


def document_links(number: str, links: Links) -> Links:
    """`links` with the nodes and the network that a document states, a machine's network shared by its devices.

    Raises:
        ValueError: the document states none.
    """
    if number not in DOCUMENT_NETWORKS:
        raise ValueError(f"document {number} states no network: choose one of {', '.join(DOCUMENT_NETWORKS)}")
    node, gbit = (published_value(f"{number}_statements", name) for name in DOCUMENT_NETWORKS[number])
    return replace(links, node=int(node), between_bytes_per_s=gbit * GBIT / node)


def article_held_out(links: Links) -> HeldOut:
    """The largest count of the all-reduce article's own curve, predicted from its smaller ones on its own network."""
    inside = 1e9 * published_value("004_statements", "nvlink_bandwidth")
    return held_out(article_points(), replace(document_links("004", links), inside_bytes_per_s=inside))


def on_network(line: Line, links: Links, devices: int) -> pd.DataFrame:
    """`ahead_table` of one line on another network, at one count; empty where the line has no forecast."""
    if line.points is None or line.links is None or line.forecast is None:
        return pd.DataFrame()
    inside = {name: getattr(line.links, name) for name in ("inside_bytes_per_s", "host_bytes_per_s", "inside_latency_s")}
    own = replace(links, **inside)
    found = forecast(line.points, [devices], own, line.residuals)
    return ahead_table([replace(line, links=own, forecast=replace(found, widening=line.forecast.widening))])
