"""The study's design: what every grid keeps to, and what a budget leaves out; how a file's lists
are crossed, and what is refused.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from multigpu.grids import GRIDS, entries_of, find_grid, grid, grid_file, named, read_rows
from multigpu.grids.named import ENDS
from multigpu.grids.planned import Planned, affordable, cost_s, pace, points
from multigpu.report.batch_rows import read_tasks
from multigpu.runner.point import START_S
from multigpu.workloads.cnn.description import FOR_CIFAR
from tests.multigpu.runner.launched import tiny
from tests.refusals import cases_beside, refused

COUNTS = [1, 2, 3, 4, 8]


def entry(seed: int, cost: float, launches: tuple[int, ...] = (0, 0, 1)) -> Planned:
    return Planned(tiny(seed), cost, launches)


@pytest.mark.parametrize("name", list(GRIDS))
def test_every_grid_names_each_point_once_and_has_a_price(name: str) -> None:
    planned = GRIDS[name](COUNTS)
    assert find_grid(name, COUNTS) == planned
    if (file := grid_file(name)) is not None:
        assert find_grid(str(file), COUNTS) == planned, "as a file of one's own"
    assert all(each.cost_s > 0 for each in planned)
    assert cost_s(planned) == pytest.approx(
        sum(each.cost_s * len(each.points()) for each in planned)
    )
    assert len({(point.run.digest, point.repeat) for point in points(planned)}) == len(
        points(planned)
    )
    for each in planned:
        assert [(point.repeat, point.launch) for point in each.points()] == list(
            enumerate(each.launches, each.first_repeat)
        )
        assert len(each.launches) == 1 or each.run.devices in (*ENDS, 2, 3)


@pytest.mark.parametrize(
    "path",
    [path for name in GRIDS if (path := grid_file(name)) is not None],
    ids=lambda path: path.stem,
)
def test_every_file_is_a_grid_whose_points_say_what_they_ask_cost_and_why_and_can_be_a_batch(
    path: Path,
) -> None:
    rows = read_rows(path, COUNTS, asked_only=True)
    assert (
        path.stem in GRIDS
        and rows
        and all("cost_s" in row.settings.model_fields_set for row in rows)
    )
    assert all(
        row.settings.question.endswith("?") and row.settings.reason.endswith(".") for row in rows
    )
    tasks, _, _ = read_tasks(path, COUNTS)
    assert (
        len({task.name for task in tasks})
        == len({task.run.digest for task in tasks})
        == len(tasks)
        > 0
    )


def test_a_budget_takes_first_repeats_in_order_and_then_second_ones() -> None:
    planned = [entry(0, 3.0), entry(1, 2.0, (0,)), entry(2, 4.0)]
    taken = [(point.run.seed, point.repeat) for point in affordable(planned, [], 16.0)]
    assert taken == [(0, 0), (1, 0), (2, 0), (0, 1), (2, 1)]
    assert [(point.run.seed, point.repeat) for point in affordable(planned, [], 6.0)] == [
        (0, 0),
        (1, 0),
    ]
    assert len(affordable(planned, [], 1e9)) == len(points(planned))
    known = [(planned[0].run, 0), (planned[0].run, 1)]
    assert [(point.run.seed, point.repeat) for point in affordable(planned, known, 9.0)] == [
        (1, 0),
        (2, 0),
        (0, 2),
    ]
    assert not affordable(planned, [(each.run, n) for each in planned for n in range(3)], 100.0)


def test_a_budget_learns_from_what_was_measured() -> None:
    """Points that took a third of the estimate: three times as many fit, less one start of a
    launch.
    """
    planned = [entry(seed, 3.0, (0,)) for seed in range(40)]
    spent = {(each.run, 0): 1.0 for each in planned[:6]}
    assert pace(planned, dict(list(spent.items())[:4])) is None
    learned = pace(planned, spent)
    assert learned == pytest.approx(1 / 3)
    assert len(affordable(planned, spent, 30.0)) == 10
    assert len(affordable(planned, spent, START_S + 12.5, learned)) == 12
    assert not affordable(planned, spent, START_S, learned)


def test_what_is_measured_side_by_side_costs_its_share() -> None:
    planned = [entry(seed, 4.0, (0,)) for seed in range(12)]
    lanes = {each.run.digest: 4 if each.run.seed % 2 else 1 for each in planned}
    taken = [
        point.run.seed
        for point in affordable(planned, [], 12.0, lanes=lambda run: lanes[run.digest])
    ]
    assert taken == [0, 1, 2, 3, 5, 7], (
        "4 + 1 + 4 + 1 and two more at 1; an entry of 4 no longer fits"
    )
    spent = {(each.run, 0): 1.0 for each in planned[:6]}
    assert len(affordable(planned, spent, START_S + 1.75, 0.25, lambda run: 4)) == 6


def test_several_grids_are_one_and_what_any_of_them_repeats_is_repeated() -> None:
    declared = [*GRIDS["cnn_pairs"](COUNTS), *GRIDS["cnn_batches"](COUNTS)]
    named = ("cnn_pairs, cnn_batches", "cnn_batches,cnn_pairs")
    both, turned = (
        {entry.run.digest: len(entry.points()) for entry in find_grid(one, COUNTS)} for one in named
    )
    assert list(both) == list(dict.fromkeys(entry.run.digest for entry in declared)) and len(
        both
    ) < len(declared)
    assert (
        all(both[entry.run.digest] >= len(entry.points()) for entry in declared) and turned == both
    ), "whichever is named first"


@pytest.fixture
def read(tmp_path: Path) -> Callable[..., list[Any]]:
    """Reads a file of points with this text."""

    def read(text: str, counts: Sequence[int] = (), **more: bool) -> list[Any]:
        (tmp_path / "points.yaml").write_text(text)
        return read_rows(tmp_path / "points.yaml", counts, **more)

    return read


SMALL = "workload: nmt, model: nmt_tiny, device_type: cpu, sequence_length: 6, placement: ddp"


def test_lists_are_crossed_the_first_one_slowest_and_what_belongs_together_stays_together(
    read,
) -> None:
    text = f"""
