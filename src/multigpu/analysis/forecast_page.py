"""The forecast's page: what it observes, its tables, and the documents' networks under today's Records."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pandas as pd

from multigpu import paths
from multigpu.analysis.all_reduce import points as collective_points
from multigpu.analysis.collectives import collectives_frame
from multigpu.analysis.forecast import Forecast, Points, forecast, held_out
from multigpu.analysis.forecast_lines import COUNTS, Line, forecast_lines, lines_of
from multigpu.analysis.forecast_merge import Between, Demand, Links
from multigpu.analysis.frame import step_times
from multigpu.analysis.picture import Shown, folded, together
from multigpu.analysis.style import look
from multigpu.analysis.tables import table_html
from multigpu.analysis.wording import MODEL_NAMES, device_words, joined, percent_text, plural
from multigpu.published import load_published, published_value

GBIT = 1e9 / 8
"""Bytes/s of a Gbit/s."""

RESNET = "resnet50_v1.5"
NOTHING_HELD_OUT = "Nothing was held out: no job was measured on three numbers of devices, one of them 1, with launches repeated."


def assumed_links(network_gbit: float, network_latency_us: float, node: int, between: Between) -> Links:
    """The links between nodes as the page's parameters say; those inside are filled in from what was measured.

    Raises:
        ValueError: a rate that carries nothing, a node without devices, or another way to join nodes.
    """
    if network_gbit <= 0:
        raise ValueError(f"a network carries something: network_gbit must be above 0, not {network_gbit}")
    return Links(1.0, node=node, between_bytes_per_s=network_gbit * GBIT, between_latency_s=1e-6 * network_latency_us, between=between)


def observe(frame: pd.DataFrame, assumed: Links, most: int, draws: int = 400) -> list[Line]:
    """Every line of `frame` with its forecast, from the Records' own steps and the all-reduces measured alone.

    Raises:
        ValueError: `most` lies below 2, or Records cannot be read.
    """
    if most < 2:
        raise ValueError(f"a forecast goes to at least 2 devices, not {most}")
    one = frame[(frame["status"] == "ok") & (frame["devices"] == 1) & (frame["scaling"] == "weak")]
    steps = step_times(paths.RUNS, list(one["key"]))
    collectives = collective_points(collectives_frame(paths.COLLECTIVES))
    return forecast_lines(lines_of(frame, steps, collectives, assumed), most, draws)


def _percent(found: Forecast, at: int | None) -> str:
    """An efficiency with its band; a band that ends above 100% bounds nothing there, and says so."""
    if at is None:
        return "–"
    low, high = (100 * float(bound[at]) for bound in found.band())
    value = 100 * float(found.efficiency[at])
    if low != low:
        return f"{value:.1f}"
    return f"{value:.1f} ({low:.1f} to {high:.1f})" if high <= 100 else f"{value:.1f} ({low:.1f} or more)"


def _binding(found: Forecast, at: int | None) -> str:
    """What takes longest at a count; where that is computation, what comes next."""
    if at is None:
        return "–"
    (first, share), (second, next_share), *_ = found.binding(at)
    text = f"{first} ({percent_text(share)})"
    return text + (f", then {second} ({percent_text(next_share)})" if first == "computation" and next_share >= 0.005 else "")


def _fitted(found: Forecast, line: Line) -> str:
    """The second parameter: h, what the host adds a device, or x, how often its links' time the merge costs."""
    if line.points is not None and line.points.one_process:
        return f"h {1e3 * found.slope:.3g} ms"
    return f"x {found.slope:.2f}"


def _ms(seconds: float, low: float, high: float) -> str:
    return f"{1e3 * seconds:.2f}" if low != low else f"{1e3 * seconds:.2f} ({1e3 * low:.2f} to {1e3 * high:.2f})"


def _other(links: Links | None) -> Between:
    """The way to join nodes that these links do not have."""
    return "hierarchical" if links is not None and links.between == "ring" else "ring"


def _other_way(line: Line, at: int | None, most: int) -> str:
    """The efficiency at the last count if nodes were joined the other way; only an all-reduce has two."""
    if line.points is None or line.links is None or at is None or not line.points.demand.reduced or most <= line.links.node:
        return "–"
    links = replace(line.links, between=_other(line.links))
    return f"{100 * forecast(line.points, [most], links).efficiency[0]:.1f}"


