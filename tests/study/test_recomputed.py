"""A second program finds the figures that decide claims; those of the twenty questions of
`questions.yaml` are computed again.
"""

import argparse
import math
import shlex
from typing import Any

import numpy as np
import pytest
import yaml

from multigpu import paths
from multigpu.analysis.compare import versus
from multigpu.analysis.points import where
from multigpu.analysis.query import measure_command
from multigpu.analysis.read import frames
from multigpu.build import build_run
from multigpu.placements import find_placement
from multigpu.report.notebooks import read_notebook
from multigpu.spec.parse import parse_fields
from multigpu_study.claims.command import claim_results
from tests.study import recomputed

QUANTITIES = ("units_per_s", "step_time_s")


def test_every_deciding_ratio_of_runs_comes_out_again() -> None:
    raw = recomputed.records(paths.RUNS)
    compared = across = 0
    for result in claim_results(argparse.Namespace(records=None)):
        for predicate in result.claim.predicates:
            for contrast in predicate.contrasts:
                if (
                    predicate.of != "runs"
                    or contrast.quantity not in QUANTITIES
                    or contrast.form != "ratio"
                ):
                    continue
                for setting in [
                    one for one in result.settings if one.contrast == contrast.label and one.enough
                ]:
                    both = (contrast.over, contrast.under)
                    sides = [
                        [
                            dict(term.select) | {"devices": term.devices or setting.devices}
                            for term in terms
                        ]
                        for terms in both
                    ]
                    own = [raw[key] for key in setting.record_keys]
                    found = recomputed.ratio(own, contrast.quantity, *sides, contrast.per_device)
                    told = (result.claim.number, setting.fields)
                    if found == pytest.approx(setting.estimate, rel=1e-3):
                        compared += 1
                        continue
                    # several boots weigh by their spread: near what each plain way gives
                    of = (own, contrast.quantity, *sides, contrast.per_device)
                    around = [found, recomputed.ratio(*of, boots_alike=True)]
                    around += recomputed.ratios_of_boots(*of)
                    assert 0.95 * min(around) < setting.estimate < 1.05 * max(around), told
                    across += 1
    assert compared > 100, "most deciding figures are such ratios of one boot"
    assert across < compared, "few contrasts are of several boots that weigh unequally"


def test_what_adagrad_misses_of_rare_features_comes_out_again() -> None:
    runs = [
        record
        for record in recomputed.records(paths.SYNCHRONY / "downpour").values()
        if record.get("parameters")
    ]
    (result,) = [
        result
        for result in claim_results(argparse.Namespace(records=None))
        if result.claim.number == "C55"
    ]
    assert len(result.settings) == 12 and all(
        setting.enough and setting.n == 10 for setting in result.settings
    )
    for setting in result.settings:
        own = [record for record in runs if round(record["applied"]) == setting.fields["trained"]]
        rules = str(setting.fields["rate_rule"]).replace("constant", "sgd").split(" / ")
        sides = [
            recomputed.at_best(own, rule, setting.fields["tuned"] == "the loss") for rule in rules
        ]
        if len(sides) == 1:
            found = math.exp(np.mean([math.log(rate) for _, rate in sides[0].values()]))
        else:
            found = math.exp(
                np.mean([math.log(sides[0][seed][0] / sides[1][seed][0]) for seed in range(10)])
            )
        assert found == pytest.approx(setting.estimate, rel=1e-9), setting


QUESTIONS: list[dict[str, Any]] = [
    one
    for one in yaml.safe_load((paths.REPOSITORY / "tests" / "study" / "questions.yaml").read_text())
    if "section" not in one  # those that have one: `test_questions.py`
]
MEASURED = [one for one in QUESTIONS if "own" in one]


def test_twenty_questions_have_an_answer_each() -> None:
    """A figure, a section of a page, or what would measure it, if anything can."""
    assert [one["number"] for one in QUESTIONS] == list(range(1, 21))
    for one in QUESTIONS:
        assert {"own", "page", "measure", "why"} & set(one), one["number"]
        if "measure" in one:
            assert measure_command(
                build_run(**parse_fields(shlex.split(one["measure"])))
            ).startswith("python -m multigpu measure ")
        place, _, section = one.get("page", "").partition("#")
        if place.endswith(".md"):
            assert f"## {section}" in (paths.REPOSITORY / place).read_text().splitlines()
        elif place:
            assert section in {
                cell.id
                for cell in read_notebook(paths.REPOSITORY / "notebooks" / f"{place}.ipynb").cells
            }
        for kind, names in one.get("semantics", {}).items():
            assert {find_placement(name).semantics.kind for name in names} == {kind}


@pytest.mark.parametrize("one", MEASURED, ids=lambda one: str(one["number"]))
def test_a_figure_follows_from_its_records_and_agrees_as_it_says(one: dict[str, Any]) -> None:
    """Of the pair with the Records that it names: two points that differ in the named fields
    alone.
    """
    table = frames(paths.RUNS)[1]
    own, base = (
        where(table[table["n"] > 0], machine=one["machine"], **one["common"], **one[side])
        for side in ("own", "base")
    )
    assert set(one["own"]) == set(one["base"])
    pairs = versus(own, base, but=list(one["own"]))
    named = [
        all(any(key.startswith(begin) for key in keys.split(", ")) for begin in one["keys"]["own"])
        for keys in pairs["keys"]
    ]
    (pair,) = [row for _, row in pairs[named].iterrows()]
    figures = [pair[f"ratio{end}"] for end in ("", "_low", "_high")]
    assert [value for value in figures if not math.isnan(value)] == pytest.approx(
        one["ratio"], rel=0.01
    )
    for side, keys in (("own", pair["keys"]), ("base", pair["base_keys"])):
        known = keys.split(", ")
        assert len(known) == len(one["keys"][side]) and all(
            any(key.startswith(b) for key in known) for b in one["keys"][side]
        )
    least, most = one["told"]
    _, low, high = figures
    verdict = (
        "yes" if least <= low and high <= most else "no" if high < least or low > most else "open"
    )
    assert one["agrees"] == (verdict if len(one["ratio"]) > 1 else "single run")
