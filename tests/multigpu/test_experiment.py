"""The experiment notebook, executed on CPU processes; a batch of its rows: each once, what is done
stays, what fails is shown.
"""

import importlib.util
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import nbformat
import pandas as pd
import pytest

from multigpu import paths
from multigpu.analysis.estimate import estimate
from multigpu.analysis.parts import SIX_NAMES
from multigpu.analysis.points import Missing
from multigpu.build import build_run
from multigpu.cli.main import main
from multigpu.grids import FOLDER
from multigpu.records.record import RecordStore
from multigpu.report import batch as module
from multigpu.report import experiment, experiment_form, experiment_progress
from multigpu.report.batch import batch
from multigpu.report.batch_rows import Outcome, find_points, read_tasks
from multigpu.report.experiment import beside, planned, pooled
from multigpu.report.notebooks import NotebookError, parameter_names, read_notebook
from multigpu.runner.watching import Watched
from multigpu.spec.errors import Refused
from multigpu.spec.parameters import ParameterError
from multigpu.spec.rules import RULES
from multigpu.spec.rules.case import Case
from multigpu.spec.run import Run
from tests.command_line import measured_here
from tests.factory import plant
from tests.multigpu.runner.launched import PATHS, tiny
from tests.patience import PATIENCE_S
from tests.refusals import refused

NOTEBOOK = paths.REPOSITORY / "notebooks" / "experiment.ipynb"


def defaults() -> dict[str, Any]:
    """The values of the parameters cell."""
    cell = next(
        cell
        for cell in read_notebook(NOTEBOOK).cells
        if "parameters" in cell.metadata.get("tags", [])
    )
    found: dict[str, Any] = {}
    exec(cell.source, found)
    return {name: found[name] for name in experiment.PARAMETERS}


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_batch_of_the_notebook_trains_here_and_shows_what_its_records_say(tmp_path: Path) -> None:
    rows, out = tmp_path / "points.yaml", tmp_path / "out"
    common = (
        "{workload: nmt, model: nmt_tiny, batch_size: 4, device_type: cpu, timed_steps: 4, compare:"
        " false}"
    )
    own_point = "{placement: exp4, devices: 2, sequence_length: 6, repeats: 2"
    absent = "{placement: ddp, inputs: text_files, data: [none.en, none.de]}"
    rows.write_text(f"common: {common}\npoints:\n- {own_point}, trace: 3}}\n- {absent}\n")
    assert batch(rows, out, progress=False) == 1
    page = (out / "index.html").read_text()
    own = pooled(
        record for record in RecordStore(out / "records") if not record.run.traced_steps
    ).iloc[0]
    rate = estimate(own, "rate")
    interval = f"{rate.low:,.0f} to {rate.high:,.0f}"
    # a loaded machine may spread two repeats so far that their interval says nothing
    interval = "too few repeats" if rate.is_too_few else interval
    assert own["n"] == 2 and f"{rate:rate}" in page and interval in page
    assert "1 done, 1 failed" in page and "none.en does not exist" in page
    (executed,) = (path for path in (out / "rows").glob("*.ipynb") if ".failed" not in path.name)
    shown = {cell.id: str(cell.get("outputs")) for cell in read_notebook(executed).cells}
    assert f"{rate:rate interval}" in shown["rate"] and "explorer" not in shown["rate"]
    assert (
        shown["train"].count("run ") == 3
        and "words/s" in shown["train"]
        and "every Run was measured" in shown["train"]
    )
    assert all("<svg" in shown[name] for name in ("steps", "trace", "loss"))
    assert all(
        f"{part}</td>" in shown["parts"] and f"{part}</span>" in shown["parts"]
        for part in SIX_NAMES.values()
    )
    assert all(
        phase in shown["phases"] for phase in ("pull", "forward", "backward", "merge", "update")
    )
    counted = next(
        record.measurement.moved_bytes
        for record in RecordStore(out / "records")
        if record.measurement
    )
    assert counted and all(kind in shown["moved"] for kind in counted)
    assert (
        "Exp4, eager" in shown["explain"]
        and "the device computes" in shown["explain"]
        and "Exp4, eager" in shown["advise"]
        and all("<table" in shown[name] for name in ("parts", "advise"))
        and all("display:flex" in shown[name] for name in ("parts", "explain"))
    )
    assert all(
        "nothing was to be compared" in shown[name] for name in ("beside", "committed", "published")
    )
    before = sorted(path.name for path in (out / "records").rglob("*.json.gz"))
    rows.write_text(f"common: {common}\npoints:\n- {own_point}}}\n")
    assert batch(rows, out, progress=False) == 0
    assert sorted(path.name for path in (out / "records").rglob("*.json.gz")) == before, (
        "what was measured is not measured again"
    )
    (again,) = (
        path
        for path in (out / "rows").glob("*.ipynb")
        if ".failed" not in path.name and path != executed
    )
    shown = {cell.id: str(cell.get("outputs")) for cell in read_notebook(again).cells}
    assert (
        "a trace of this point was not measured" in shown["trace"]
        and shown["train"].count("measured before") == 2
    )


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
    assert (
        parameter_names(NOTEBOOK) == list(experiment.PARAMETERS)
        and len(planned(defaults()).points) == 4
    )
    refused(sentence, planned, defaults() | given, error=ParameterError)


