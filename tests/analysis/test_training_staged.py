"""Staged runs beside their twins, on planted Records worked out by hand."""

from __future__ import annotations

import math

import pytest

from multigpu import paths
from multigpu.analysis import training_page as page
from multigpu.analysis.training import same_curve_table, training_records
from multigpu.analysis.training_staged import between_seeds, figure_staged, staged_pairs, staged_said, staged_table
from multigpu.training.grid import GRIDS
from multigpu.training.record import TrainingRecord
from tests.training.planted import trained

LOSSES = [2.0 - 0.05 * step for step in range(20)]
JOB = {"devices": 2, "batch_size": 64, "scaling": "strong", "epochs": 6}
"""Of which each Record has 20 steps, scored after 10 and 20."""


def higher(by: float) -> list[float]:
    """The curve, its second half `by` times itself higher."""
    return [*LOSSES[:10], *(loss * (1 + by) for loss in LOSSES[10:])]


def pair(rate: float, seed: int, staged: tuple[float, float], apart: float, luck: float = 0.0, host: bool = True) -> list[TrainingRecord]:
    """A staged run with these two scores, `apart` from its twin, which scores 0.9 and 0.95 and lies `luck` from LOSSES."""
    names = ("staged_cpu", "exp2") if host else ("staged_gpu0", "ps_gpu0")
    more = {**JOB, "base_rate": rate, "seed": seed}
    twin = higher(luck)
    return [
        trained([*twin[:10], *(loss * (1 + apart) for loss in twin[10:])], staged, placement=names[0], **more),
        trained(twin, (0.9, 0.95), placement=names[1], **more),
    ]


def records() -> list[TrainingRecord]:
    """The level is 95% of 0.95, 90%: at 0.05 staged runs take 20 steps to it and twins 10; at 0.4 one of two staged ones never does."""
    found = [*pair(0.05, 0, (0.5, 0.9), 0.1), *pair(0.05, 1, (0.5, 0.92), 0.3, luck=0.2)]
    return [*found, *pair(0.4, 0, (0.1, 0.3), 0.5), *pair(0.4, 1, (0.1, 0.9), 0.5)]


def pairs_of(planted: list[TrainingRecord]):
    seen = page.see(planted)
    return seen, staged_pairs(seen.frame, seen.curves, seen.reach)


def test_pairs_differ_in_the_placement_alone() -> None:
    planted = records()
    planted += pair(0.1, 0, (0.5, 0.9), 0.1)[:1]  # without a twin
    planted += [trained(LOSSES, (0.9, 0.95), placement="exp2", **{**JOB, "base_rate": 0.1, "seed": 7})]  # nor is this one
    planted += [trained(LOSSES, (0.9, 0.95), placement="ps_gpu0", **{**JOB, "base_rate": 0.1})]  # nor this
    _, pairs = pairs_of(planted)
    pairs = pairs.sort_values(["base_rate", "seed"])
    assert pairs[["staged", "twin"]].drop_duplicates().to_numpy().tolist() == [["staged_cpu", "exp2"]]
    assert pairs["distance"].to_list() == pytest.approx([0.1, 0.3, 0.5, 0.5]) and pairs["level"].eq(0.9).all()
    assert pairs["steps_to"].to_list()[:2] == [20, 20] and math.isnan(pairs["steps_to"].iloc[2]) and pairs["steps_to"].iloc[3] == 20
    assert pairs["steps_to_twin"].eq(10).all()


def test_what_luck_does_is_the_distance_of_two_seeds_of_the_twin() -> None:
    seen, pairs = pairs_of(records())
    assert between_seeds(pairs[pairs["base_rate"] == 0.05], seen.curves) == pytest.approx(0.2 / 1.2)
    assert math.isnan(between_seeds(pairs[(pairs["base_rate"] == 0.05) & (pairs["seed"] == 0)], seen.curves))


def test_the_title_says_what_each_rate_costs() -> None:
    seen, pairs = pairs_of(records())
    finding = figure_staged(pairs, seen.curves).finding
    assert finding == "One step stale, small ResNet takes 2 times the steps to 90% at a rate of 0.05 and in 1 of 2 runs gets there at 0.4"
    seen, pairs = pairs_of([*pair(0.05, 0, (0.5, 0.9), 0.1), *pair(0.4, 0, (0.1, 0.3), 0.5)])
    assert figure_staged(pairs, seen.curves).finding.endswith("to 90% at a rate of 0.05 and never gets there at 0.4")
    seen, pairs = pairs_of(pair(0.4, 0, (0.1, 0.3), 0.5))
    assert figure_staged(pairs, seen.curves).finding == "One step stale, small ResNet never gets to 90% at 0.4"


