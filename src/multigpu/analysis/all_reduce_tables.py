"""Tables of all-reduces alone: times with intervals, formulas beside them, bytes on links, what gradients would take."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape

import pandas as pd

from multigpu.analysis.all_reduce import JOBS, Model, at, find_point, gradient_bytes, model_of, points, serial_bytes, transfer, winners
from multigpu.analysis.all_reduce_findings import DOCUMENT_FORMULAS, execution_of, name_of, repeats_text, time_text
from multigpu.analysis.figure_collectives import method_look, seconds_text
from multigpu.analysis.picture import Shown, paragraphs
from multigpu.analysis.tables import table_html
from multigpu.analysis.wording import MODEL_NAMES, device_words, devices_text, joined
from multigpu.collectives import find_algorithm
from multigpu.collectives.record import bus_factor
from multigpu.collectives.run import size_text

SIZES = (4, 2**16, 2**20, 2**22, 2**30)
"""The sizes that tables show."""
HERE_SIZES = (4, 2**16, 2**20, 2**22, 2**24)
"""Those of processes on CPUs."""
SHORT = 2**20
"""Bytes of the largest message that stands among the short ones."""


def _methods(table: pd.DataFrame) -> list[str]:
    return sorted(set(table["method"]), key=lambda name: method_look(name).order)


def sizes_table(frame: pd.DataFrame, devices: int, execution: str, sizes: Sequence[int] = SIZES) -> Shown:
    """The time of every method at the sizes shown, with intervals, and bus bandwidth at the largest.

    Short messages and long ones are tables of their own: side by side, the long ones that decide would lie outside of the page.
    """
    table = at(points(frame), devices, execution)
    if table.empty:
        return table_html(pd.DataFrame(), note=f"No all-reduce on {devices} devices was measured {execution}.")
    best, title = dict(winners(table)), f"{devices_text(devices, str(table['device_type'].iloc[0]))}, {execution}"
    short, cells = [size for size in sizes if size <= SHORT], [find_point(table, name, size) for name in _methods(table) for size in sizes]
    parts = [part for part in (short, [size for size in sizes if size > SHORT]) if part]
    titles = [f"{title}, short messages", f"{title}, long messages"] if len(parts) > 1 else [title]
    note = f"{repeats_text(table)} Bold: the interval lies below every other's."
    if any(cell is None for cell in cells):
        note += " Not measured: the time allowed for the sweep had ended."
    shown = [_sizes_part(table, devices, part, part is parts[-1], best, name) for part, name in zip(parts, titles, strict=True)]
    return Shown(f'{"".join(part.html for part in shown)}<p class="muted">{escape(note, quote=False)}</p>\n')


def _sizes_part(table: pd.DataFrame, devices: int, sizes: Sequence[int], last: bool, best: Mapping[int, str | None], title: str) -> Shown:
    units = [(size, 1e-3 if size >= 2**28 else 1e-6, "ms" if size >= 2**28 else "µs") for size in sizes]
    rows, bold = [], []
    for index, method in enumerate(_methods(table)):
        cells = {"method": name_of(method)}
        for size, factor, unit in units:
            row, column = find_point(table, method, size), f"{size_text(size)} ({unit})"
            cells[column] = "not measured" if row is None else time_text(row, factor)
            bold += [(index, column)] if best.get(size) == method else []
        if last:
            row, column = find_point(table, method, max(sizes)), f"bus bandwidth at {size_text(max(sizes))} (GB/s)"
            cells[column] = "–" if row is None else f"{bus_factor(devices) * row['bytes'] / row['time_s'] / 1e9:.0f}"
        rows.append(cells)
    data = pd.DataFrame(rows)
    return table_html(data, title, "", [str(name) for name in data if name != "method"], bold)


def here(frame: pd.DataFrame) -> Shown | None:
    """This computer's own Records under their heading; None without any, so that a page says nothing of it."""
    if at(points(frame), 2, "eager").empty:
        return None
    said = paragraphs("This computer's own Records, processes on CPUs over gloo.", kind="said").html
    return Shown(f"<h2>On this computer</h2>\n{said}\n{sizes_table(frame, 2, 'eager', HERE_SIZES).html}")


