"""What the page on batching says and shows beside its figures: Records, the answer, tables."""

from __future__ import annotations

from dataclasses import dataclass

import pandas as pd

from multigpu import paths, study
from multigpu.analysis.batching import batching_frame, runs_by_mode
from multigpu.analysis.batching_records import FIT_SETTING, fits_frame, memory_frame, modes_table, ragged
from multigpu.analysis.batching_translation import floors, reached
from multigpu.analysis.convergence import Difference, differences, mode_curves, mode_scores
from multigpu.analysis.figure_batching import INPUT_NAMES, waiting_sentence
from multigpu.analysis.figure_batching_training import counted_memory
from multigpu.analysis.frame import frame_of
from multigpu.analysis.picture import Shown, paragraphs
from multigpu.analysis.style import look
from multigpu.analysis.tables import table_html, tables_by
from multigpu.analysis.training import training_records
from multigpu.analysis.wording import (
    BATCHING_NAMES,
    FRAMEWORK_NAMES,
    MODEL_NAMES,
    devices_text,
    joined,
    missing,
    percent_text,
    plural,
    rate_text,
    ratio_text,
)
from multigpu.inputs.buckets import BUCKETS, WIDTH
from multigpu.inputs.lengths import bucket_shares, mean_words
from multigpu.parameters import Measure
from multigpu.reading import study_records
from multigpu.record import Record
from multigpu.run import Run
from multigpu.training.record import TrainingRecord

EPOCH_BATCH = 64
"""Sentences a step where the order of the corpus is looked at: document 004's a GPU."""

SCORE_NAMES = {"loss": "held-out loss", "bleu": "BLEU", "bleu_training": "BLEU, trained on"}
"""Scores as the page's tables call them."""


@dataclass(frozen=True)
class Seen:
    """What the page rests on. counted: of `batching_frame`. frame: every row of Runs. records: those on ragged text. modes: of
    `modes_table`. memory: measured, counted_memory: of words. training: Records of translation;
    translated: of `reached`. curves, scores: by mode.
    """

    counted: pd.DataFrame
    frame: pd.DataFrame
    records: list[Record]
    modes: pd.DataFrame
    memory: pd.DataFrame
    counted_memory: pd.DataFrame
    training: list[TrainingRecord]
    translated: pd.DataFrame
    curves: pd.DataFrame
    scores: pd.DataFrame


def observe(measure: Measure, grid: str = "auto") -> Seen:
    """Measure as asked ("auto": `batching` with GPUs, `batching_small` without), count, and read the Records.

    Raises:
        ValueError: no such grid, or Records cannot be read or written.
    """
    frame = study.observe(measure, study.own_grid(grid, "batching"))
    keys = set(ragged(frame)["key"])
    records = [record for record in study_records() if record.key in keys]
    return see(frame, records, [record for record in training_records(paths.TRAINING) if record.training.run.workload == "nmt"])


def see(frame: pd.DataFrame, records: list[Record], training: list[TrainingRecord]) -> Seen:
    """These Records, and what can be counted without any."""
    orders = [
        counted_memory(
            Run(workload="nmt", model="nmt000", placement="ddp", batch_size=EPOCH_BATCH, inputs="catalogs", batching=mode, shuffle=shuffle)
        )
        for mode in ("own", "fixed")
        for shuffle in (False, True)
    ]
    return Seen(
        counted=batching_frame(runs_by_mode()),
        frame=frame,
        records=records,
        modes=modes_table(frame),
        memory=memory_frame(record for record in records if record.run.inputs == "catalogs"),
        counted_memory=pd.concat(orders, ignore_index=True),
        training=training,
        translated=reached(training),
        curves=mode_curves(training),
        scores=mode_scores(training),
    )


def gain_sentence(modes: pd.DataFrame) -> str:
    """What a shared bucket brought in measured steps, GPUs before CPUs, or that it was not measured."""
    shared = modes[(modes["batching"] == "shared") & modes["gain"].notna() & (modes["inputs"] == "lengths_000")] if len(modes) else modes
    if shared.empty:
        return "No Record has a shared bucket beside own ones yet, so what sharing brings in measured time is not known."
    on_gpus = shared[shared["device_type"] == "cuda"]
    shared = on_gpus if len(on_gpus) else shared
    most = shared[shared["devices"] == shared["devices"].max()]
    first = most.iloc[0]
    parts = [
        f"{ratio_text(row['gain'], row['gain_low'], row['gain_high'])} under {look(row['placement']).label}"
        + (f" in {FRAMEWORK_NAMES.get(row['framework'], row['framework'])}" if most["framework"].nunique() > 1 else "")
        + (" (once)" if missing(row["gain_low"]) else "")
        for _, row in most.iterrows()
    ]
    return f"Measured on {devices_text(first['devices'], first['device_type'])}, a shared bucket is {joined(parts)} as fast as own ones."


