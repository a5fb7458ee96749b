"""What translation models that were trained in each mode of batching reach on held-out catalogs, beside a copy of the source."""

from __future__ import annotations

from collections.abc import Collection, Iterable

import pandas as pd

from multigpu.analysis.convergence import mode_runs
from multigpu.analysis.figure_batching import INPUT_NAMES
from multigpu.analysis.picture import Shown
from multigpu.analysis.tables import table_html, tables_by
from multigpu.analysis.wording import BATCHING_NAMES, MODEL_NAMES, joined, plural
from multigpu.training.placement_grid import comparing
from multigpu.training.record import TrainingRecord
from multigpu.workloads import workloads

COLUMNS = (
    *("key", "model", "inputs", "batching", "devices", "seed", "steps", "loss", "bleu", "bleu_training"),
    *("copy", "copy_training", "most_frequent"),
)


def reached(training: Iterable[TrainingRecord]) -> pd.DataFrame:
    """A row a finished translation run, but for those that compare placements after two epochs: COLUMNS.

    loss, bleu, bleu_training: at the last evaluation (`workloads.nmt.evaluate.scores`); copy, copy_training, most_frequent: BLEU of the
    answers that need no training (`floors_of`), the least that a translation is worth.
    """
    from multigpu.workloads.nmt.evaluate import floors_of  # reads the corpus and scores it

    rows, known, apart = [], {}, comparing()
    for record in training:
        run, m = record.training.run, record.measurement
        if run.workload != "nmt" or record.training.digest in apart or record.status != "ok" or m is None or not m.evaluations:
            continue
        job = (run.inputs, run.model)
        if job not in known:
            plain = run.model_copy(update={"batching": "own", "sequence_length": None})
            known[job] = floors_of(workloads()["nmt"].inputs[run.inputs](plain, run.description), plain)
        last = m.evaluations[-1].scores
        rows.append(
            {name: getattr(run, name) for name in ("model", "inputs", "batching", "devices", "seed")}
            | {name: last[name] for name in ("loss", "bleu", "bleu_training")}
            | {"key": record.key, "steps": m.steps, **known[job]}
        )
    return pd.DataFrame(rows, columns=list(COLUMNS))


def translation_table(table: pd.DataFrame) -> Shown:
    """What every finished translation run reached, beside the answers that need no training. table: of `reached`."""
    rows = [
        {
            "model": MODEL_NAMES.get(row["model"], row["model"]),
            "sentences": INPUT_NAMES.get(row["inputs"], row["inputs"]),
            "batching": BATCHING_NAMES[row["batching"]],
            "replicas": str(row["devices"]),
            "seed": str(row["seed"]),
            "steps": f"{row['steps']:,}",
            "held-out loss": f"{row['loss']:.3f}",
            "BLEU": f"{row['bleu']:.1f}",
            "of a copy": f"{row['copy']:.1f}",
            "of the most frequent": f"{row['most_frequent']:.1f}",
            "BLEU, trained on": f"{row['bleu_training']:.1f}",
            "of a copy there": f"{row['copy_training']:.1f}",
        }
        for _, row in table.iterrows()
    ]
    note = (
        "Greedy; sacrebleu's defaults. Of a copy: every source as its own translation. Of the most frequent: the most frequent training "
        "target, always."
    )
    if not rows:
        return table_html(pd.DataFrame(), note="No translation run has a Record yet.")
    figures = [name for name in rows[0] if name not in ("model", "sentences", "batching")]
    cells = pd.DataFrame(rows).sort_values(["sentences", "batching", "seed"], kind="stable")
    return tables_by(cells, "sentences", note, figures)


def floor_sentences(table: pd.DataFrame, answering: Collection[str]) -> list[str]:
    """How many trained models translate better than a copy of the source, and how far the answer on convergence carries.

    Args:
        table: of `reached`.
        answering: keys of the Records behind that answer (`convergence.mode_runs`).
    """
    if table.empty:
        return ["No translation run has a Record yet, so whether any beats a copy of the source is not known."]
    better = table[table["bleu"] > table["copy"]]
    which = [
        f"{MODEL_NAMES.get(row['model'], row['model'])} on {INPUT_NAMES.get(row['inputs'], row['inputs'])} "
        f"({plural(row['devices'], 'replica')}, {row['steps']:,} steps): BLEU {row['bleu']:.1f} against {row['copy']:.1f}"
        for _, row in better.iterrows()
    ]
    beats = f"{len(better)} of {len(table)} trained models {'beats' if len(better) == 1 else 'beat'} a copy of the source"
    said = [f"**{beats}** on the held-out pairs{': ' if which else ''}{'; '.join(which)}."]
    own = table[table["key"].isin(list(answering))]
    below = own[own["bleu"] <= own["copy"]]
    if len(below):
        least, most = below["bleu"].min(), below["bleu"].max()
        copies = joined([f"{value:.1f}" for value in sorted(set(below["copy"].round(1)))])
        on = f"{below['bleu_training'].min():.1f} to {below['bleu_training'].max():.1f}"
        there = joined([f"{value:.1f}" for value in sorted(set(below["copy_training"].round(1)))])
        many = "all stay" if len(below) == len(own) else f"{len(below)} stay"
        said.append(
            f"Of the {plural(len(own), 'run')} behind the answer on convergence {many} below a copy of the source: BLEU {least:.1f} to "
            f"{most:.1f} against {copies} (on pairs that they were trained on {on} against {there}). So that answer is of models that have "
            "learned what they were shown and do not yet translate: it says what sharing costs so early, and nothing of models trained "
            "until they translate."
        )
    elif len(own):
        said.append(f"All {plural(len(own), 'run')} behind the answer on convergence translate better than a copy of the source.")
    return said


def floors(training: list[TrainingRecord], table: pd.DataFrame) -> list[str]:
    """`floor_sentences` of these Records. table: `reached` of them."""
    return floor_sentences(table, set(mode_runs(training)["key"]))