def formula_table(frame: pd.DataFrame, devices: int, sizes: Sequence[int] = (2**16, 2**20, 2**30)) -> Shown:
    """Each algorithm's time beside its formula's, and their ratio at the largest size."""
    execution = execution_of(frame)
    table = at(points(frame), devices, execution)
    own = table[table["kind"] == "algorithm"]
    model = model_of(table)
    if model is None:
        return table_html(pd.DataFrame(), note=f"No formula: the link or messages of 1 KiB were not measured on {devices} devices.")
    rows = [_formula_row(own, method, devices, model, sizes) for method in _methods(own)]
    note = (
        f"Formula: messages in a row x {seconds_text(model.alpha_s)} + bytes in a row over {model.bytes_per_s / 1e9:.0f} GB/s. The time is "
        "fitted: the median over algorithms of the time of 1 KiB over its messages in a row. The bandwidth is not: it is what one copy "
        "between two of these GPUs was measured at. Additions are left out. N: bytes on each GPU."
    )
    data = pd.DataFrame(rows)
    title = f"{devices_text(devices, str(table['device_type'].iloc[0]))}, {execution}"
    return table_html(data, title, note, [str(name) for name in data if name != "algorithm"])


def _formula_row(own: pd.DataFrame, method: str, devices: int, model: Model, sizes: Sequence[int]) -> dict[str, str]:
    terms = find_algorithm(method).cost(devices, 4, devices).latency_terms
    row = {"algorithm": name_of(method), "messages in a row": str(terms)}
    row["bytes in a row"] = f"{serial_bytes(method, 4 * 840, devices) / (4 * 840):.2f} N"
    for size in sizes:
        factor, unit = (1e-3, "ms") if size >= 2**28 else (1e-6, "µs")
        point, told = find_point(own, method, size), model.time_s(method, size, devices) / factor
        form = ",.2f" if unit == "ms" else ",.1f"
        row[f"{size_text(size)}: measured ({unit})"] = "–" if point is None else f"{point['time_s'] / factor:{form}}"
        row[f"{size_text(size)}: formula ({unit})"] = f"{told:{form}}"
        if size == max(sizes):
            row["measured over formula"] = "–" if point is None else f"{point['time_s'] / factor / told:.2f}"
    return row


def links_table(frame: pd.DataFrame) -> Shown:
    """Bytes counted on links in one call, in times N, beside document 002's two figures."""
    counted = frame[frame["total_bytes"].notna() & (frame["status"] == "ok")]
    counted = counted[counted["bytes"] == counted["bytes"].max()].drop_duplicates(["devices", "method"])
    rows = []
    for devices in sorted(set(counted["devices"])):
        group = counted[counted["devices"] == devices].set_index("method")
        for method in _methods(group.reset_index()):
            row = group.loc[method]
            theirs = DOCUMENT_FORMULAS.get(method)
            shares = {column: f"{row[name] / row['bytes']:.2f}" for name, column in LINK_COLUMNS.items()}
            cells = {"algorithm": name_of(method), device_words(str(row["device_type"])): str(devices)} | shares
            rows.append(cells | {"document 002": f"{theirs[0]} = {theirs[1](devices):.2f} N" if theirs else ""})
    size = size_text(int(counted["bytes"].max())) if len(counted) else ""
    note = f"In times N, the bytes on each process; counted in one call of {size}. An algorithm of bf16 or fp16 sends half the bytes."
    data = pd.DataFrame(rows)
    figures = [str(name) for name in data if name not in ("algorithm", "document 002")]
    return table_html(data, "", note if rows else "No bytes were counted.", figures)


LINK_COLUMNS = {
    "busiest_link_bytes": "busiest link",
    "busiest_way_bytes": "most sent, or received, by one",
    "busiest_port_bytes": "most sent and received by one",
    "total_bytes": "all links",
}


def gradients_table(frame: pd.DataFrame, methods: Sequence[str] = ("nccl", "two_shot", "ring", "central_server")) -> Shown:
    """What the gradients of documents 000 and 004 would take, by method and number of devices, in milliseconds."""
    execution, table = execution_of(frame), points(frame)
    rows, spans = [], set()
    for workload, model in JOBS:
        size = gradient_bytes(workload, model)
        for devices in sorted(set(table["devices"])):
            cells = {"gradients of": MODEL_NAMES.get(model, model), "MB": f"{size / 1e6:.2f}", "GPUs": str(devices)}
            for method in methods:
                found = transfer(at(table, devices, execution), method, size)
                row = found and {"time_s": found.time_s, "low_s": found.low_s, "high_s": found.high_s}
                cells[f"{name_of(method)} (ms)"] = time_text(row, 1e-3) if row else "not measured"
                if found and not found.measured:
                    spans.add(found.between)
            rows.append(cells)
    between = joined([f"{size_text(low)} to {size_text(high)}" for low, high in sorted(spans)])
    note = f"Times of one all-reduce, {execution}" + (f"; in proportion between the sizes measured: {between}" if spans else "")
    data = pd.DataFrame(rows)
    return table_html(
        data, "", f"{note}. {repeats_text(table)}" if len(table) else "", [str(name) for name in data if name != "gradients of"]
    )
