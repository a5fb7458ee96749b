"""A second program, from raw files alone, finds the figures that decide claims."""

from __future__ import annotations

import argparse

import pytest

from multigpu import paths
from multigpu.cli_measure import claim_results
from tests.study import recomputed

QUANTITIES = ("units_per_s", "step_time_s")


def test_every_deciding_ratio_of_runs_comes_out_again() -> None:
    raw = recomputed.records(paths.RUNS)
    compared = 0
    for result in claim_results(argparse.Namespace(records=None)):
        for predicate in result.claim.predicates:
            for contrast in predicate.contrasts:
                if predicate.of != "runs" or contrast.quantity not in QUANTITIES or contrast.form != "ratio":
                    continue
                for setting in result.settings:
                    if setting.contrast != contrast.label or not setting.enough:
                        continue
                    sides = [
                        [{**dict(term.select), "devices": term.devices or setting.devices} for term in terms]
                        for terms in (contrast.over, contrast.under)
                    ]
                    own = [raw[key] for key in setting.record_keys]
                    found = recomputed.ratio(own, contrast.quantity, *sides, contrast.per_device)
                    assert found == pytest.approx(setting.estimate, rel=1e-3), (result.claim.number, setting.fields)
                    compared += 1
    assert compared > 100, "most deciding figures are such ratios"
