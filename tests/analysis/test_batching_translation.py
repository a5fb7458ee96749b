"""Whether trained translation models beat a copy of the source, and what is said of those that do not."""

from __future__ import annotations

import pandas as pd
import pytest

from multigpu import paths
from multigpu.analysis.batching_translation import COLUMNS, floor_sentences, reached, translation_table
from multigpu.analysis.training import training_records
from multigpu.training.batching_grid import preset
from multigpu.training.placement_grid import FULL_EPOCHS, comparing


def planted(*bleus: float, copy: float = 10.0) -> pd.DataFrame:
    common = {"model": "nmt_short", "inputs": "pieces_package", "batching": "own", "devices": 4, "steps": 1326, "loss": 4.0}
    floors = {"copy": copy, "copy_training": 9.0, "most_frequent": 2.0}
    rows = [common | floors | {"key": f"k{i}", "seed": i, "bleu": bleu, "bleu_training": bleu + 8} for i, bleu in enumerate(bleus)]
    return pd.DataFrame(rows, columns=list(COLUMNS))


def test_the_committed_preset_translates_better_than_a_copy():
    """The floor that issue 5 asks for: a model trained on the CPU by the preset must be worth more than its own source."""
    records = [r for r in training_records(paths.TRAINING) if r.training.digest == preset().digest and r.status == "ok"]
    assert records, "the preset has no committed Record"
    table = reached(records)
    assert (table["bleu"] > table["copy"]).all() and (table["bleu"] > 2 * table["most_frequent"]).all()
    assert (table["bleu_training"] > table["copy_training"]).all()
    (first, *_) = floor_sentences(table, ())
    assert first.startswith(f"**{len(table)} of {len(table)} trained models")


def test_runs_below_a_copy_are_counted_and_what_follows_is_said():
    first, second = floor_sentences(planted(7.0, 6.0, 12.0), {"k0", "k1"})
    assert first.startswith("**1 of 3 trained models beats a copy of the source** on the held-out pairs: NMT (short sentences) on")
    assert "(4 replicas, 1,326 steps): BLEU 12.0 against 10.0." in first
    assert "Of the 2 runs behind the answer on convergence all stay below a copy of the source: BLEU 6.0 to 7.0 against 10.0" in second
    assert "14.0 to 15.0 against 9.0" in second and "nothing of models trained until they translate" in second
    assert "1 stay below" in floor_sentences(planted(7.0, 12.0), {"k0", "k1"})[1]


def test_runs_above_a_copy_lose_nothing():
    first, second = floor_sentences(planted(11.0, 12.0), {"k0", "k1"})
    assert first.startswith("**2 of 2 trained models beat")
    assert second.startswith("All 2 runs behind the answer on convergence translate better")
    assert floor_sentences(planted(10.0), ()) == ["**0 of 1 trained models beat a copy of the source** on the held-out pairs."], "equal"


def test_without_records_it_says_so():
    assert "not known" in floor_sentences(reached([]), ())[0]
    assert "No translation run has a Record yet." in translation_table(reached([])).html


def test_the_table_shows_the_floor_beside_each_run():
    html = translation_table(planted(7.0, 12.0)).html
    assert "of a copy" in html and ">12.0<" in html and ">7.0<" in html and "10.0" in html


@pytest.mark.parametrize("status", ["failed", "timeout"])
def test_only_finished_runs_count(status):
    record = next(r for r in training_records(paths.TRAINING) if r.training.run.workload == "nmt")
    assert reached([record.model_copy(update={"status": status, "measurement": None})]).empty


def test_runs_of_two_epochs_that_compare_placements_are_not_asked_for_translations():
    apart = [r for r in training_records(paths.TRAINING) if r.training.digest in comparing()]
    assert apart and all(r.training.epochs == FULL_EPOCHS for r in apart) and reached(apart).empty
