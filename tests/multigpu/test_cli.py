"""The command line: bad input is one sentence and exit code 2; good input does what it says; to
stop it is no failure.
"""

import os
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pandas as pd
import psutil
import pytest

from multigpu import paths
from multigpu.analysis.read import read_study
from multigpu.cli.main import main
from multigpu.grids import find_grid
from multigpu.paths import kind_in
from multigpu.records.collective import CollectiveStore
from multigpu.records.record import TIMING_VERSION, RecordStore
from multigpu.runner.summary import Summary
from tests.command_line import IMAGES, TINY, Ran, fields, measured_here, refused_words
from tests.factory import make_record, plant
from tests.multigpu.analysis.planted import trace_of
from tests.multigpu.collectives.planted import study as all_reduces
from tests.multigpu.runner.launched import PATHS
from tests.patience import PATIENCE_S
from tests.refusals import cases_beside

FIELDS = [  # of the tiny Run, changed, and what is said
    (["devices=0"], ["devices", "0", "1"]),
    (["device_type=cuda", "devices=9"], ["9 GPUs were asked for", "this machine has"]),
    (["placement=psychic"], ["unknown placement 'psychic'", "ddp", "exp4"]),
    (["batch_size=many"], ["batch_size", "'many'", "integer"]),
    (["shuffle=perhaps"], ["shuffle = 'perhaps'", "true or false is needed"]),
    (["colour=red"], ["unknown field 'colour'"]),
    (["devices"], ["'devices' is not of the form"]),
    ([f"devices={10**20}"], [f"devices = {10**20}: input should be less than or equal to 4096"]),
    (["batch_size=" + "9" * 300], ["batch_size = 999"]),
]
PAGE = paths.REPOSITORY / "notebooks" / "00-front.ipynb"
DATA = [
    (TINY[:-1], "text_files", "{here}/a.en,{here}/absent.de", ["absent.de"]),
    (TINY[:-1], "text_files", "{here}/a.en,{here}/a.de", ["40", "20"]),
    (IMAGES, "image_folder", "/x/caf\udce9", ["no text of a line in UTF-8"]),
    (IMAGES, "image_folder", "/x/a\nb", ["no text of a line in UTF-8"]),
    (
        IMAGES,
        "cifar10",
        "{here}/cifar",
        ["multigpu: {here}/cifar/data_batch_1.bin cannot be read: No such file or directory\n"],
    ),
]
GIVEN = [
    (words.replace("{page}", str(PAGE)), said.replace("\\n", "\n").split(" | "))
    for words, said in cases_beside(__file__, "refused_commands.csv")
]
GIVEN += [
    ("records --export {here}/" + "x" * 300 + ".csv", ["x" * 300]),
    (
        "report --parameters {here}/a\0b",
        ["/a\\x00b' cannot be read: no name of a file holds a NUL"],
    ),
]
REFUSED = [
    *((["measure", *fields(*changes)], said) for changes, said in FIELDS),
    *(
        (["measure", *fields(f"inputs={name}", f"data={data}", base=base)], said)
        for base, name, data, said in DATA
    ),
    *(
        (line.split() + (TINY if "--share" in line or "blocked" in line else []), said)
        for line, said in GIVEN
    ),
]


@pytest.mark.parametrize(("words", "said"), REFUSED, ids=range(len(REFUSED)))
def test_what_cannot_be_is_refused_in_one_sentence(
    words: list[str], said: list[str], run: Ran, here: Path
) -> None:
    refused_words(words, said, run, here)


@pytest.mark.parametrize("suffix", ["csv", "json", "parquet"])
def test_records_are_listed_filtered_and_exported(run, here, suffix) -> None:
    plant(RecordStore(here / "runs"), [make_record("ddp"), make_record("exp4")])
    code, out, _ = run("records", "placement=exp4")
    assert code == 0 and "exp4" in out and "ddp" not in out
    target = here / f"out.{suffix}"
    assert run("records", "--export", str(target))[0] == 0
    read = {"csv": pd.read_csv, "json": pd.read_json, "parquet": pd.read_parquet}[suffix](target)
    assert sorted(read["placement"]) == ["ddp", "exp4"]


