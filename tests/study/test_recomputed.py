"""A second program, from raw files alone, finds the figures that decide claims."""

import argparse
import math

import numpy as np
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
                for setting in [one for one in result.settings if one.contrast == contrast.label and one.enough]:
                    both = (contrast.over, contrast.under)
                    sides = [[dict(term.select) | {"devices": term.devices or setting.devices} for term in terms] for terms in both]
                    own = [raw[key] for key in setting.record_keys]
                    found = recomputed.ratio(own, contrast.quantity, *sides, contrast.per_device)
                    assert found == pytest.approx(setting.estimate, rel=1e-3), (result.claim.number, setting.fields)
                    compared += 1
    assert compared > 100, "most deciding figures are such ratios"


def test_what_adagrad_misses_of_rare_features_comes_out_again() -> None:
    runs = [record for record in recomputed.records(paths.SYNCHRONY / "downpour").values() if record.get("parameters")]
    (result,) = [result for result in claim_results(argparse.Namespace(records=None)) if result.claim.number == "C55"]
    assert len(result.settings) == 12 and all(setting.enough and setting.n == 10 for setting in result.settings)
    for setting in result.settings:
        own = [record for record in runs if round(record["applied"]) == setting.fields["trained"]]
        rules = str(setting.fields["rate_rule"]).replace("constant", "sgd").split(" / ")
        sides = [recomputed.at_best(own, rule, setting.fields["tuned"] == "the loss") for rule in rules]
        if len(sides) == 1:
            found = math.exp(np.mean([math.log(rate) for _, rate in sides[0].values()]))
        else:
            found = math.exp(np.mean([math.log(sides[0][seed][0] / sides[1][seed][0]) for seed in range(10)]))
        assert found == pytest.approx(setting.estimate, rel=1e-9), setting
