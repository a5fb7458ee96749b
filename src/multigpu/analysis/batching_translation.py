"""What translation models that were trained in each mode of batching reach on held-out catalogs."""

from __future__ import annotations

import pandas as pd

from multigpu.analysis.figure_batching import INPUT_NAMES
from multigpu.analysis.picture import Shown
from multigpu.analysis.tables import table_html, tables_by
from multigpu.analysis.wording import BATCHING_NAMES, MODEL_NAMES
from multigpu.training.record import TrainingRecord
from multigpu.workloads import workloads


def translation_table(training: list[TrainingRecord]) -> Shown:
    """What every finished translation run reached, beside the answers that need no training."""
    from multigpu.workloads.nmt.evaluate import floors_of  # reads the corpus and scores it

    rows, known = [], {}
    for record in training:
        run, m = record.training.run, record.measurement
        if record.status != "ok" or m is None or not m.evaluations:
            continue
        job = (run.inputs, run.model)
        if job not in known:
            plain = run.model_copy(update={"batching": "own", "sequence_length": None})
            known[job] = floors_of(workloads()["nmt"].inputs[run.inputs](plain, run.description), plain)
        last = m.evaluations[-1].scores
        rows.append(
            {
                "model": MODEL_NAMES.get(run.model, run.model),
                "sentences": INPUT_NAMES.get(run.inputs, run.inputs),
                "batching": BATCHING_NAMES[run.batching],
                "replicas": str(run.devices),
                "seed": str(run.seed),
                "steps": f"{m.steps:,}",
                "held-out loss": f"{last['loss']:.3f}",
                "BLEU": f"{last['bleu']:.1f}",
                "of a copy": f"{known[job]['copy']:.1f}",
                "of the most frequent": f"{known[job]['most_frequent']:.1f}",
                "BLEU, trained on": f"{last['bleu_training']:.1f}",
                "of a copy there": f"{known[job]['copy_training']:.1f}",
            }
        )
    note = (
        "Greedy; sacrebleu's defaults. Of a copy: every source as its own translation. Of the most frequent: the most frequent training "
        "target, always."
    )
    if not rows:
        return table_html(pd.DataFrame(), note="No translation run has a Record yet.")
    figures = [name for name in rows[0] if name not in ("model", "sentences", "batching")]
    table = pd.DataFrame(rows).sort_values(["sentences", "batching", "seed"], kind="stable")
    return tables_by(table, "sentences", note, figures)
