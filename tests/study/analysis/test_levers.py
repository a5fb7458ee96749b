"""Levers are pairs that differ in what they name alone; the banner's dots say and open their
points.
"""

import re
from itertools import count

import pandas as pd
import pytest

from multigpu.analysis.compare import scaling
from multigpu.analysis.frame import frame_of
from multigpu.analysis.picture import shown
from multigpu.analysis.points import points, where
from multigpu_study.analysis.levers import banner, best, levers, staircase
from tests.factory import make_record

BEGIN = {"model": "nmt000", "devices": 1, "placement": "ddp", "execution": "eager"}
CHANGES = {
    "as it is": {},
    "one piece": {"cross_entropy": "fused"},
    "graph": {"execution": "captured"},
    "two": {"devices": 2},
}


def pooled(*planted: dict) -> pd.DataFrame:
    """Points of these Runs, each with two repeats unless it says otherwise."""
    runs = [
        make_record(**{"units_per_s": 1e5, **fields} | {"repeat": at, "launch_id": f"l{at}"})
        for fields in ({"repeats": 2, **one} for one in planted)
        for at in range(fields.pop("repeats"))
    ]
    return points(frame_of(runs))


EAGER = {"devices": 1, "units_per_s": 1e5}
GRAPH = {"devices": 1, "execution": "captured", "units_per_s": 2e5}
PAIR = {"devices": 2, "execution": "captured", "units_per_s": 3.8e5}


def test_a_step_changes_what_it_names_and_a_lever_without_a_pair_is_left_out() -> None:
    other = {**PAIR, "batch_size": 256, "units_per_s": 9e5}
    rows = levers(pooled(EAGER, GRAPH, PAIR, other), BEGIN, CHANGES)
    assert list(rows["lever"]) == ["as it is", "graph", "two"], "no point has the loss in one piece"
    assert list(rows["start"]) == pytest.approx([0, 1e5, 2e5])
    assert list(rows["gain"])[1:] == pytest.approx([2, 1.9])
    assert list(rows["changed"]) == ["", "execution", "devices"]
    assert set(rows["batch_size"]) == {128}, "nothing else may differ"
    again = {"graph": {"execution": "captured"}, "the graph once more": {"execution": "captured"}}
    rows = levers(pooled(EAGER, GRAPH), BEGIN, {"as it is": {}} | again)
    assert list(rows["lever"]) == ["as it is", "graph"], "a lever is pulled once"


def test_a_single_run_is_no_end_of_a_lever() -> None:
    single = {**GRAPH, "repeats": 1}
    assert levers(pooled(EAGER, single), BEGIN, CHANGES).empty
    rows = levers(pooled(EAGER, single, {"devices": 2, "units_per_s": 1.8e5}), BEGIN, CHANGES)
    assert list(rows["lever"]) == ["as it is", "two"]
    assert rows["gain"].iloc[-1] == pytest.approx(1.8)


def test_the_best_way_trains_what_one_device_does() -> None:
    ways = pooled(
        {"placement": "independent", "units_per_s": 4e5},
        {"placement": "ddp", "units_per_s": 3e5},
        {"placement": "exp2", "units_per_s": 2e5},
        {**EAGER, "placement": "ddp"},
    )
    found = best(ways, devices=2)
    assert list(found["placement"]) == ["ddp"] and found["how"].iloc[0] == "ddp, eager"
    assert best(ways, devices=1)["how"].iloc[0] == "one GPU, eager"


def test_a_staircase_begins_each_bar_where_the_last_ended() -> None:
    rows = levers(pooled(EAGER, GRAPH, PAIR), BEGIN, CHANGES).assign(who="a")
    picture = staircase(rows, "who", "Steps", "")
    bars = [patch for patch in picture.axes[0].patches if patch.get_width()]
    ends = [bar.get_x() + bar.get_width() for bar in bars]
    assert [bar.get_x() for bar in bars] == pytest.approx([0, *ends[:-1]])
    assert "\u00d71.90" in shown(picture, "steps").html


def test_a_dot_is_named_and_leads_to_its_point() -> None:
    batches = count(8, 8)
    near = [{"devices": 2, "batch_size": next(batches), "units_per_s": 2e5} for _ in range(3)]
    ones = [{**EAGER, "batch_size": 8 * at} for at in (1, 2, 3)]
    rows = where(scaling(pooled(*near, *ones)), speedup_best=...)
    html = shown(banner(rows, "speedup_best", "Dots", ""), "planted").html
    links = re.findall(r'<a aria-label="([^"]*)" xlink:href="20-explorer.html#key=(\w+)"', html)
    assert len(links) == 2 * len(rows), "wide and narrow"
    keys = {own.split(", ")[0] for own in rows["keys"]}
    assert {key for _, key in links} == keys
    assert all("times one GPU" in name and "batch" in name for name, _ in links)
    assert 'role="group"' in html and "target=" not in html
    heights = {
        line.get_ydata()[0]
        for line in banner(rows, "speedup_best", "Dots", "").axes[0].get_lines()
        if line.get_gid() and line.get_xdata()[0] == pytest.approx(2)
    }
    assert len(heights) == 3, "equal points do not cover each other"
