"""Grids and batches in YAML: how lists are crossed, what is filtered, and what is refused in one sentence."""

from __future__ import annotations

from pathlib import Path

import pytest

from multigpu.grid import GRIDS, from_yaml, named
from multigpu.grid.from_yaml import FOLDER, grid, launches_for, planned, read_rows
from multigpu.workloads.cnn.description import FOR_CIFAR

SMALL = "workload: nmt, model: nmt_tiny, device_type: cpu, sequence_length: 6, placement: ddp"


def written(folder: Path, text: str) -> Path:
    path = folder / "points.yaml"
    path.write_text(text)
    return path


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.yaml")), ids=lambda path: path.stem)
def test_every_file_is_a_grid_whose_points_say_what_they_ask_cost_and_why(path: Path) -> None:
    assert path.stem in GRIDS
    rows = read_rows(path, [1, 2, 3, 4, 8], asked_only=True)
    assert rows and all(row.settings.question.endswith("?") and row.settings.reason.endswith(".") for row in rows)
    assert all("cost_s" in row.settings.model_fields_set for row in rows)
    asked = [row for row in read_rows(path, [2], asked_only=True) if not row.settings.whatever_devices]
    assert {row.built.devices for row in asked} <= {2}


def test_lists_are_crossed_the_first_one_slowest_and_what_belongs_together_stays_together(tmp_path: Path) -> None:
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
        (row.built.devices, row.built.seed, row.built.batch_size, row.built.precision) for row in read_rows(written(tmp_path, text), [1])
    ]
    jobs = [(2, "fp32"), (4, "fp32"), (8, "bf16")]
    assert found == [(devices, seed, *job) for devices in (2, 1) for seed in (0, 1) for job in jobs]


def test_filters_keep_and_leave_out_and_cases_change_cost_and_launches(tmp_path: Path) -> None:
    text = f"""
- {{{SMALL}, batch_size: [2, 4, 8], devices: [1, 2], cost_s: 3, cost_per_device_s: 1, only: [{{batch_size: [2, 4]}}],
   without: [{{batch_size: 4, devices: 2}}, {{execution: captured}}], cases: [{{where: {{devices: 2}}, more_s: 5, launches: [0, 0, 1]}}]}}
"""
    found = [(row.built.batch_size, row.built.devices, row.cost_s, launches_for(row)) for row in read_rows(written(tmp_path, text), [])]
    assert found == [(2, 1, 4.0, (0,)), (2, 2, 10.0, (0, 0, 1)), (4, 1, 4.0, (0,))]


def test_counts_in_words_are_those_asked_for_and_a_grid_leaves_out_the_others(tmp_path: Path) -> None:
    for word, expected in (("each", [4, 2, 1]), ("rising", [1, 2, 4]), ("ends", [4, 1]), ("most", [4]), ("[8, 2]", [8, 2])):
        path = written(tmp_path, f"- {{{SMALL}, batch_size: 8, devices: {word}}}")
        assert [row.built.devices for row in read_rows(path, [1, 2, 4])] == expected
        assert [row.built.devices for row in read_rows(path, [2, 4], asked_only=True)] == [n for n in expected if n in (2, 4)]


def test_names_stand_for_lists_conditions_estimates_and_a_models_own_batch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = """
- {workload: cnn, model: for_cifar, placement: ddp, device_type: cpu, batch_size: default, cost_s: 1, cost_per_variable_s: 0.1}
- {workload: nmt, model: nmt_tiny, sequence_length: 6, placement: exp4, device_type: cpu, batch_size: 2, cost_s: 0, cost: launches,
   framework: tensorflow, processes: one, execution: graph, when: tensorflow_here}
"""
    *images, graph = read_rows(written(tmp_path, text), [1])
    assert [row.built.model for row in images] == [*FOR_CIFAR]
    assert [row.built.batch_size for row in images] == [model.config.default_batch for model in FOR_CIFAR.values()]
    assert [row.cost_s for row in images] == [round(1 + 0.1 * len(model.variables), 1) for model in FOR_CIFAR.values()]
    assert graph.cost_s == named.launches_s(graph.built) > 0
    monkeypatch.setattr(named, "framework_version", lambda framework: "none")
    assert len(read_rows(written(tmp_path, text), [1])) == len(images)


