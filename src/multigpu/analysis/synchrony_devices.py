"""Real runs of a model on devices: what they did, what the simulator predicted from sync's step times, loss against time; the server
on the host beside the server on a device.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import matplotlib as mpl
import pandas as pd

from multigpu.analysis.figure_synchrony import legend, protocol_look
from multigpu.analysis.layout import grid_of_axes, name_panel
from multigpu.analysis.picture import Picture, Shown, message
from multigpu.analysis.style import RC
from multigpu.analysis.synchrony import problem_name
from multigpu.analysis.tables import table_html
from multigpu.synchrony.predict import predict
from multigpu.synchrony.protocol import PROTOCOLS
from multigpu.synchrony.record import SynchronyRecord

HOW = "`python -m multigpu synchrony --grid gpus` makes them on a machine with 2 to 8 GPUs"
NOTHING = f"No real run on devices to draw: {HOW}."
SERVERS = {"host": "the host", "cpu": "a CPU tensor", "cuda": "GPU 0"}
"""Where a server holds its parameters, in words."""
COLUMNS = [
    *("key", "machine", "problem", "workers", "server_device", "protocol", "gradients_per_update", "straggler_s", "update_time_s"),
    *("predicted_s", "gradients_per_s", "over_host", "predicted_per_s", "ratio", "predicted_ratio", "staleness", "predicted_staleness"),
    *("server_busy", "base"),
]


def on_devices(records: Iterable[SynchronyRecord]) -> list[SynchronyRecord]:
    """Real runs whose step times were measured, not injected; those on GPUs alone, where there are any."""
    found = [r for r in records if r.experiment.law.kind == "computed" and r.status == "ok" and r.result is not None]
    gpus = [r for r in found if getattr(r.experiment.problem, "device", "cpu") == "cuda"]
    return gpus or found


def devices_frame(records: Iterable[SynchronyRecord]) -> pd.DataFrame:
    """A row a run, beside the simulator's prediction from the step times of sync with nothing injected (Record `base`).

    straggler_s: seconds added to every batch of the last worker. gradients_per_s: applied. ratio: of that to sync's with nothing
    injected and the same server. server_busy: part of the time that the server was handling gradients. Runs without such a base have no
    prediction. over_host: with the server on a device, gradients_per_s over that of the same run with the server on the host.
    """
    rows: list[dict[str, Any]] = []
    found = on_devices(records)
    bases = {_same(r): r for r in found if r.experiment.protocol == "sync" and not r.experiment.delays_s}
    for record in found:
        e, result, base = record.experiment, record.result, bases.get(_same(record))
        assert result is not None
        each = e.gradients_per_update
        row: dict[str, Any] = {
            "key": record.key,
            "machine": record.machine.name,
            "problem": problem_name(e.problem) if e.problem else "",
            "workers": e.workers,
            "server_device": e.server_device,
            "protocol": e.protocol,
            "gradients_per_update": each,
            "straggler_s": max(e.delays_s or (0.0,)),
            "update_time_s": result.update_time_s,
            "gradients_per_s": each / result.update_time_s,
            "staleness": result.staleness.mean,
            "server_busy": (result.server_time_s or 0.0) * result.accounts.received / result.end_s,
        }
        if base is not None and base.result is not None and any(base.result.batch_times_s):
            expected, first = predict(e, base), predict(base.experiment, base)
            of_base = base.experiment.workers / base.result.update_time_s
            row |= {
                "predicted_s": expected.update_time_s,
                "predicted_per_s": each / expected.update_time_s,
                "ratio": row["gradients_per_s"] / of_base,
                "predicted_ratio": each / expected.update_time_s / (base.experiment.workers / first.update_time_s),
                "predicted_staleness": expected.staleness,
                "base": base.key,
            }
        rows.append(row)
    table = _over_host(pd.DataFrame(rows, columns=COLUMNS))
    order = table["protocol"].map(lambda name: PROTOCOLS.index(name))
    place = table["server_device"].map(lambda name: list(SERVERS).index(name))
    by = ["machine", "problem", "workers", "straggler_s", "order", "place"]
    return table.assign(order=order, place=place).sort_values(by).reset_index(drop=True)


def _over_host(table: pd.DataFrame) -> pd.DataFrame:
    alike = ["machine", "problem", "workers", "protocol", "gradients_per_update", "straggler_s"]
    host = table[table["server_device"] == "host"].set_index(alike)["gradients_per_s"].to_dict()
    over = [
        row["gradients_per_s"] / host.get(tuple(row[name] for name in alike), float("nan")) if row["server_device"] != "host" else None
        for _, row in table.iterrows()
    ]
    return table.assign(over_host=pd.Series(over, index=table.index, dtype="float64"))


def _same(record: SynchronyRecord) -> tuple[str, str, int, str]:
    e = record.experiment
    return record.machine.name, problem_name(e.problem) if e.problem else "", e.workers, e.server_device


def devices_table(records: Iterable[SynchronyRecord]) -> Shown:
    """Throughput, staleness and what was predicted, a row a run."""
    table = devices_frame(records)
    rows = [
        {
            "Model": row["problem"],
            "P": f"{row['workers']}",
            "Server": SERVERS[row["server_device"]],
            "Protocol": f"{protocol_look(row['protocol']).label}, K = {row['gradients_per_update']}",
            "Straggler": f"+{1e3 * row['straggler_s']:.0f} ms" if row["straggler_s"] else "none",
            "Gradients/s": f"{row['gradients_per_s']:,.1f} ({_number(row['predicted_per_s'], ',.1f')})",
            "Over host": "" if pd.isna(row["over_host"]) else f"{row['over_host']:.2f}",
            "Over sync": f"{_number(row['ratio'], '.2f')} ({_number(row['predicted_ratio'], '.2f')})",
            "Staleness": f"{row['staleness']:.2f} ({_number(row['predicted_staleness'], '.2f')})",
            "Server busy (%)": f"{100 * row['server_busy']:.0f}",
        }
        for _, row in table.iterrows()
    ]
    compared = " Over host: over the same run with the server on the host." if table["over_host"].notna().any() else ""
    dash = " (a dash: that was not run)" if table["predicted_per_s"].isna().any() else ""
    note = (
        "Gradients applied a second, one run each. In brackets what the simulator predicts, from the step times and the server's time of "
        f"sync with nothing injected, the same P and the same server{dash}. Over sync: gradients a second over those "
        f"of that sync.{compared} {', '.join(sorted(set(table['machine'])))}."
        if rows
        else NOTHING
    )
    figures = ["P", "Gradients/s", "Over host", "Over sync", "Staleness", "Server busy (%)"]
    return table_html(pd.DataFrame(rows), note=note.replace("`", ""), right=figures)


def devices_sentence(records: Iterable[SynchronyRecord]) -> str | None:
    """How many times as many gradients async applies as sync on the most devices, the server on the host; None where either did not run."""
    table = devices_frame(records)
    table = table[(table["server_device"] == "host") & (table["workers"] == table["workers"].max())]
    known = {(row["protocol"], row["straggler_s"]): row for _, row in table.iterrows()}
    ratios = {
        late: float(row["gradients_per_s"]) / float(known["sync", late]["gradients_per_s"])
        for (protocol, late), row in known.items()
        if protocol == "async" and ("sync", late) in known
    }
    if 0.0 not in ratios:
        return None
    row = known["async", 0.0]
    straggling = "".join(f" and **{ratio:.2f}** times with the last one {1e3 * late:.0f} ms late" for late, ratio in ratios.items() if late)
    return (
        f"On {row['machine']} with {row['workers']} workers, {row['problem']}, async applies **{ratios[0.0]:.2f}** times as many gradients "
        f"a second as sync{straggling} (one run each, the server on the host)."
    )


def _number(value: float, form: str) -> str:
    return "–" if pd.isna(value) else f"{value:{form}}"


def figure_devices(records: Iterable[SynchronyRecord]) -> Picture:
    """Training loss against seconds, for the most workers there are: with nothing injected, and with a straggler, by the server's place."""
    found = on_devices(records)
    if not found:
        return message(NOTHING.replace("`", ""))
    workers = max(r.experiment.workers for r in found)
    problem = problem_name(max(found, key=lambda r: r.experiment.workers).experiment.problem)  # type: ignore[arg-type]
    chosen = [r for r in found if _same(r)[1:3] == (problem, workers)]
    frame = devices_frame(chosen)
    servers = [name for name in SERVERS if name in set(frame["server_device"])]
    panels = [(server, delay) for server in servers for delay in sorted(set(frame[frame["server_device"] == server]["straggler_s"]))]
    names = [
        (f"server on {SERVERS[server]}, " if len(servers) > 1 else "")
        + ("nothing injected" if not delay else f"last worker {1e3 * delay:.0f} ms late")
        for server, delay in panels
    ]
    finding = _devices_finding(frame[frame["server_device"] == servers[0]])
    if finding and len(servers) > 1:
        finding = finding.replace("straggler", f"straggler and the server on {SERVERS[servers[0]]}")
    rows = []
    with mpl.rc_context(RC):
        picture, axes = grid_of_axes(len(panels), finding, 3.2, 2.4, 2, legend=True, names=names)
        for ax, name, (server, delay) in zip(axes, names, panels, strict=True):
            name_panel(ax, name)
            for record in chosen:
                e = record.experiment
                if (e.server_device, max(e.delays_s or (0.0,))) != (server, delay) or record.result is None:
                    continue
                look, points = protocol_look(e.protocol), record.result.curve
                ax.plot([p.time_s for p in points], [p.loss for p in points], color=look.colour, marker=look.marker, markersize=4)
                common = {"key": record.key, "protocol": e.protocol, "server_device": server, "straggler_s": delay}
                rows += [{**common, **point._asdict()} for point in points]
            ax.set_xlabel("seconds")
            ax.set_ylim(0, None)
        for ax in axes[::2]:  # two a row
            ax.set_ylabel("training loss (nats)")
        legend(picture, [name for name in PROTOCOLS if name in set(frame["protocol"])])
    picture.caption = (
        f"{problem}; {workers} workers and a server on {', '.join(sorted(set(frame['machine'])))}, one run each, one rate for all. "
        "Images are gratings under noise, made for this study."
    )
    picture.data = pd.DataFrame(rows)
    picture.alt = f"Training loss against seconds for {', '.join(names)}. {picture.finding}"
    return picture


def _devices_finding(frame: pd.DataFrame) -> str | None:
    """How far async is ahead of sync in gradients a second where one worker is late, and what was predicted."""
    late = frame[(frame["straggler_s"] > 0) & frame["predicted_per_s"].notna()].set_index("protocol")
    if not {"sync", "async"} <= set(late.index):
        return None
    ratios = [float(late[column]["async"]) / float(late[column]["sync"]) for column in ("gradients_per_s", "predicted_per_s")]
    return f"With a straggler async applies {ratios[0]:.1f} times as many gradients a second as sync; predicted: {ratios[1]:.1f}"