def test_options_and_fields_stand_before_and_behind_the_command(run, here) -> None:
    """And one folder of Records means one place."""
    plant(RecordStore(here / "runs"), [make_record("ddp"), make_record("exp4")])
    for folder in ("runs", ""):  # of Runs alone, and one that holds several kinds
        named = ["--records", str(here / folder)]
        listed = [
            run(*named, "records", "placement=exp4", "status=ok"),
            run("records", *named, "placement=exp4", "status=ok"),
            run("records", "placement=exp4", *named, "status=ok"),
        ]
        assert listed[0][0] == 0 and "exp4" in listed[0][1] and listed == [listed[0]] * 3
        assert sorted(read_study(str(here / folder)).points["placement"]) == ["ddp", "exp4"]
    refused_words(["records", "placement=exp4", "--cloud", "x"], ["--cloud x"], run, here / "none")
    assert (
        kind_in(here, "training") == here / "training" and kind_in(here / "cifar") == here / "cifar"
    )


def test_records_are_packed_in_one_folder_or_in_all_and_alone(run, here, capsys, elsewhere) -> None:
    folder, records = here / "runs", [make_record(repeat=repeat) for repeat in range(21)]
    before = list(plant(RecordStore(folder), records))
    listed = run("records")
    code, out, _ = run("records", "--pack")
    assert code == 0 and re.fullmatch(
        rf"{folder}/8x-nvidia-h200: 21 Records packed, [\d,]+ bytes before, [\d,]+ after\n", out
    ), out
    assert (
        not list(folder.rglob("*.json.gz"))
        and list(RecordStore(folder)) == before
        and run("records") == listed
    )
    assert run("records", "--pack")[:2] == (0, "nothing to pack: no place has 20 loose Records\n")
    for place in (paths.RUNS, paths.HOSTS_RUNS, paths.INTERFERENCE):
        plant(RecordStore(place), records)
    for record in all_reduces()[:25]:
        CollectiveStore(paths.HOSTS).write(record)
    assert main(["records", "--pack"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.removeprefix(f"{elsewhere}/").partition("/")[0] for line in lines] == [
        "runs",
        "hosts",
        "hosts",
        "interference",
    ]


def test_a_traces_summary_is_printed_and_written(run, here) -> None:
    """Steps 0 to 39 are warm-up and timed, 40 warms the profiler up, 41 and 42 are traced; or those
    from where the Run says.
    """
    fields: Any = {
        "workload": "stacks",
        "placement": "exp4",
        "devices": 1,
        "scaling": "strong",
        "processes": "one",
        "traced_steps": 2,
    }
    fields |= {"measurement": {"trace": trace_of(1, 0, 0, sparse_ms=1.5)}}
    record, late = make_record(**fields), make_record(**fields, traced_from=90)
    plant(RecordStore(here / "runs"), [record, late, make_record()])
    code, out, _ = run("records", "--traced")
    assert code == 0 and record.key in out and make_record().key not in out
    listed = here / "traced.csv"
    assert run("records", "--traced", "traced_steps=2", "--export", str(listed))[0] == 0
    assert set(pd.read_csv(listed)["key"]) == {record.key, late.key}
    code, out, _ = run("records", "--trace-summary", record.key)
    assert code == 0 and "UnsortedSegmentCustomKernel" in out and "time_percent" in out
    for one, first in ((record, 41), (late, 90)):
        target = here / f"{first}.csv"
        code, out, _ = run("records", "--trace-summary", one.key, "--export", str(target))
        table = pd.read_csv(target)
        assert code == 0 and str(target) in out and set(table["key"]) == {one.key}
        assert (
            set(table["first_step"]) == {first}
            and set(table["last_step"]) == {first + 1}
            and table["time_s"].iloc[0] == 0.0015
        )
    for key, target, told in (
        (make_record().key, "trace.csv", "holds no trace"),
        (record.key, "trace.txt", "choose .csv"),
    ):
        code, _, err = run("records", "--trace-summary", key, "--export", str(here / target))
        assert code == 2 and told in err and len(err.splitlines()) == 1


def test_a_sweep_of_failures_ends_with_one_and_says_how_to_go_on(run, monkeypatch) -> None:
    for statuses, code in (
        ({"failed": 1, "ok": 1}, 1),
        ({"timeout": 2}, 1),
        ({"ok": 1, "out_of_memory": 1, "unsupported": 1}, 0),
    ):
        monkeypatch.setattr(
            "multigpu.cli.measure.measure", lambda *_, statuses=statuses: Summary(Counter(statuses))
        )
        found, out, _ = run("measure", *TINY)
        again = [f"--retry {status}" for status in ("failed", "timeout") if status in statuses]
        assert (
            found == code
            and all(option in out for option in again)
            and ("--retry" in out) == bool(again)
        )


def test_what_a_command_says(run) -> None:
    for line, said in (
        ("doctor", "records     none yet"),
        (
            "measure --grid cpu_study --devices 1 --share --dry-run",
            "variables, reduces or updates on the host)",
        ),
    ):
        code, out, _ = run(*line.split())
        assert code == 0 and said in out


def test_none_is_the_value_of_a_field_that_is_left_out(run) -> None:
    planned = [entry.run for entry in find_grid("faster", [2]) if entry.run.execution == "captured"]
    words = "measure --grid faster --devices 2 --dry-run execution=captured bucket_send=none"
    code, out, _ = run(*words.split())
    without = {one.digest for one in planned if one.bucket_send is None}
    assert code == 0 and f" of {len(without)} Runs" in out and len(without) < len(planned)


def test_a_budget_is_for_what_would_be_measured(run, here) -> None:
    """Known is what this PyTorch and this timer have a Record of, unless it is to be measured
    again; only that tells the pace.
    """
    planned = find_grid("cpu_study", [1])
    failed, upgraded, retimed, *rest = [
        entry for entry in planned if entry.run.framework == "torch"
    ]
    records = [
        measured_here(failed.run, status="failed"),
        measured_here(upgraded.run, versions={"torch": "0.1"}, measurement={"total_s": 1000.0}),
        measured_here(
            retimed.run, timing_version=TIMING_VERSION + 1, measurement={"total_s": 1000.0}
        ),
        # the first attempt of what was measured in the end
        measured_here(rest[0].run, status="failed"),
        measured_here(rest[0].run, attempt=1, measurement={"total_s": rest[0].cost_s / 4}),
        *(
            measured_here(entry.run, measurement={"total_s": entry.cost_s / 4})
            for entry in rest[1:]
        ),
    ]
    every = 3 + len(rest)
    plant(RecordStore(here / "runs"), records)
    words = ["measure", "--grid", "cpu_study", "--devices", "1", "--budget-s", "600", "--dry-run"]
    for retry, chosen in (
        ((), [upgraded, retimed]),
        (("failed",), [failed, upgraded, retimed]),
        (("ok",), [upgraded, retimed, *rest]),
    ):
        again = [word for status in retry for word in ("--retry", status)]
        code, out, _ = run(*words, *again, "framework=torch")
        listed = [
            line.partition("  ")[2] for line in out.splitlines() if line.startswith("launch ")
        ]
        assert code == 0 and listed == [entry.run.label() for entry in chosen]
        known = every - len(chosen)
        assert (
            f"600.0 s allow {len(chosen)} of {every} measurements ({known} are known; they take"
            " 0.25 of what the grid says)" in out
        )


def begun(state: str, process: psutil.Process) -> bool:
    """Whether the command hears of signals, which is before it imports anything, or whether its
    launch has begun.
    """
    if state == "measuring":
        return len(process.children(recursive=True)) >= 3
    (caught,) = re.findall(r"SigCgt:\s*(\w+)", Path(f"/proc/{process.pid}/status").read_text())
    return bool(int(caught, 16) >> (signal.SIGTERM - 1) & 1)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("state", ["importing", "measuring"])
def test_it_ends_with_one_sentence_and_leaves_nobody(
    state: str, number: int, tmp_path: Path
) -> None:
    asked = fields("devices=2", "timed_steps=100000")
    words = ["--records", str(tmp_path), "measure", *asked, "--quiet"]
    environment, pipe = os.environ | {"PYTHONPATH": PATHS}, subprocess.PIPE
    process = psutil.Popen(
        [sys.executable, "-m", "multigpu", *words],
        env=environment,
        stdout=pipe,
        stderr=pipe,
        text=True,
    )
    while not begun(state, process):
        time.sleep(0.005)
    children = process.children(recursive=True)
    process.send_signal(number)
    said = process.communicate(timeout=PATIENCE_S)[1]
    assert (process.returncode, said) == (
        130,
        "multigpu: stopped; what was measured is kept, and the same command goes on from there\n",
    )
    assert not psutil.wait_procs(children, timeout=PATIENCE_S)[1]
