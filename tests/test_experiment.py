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
    shown = {cell.id: str(cell.get("outputs")) for cell in read_notebook(executed).cells}
    assert f"{estimate(own, 'rate'):rate interval}" in shown["rate"]
    assert shown["train"].count("run ") == 3 and "words/s" in shown["train"] and "every Run was measured" in shown["train"]
    assert all("<svg" in shown[name] for name in ("steps", "trace", "loss"))
    assert all(phase in shown["phases"] for phase in ("pull", "forward", "backward", "merge", "update"))
    counted = next(record.measurement.moved_bytes for record in RecordStore(out / "records") if record.measurement)
    assert counted and all(kind in shown["moved"] for kind in counted)
    assert "Exp4, eager" in shown["explain"] and "the device computes" in shown["explain"] and "Exp4, eager" in shown["advise"]
    assert all("nothing was to be compared" in shown[name] for name in ("beside", "committed", "published"))
    before = sorted(path.name for path in (out / "records").rglob("*.json.gz"))
    rows.write_text(f"common: {common}\npoints:\n- {own_point}}}\n")
    assert batch(rows, out, progress=False) == 0
    assert sorted(path.name for path in (out / "records").rglob("*.json.gz")) == before, "what was measured is not measured again"
    (again,) = (path for path in (out / "rows").glob("*.ipynb") if ".failed" not in path.name and path != executed)
    shown = {cell.id: str(cell.get("outputs")) for cell in read_notebook(again).cells}
    assert "a trace of this point was not measured" in shown["trace"] and shown["train"].count("measured before") == 2


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"placement": "exp9"}, "unknown placement 'exp9'"),
        ({"device_type": "cuda", "devices": 64}, "64 GPUs were asked for"),
        ({"repeats": []}, r"parameter repeats = \[\]"),
        ({"more": {"layuot": 1}}, "layuot"),
        ({"more": {"traced_steps": 3}}, "the parameter trace says"),
        ({"framework": "jax"}, "parameter framework = 'jax'"),
    ],
)
def test_bad_parameters_are_one_sentence(given: dict[str, Any], sentence: str) -> None:
    """And the notebook's own are those that are checked, and can be trained anywhere."""
    assert parameter_names(NOTEBOOK) == list(experiment.PARAMETERS) and len(planned(defaults()).points) == 4
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
    refused("no committed Record has this model, placement and devices", beside, run_of("exp4", 7), own, error=Missing)


def test_a_documents_point_stands_beside_ours() -> None:
    table = load_published("000_experiments")
    exp5 = table[(table["experiment"] == "Exp5") & (table["batch_size"] == 128) & (table["gpus"] == 2)]
    assert published_of(run_of("exp4", 2).run)["rate"].tolist() == exp5["words_per_s"].tolist() != []
    steps = published_of(Run(workload="nmt", model="nmt004", placement="ddp", batch_size=64, devices=8))
    assert steps["step_time_s"].tolist() == pytest.approx([0.680]) and steps["rate"].isna().all()
    assert published_of(run_of("ddp", 2).run).empty


@pytest.mark.skipif(importlib.util.find_spec("ipywidgets") is None, reason="ipywidgets are not installed (`make lab`)")
def test_the_form_fills_the_parameters_and_says_what_cannot_be(monkeypatch: pytest.MonkeyPatch) -> None:
    assert experiment_form.form(defaults()) is None, "nobody is there to fill it"
    monkeypatch.setattr(experiment_form, "by_hand", lambda: True)
    namespace = defaults() | {"device_type": "cpu"}
    box, said = experiment_form.form(namespace).children
    fields = {field.description.replace(" ", "_"): field for field in box.children}
    assert list(fields) == list(experiment.PARAMETERS) and "Ready" in said.value
    fields["execution"].value = "captured"
    assert namespace["execution"] == "captured" and "This cannot be trained" in said.value
    fields["execution"].value = "eager"
    fields["workload"].value = "cnn"
    fields["more"].value, fields["repeats"].value = '{"layout": "channels_last"}', "0, 0, 1"
    found = planned(namespace)
    assert (found.run.workload, found.run.layout, found.launches) == ("cnn", "channels_last", (0, 0, 1)) and "Ready" in said.value