def run_of(placement: str, devices: int, **more: Any) -> experiment.PageExperiment:
    fields: dict[str, Any] = {
        "workload": "nmt",
        "model": "nmt000",
        "batch_size": 128,
        "sequence_length": 100,
        "precision": "bf16",
    }
    run = Run(placement=placement, devices=devices, **fields | more)
    return experiment.PageExperiment(run, (0,), 0, RecordStore(Path("none")), compare=True)


@pytest.mark.parametrize(
    "more",
    [{}, {"recompute": True}, {"placement": "fsdp2", "reshard": False}, {"micro_steps": 2}],
    ids=lambda more: "-".join(map(str, more.values())) or "plain",
)
def test_a_transformer_is_planned_by_the_notebook_and_a_batch_alike(
    more: dict[str, Any], tmp_path: Path
) -> None:
    """No list of workloads or of fields has to be edited for one."""
    job: dict[str, Any] = {"workload": "gpt", "model": "gpt_small", "device_type": "cpu"}
    job |= {"placement": "ddp"} | more
    run = planned(defaults() | job).run
    assert {name: getattr(run, name) for name in more} == more
    rows = tmp_path / "points.yaml"
    rows.write_text(json.dumps([job | {"batch_size": 16, "devices": 2}]))
    (task,) = read_tasks(rows, [2])[0]
    assert (task.run.label(), task.run.model) == (run.label(), "gpt_small")
    assert {name: getattr(task.run, name) for name in more} == more


def test_this_machines_point_stands_beside_the_nearest_of_each_machine() -> None:
    own = pd.DataFrame({"machine": ["mine"], "rate": [7.0]})
    found = beside(run_of("exp4", 4, timed_steps=5), own)
    assert (
        found["place"].tolist()[0] == "here"
        and found["place"].is_unique
        and "" in found["unlike"].tolist()[1:]
    )
    same = found[found["unlike"] == ""].iloc[1:]
    assert (same[["batch_size", "precision", "execution"]] == [128, "bf16", "eager"]).all(
        axis=None
    ) and same["layout"].isna().all()
    refused(
        "no committed Record has this model, placement and devices",
        beside,
        run_of("exp4", 7),
        own,
        error=Missing,
    )


def no_bf16_of_exp4(case: Case) -> None:
    """A rule that this test plants."""
    if case.run.placement == "exp4" and case.run.precision == "bf16":
        raise Refused("planted: exp4 rounds nothing")