def _model_name(scores: pd.DataFrame) -> str:
    return str(MODEL_NAMES.get(scores["model"].iloc[0], scores["model"].iloc[0]))


def convergence_sentence(found: list[Difference], scores: pd.DataFrame) -> str:
    """What sharing costs in held-out loss after equal work."""
    shared = next((each for each in found if each.mode == "shared"), None)
    if shared is None:
        return "Whether sharing costs convergence has no Record yet."
    seeds = plural(shared.pairs, "seed")
    if missing(shared.low):
        return f"After equal work a shared bucket ends at a held-out loss {shared.mean:+.3f} nats from own buckets' ({seeds}: no interval)."
    end = "is worse" if shared.low > 0 else "is better" if shared.high < 0 else "does not differ beyond the seeds"
    return (
        f"After equal work of {_model_name(scores)} the held-out loss with a shared bucket {end}: {shared.mean:+.3f} nats a piece "
        f"({shared.low:+.3f} to {shared.high:+.3f}; {seeds})."
    )


def answer(seen: Seen) -> Shown:
    """The page's answer, and how far its part on convergence carries."""
    return paragraphs(
        f"{waiting_sentence(seen.counted)} {gain_sentence(seen.modes)}",
        convergence_sentence(differences(seen.scores), seen.scores),
        *floors(seen.training, seen.translated)[1:],
    )


def buckets_table() -> Shown:
    """Document 000's buckets with the law's shares and means."""
    rows = []
    for bucket, share in enumerate(bucket_shares()):
        ends = f"{bucket * WIDTH} to {bucket * WIDTH + WIDTH - 1}" if bucket < BUCKETS - 1 else f"{bucket * WIDTH} and more"
        rows.append({"target words": ends, "sentences": percent_text(float(share)), "mean words a side": str(mean_words(bucket))})
    return table_html(
        pd.DataFrame(rows), note="By the law that stands for WMT14 here (inputs/lengths.py).", right=["sentences", "mean words a side"]
    )


def counted_table(counted: pd.DataFrame) -> Shown:
    """Padding, inequality and waiting by mode and replicas, counted."""
    rows = [
        {
            "sentences": INPUT_NAMES.get(row["inputs"], row["inputs"]),
            "batching": BATCHING_NAMES[row["batching"]],
            "replicas": str(row["devices"]),
            "words a step": f"{row['words_per_step']:,.0f}",
            "padding": f"{100 * row['padding_share']:.1f}%",
            "largest over mean, words": f"{row['imbalance']:.2f}",
            "waiting": f"{100 * row['waiting_share']:.1f}%",
        }
        for _, row in counted[counted["devices"].isin([1, 2, 4, 8])].iterrows()
    ]
    note = (
        "Padding: positions without a word over all positions. Waiting: share of all replicas' time, if a shard's time is in proportion to "
        "its positions."
    )
    right = [name for name in (rows[0] if rows else ()) if name not in ("sentences", "batching")]
    return tables_by(pd.DataFrame(rows), "sentences", note, right, title="Sentences: {}")


def modes_gt(modes: pd.DataFrame) -> Shown:
    """Every measured mode: rate, gain over own buckets, speedup over one device, with n."""
    shown = _compared(modes)
    rows = [
        {
            "sentences": _way(row),
            "placement": look(row["placement"]).label,
            "devices": devices_text(row["devices"], row["device_type"]),
            "batching": BATCHING_NAMES[row["batching"]] + (", shuffled" if row["shuffle"] else ""),
            "words/s": rate_text(row["rate"]).removesuffix(" words/s"),
            "over own buckets": _cell(row, "gain"),
            "speedup": _cell(row, "speedup"),
            "n": str(row["n"]),
        }
        for _, row in shown.iterrows()
    ]
    note = (
        "Words/s without padding. Speedup over one device in the same mode; on one device a shared bucket is an own one. 95% intervals; "
        "n = 1: screening."
    )
    if len(shown) < len(modes):
        note += f" Left out: {plural(len(modes) - len(shown), 'point')} of ways that were measured with own buckets alone."
    if not rows:
        return table_html(pd.DataFrame(), note="No Record on sentences of different lengths yet.")
    return tables_by(
        pd.DataFrame(rows).sort_values("sentences", kind="stable"), "sentences", note, ["words/s", "over own buckets", "speedup", "n"]
    )