common: {{{SMALL}}}
points:
  - devices: [2, 1]
    seed: [0, 1]
    job:
      - {{batch_size: [2, 4]}}
      - {{batch_size: 8, precision: bf16}}
"""
    found = [
        (row.run.devices, row.run.seed, row.run.batch_size, row.run.precision) for row in read(text)
    ]
    jobs = [(2, "fp32"), (4, "fp32"), (8, "bf16")]
    assert found == [(devices, seed, *job) for devices in (2, 1) for seed in (0, 1) for job in jobs]


def test_filters_keep_and_leave_out_and_cases_change_cost_and_launches(read) -> None:
    text = f"""
- {{{SMALL}, batch_size: [2, 4, 8], devices: [1, 2], cost_s: 3, cost_per_device_s: 1,
   only: [{{batch_size: [2, 4]}}],
   without: [{{batch_size: 4, devices: 2}}, {{execution: captured}}],
   cases: [{{where: {{devices: 2}}, more_s: 5, launches: [0, 0, 1]}}]}}
"""
    found = [(row.run.batch_size, row.run.devices, row.cost_s, row.launches) for row in read(text)]
    assert found == [(2, 1, 4.0, (0,)), (2, 2, 10.0, (0, 0, 1)), (4, 1, 4.0, (0,))]


def test_counts_in_words_are_those_asked_for_and_a_grid_leaves_out_the_others(read) -> None:
    for word, expected in (
        ("each", [4, 2, 1]),
        ("rising", [1, 2, 4]),
        ("ends", [4, 1]),
        ("most", [4]),
        ("[8, 2]", [8, 2]),
    ):
        text = f"- {{{SMALL}, batch_size: 8, devices: {word}}}"
        assert [row.run.devices for row in read(text, [1, 2, 4])] == expected
        assert [row.run.devices for row in read(text, [2, 4], asked_only=True)] == [
            n for n in expected if n in (2, 4)
        ]


def test_names_stand_for_lists_conditions_estimates_and_a_models_own_batch(
    read, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = """
- {workload: cnn, model: for_cifar, placement: ddp, device_type: cpu, batch_size: default,
   cost_s: 1, cost_per_variable_s: 0.1}
- {workload: nmt, model: nmt_tiny, sequence_length: 6, placement: exp4, device_type: cpu,
   batch_size: 2, cost_s: 0, cost: launches,
   framework: tensorflow, processes: one, execution: graph, when: tensorflow_here}
"""
    *images, graph = read(text, [1])
    assert [row.run.model for row in images] == [*FOR_CIFAR]
    assert [row.run.batch_size for row in images] == [
        model.config.default_batch for model in FOR_CIFAR.values()
    ]
    assert [row.cost_s for row in images] == [
        round(1 + 0.1 * len(model.variables), 1) for model in FOR_CIFAR.values()
    ]
    assert graph.cost_s == named.launches_s(graph.run) > 0
    monkeypatch.setattr(named, "framework_version", lambda framework: "none")
    assert len(read(text, [1])) == len(images)


def test_a_point_that_stands_twice_is_measured_once_where_it_first_stands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "points.yaml").write_text(
        f"- {{{SMALL}, batch_size: [2, 4]}}\n- {{{SMALL}, batch_size: [8, 4], repeats: 3}}"
    )
    monkeypatch.setattr("multigpu.grids.FOLDER", tmp_path)
    found = grid("points", [1])
    assert [(entry.run.batch_size, len(entry.points())) for entry in found] == [
        (2, 1),
        (4, 3),
        (8, 3),
    ]


def test_repeats_are_measured_over_launches_and_a_trace_is_a_point_of_its_own(read) -> None:
    (row,) = read(f"- {{{SMALL}, batch_size: 8, repeats: 10, trace: true}}")
    assert row.launches == (0, 0, 0, 1, 1, 2, 3, 4, 5, 6)
    point, trace = entries_of(row)
    assert (len(point.points()), len(trace.points())) == (10, 1)
    assert trace.run == point.run.model_copy(update={"traced_steps": 3})


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (None, "points.yaml cannot be read: No such file"),
        *cases_beside(__file__, "refused_points.csv"),
    ],
)
def test_what_cannot_be_is_said_in_one_sentence(
    tmp_path: Path, text: str | None, sentence: str
) -> None:
    path = tmp_path / "points.yaml"
    if text is not None:
        path.write_text(text.replace("SMALL", SMALL))
    said = refused(".", read_rows, path, [1])
    assert sentence in said and str(path) in said