def test_a_choice_is_offered_if_the_rules_allow_it_and_else_the_rule_says_why(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Whatever rules there are: one that is planted is asked like all others."""
    given = defaults() | {"device_type": "cpu"}
    for placement in ("ddp", "exp4", "fsdp2", "mirrored_nccl"):
        own, why = experiment_form.completed(given | {"placement": placement}, "placement")
        assert not why and own["placement"] == placement
        for name in experiment.PARAMETERS:
            every = experiment_form.choices(name, own)
            values, refused_values = experiment_form.offered(own, name)
            assert [*values, *refused_values] == sorted(
                every, key=lambda value: (value in refused_values, every.index(value))
            )
            for value in values:
                found, why = experiment_form.completed(own | {name: value}, name)
                assert not why and found[name] == value
                build_run(**experiment.fields_of(found))
                above = list(experiment.PARAMETERS)[: list(experiment.PARAMETERS).index(name)]
                assert name == "workload" or all(found[other] == own[other] for other in above)
            for value, why in refused_values.items():
                fields = experiment.fields_of(own | {name: value})
                assert refused(".", build_run, **fields) == why
    exp4 = given | {"placement": "exp4"}
    assert "bf16" in experiment_form.offered(exp4, "precision")[0]
    monkeypatch.setattr("multigpu.spec.rules.RULES", (*RULES, no_bf16_of_exp4))
    values, why_not = experiment_form.offered(exp4, "precision")
    assert "bf16" not in values and why_not["bf16"] == "planted: exp4 rounds nothing"
    assert "<b>bf16</b>: planted" in experiment_form.left_out({"precision": why_not})
    assert experiment_form.left_out({"precision": {}}) == ""


def test_where_a_written_value_is_wrong_every_choice_is_offered() -> None:
    given = defaults() | {"device_type": "cpu", "more": {"bucket_update": "in_backward"}}
    values, why_not = experiment_form.offered(given, "precision")
    assert values == experiment_form.choices("precision", given) and not why_not


@pytest.mark.skipif(
    importlib.util.find_spec("ipywidgets") is None,
    reason="ipywidgets are not installed (`make lab`)",
)
def test_the_form_fills_the_parameters_and_says_what_cannot_be(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert experiment_form.form(defaults()) is None, "nobody is there to fill it"
    monkeypatch.setattr(experiment_form, "by_hand", lambda: True)
    namespace = defaults() | {"device_type": "cpu"}
    box, said = experiment_form.form(namespace).children
    fields = {field.description.replace(" ", "_"): field for field in box.children}
    assert list(fields) == list(experiment.PARAMETERS) and "Ready" in said.value

    def values(name: str) -> list[Any]:
        return list(fields[name].options)

    assert "captured" not in values("execution") and "is a CUDA graph" in said.value
    fields["placement"].value = "mirrored_nccl"
    assert (namespace["framework"], namespace["execution"]) == ("tensorflow", "graph")
    assert "With it: framework tensorflow, processes one, execution graph." in said.value
    assert values("framework") == ["tensorflow"] and fields["execution"].value == "graph"
    fields["placement"].value = "fsdp2"
    fields["reshard"].value = "no"
    assert fields["micro_steps"].value == "none"
    fields["micro_steps"].value = "4"
    fields["execution"].value = "compiled"
    run = planned(namespace).run
    assert (run.placement, run.reshard, run.micro_steps) == ("fsdp2", False, 4)
    assert run.execution == "compiled" and "Ready" in said.value
    fields["workload"].value = "gpt"
    assert namespace["model"] == fields["model"].value in values("model")
    fields["recompute"].value = "yes"
    assert planned(namespace).run.recompute
    fields["batch_size"].value = 2
    assert "This cannot be trained" in said.value and "micro_steps 4" in said.value
    fields["micro_steps"].value = "none"
    fields["workload"].value = "cnn"
    assert namespace["recompute"] is False
    fields["placement"].value = "ddp"
    fields["more"].value, fields["repeats"].value = '{"layout": "channels_last"}', "0, 0, 1"
    found = planned(namespace)
    assert (found.run.workload, found.run.layout, found.launches) == (
        "cnn",
        "channels_last",
        (0, 0, 1),
    ) and "Ready" in said.value
    fields["more"].value = "{layout: "
    assert "cannot be read" in said.value


COMMON = "workload: nmt, model: nmt_tiny, device_type: cpu, sequence_length: 6, batch_size: 2"


@pytest.fixture
def counting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file with a line for every row that was executed, without a kernel; rows of exp2 fail while
    `broken` lies beside it.
    """
    log = tmp_path / "executed"

    def execute(source: Path, target: Path, given: dict[str, Any]) -> None:
        with log.open("a") as file:
            file.write(f"{given['placement']} {given['devices']} {given['more']}\n")
        failed = given["placement"] == "exp2" and log.with_name("broken").exists()
        nbformat.write(
            read_notebook(source), target.with_suffix(".failed.ipynb" if failed else ".ipynb")
        )
        if failed:
            raise NotebookError(
                "experiment.ipynb stopped in cell 2 with ValueError: the host is <on> fire"
            )

    monkeypatch.setattr(module, "execute_one", execute)
    return log


def points(folder: Path, text: str) -> Path:
    (folder / "points.yaml").write_text(text)
    return folder / "points.yaml"


def test_rows_are_done_once_and_what_failed_is_shown_and_tried_again(
    tmp_path: Path, counting: Path, capsys
) -> None:
    text = (
        f"question: Which is faster?\ncommon: {{{COMMON}}}\npoints:\n- {{placement: [ddp, exp2],"
        " reason: Two ways.}\n- {placement: ddp, repeats: 2}\n- {placement: ddp, device_type:"
        " cuda, devices: 64}\n"
    )
    file, out = points(tmp_path, text), tmp_path / "out"
    (tmp_path / "broken").touch()
    assert batch(file, out, progress=False) == 1
    said = capsys.readouterr().out
    assert "point 2 is point 1 again" in said and "measured once" in said
    assert (
        "failed: nmt_tiny exp2" in said
        and "64 GPUs were asked for" in said
        and "2 of them not done" in said
    )
    assert counting.read_text() == "ddp 1 {}\nexp2 1 {}\n"
    page = (out / "index.html").read_text()
    assert (
        "<h1>Which is faster?</h1>" in page
        and "Two ways." in page
        and "the host is &lt;on&gt; fire" in page
    )
    assert "3 rows of points.yaml: 1 done, 1 failed, 1 not on this machine" in page
    links = [part.partition('"')[0] for part in page.split('href="')[1:]]
    assert len(links) == 4 and all((out / link).is_file() for link in links)

    (tmp_path / "broken").unlink()
    assert batch(file, out, progress=False) == 1  # the GPUs are still missing
    assert counting.read_text() == "ddp 1 {}\nexp2 1 {}\nexp2 1 {}\n"
    assert "1 of them done before" in capsys.readouterr().out and not list(
        (out / "rows").glob("*.failed.*")
    )

    # a row that says something else is another one; one that is left out or moved changes nothing
    rows = "- {placement: exp2}\n- {placement: ddp, repeats: 2}\n- {placement: ddp, seed: 1}\n"
    file.write_text(f"common: {{{COMMON}}}\npoints:\n{rows}")
    assert batch(file, out, progress=False) == 0
    assert counting.read_text().splitlines()[3:] == ["ddp 1 {'seed': 1}"]


FASTER, INDEPENDENT = (1300, 1310, 1290), (2000, 2010, 1990)
TOLD_APART = {"ddp": (1000, 1010, 990), "exp4": FASTER, "independent": INDEPENDENT}
ALIKE = {"ddp": (1000, 1200, 800), "exp4": (1010, 1210, 810)}
SINGLE, TOO_FEW = TOLD_APART | {"exp4": (2600,)}, {"ddp": (1000, 30), "exp4": (20, 22)}


@pytest.mark.parametrize(
    ("rates", "said"),
    [
        (
            TOLD_APART,
            r">Exp4 is fastest: 1,300 words/s \(1,\d{3} to .*; the next, ddp, reaches 77%",
        ),
        (ALIKE, r">Exp4 is ahead with 983 words/s \(.*\), not told apart from ddp\.<"),
        (
            SINGLE,
            r">Ahead as measured is Exp4, 2,600 words/s \(single run\): give it more repeats\.<",
        ),
        (TOO_FEW, r">Ahead as measured is ddp, 58.3 words/s \(too few repeats\): give it more"),
    ],
)
def test_the_index_answers_the_question_of_its_file(
    rates: dict[str, tuple[int, ...]], said: str, tmp_path: Path, counting: Path
) -> None:
    """By a sentence, a figure and a table; replicas that share nothing are never the fastest."""
    repeats = max(map(len, rates.values()))
    rows = f"- {{placement: [{', '.join(rates)}], devices: 2, repeats: {repeats}}}"
    file = points(tmp_path, f"question: Which wins?\ncommon: {{{COMMON}}}\npoints:\n{rows}\n")
    out = tmp_path / "out"
    tasks, _, _ = read_tasks(file, [1])
    for task, own in zip(tasks, rates.values(), strict=True):
        records = [
            measured_here(task.run, repeat, units_per_s=rate, launch_id=f"launch {repeat}")
            for repeat, rate in enumerate(own)
        ]
        plant(RecordStore(out / "records"), records)
    assert batch(file, out, progress=False) == 0
    page = (out / "index.html").read_text()
    assert re.search(said, page), re.findall(r'class="answer">.*?<', page)
    answer = page[page.index('class="answer"') : page.index("Every row")]
    assert "<svg" in answer and answer.count("<tr>") == 1 + len(rates)
    assert ("not the same training" in answer) == ("independent" in rates)
    assert ("too few repeats</td>" in page) == ("too few repeats" in said)
    assert not re.search(r"to \d{1,3},\d{3},\d{3}<", page)


def test_what_the_rules_refuse_stands_with_its_reason_and_stops_no_other(
    tmp_path: Path, counting: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = "- {placement: [ddp, exp4], precision: [fp32, tf32], reason: Two roundings.}"
    file, out = points(tmp_path, f"common: {{{COMMON}}}\npoints:\n{rows}\n"), tmp_path / "out"
    assert batch(file, out, progress=False) == 0
    assert counting.read_text().splitlines() == ["ddp 1 {}", "exp4 1 {}"]
    page, said = (out / "index.html").read_text(), capsys.readouterr().out
    why = "precision &#39;tf32&#39; exists on GPUs only"
    assert page.count(why) == 2 and page.count(">cannot be<") == 2
    assert "4 rows of points.yaml: 2 done, 2 cannot be" in page and "shows 4 rows" in said
    assert said.count("cannot be: ") == 2 and "placement=exp4 precision=tf32" in said
    assert 'answer"' not in page, "nothing was measured"
    file.write_text(f"- {{{COMMON}, placement: ddp, precision: tf32}}")
    refused("no point of .* can be measured: precision 'tf32' exists on", batch, file, out)


def test_a_row_gives_the_notebook_every_field_and_a_traced_row_is_its_untraced_one(
    tmp_path: Path,
) -> None:
    common = f"{COMMON}, placement: ddp"
    text = (
        f"- {{{common}, bucket_mib: 1, warmup_steps: 3, traced_steps: 2}}\n- {{{common}, launches:"
        " [0, 1]}"
    )
    tasks, impossible, said = read_tasks(points(tmp_path, text), [1])
    assert len(tasks) == 2 and not said and not impossible
    names = parameter_names(NOTEBOOK)
    every = [task.parameters(tmp_path, names) for task in tasks]
    for task, given in zip(tasks, every, strict=True):
        assert set(given) == set(names)
        fields = {name: value for name, value in given.items() if name in Run.model_fields} | given[
            "more"
        ]
        assert Run(**fields) == task.run and task.run.traced_steps == 0
    assert [(given["trace"], given["repeats"]) for given in every] == [
        (2, 1),
        (0, [0, 1]),
    ] and tasks[0].name != tasks[1].name
    assert (
        find_points("headline")
        == find_points("grids/headline.yaml")
        == find_points(str(FOLDER / "headline.yaml"))
    )


def test_a_row_whose_page_cannot_be_made_is_done_and_says_why(
    tmp_path: Path, counting: Path, capsys, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where nbconvert is installed without its templates."""
    monkeypatch.setattr("nbconvert.exporters.templateexporter.jupyter_path", lambda: [])
    file, out = points(tmp_path, f"- {{{COMMON}, placement: ddp}}"), tmp_path / "out"
    assert batch(file, out, progress=False) == 0
    assert "html was not made: No template sub-directory" in capsys.readouterr().out
    assert "1 done" in (out / "index.html").read_text()


def test_what_cannot_be_read_of_a_row_is_done_again(tmp_path: Path, counting: Path) -> None:
    file, out = points(tmp_path, f"- {{{COMMON}, placement: ddp}}"), tmp_path / "out"
    assert batch(file, out, progress=False) == 0
    (state,) = (out / "rows").glob("*.json")
    for break_it in (
        lambda: state.write_text("{"),
        lambda: state.with_suffix(".ipynb").unlink(),
        lambda: state.unlink(),
    ):
        break_it()
        assert batch(file, out, progress=False) == 0
        assert Outcome.model_validate_json(state.read_text()).status == "done"
    assert len(counting.read_text().splitlines()) == 4


def test_bad_rows_end_with_one_sentence_and_start_nothing(
    tmp_path: Path, counting: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for text, sentence in (
        (f"- {{{COMMON}, placment: ddp}}", "unknown field 'placment': did you mean 'placement'?"),
        ("", "is empty"),
        (f"- {{{COMMON}, placement: ddp, without: [{{devices: 1}}]}}", "leaves no point"),
    ):
        assert main(["batch", str(points(tmp_path, text)), "--out", str(tmp_path / "out")]) == 2
        said = capsys.readouterr().err
        assert (
            sentence in said
            and said.count("\n") == 1
            and not counting.exists()
            and not (tmp_path / "out").exists()
        )


def test_ctrl_c_keeps_what_is_done_and_the_same_command_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys
) -> None:
    home, out, mark = tmp_path / "home", tmp_path / "out", tmp_path / "begun"
    source = (
        f"import os, time\nif placement == 'exp4' and not os.path.exists('{mark}'):\n   "
        f" os.mkdir('{mark}')\n    time.sleep(600)"
    )
    notebook = nbformat.v4.new_notebook(
        metadata={
            "kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}
        }
    )
    notebook.cells = [
        cell
        for cell in read_notebook(NOTEBOOK).cells
        if "parameters" in cell.metadata.get("tags", [])
    ]
    notebook.cells.append(nbformat.v4.new_code_cell(source))
    (home / "notebooks").mkdir(parents=True)
    nbformat.write(notebook, home / "notebooks" / "experiment.ipynb")
    file = points(tmp_path, f"- {{{COMMON}, placement: [ddp, exp4, exp2]}}")
    command = [sys.executable, "-m", "multigpu", "batch", str(file), "--out", str(out), "--quiet"]
    environment = os.environ | {"MULTIGPU_HOME": str(home), "PYTHONPATH": PATHS}
    first = subprocess.Popen(
        command,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    while not mark.exists():
        assert first.poll() is None
        time.sleep(0.2)
    os.killpg(first.pid, signal.SIGINT)  # as a terminal does
    _, said = first.communicate(timeout=PATIENCE_S)
    assert first.returncode == 130 and said.splitlines()[-1].startswith(
        "multigpu: stopped; what was measured is kept"
    )
    assert "Traceback" not in said and "1 done, 2 not begun" in (out / "index.html").read_text()
    monkeypatch.setattr(module, "NOTEBOOK", home / "notebooks" / "experiment.ipynb")
    assert batch(file, out, progress=False) == 0
    assert (
        "3 rows, 1 of them done before" in capsys.readouterr().out
        and "3 done" in (out / "index.html").read_text()
    )


def test_a_run_that_is_started_again_is_no_further_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its workers died twice; and of the two that were asked for one is measured once more."""
    shown: list[str] = []
    handle = SimpleNamespace(update=lambda data, raw: shown.append(data["text/plain"]))
    monkeypatch.setattr(experiment_progress, "display", lambda *words, **more: handle)
    progress = experiment_progress.Progress(tiny(0), 2, Watched(tmp_path / "watched"))
    for starts in (3, 1, 1):
        for _ in range(starts):
            progress.set_description("a Run")
            progress.steps("timed", 1)
        progress.update(1)
        numbers = [re.match(r"run (\d+) of (\d+) ", line) for line in shown[-1].splitlines()]
        assert all(found and int(found[1]) <= int(found[2]) for found in numbers)
        if starts == 3:
            assert shown[-1].startswith("run 1 of 2  ") and len(shown[-1].splitlines()) == 1
    assert shown[-1].count(" of 3  ") == 3
