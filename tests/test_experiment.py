"""The experiment notebook: executed on CPU processes, its parameters checked, and what it sets beside a point."""

import importlib.util
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from multigpu import experiment, experiment_form, paths
from multigpu.analysis.estimate import estimate
from multigpu.analysis.points import Missing
from multigpu.batch import batch
from multigpu.experiment import beside, planned, pooled
from multigpu.measure.watching import WATCHED, Watched, note
from multigpu.notebooks import parameter_names, read_notebook
from multigpu.parameters import ParameterError
from multigpu.published import load_published, published_of
from multigpu.record import RecordStore
from multigpu.run import Run
from tests.refusals import refused

NOTEBOOK = paths.REPOSITORY / "notebooks" / "experiment.ipynb"


def defaults() -> dict[str, Any]:
    """The values of the parameters cell."""
    cell = next(cell for cell in read_notebook(NOTEBOOK).cells if "parameters" in cell.metadata.get("tags", []))
    found: dict[str, Any] = {}
    exec(cell.source, found)
    return {name: found[name] for name in experiment.PARAMETERS}


def outputs(path: Path) -> dict[str, str]:
    """What each cell shows, as text, by the cell's id."""
    kinds = ("text/html", "text/markdown", "text/plain")
    return {
        cell.id: "\n".join(
            output.get("text") or next((output["data"][kind] for kind in kinds if kind in output.get("data", {})), "")
            for output in cell.get("outputs", [])
        )
        for cell in read_notebook(path).cells
    }


def test_the_notebook_has_the_parameters_that_are_checked_and_its_defaults_can_be_trained_anywhere() -> None:
    assert parameter_names(NOTEBOOK) == list(experiment.PARAMETERS)
    found = planned(defaults())
    assert len(found.points) == 4 and found.trace == 3


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_batch_of_the_notebook_trains_here_and_shows_what_its_records_say(tmp_path: Path) -> None:
    rows, out = tmp_path / "points.yaml", tmp_path / "out"
    common = "{workload: nmt, model: nmt_tiny, batch_size: 4, device_type: cpu, timed_steps: 4, compare: false}"
    own_point = "{placement: exp4, devices: 2, sequence_length: 6, repeats: 2"
    absent = "{placement: ddp, inputs: text_files, data: [none.en, none.de]}"
    rows.write_text(f"common: {common}\npoints:\n- {own_point}, trace: 3}}\n- {absent}\n")
    assert batch(rows, out, progress=False) == 1
    page = (out / "index.html").read_text()
    own = pooled(record for record in RecordStore(out / "records") if not record.run.traced_steps).iloc[0]
    assert own["n"] == 2 and f"{estimate(own, 'rate'):rate}" in page and f"{own['rate_low']:,.0f} to {own['rate_high']:,.0f}" in page
    assert "1 done, 1 failed" in page and "none.en does not exist" in page
    (executed,) = (path for path in (out / "rows").glob("*.ipynb") if ".failed" not in path.name)
    shown = outputs(executed)
    assert f"{estimate(own, 'rate'):rate interval}" in shown["rate"]
    assert shown["train"].count("run ") == 3 and "words/s" in shown["train"] and "every Run was measured" in shown["train"]
    assert all("<svg" in shown[name] for name in ("steps", "trace", "loss"))
    assert all(phase in shown["phases"] for phase in ("pull", "forward", "backward", "merge", "update"))
    counted = next(record.measurement.moved_bytes for record in RecordStore(out / "records") if record.measurement)
    assert counted and all(kind in shown["moved"] for kind in counted)
    assert "Exp4, eager" in shown["explain"] and "the device computes" in shown["explain"] and "Exp4, eager" in shown["advise"]
    assert shown["beside"].count("nothing was to be compared") == shown["committed"].count("nothing was to be compared") == 1
    assert shown["committed"].count("nothing was to be compared") == shown["published"].count("nothing was to be compared") == 1
    before = sorted(path.name for path in (out / "records").rglob("*.json.gz"))

    rows.write_text(f"common: {common}\npoints:\n- {own_point}}}\n")
    assert batch(rows, out, progress=False) == 0
    assert sorted(path.name for path in (out / "records").rglob("*.json.gz")) == before, "what was measured is not measured again"
    (again,) = (path for path in (out / "rows").glob("*.ipynb") if ".failed" not in path.name and path != executed)
    shown = outputs(again)
    assert "a trace of this point was not measured" in shown["trace"] and shown["train"].count("measured before") == 2


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"devices": "two"}, "parameter devices = 'two': input should be a valid integer"),
        ({"placement": "exp9"}, "unknown placement 'exp9'"),
        ({"device_type": "cuda", "devices": 64}, "64 GPUs were asked for"),
        ({"device_type": "cpu", "execution": "captured"}, "execution 'captured' is a CUDA graph"),
        ({"repeats": 0}, "parameter repeats = 0"),
        ({"repeats": []}, r"parameter repeats = \[\]"),
        ({"trace": 99}, "traced_steps = 99"),
        ({"more": {"layuot": 1}}, "layuot"),
        ({"more": {"traced_steps": 3}}, "the parameter trace says"),
        ({"framework": "jax"}, "parameter framework = 'jax'"),
    ],
)
def test_bad_parameters_are_one_sentence(given: dict[str, Any], sentence: str) -> None:
    refused(sentence, planned, defaults() | given, error=ParameterError)