def forecast_tables(lines: Sequence[Line], most: int) -> Shown:
    """A table a job, each unfolded by its name: the held-out point predicted and measured, then the forecast at COUNTS and what binds."""
    panels: dict[str, list[Line]] = {}
    for line in lines:
        if line.forecast is not None and line.held_out is not None:
            panels.setdefault(line.panel, []).append(line)
    if not panels:
        return table_html(pd.DataFrame(), note="No forecast: no job was measured on three numbers of devices, one of them 1.")
    counts = [count for count in COUNTS if count < most] + [most]
    return together(*(_of_job(name, group, counts) for name, group in panels.items()))


def _of_job(name: str, group: Sequence[Line], counts: Sequence[int]) -> Shown:
    """Both tables under their job's name and how many lines it has; a page of all of them open is longer than anyone reads."""
    group = sorted(group, key=lambda line: (look(line.placement).order, line.first["framework"]))
    return folded(f"{name} ({plural(len(group), 'line')})", _test_table(group), _ahead_table(group, counts))


def _test_table(group: Sequence[Line]) -> Shown:
    """The held-out point of each line, predicted and measured."""
    rows, bold = [], []
    for index, line in enumerate(group):
        found, held = line.forecast, line.held_out
        if found is None or held is None:
            continue
        last = line.rows.iloc[-1]
        factor = held.measured_s * last["rate"]
        rows.append(
            {
                "Placement": look(line.placement).label,
                "predicted (ms)": _ms(held.predicted_s, held.low_s, held.high_s),
                "measured (ms)": _ms(held.measured_s, factor / last["rate_high"], factor / last["rate_low"]),
                "error (%)": f"{100 * held.error:+.1f}",
                "in the band": "–" if held.inside is None else "yes" if held.inside else "no",
                "spread from": line.spread,
            }
        )
        if held.inside is False:
            bold.append((index, "in the band"))
    data, words = pd.DataFrame(rows), device_words(str(group[0].first["device_type"]))
    figures = [str(column) for column in data if str(column).endswith(("(%)", "(ms)"))]
    held_counts = joined([str(count) for count in sorted({line.held_out.devices for line in group if line.held_out})])
    return table_html(data, "", f"Held out: the step on {held_counts} {words}.", figures, bold)


def _ahead_table(group: Sequence[Line], counts: Sequence[int]) -> Shown:
    """What each line's forecast says at `counts`, of which the last is the farthest, and what takes longest in a step there."""
    most, other = counts[-1], _other(group[0].links)
    rows = [
        {
            "Placement": look(line.placement).label,
            "fitted": _fitted(found, line),
            **{f"efficiency on {count:,} (%)": _percent(found, line.at(count)) for count in counts},
            f"joined by {other} (%)": _other_way(line, line.at(most), most),
            **{f"longest on {count:,}": _binding(found, line.at(count)) for count in (counts[0], most)},
        }
        for line in group
        if (found := line.forecast) is not None
    ]
    data = pd.DataFrame(rows)
    figures = [str(column) for column in data if str(column).endswith("(%)")]
    note = "Bands of 95%; one that ends above 100% bounds nothing from above."
    if any(line.first["processes"] == "one" for line in group):
        note += " One process dispatches for the devices of its own host only, so its forecast ends there."
    return table_html(data, "", note, figures, wide=[str(column) for column in data if str(column).startswith("longest")])


def outside_table(lines: Sequence[Line]) -> Shown:
    """The held-out points that lie outside their band, the farthest off first, with how often their counts were measured."""
    own = [(line, line.held_out) for line in lines if line.held_out and line.held_out.inside is False]
    rows = [
        {
            "Job": line.panel,
            "Placement": look(line.placement).label,
            "error (%)": f"{100 * held.error:+.1f}",
            "its band (%)": f"{100 * (held.low_s / held.measured_s - 1):+.1f} to {100 * (held.high_s / held.measured_s - 1):+.1f}",
            "n": ", ".join(str(n) for n in line.rows["n"]),
            "spread from": line.spread,
        }
        for line, held in sorted(own, key=lambda item: -abs(item[1].error))
    ]
    note = (
        "Against what was measured. n: repeats at each count, the held-out one last; what was measured once borrows the spread of launches "
        "from other lines."
    )
    none = "No held-out point lies outside its band." if lines else NOTHING_HELD_OUT
    return table_html(pd.DataFrame(rows), "Outside their band", note if rows else none, ["error (%)", "its band (%)"], wide=["Job"])


def records_of(lines: Sequence[Line], frame: pd.DataFrame) -> pd.DataFrame:
    """The rows of `frame` that some forecast rests on."""
    keys = {key for line in lines if line.forecast for keys in line.rows["keys"] for key in keys.split(", ")}
    return frame[frame["key"].isin(keys)]