def _compared(modes: pd.DataFrame) -> pd.DataFrame:
    """The rows of jobs and ways of dispatching that have more than one mode or order: in others there is nothing to compare."""
    if modes.empty:
        return modes
    by = ["machine", "inputs", "model", "framework", "processes", "execution", "precision", "batch_size"]
    kinds = modes["batching"] + modes["shuffle"].map(str)
    return modes[kinds.groupby([modes[name] for name in by], dropna=False).transform("nunique") > 1]


def _way(row: pd.Series) -> str:
    """Which sentences, how they were trained and where: what a table of modes has in its title. TensorFlow always has one process here."""
    sentences = INPUT_NAMES.get(row["inputs"], row["inputs"])
    one = ", one process" if row["framework"] == "torch" and row["processes"] == "one" else ""
    way = f"{FRAMEWORK_NAMES.get(row['framework'], row['framework'])}, {row['execution']}{one}"
    return f"{sentences[:1].upper()}{sentences[1:]}; {way}; {row['machine']}"


def _cell(row: pd.Series, name: str) -> str:
    if missing(row[name]):
        return "not measured"
    bounds = (
        ""
        if missing(row[f"{name}_low"]) or row[f"{name}_low"] == row[f"{name}_high"]
        else f" ({row[f'{name}_low']:.2f} to {row[f'{name}_high']:.2f})"
    )
    return f"{row[name]:.2f}{bounds}"


def fits_table(records: list[Record]) -> Shown:
    """How much of the step time the size of the largest shard explains, by setting: the median over Records, and their range."""
    fits = fits_frame(records)
    if fits.empty:
        return table_html(pd.DataFrame(), note="No Record whose shards can be counted again.")
    fits = fits[fits["r2"].notna()].sort_values(["inputs", "placement", "devices", "batching"], kind="stable")
    rows = [
        {
            "sentences": _way(first),
            "placement": look(first["placement"]).label,
            "devices": devices_text(first["devices"], first["device_type"]),
            "batching": BATCHING_NAMES[first["batching"]] + (", shuffled" if first["shuffle"] else ""),
            "precision": first["precision"],
            "batch": str(first["batch_size"]),
            "fixed part (ms)": _spread(1e3 * group["fixed_s"], ".1f"),
            "ms for 1,000 positions": _spread(1e6 * group["s_per_unit"], ".2f"),
            "explained (%)": _spread(100 * group["r2"], ".0f"),
            "n": str(len(group)),
        }
        for _, group in fits.groupby(list(FIT_SETTING), sort=False)
        for first in [group.iloc[0]]
    ]
    note = (
        "Least squares of each timed step (slowest replica) on the positions of its largest shard; explained: share of the variance. "
        "Median over n Records (least to most)."
    )
    right = ["fixed part (ms)", "ms for 1,000 positions", "explained (%)", "n"]
    return tables_by(pd.DataFrame(rows).sort_values("sentences", kind="stable"), "sentences", note, right)


def _spread(values: pd.Series, form: str) -> str:
    """The median, with least and most where there are several."""
    return f"{values.median():{form}}" + (f" ({values.min():{form}} to {values.max():{form}})" if len(values) > 1 else "")


def differences_table(seen: Seen) -> Shown:
    """Held-out scores at the end, each mode against own buckets, paired by seed."""
    rows = [
        {
            "score": SCORE_NAMES[score],
            "batching": BATCHING_NAMES[each.mode],
            "minus own buckets": f"{each.mean:+.3f}" + ("" if missing(each.low) else f" ({each.low:+.3f} to {each.high:+.3f})"),
            "seeds": str(each.pairs),
            "differs": "cannot be said" if missing(each.low) else "yes" if each.differs else "not beyond the seeds",
        }
        for score in SCORE_NAMES
        for each in differences(seen.scores, score)
    ]
    return table_html(
        pd.DataFrame(rows),
        note="Student's t over seeds, 95%." if rows else "No job was trained in two modes yet.",
        right=["minus own buckets", "seeds"],
    )


def record_keys(seen: Seen) -> Shown:
    """The Records behind the page."""
    return study.record_keys(frame_of(seen.records))