def test_a_point_that_stands_twice_is_measured_once_where_it_first_stands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = f"- {{{SMALL}, batch_size: [2, 4]}}\n- {{{SMALL}, batch_size: [8, 4], repeats: 3}}"
    monkeypatch.setattr(from_yaml, "FOLDER", written(tmp_path, text).parent)
    found = grid("points", [1])
    assert [(entry.run.batch_size, len(entry.points())) for entry in found] == [(2, 1), (4, 3), (8, 3)]


def test_repeats_are_measured_over_launches_and_a_trace_is_a_point_of_its_own(tmp_path: Path) -> None:
    (row,) = read_rows(written(tmp_path, f"- {{{SMALL}, batch_size: 8, repeats: 10, trace: true}}"), [])
    assert launches_for(row) == (0, 0, 0, 1, 1, 2, 3, 4, 5, 6)
    point, trace = planned(row)
    assert (point.tier, len(point.points()), trace.tier, len(trace.points())) == ("headline", 10, "screening", 1)
    assert trace.run == point.run.model_copy(update={"traced_steps": 3})


def test_paths_of_data_are_one_value(tmp_path: Path) -> None:
    fields = "workload: nmt, model: nmt_tiny, device_type: cpu, placement: ddp, batch_size: 2, inputs: text_files, data: [a.en, a.de]"
    (row,) = read_rows(written(tmp_path, f"- {{{fields}}}"), [])
    assert row.built.data == ("a.en", "a.de")


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "is empty: it needs a list of points"),
        ("points: []", "has no list of `points`"),
        ("- {a: [1}", "is no YAML"),
        ("- {batch_size: 1, batch_size: 2}", "'batch_size' stands twice"),
        ("- 3", "point 1: 3 is no set of fields"),
        ("rows: []", "'rows' stands beside question, common and points"),
        (f"- {{{SMALL}, batch_size: 2}}\n- {{{SMALL}, batch_sise: 2}}", "point 2: unknown field 'batch_sise': did you mean 'batch_size'?"),
        (f"- {{{SMALL}, batch_size: two}}", "point 1: batch_size = 'two': input should be a valid integer"),
        (f"- {{{SMALL}, batch_size: []}}", "batch_size is an empty list"),
        (f"- {{{SMALL}, batch_size: 2, repeats: 0}}", "point 1: repeats = 0: "),
        (f"- {{{SMALL}, batch_size: 2, repeats: yes}}", "point 1: repeats = True: "),
        (f"- {{{SMALL}, batch_size: 2, devices: all}}", "devices = 'all' is no number: give one, a list, or one of each"),
        (f"- {{{SMALL}, batch_size: 2, without: [{{device: 2}}]}}", "'device' of a filter is no field of a Run"),
        (f"- {{{SMALL}, batch_size: 2, execution: captured}}", "execution 'captured' is a CUDA graph"),
        (f"- {{{SMALL}, batch_size: 2, when: full_moon}}", "point 1: when = 'full_moon' is not known: choose among tensorflow_here"),
        (f"- {{{SMALL}, batch_size: 2, cost: much}}", "point 1: cost = 'much' is not known: choose among ladder"),
        (f"- {{{SMALL}, batch_size: default}}", "model 'nmt_tiny' names no batch of its own: write a number"),
        (f"- {{{SMALL}, job: 3}}", "job = 3 is no list of fields"),
    ],
)
def test_what_cannot_be_is_said_in_one_sentence(tmp_path: Path, text: str, sentence: str) -> None:
    path = written(tmp_path, text)
    with pytest.raises(ValueError) as error:
        read_rows(path, [1])
    assert sentence in str(error.value) and str(path) in str(error.value) and "\n" not in str(error.value)


def test_a_file_that_is_not_there_or_no_text_is_said_in_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"none.yaml cannot be read: No such file"):
        read_rows(tmp_path / "none.yaml", [1])
    (tmp_path / "bytes.yaml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ValueError, match=r"bytes.yaml is no YAML"):
        read_rows(tmp_path / "bytes.yaml", [1])