def why_table(lines: Sequence[Line]) -> Shown:
    """How many lines of each model have no fan, by reason, and on which counts they were measured."""
    found: dict[tuple[str, str], list[Line]] = {}
    for line in lines:
        if line.why:
            found.setdefault((str(line.first["model"]), line.why), []).append(line)
    rows = [
        {
            "Model": MODEL_NAMES.get(model, model),
            "lines": str(len(own)),
            "counts": "; ".join(dict.fromkeys(", ".join(str(count) for count in line.rows["devices"]) for line in own)),
            "why no fan": why,
        }
        for (model, why), own in found.items()
    ]
    note = "" if rows else "Every line that was measured on two counts has a fan." if lines else "No job was measured on two counts."
    return table_html(pd.DataFrame(rows), note=note, right=["lines"], wide=["why no fan"])


def document_points() -> Points:
    """Document 004's own step by number of GPUs, with the bytes it says it merges."""
    table = load_published("004_step_times").sort_values("gpus")
    size = 1e6 * published_value("004_statements", "gradient_size")
    return Points(tuple(int(n) for n in table["gpus"]), tuple((float(t) / 1000,) for t in table["step_time_ms"]), Demand(reduced=size))


def document_links(number: str, links: Links) -> Links:
    """`links` with the nodes and the network that a document states, a machine's network shared by its devices.

    Raises:
        ValueError: the document states none.
    """
    names = {"002": ("gpus_per_server", "network_bandwidth"), "004": ("gpus_per_node", "network_bandwidth")}
    if number not in names:
        raise ValueError(f"document {number} states no network: choose one of {', '.join(names)}")
    node, gbit = (published_value(f"{number}_statements", name) for name in names[number])
    return replace(links, node=int(node), between_bytes_per_s=gbit * GBIT / node)


def _own(lines: Sequence[Line], model: str, batch: int) -> list[Line]:
    """The forecast lines of a model and batch that merge by all-reduce, those measured most often."""
    found = [line for line in lines if line.forecast and line.first["model"] == model and line.first["batch_size"] == batch]
    found = [line for line in found if line.points and line.points.demand.reduced]
    most = max((int(line.rows["n"].sum()) for line in found), default=0)
    return [line for line in found if int(line.rows["n"].sum()) == most]


def documents_table(lines: Sequence[Line], assumed: Links) -> Shown:
    """The documents' networks: 004's own curve predicted by this model, and our Records on 004's and 002's networks."""
    own_links = replace(document_links("004", assumed), inside_bytes_per_s=1e9 * published_value("004_statements", "nvlink_bandwidth"))
    points = document_points()
    held = held_out(points, own_links)
    one, last = points.means_s[0], points.means_s[-1]
    network = published_value("004_statements", "network_bandwidth")
    rows = [
        {
            "step": "document 004's own, from its smaller counts",
            "network": f"{own_links.node} GPUs a machine, {network:.0f} Gbit/s each",
            "GPUs": str(held.devices),
            "forecast (%)": f"{100 * one / held.predicted_s:.1f}",
            "document (%)": f"{100 * one / last:.1f}",
            "what it says": f"predicted {1e3 * held.predicted_s:.0f} ms, measured {1e3 * last:.0f} ms: {100 * held.error:+.1f}%",
        }
    ]
    cases = [
        ("004", "nmt004", 64, "gpus_total", f"{100 * one / last:.1f}"),
        ("002", RESNET, int(published_value("002_statements", "batch_size_per_gpu")), "one_hour_gpus", "not printed"),
    ]
    for number, model, batch, count_name, document in cases:
        count = int(published_value(f"{number}_statements", count_name))
        for line in _own(lines, model, batch):
            if line.points is None or line.links is None:
                continue
            links = document_links(number, line.links)
            found = forecast(line.points, [count], links, line.residuals)
            gbit = published_value(f"{number}_statements", "network_bandwidth")
            rows.append(
                {
                    "step": f"ours: {look(line.placement).label}; {line.panel}",
                    "network": f"document {number}'s: {links.node} GPUs a machine, {gbit:.0f} Gbit/s each",
                    "GPUs": str(count),
                    "forecast (%)": _percent(found, 0),
                    "document (%)": document,
                    "what it says": f"longest: {_binding(found, 0)}",
                }
            )
    note = (
        "Efficiency against one GPU, weak scaling. Between machines the latency is the page's. Document 002 prints no efficiency for its "
        "256 GPUs; the row says what its network would leave of a step as short as today's."
    )
    return table_html(
        pd.DataFrame(rows),
        "On the documents' networks",
        note,
        ["GPUs", "forecast (%)", "document (%)"],
        wide=["step", "network", "what it says"],
    )