def test_sentences_and_table_hold_both_sides() -> None:
    planted = records()
    planted += [r for rate in (0.05,) for r in pair(rate, 0, (0.5, 0.9), 0.2, luck=0.05, host=False)]
    seen, pairs = pairs_of(planted)
    text = staged_said(pairs, seen.curves).html
    assert "<p>Small ResNet on handwritten digits, 2 devices, variables one step old" in text
    assert "at a rate of 0.05 it takes 20 steps to 90%, and 10 steps without staging" in text
    assert "at a rate of 0.4 it takes 20 steps (1 of 2 runs) to 90%, and 10 steps without staging" in text
    # in seed 0: 1.1 and 1.05 x 1.2 where they stage, 1 and 1.05 where they do not
    assert any(f"lie {a} of the loss apart where they stage and {b} where" in text for a, b in (("0.15", "0.05"), ("0.13", "0.048")))
    assert "(medians of 1 pair of one seed" in text and "staging lies 0.2 of it from not staging" in text
    html = staged_table(pairs, seen.curves).html
    assert "20; 10" in html and "20 (1 of 2); 10" in html and ">0.17<" in html, "0.2 / 1.2 between seeds"
    assert "Exp2, staged" in html and "server on GPU 0, staged" in html


def test_a_large_distance_is_a_plain_number() -> None:
    seen, pairs = pairs_of(pair(0.4, 0, (0.1, 0.3), 1234.0))
    html = staged_table(pairs, seen.curves).html
    assert ">1,200<" in html and "e+" not in html.split("</style>")[1]


def test_a_run_that_diverged_is_counted() -> None:
    planted = pair(0.4, 0, (0.1, 0.1), 0.5)
    planted[0] = trained(LOSSES[:8], (0.1,), placement="staged_cpu", flags=("diverged: the loss of step 8 is nan",), **JOB, base_rate=0.4)
    seen, pairs = pairs_of(planted)
    assert pairs["distance"].to_list() == [math.inf] and "(1 diverged)" in staged_table(pairs, seen.curves).html


def test_staged_runs_are_no_part_of_the_comparison_of_joined_ones() -> None:
    """Not in its panels, and not in the table of any system."""
    usual = {**JOB, "base_rate": 0.05}
    planted = [trained(LOSSES, placement=name, **usual) for name in ("ddp", "exp2", "independent")]
    staged = trained(LOSSES, placement="staged_cpu", **usual)
    seen = page.see([*planted, staged])
    assert set(same_curve_table(seen.frame, seen.curves)["placement"]) == {"ddp", "exp2", "independent"}
    html = page.system_table(seen).html
    assert "Exp2, staged" not in html and ">Exp2<" in html, "the twin is one of the joined runs too"
    alone = page.system_table(page.see([*pair(0.05, 0, (0.5, 0.9), 0.1)])).html
    assert "Exp2" not in alone


def test_every_committed_staged_run_lies_further_from_its_twin_than_seeds_do_from_each_other() -> None:
    """All of the grid have their Records; of the small network's three seeds, the nearest staged run lies beyond two seeds of its twin."""
    wanted = {entry.training.digest for entry in GRIDS["training_staged_cpu"]()}
    own = [record for record in training_records(paths.TRAINING) if record.status == "ok" and record.training.digest in wanted]
    assert {record.training.digest for record in own} == wanted
    seen, pairs = pairs_of(own)
    assert len(pairs) == len(wanted) // 2
    for _, at in pairs[pairs["model"] == "resnet_small"].groupby(["staged", "base_rate"]):
        assert len(at) == 3 and at["distance"].min() > between_seeds(at, seen.curves)


def test_without_records_one_sentence_says_how_to_measure() -> None:
    seen, pairs = pairs_of([trained(LOSSES)])
    picture = figure_staged(pairs, seen.curves)
    assert "`python -m multigpu train --grid training_staged_cpu`" in picture.alt
    assert "<p>" not in staged_said(pairs, seen.curves).html + staged_table(pairs, seen.curves).html