def run_of(placement: str, devices: int, **more: Any) -> experiment.Experiment:
    fields: dict[str, Any] = {"workload": "nmt", "model": "nmt000", "batch_size": 128, "sequence_length": 100, "precision": "bf16"}
    run = Run(placement=placement, devices=devices, **fields | more)
    return experiment.Experiment(run, (0,), 0, RecordStore(Path("none")), compare=True)


def test_this_machines_point_stands_beside_the_nearest_of_each_machine() -> None:
    own = pd.DataFrame({"machine": ["mine"], "rate": [7.0]})
    found = beside(run_of("exp4", 4, timed_steps=5), own)
    assert found["place"].tolist()[0] == "here" and found["place"].is_unique and "" in found["unlike"].tolist()[1:]
    same = found[found["unlike"] == ""].iloc[1:]
    assert (same[["batch_size", "precision", "execution"]] == [128, "bf16", "eager"]).all(axis=None) and same["layout"].isna().all()
    other = beside(run_of("exp4", 4, batch_size=129), own)
    assert all("batch_size" in unlike for unlike in other["unlike"][1:]) and other["place"].tolist() == found["place"].tolist()
    refused("no committed Record has this model, placement and devices", beside, run_of("exp4", 7), own, error=Missing)


def test_a_documents_point_stands_beside_ours() -> None:
    table = load_published("000_experiments")
    exp5 = table[(table["experiment"] == "Exp5") & (table["batch_size"] == 128) & (table["gpus"] == 2)]
    assert published_of(run_of("exp4", 2).run)["rate"].tolist() == exp5["words_per_s"].tolist() != []
    steps = published_of(Run(workload="nmt", model="nmt004", placement="ddp", batch_size=64, devices=8))
    assert steps["step_time_s"].tolist() == pytest.approx([0.680]) and steps["rate"].isna().all()
    assert published_of(run_of("ddp", 2).run).empty


def test_steps_are_counted_by_the_first_process_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = run_of("ddp", 1).run
    note("timed", run, 0)  # nobody watches
    watched = Watched(tmp_path / "watched")
    monkeypatch.setenv(WATCHED, str(watched.path))
    assert watched.state() == ("", 0)
    for stage in ("build", "warm-up", "step", "step", "timed", "step"):
        note(stage, run, 0)
        note("step", run, 1)
    assert watched.state() == ("timed", 1)
    watched.reset()
    assert watched.state() == ("", 0)


@pytest.mark.skipif(importlib.util.find_spec("ipywidgets") is None, reason="ipywidgets are not installed (`make lab`)")
def test_the_form_fills_the_parameters_and_says_what_cannot_be(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(experiment_form, "by_hand", lambda: True)
    namespace = defaults() | {"device_type": "cpu"}
    box, said = experiment_form.form(namespace).children
    fields = {field.description.replace(" ", "_"): field for field in box.children}
    assert list(fields) == list(experiment.PARAMETERS) and "Ready" in said.value
    assert {name: namespace[name] for name in experiment.PARAMETERS} == defaults() | {"device_type": "cpu", "trace": True}
    fields["execution"].value = "captured"
    assert namespace["execution"] == "captured" and "This cannot be trained" in said.value
    fields["execution"].value = "eager"
    fields["workload"].value = "cnn"
    fields["more"].value, fields["repeats"].value = '{"layout": "channels_last"}', "0, 0, 1"
    found = planned(namespace)
    assert (found.run.workload, found.run.layout, found.launches) == ("cnn", "channels_last", (0, 0, 1)) and "Ready" in said.value
    fields["sequence_length"].value = "x"
    assert "sequence_length = &#x27;x&#x27;: input should be a valid integer" in said.value
    fields["data"].value = "a.en, ["
    assert "cannot be read: the cell above shows how it is written" in said.value


def test_no_form_stands_where_nobody_is_there_to_fill_it() -> None:
    assert experiment_form.form(defaults()) is None


def test_a_bound_is_told_where_the_ceilings_are_known() -> None:
    wanted = {"model": "resnet50_v1.5", "execution": "captured", "batch_size": 256}
    here = (record for record in RecordStore(paths.RUNS) if record.machine.name == "4x-nvidia-h200" and record.status == "ok")
    chosen = next(record for record in here if record.run.model_dump(include=set(wanted)) == wanted)
    row = pooled([chosen]).iloc[0]
    assert row["rate"] == pytest.approx(chosen.measurement.units / chosen.measurement.wall_s)  # type: ignore[union-attr]
    assert row["of_bound"] == pytest.approx(row["rate"] / row["bound"]) and 0.1 < row["of_bound"] < 1 and row["bound_by"]
