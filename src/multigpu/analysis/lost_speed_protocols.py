"""One set of Records under the protocols of document 000 and of its author's correction, and beside the document's figures."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pandas as pd

from multigpu.analysis.formulas import pooled_rate
from multigpu.analysis.lost_speed import Ground, grounds
from multigpu.analysis.picture import Shown
from multigpu.analysis.protocols import BATCHES, as_published
from multigpu.analysis.tables import table_html
from multigpu.analysis.wording import missing, ratio_text
from multigpu.published import load_published
from multigpu.run import Run

PROTOCOLS = ("building", "published", "corrected")
"""50 batches and the building of the model before them; 50 batches from the first on; steps after the warm-up alone."""


def protocol_rates(rows: pd.DataFrame, steps: pd.DataFrame) -> dict[str, float]:
    """The rate of one point's repeats (units/s) under each of `PROTOCOLS`; without step times under the corrected one alone."""
    found = {"corrected": pooled_rate(rows["units"], rows["wall_s"])}
    timed = as_published(rows, steps)
    if len(timed):
        found["published"] = pooled_rate(timed["units"], timed["wall_s"])
        found["building"] = pooled_rate(timed["units"], timed["wall_s"] + timed["build_s"])
    return found


def protocol_rows(found: Sequence[Ground], steps: pd.DataFrame) -> pd.DataFrame:
    """A row a measured way of each chain: chain, way, the speedup over one device timed alike under each of `PROTOCOLS`, and
    first_over_rest: time of the first 50 batches over that of as many steady ones, on all devices.
    """
    rows = [row for ground in found for row in _protocol_rows(ground, steps)]
    return pd.DataFrame(rows, columns=["chain", "way", *PROTOCOLS, "first_over_rest"])


def _protocol_rows(ground: Ground, steps: pd.DataFrame) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    pairs = zip(ground.chain.steps(1, ground.small), ground.chain.steps(ground.devices, ground.small), strict=True)
    for (way, one), (_, many) in pairs:
        own = [ground.points.rows_of(run) for run in (one, many)]
        if own[0] is None or own[1] is None:
            continue
        alone, together = (protocol_rates(part, steps) for part in own if part is not None)
        row: dict[str, Any] = {"chain": ground.chain.name, "way": way.name}
        row |= {name: together[name] / alone[name] for name in PROTOCOLS if name in alone and name in together}
        rows.append(row | ({"first_over_rest": together["corrected"] / together["published"]} if "published" in together else {}))
    return rows


def protocol_html(rows: pd.DataFrame) -> Shown:
    """`protocol_rows` in words."""
    titles = {"building": "with building", "published": "as published", "corrected": "warm-up left out"}
    cells = [
        {"chain": row["chain"], "way": row["way"]}
        | {title: "–" if missing(row[name]) else f"{row[name]:.2f}" for name, title in titles.items()}
        | {"first 50 over steady": "–" if missing(row["first_over_rest"]) else f"{row['first_over_rest']:.2f}"}
        for _, row in rows.iterrows()
    ]
    note = (
        f"Speedups over one device timed alike. As published: {BATCHES} batches from the first on; a Record of fewer steps goes on at its "
        "steady pace. With building: and the time to build model and input before them. First 50 over steady: their time, on all devices."
    )
    right = [*titles.values(), "first 50 over steady"]
    return table_html(pd.DataFrame(cells), note=note if cells else "No Record to time in several ways.", right=right)


def protocol_finding(rows: pd.DataFrame) -> str:
    """How far the protocol alone moves the speedup of any way."""
    known = rows[rows["published"].notna()]
    if known.empty:
        return "No Record to time in several ways."
    ratio = known["corrected"] / known["published"]
    most = known.iloc[int(ratio.to_numpy().argmax())]
    span = f"{ratio_text(float(ratio.min()))} to {ratio_text(float(ratio.max()))}"
    return (
        f"Without the warm-up the speedup is {span} that as published, over {len(known)} ways; most for “{most['way']}” ({most['chain']}): "
        f"{most['published']:.2f} as published, {most['corrected']:.2f} without the warm-up, {most['building']:.2f} with building."
    )


def beside_document(found: Sequence[Ground], steps: pd.DataFrame, frame: pd.DataFrame) -> Shown:
    """Speedups by number of GPUs: the document's experiments at batch 128, and the first and last measured way of each chain on the
    ground's machine, the first as published.
    """
    theirs = load_published("000_experiments")
    rows: dict[int, dict[str, str]] = {}
    for experiment in ("Exp4", "Exp5"):
        own = theirs[theirs["experiment"].eq(experiment) & theirs["batch_size"].eq(128) & theirs["speedup"].notna()]
        for _, row in own.iterrows():
            rows.setdefault(int(row["gpus"]), {})[f"000: {experiment}"] = f"{row['speedup']:.2f}"
    for ground in found:
        first, last = _ends(ground)
        for other in grounds(frame, ground.chain, ground.small):
            if other.frame["machine"].iloc[0] != ground.frame["machine"].iloc[0]:
                continue
            for run, name, protocol in ((first, "first way, as published", "published"), (last, "last way, corrected", "corrected")):
                value = _speedup(other, run, steps, protocol)
                if not missing(value):
                    rows.setdefault(other.devices, {})[f"{ground.chain.name}: {name}"] = f"{value:.2f}"
    columns = list(dict.fromkeys(name for row in rows.values() for name in row))
    table = pd.DataFrame([{"GPUs": str(count)} | {name: rows[count].get(name, "–") for name in columns} for count in sorted(rows)])
    machines = ", ".join(dict.fromkeys(f"{ground.chain.name}: {ground.frame['machine'].iloc[0]}" for ground in found))
    note = (
        "Each over one GPU done the same way. The document's Exp4 has real sentence lengths, its Exp5 and all of ours 100 words. A dash: "
        f"not measured on so many GPUs{f' ({machines})' if machines else ''}."
    )
    return table_html(table, note=note, right=["GPUs", *columns])


def _ends(ground: Ground) -> tuple[int, int]:
    """Which of the chain's ways are the first and the last that were measured on the ground's devices and on one."""
    pairs = zip(ground.chain.runs(1, ground.small), ground.chain.runs(ground.devices, ground.small), strict=True)
    known = [place for place, runs in enumerate(pairs) if all(ground.points.rows_of(run) is not None for run in runs)]
    return known[0], known[-1]


def _speedup(ground: Ground, place: int, steps: pd.DataFrame, protocol: str) -> float:
    runs: list[Run] = [ground.chain.runs(count, ground.small)[place] for count in (1, ground.devices)]
    own = [ground.points.rows_of(run) for run in runs]
    if own[0] is None or own[1] is None:
        return float("nan")
    alone, together = (protocol_rates(rows, steps) for rows in own if rows is not None)
    return together[protocol] / alone[protocol] if protocol in alone and protocol in together else float("nan")
