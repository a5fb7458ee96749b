"""The calculator: one description in two languages, the formulas of the forecast and of memory, and
bands that hold.
"""

import json
import math
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from py_mini_racer import MiniRacer

from multigpu import paths
from multigpu.analysis.forecast_reduction import Links, demand_of, reduction_seconds
from multigpu.analysis.frame import frame_of
from multigpu.analysis.merge_cost import kind_of, merge_costs
from multigpu.analysis.points import Missing, points
from multigpu.analysis.read import frames
from multigpu.build import build_run
from multigpu.placements import find_placement
from multigpu.placements.memory import needed
from multigpu.spec.model import Variable, optimizer_of
from multigpu.spec.parse import parse_fields
from multigpu.workloads import description_of
from multigpu_study.analysis import calculator
from multigpu_study.report.calculator import calculator as page_calculator
from tests.factory import make_point
from tests.scripts import load

LINKS = Links(4e11, 5e10, 4e-7, 8, 5e10, 5e-6)
FIXED = {
    "link": LINKS.inside_bytes_per_s,
    "host_link": LINKS.host_bytes_per_s,
    "latency": LINKS.inside_latency_s,
    "node": LINKS.node,
    "network": LINKS.between_bytes_per_s,
    "network_latency": LINKS.between_latency_s,
    "memory": 4.3e12,
    "peak": 7.9e14,
}


def drawn(random: np.random.Generator) -> dict[str, float]:
    """Settings anywhere that the page lets a reader go."""
    tables = calculator.tables()
    known = float(random.random() < 0.4)
    return calculator.settings(
        str(random.choice(list(tables["forms"]))),
        str(random.choice(list(tables["placements"]))),
        **FIXED
        | {"parameters": 10 ** random.uniform(3, 11.5), "flops": 10 ** random.uniform(6, 13)}
        | {"activations": 10 ** random.uniform(4, 10), "batch": int(random.integers(1, 4097))}
        | {"devices": int(random.choice([1, 2, 3, 4, 7, 8, 9, 16, 63, 64, 1024]))}
        | {"link": 10 ** random.uniform(9, 12), "slots": int(random.integers(0, 3))}
        | {"largest": random.uniform(0.01, 1), "known": known}
        | {"one_s": known * 10 ** random.uniform(-4, 1)},
    )


def test_javascript_and_python_agree_over_1000_drawn_settings() -> None:
    random = np.random.default_rng(5)
    every = [drawn(random) for _ in range(1000)]
    engine = MiniRacer()
    engine.eval(calculator.javascript())
    found = json.loads(engine.eval(f"JSON.stringify({json.dumps(every)}.map(calculate))"))
    for one, said in zip(every, found, strict=True):
        told = calculator.calculate(one)
        assert set(said) == set(told) == set(calculator.FORMULAS)
        for name, value in told.items():
            assert math.isclose(said[name], value, rel_tol=1e-9, abs_tol=1e-18), (name, one)


def test_a_missing_number_is_named_and_none_is_added_by_a_page() -> None:
    one = drawn(np.random.default_rng(0))
    with pytest.raises(NameError, match="parameters"):
        calculator.calculate({name: value for name, value in one.items() if name != "parameters"})


@pytest.mark.parametrize("placement", list(calculator.tables()["placements"]))
@pytest.mark.parametrize("devices", [1, 2, 4, 8, 16, 24])
def test_merges_take_what_the_forecast_says(placement: str, devices: int) -> None:
    """Of one home for each variable, a model of as many equal variables as devices."""
    count = 48
    variables = [Variable(f"v{number}", (25, 1000), "dense", ("zeros",)) for number in range(count)]
    seconds = reduction_seconds(demand_of(find_placement(placement), variables), devices, LINKS)
    numbers = {"parameters": 25000.0 * count, "flops": 1e9, "activations": 1e6, "batch": 8}
    numbers |= {"devices": devices, "slots": 1, "largest": 1 / count, "known": 1, "one_s": 0.1}
    told = calculator.calculate(calculator.settings("captured", placement, **FIXED | numbers))
    assert (told["inside_s"], told["between_s"]) == pytest.approx(seconds, rel=1e-9)
    cost = merge_costs()["captured"]
    lost_s = cost.lost_s(kind_of(placement), sum(seconds), 0.1) if devices > 1 else 0.0
    assert told["lost_s"] == pytest.approx(lost_s) and told["compute_s"] == 0.1


@pytest.mark.parametrize("model", ["resnet50_v1.5", "vgg16", "gpt2_124m"])
@pytest.mark.parametrize("placement", ["ddp", "zero1", "zero2", "fsdp2", "replicated_copy", "exp4"])
@pytest.mark.parametrize("devices", [1, 2, 4])
def test_memory_is_what_the_placement_keeps(model: str, placement: str, devices: int) -> None:
    """Variables that can be cut anywhere against those that there are: within 10% of all bytes."""
    workload = "gpt" if model.startswith("gpt") else "cnn"
    run = build_run(
        workload=workload, model=model, placement=placement, devices=devices, batch_size=8
    )
    described = description_of(run)
    known = load("calculator").largest_part(described)
    numbers = {"parameters": sum(variable.elements for variable in described.variables)}
    numbers |= {"flops": 1e9, "activations": 0.0, "batch": 8, "devices": devices}
    numbers |= {"slots": optimizer_of(run, described).slots, "largest": known}
    numbers |= {"known": 0, "one_s": 0.0}
    told = calculator.calculate(calculator.settings("eager", placement, **FIXED | numbers))
    assert told["memory_bytes"] == pytest.approx(needed(run, described).least, rel=0.1)
    assert told["memory_bytes"] == pytest.approx(
        sum(told[f"{part}_bytes"] for part in calculator.MEMORY)
    )


def test_the_committed_numbers_are_those_of_the_records_and_their_bands_hold() -> None:
    found, held = load("calculator").written(frames(paths.RUNS)[1])
    known = calculator.tables()
    for form, numbers in found["forms"].items():
        mine = {name: known["forms"][form][name] for name in numbers}
        assert mine == pytest.approx(numbers, rel=0.05), "run workflow/calculator.py"
    assert set(found["models"]) == set(known["models"])
    for name, own in held.groupby("what")["held"]:
        assert len(own) > 400 and 0.90 <= own.mean() <= 0.98, name
    assert isinstance(held, pd.DataFrame)


def test_a_page_carries_its_measured_points_and_none_of_gpus_without_links() -> None:
    planted = make_point([1e3] * 5, launches="abcde", workload="cnn", devices=4)
    table = points(frame_of([*planted, *make_point([400.0], workload="cnn", devices=1)]))
    html = page_calculator(SimpleNamespace(points=table, everywhere=table, machine="planted")).html
    data = json.loads(html.partition('id="calculator-data">')[2].partition("</script>")[0])
    four, alone = sorted(data["measured"], key=lambda one: -one["devices"])
    samples = 4 * four["batch"] / (four["step_ms"] / 1e3)
    assert four["rate"] == pytest.approx(samples, rel=1e-3) and four["n"] == 5
    assert four["low"] < four["rate"] < four["high"] and alone["low"] is None
    words = four["command"].split()
    assert words[:4] == ["python", "-m", "multigpu", "measure"]
    assert build_run(**parse_fields(words[4:])).devices == 4
    assert calculator.javascript() in html and "http" not in html
    unknown = table.assign(gpu="NVIDIA Nothing")
    with pytest.raises(Missing, match="were not measured"):
        page_calculator(SimpleNamespace(points=unknown, everywhere=unknown, machine="planted"))
