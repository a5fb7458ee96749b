"""The document's protocol on its own sentence lengths: the words of each step are counted again from the source."""

from __future__ import annotations

from collections.abc import Iterable

import pandas as pd

from multigpu.analysis.batching import shard_frame, text_source
from multigpu.analysis.document_experiments import LENGTHS, way_of
from multigpu.analysis.documents import published_experiments
from multigpu.analysis.picture import Shown
from multigpu.analysis.protocols import BATCHES
from multigpu.analysis.style import look
from multigpu.analysis.tables import tables_by
from multigpu.analysis.wording import missing, plural, with_interval
from multigpu.grid.entries import EXPERIMENTS
from multigpu.record import Record

NONE = "No Record of Exp1 to Exp4 on the document's lengths to time in two ways."


def length_records(records: Iterable[Record], machines: Iterable[str]) -> list[Record]:
    """Measured Records of Exp1 to Exp4 on the document's lengths, every replica with a bucket of its own, on these machines."""
    machines = set(machines)
    return [record for record in records if record.machine.name in machines and _is_own(record)]


def _is_own(record: Record) -> bool:
    run = record.run
    ours = run.model == "nmt000" and run.inputs == LENGTHS and run.batching == "own" and run.placement in EXPERIMENTS
    return ours and record.status == "ok" and run.scaling == "weak" and not run.traced_steps


def counted_units(records: Iterable[Record]) -> pd.DataFrame:
    """Words of every step, warm-up included, of all replicas: a row a Record and step (key, step, units).

    They are counted from the source as it reads today. A Record whose input was another, or whose own words over the timed steps are
    not what is counted, is left out.
    """
    known: dict[tuple[object, ...], pd.Series] = {}
    found = []
    for record in records:
        run, m = record.run, record.measurement
        if m is None or text_source(run).fingerprint != record.input_fingerprint:
            continue
        batch = (run.model, run.inputs, run.batching, run.shuffle, run.seed, run.devices, run.batch_size, run.warmup_steps, run.timed_steps)
        if batch not in known:
            known[batch] = shard_frame(run, run.warmup_steps + run.timed_steps).groupby("step")["words"].sum()
        units = known[batch]
        if int(units[units.index >= run.warmup_steps].sum()) != int(m.units):
            continue
        found.append(pd.DataFrame({"key": record.key, "step": units.index, "units": units.to_numpy()}))
    return pd.concat(found, ignore_index=True) if found else pd.DataFrame({"key": [], "step": [], "units": []})


def lengths_table(table: pd.DataFrame, published: pd.DataFrame | None = None) -> Shown:
    """Speedups under both protocols beside the document's, a table a way. table: of `protocols.protocol_frame`."""
    theirs = (published_experiments() if published is None else published).set_index(["experiment", "batch_size", "gpus"])["speedup"]
    rows = []
    for _, row in table[table["devices"] > 1].sort_values(["framework", "processes", "batch_size", "placement", "devices"]).iterrows():
        known = theirs.get((str(row["placement"]).capitalize(), row["batch_size"], row["devices"]))
        rows.append(
            {
                "way": way_of(row),
                "placement": look(row["placement"]).label,
                "batch": f"{row['batch_size']}",
                "GPUs": str(row["devices"]),
                "document 000": "–" if known is None or missing(known) else f"{known:.2f}",
                "as published": _cell(row, "published"),
                "warm-up left out": _cell(row, "corrected"),
                "first over steady": f"{row['first_over_rest']:.2f}",
                "n": str(row["n"]),
            }
        )
    note = (
        f"Speedups over one GPU of the same placement, timed alike. As published: the words of the first {BATCHES} batches, counted again "
        "from the source, over their time; a Record of fewer steps goes on at its steady pace. First over steady: time for as many words, "
        "those batches over steady ones. The document's figures are as published."
    )
    right = ["batch", "GPUs", "document 000", "as published", "warm-up left out", "first over steady", "n"]
    return tables_by(pd.DataFrame(rows), "way", note if rows else NONE, right)


def _cell(row: pd.Series, protocol: str) -> str:
    value, low, high = (row[f"{protocol}_speedup{end}"] for end in ("", "_low", "_high"))
    return "–" if missing(value) else with_interval(f"{value:.2f}", low, high, ".2f")


def lengths_finding(table: pd.DataFrame) -> str:
    """How far the protocol alone moves rates and speedups on these lengths. table: of `protocols.protocol_frame`."""
    known = table[(table["devices"] > 1) & table["published_speedup"].notna() & table["corrected_speedup"].notna()]
    if known.empty:
        return NONE
    ratio, slower = known["published_speedup"] / known["corrected_speedup"], table["first_over_rest"]
    furthest = known.iloc[int((ratio - 1).abs().to_numpy().argmax())]
    return (
        f"On the document's own lengths the first {BATCHES} batches take {slower.min():.2f} to {slower.max():.2f} times as "
        f"long as steady ones for as many words ({plural(len(table), 'point')}), and the speedup as published is {ratio.min():.2f} to "
        f"{ratio.max():.2f} times that without the warm-up; furthest apart for {look(furthest['placement']).label} on "
        f"{furthest['devices']} GPUs ({way_of(furthest)}): {furthest['published_speedup']:.2f} as published, "
        f"{furthest['corrected_speedup']:.2f} without the warm-up."
    )
