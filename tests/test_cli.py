"""The command line: bad input is one sentence and exit code 2; good input does what it says."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from multigpu import paths
from multigpu.arguments import parse_fields
from multigpu.claims import all_claims
from multigpu.cli import main
from multigpu.collectives.record import CollectiveStore
from multigpu.grid import find_grid
from multigpu.measure.machine import framework_version, this_machine
from multigpu.measure.summary import Summary
from multigpu.measure.timed import Item
from multigpu.measure.timing import TIMING_VERSION
from multigpu.record import Record, RecordStore
from multigpu.run import Run
from tests.analysis.test_step_traces import trace_of
from tests.claims.test_other_records import reduced as planted_all_reduces
from tests.collectives.planted import study as all_reduces
from tests.factory import make_machine, make_record, plant

TINY = ["workload=nmt", "model=nmt_tiny", "placement=ddp", "device_type=cpu", "devices=1", "batch_size=4", "sequence_length=5"]
IMAGES = ["workload=cnn", "model=resnet_tiny", "placement=ddp", "device_type=cpu", "devices=1", "batch_size=4"]


def fields(*changes: str, base: list[str] = TINY) -> list[str]:
    """The tiny Run's fields, some changed."""
    changed = {text.partition("=")[0]: text for text in changes}
    return [changed.pop(text.partition("=")[0], text) for text in base] + list(changed.values())


def text_files(source: Path, target: Path) -> list[str]:
    return [text for text in fields("inputs=text_files", f"data={source},{target}") if not text.startswith("sequence_length")]


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    code = main(list(arguments))
    captured = capsys.readouterr()
    return code, captured.out, captured.err


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (["devices=0"], ["devices", "0", "1"]),
        (["device_type=cuda", "devices=9"], ["9 GPUs were asked for", "this machine has"]),
        (["devices=17"], ["17 CPU processes", "16"]),
        (["placement=psychic"], ["unknown placement 'psychic'", "ddp", "exp4"]),
        (["model=gpt"], ["unknown model 'gpt'", "nmt000"]),
        (["workload=tea"], ["unknown workload 'tea'", "nmt"]),
        (["batch_size=0"], ["batch_size", "0"]),
        (["batch_size=many"], ["batch_size", "'many'", "integer"]),
        (["shuffle=perhaps"], ["shuffle = 'perhaps'", "true or false is needed"]),
        (["scaling=strong", "batch_size=1", "devices=2"], ["batch of 1", "2 devices"]),
        (["inputs=telepathy"], ["unknown inputs 'telepathy'", "synthetic"]),
        (["precision=fp12"], ["precision", "fp12"]),
        (["precision=tf32"], ["tf32", "GPUs only"]),
        (["execution=xla"], ["'ddp'", "'xla'"]),
        (["layout=channels_last"], ["layout", "no meaning"]),
        (["colour=red"], ["unknown field 'colour'"]),
        (["devices"], ["'devices' is not of the form"]),
        ([f"devices={10**20}"], [f"devices = {10**20}: input should be less than or equal to 4096"]),
        (["batch_size=" + "9" * 300], ["batch_size = 999"]),
    ],
)
def test_bad_fields(capsys, tmp_path, changes, words) -> None:
    code, _, err = run(capsys, "--records", str(tmp_path / "runs"), "measure", *fields(*changes))
    assert code == 2
    assert len(err.strip().splitlines()) == 1 and "Traceback" not in err and len(err) < 2000 and "9" * 100 not in err
    for word in words:
        assert word in err, err
    assert not list(tmp_path.rglob("*.json.gz"))


def test_bad_corpora(capsys, tmp_path) -> None:
    good, short, empty = tmp_path / "a.en", tmp_path / "a.de", tmp_path / "empty.de"
    good.write_text("one two\nthree four\n" * 20)
    short.write_text("eins zwei\n" * 20)
    empty.write_text("")
    for source, target, words in [
        (good, tmp_path / "absent.de", ["absent.de"]),
        (good, empty, ["empty.de", "empty"]),
        (good, short, ["40", "20"]),
    ]:
        code, _, err = run(capsys, "--records", str(tmp_path / "runs"), "measure", *text_files(source, target))
        assert code == 2 and len(err.strip().splitlines()) == 1, err
        assert all(word in err for word in words), err


def test_bad_folder_of_images(capsys, tmp_path) -> None:
    arguments = fields("inputs=image_folder", f"data={tmp_path / 'absent'}", base=IMAGES)
    code, _, err = run(capsys, "--records", str(tmp_path / "runs"), "measure", *arguments)
    assert code == 2 and "absent" in err and len(err.strip().splitlines()) == 1


def test_records_that_cannot_be_written(capsys, tmp_path) -> None:
    """(A file in the folder's place: as root, permissions would not stop us.)"""
    blocked = tmp_path / "blocked"
    blocked.write_text("")
    code, _, err = run(capsys, "--records", str(blocked / "runs"), "measure", *TINY)
    assert code == 2 and "cannot be written" in err and str(blocked) in err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["measure", "--grid", "grid_of_dreams"], ["unknown grid 'grid_of_dreams'", "headline"]),
        (["measure", "--grid", "cpu_study", "--devices", "1,none"], ["'none'", "positive integer"]),
        (["measure", "--grid", "cpu_study", "model=nmt_tiny"], ["no Run of the grid", "model=nmt_tiny"]),
        (["measure", "--grid", "cpu_study,none"], ["unknown grid 'none'", "cpu_study", "joined by commas"]),
        (["measure", "--grid", "cpu_study", "colour=red"], ["unknown field 'colour'"]),
        (["records", "colour=red"], ["'colour=red'"]),
    ],
)
def test_bad_commands(capsys, tmp_path, arguments, words) -> None:
    code, _, err = run(capsys, "--records", str(tmp_path), *arguments)
    assert code == 2 and all(word in err for word in words), err


@pytest.mark.parametrize("suffix", ["csv", "json", "parquet"])
def test_records_are_listed_filtered_and_exported(capsys, tmp_path, suffix) -> None:
    plant(RecordStore(tmp_path / "runs"), [make_record(placement="ddp", repeat=0), make_record(placement="exp4", repeat=0)])
    code, out, _ = run(capsys, "--records", str(tmp_path / "runs"), "records", "placement=exp4")
    assert code == 0 and "exp4" in out and "ddp" not in out
    target = tmp_path / f"out.{suffix}"
    assert run(capsys, "--records", str(tmp_path / "runs"), "records", "--export", str(target))[0] == 0
    read = {"csv": pd.read_csv, "json": pd.read_json, "parquet": pd.read_parquet}[suffix](target)
    assert sorted(read["placement"]) == ["ddp", "exp4"]
    code, _, err = run(capsys, "--records", str(tmp_path / "runs"), "records", "--export", str(tmp_path / "out.docx"))
    assert code == 2 and "docx" in err


def loose_and_packed(folder: Path) -> tuple[int, int]:
    return len(list(folder.rglob("*.json.gz"))), len(list(folder.rglob("records-*.tar.xz")))


def test_records_are_packed_in_one_folder(capsys, tmp_path) -> None:
    folder = tmp_path / "runs"
    plant(RecordStore(folder), [make_record(repeat=repeat) for repeat in range(21)])
    before = list(RecordStore(folder))
    listed = run(capsys, "--records", str(folder), "records")
    code, out, _ = run(capsys, "--records", str(folder), "records", "--pack")
    assert code == 0 and re.fullmatch(rf"{folder}/8x-nvidia-h200: 21 Records packed, [\d,]+ bytes before, [\d,]+ after\n", out), out
    assert loose_and_packed(tmp_path) == (0, 1) and list(RecordStore(folder)) == before
    assert run(capsys, "--records", str(folder), "records") == listed
    assert run(capsys, "--records", str(folder), "records", "--pack")[:2] == (0, "nothing to pack: no place has 20 loose Records\n")


def test_records_are_packed_in_every_folder_that_the_study_keeps(capsys, tmp_path, monkeypatch) -> None:
    for name in ("RUNS", "COLLECTIVES", "HOSTS", "HOSTS_RUNS", "SYNCHRONY", "STAGES", "TRAINING", "INTERFERENCE"):
        monkeypatch.setattr(paths, name, tmp_path / getattr(paths, name).relative_to(paths.REPOSITORY))
    records = [make_record(repeat=repeat) for repeat in range(20)]
    for folder in (paths.RUNS, paths.HOSTS_RUNS, paths.INTERFERENCE):
        plant(RecordStore(folder), records)
    for record in all_reduces()[:25]:
        CollectiveStore(paths.HOSTS).write(record)
    code, out, _ = run(capsys, "records", "--pack")
    assert code == 0 and [line.split(": ")[0].removeprefix(f"{tmp_path}/data/").split("/")[0] for line in out.splitlines()] == [
        "runs",
        "hosts",
        "hosts",
        "interference",
    ]
    assert loose_and_packed(tmp_path) == (0, 4)


def test_packing_names_what_is_no_record_and_goes_alone(capsys, tmp_path) -> None:
    plant(RecordStore(tmp_path), [make_record(repeat=repeat) for repeat in range(20)])
    broken = tmp_path / "8x-nvidia-h200" / "abc.0.json.gz"
    broken.write_bytes(b"no gzip")
    code, out, err = run(capsys, "--records", str(tmp_path), "records", "--pack")
    assert (code, out) == (2, "") and f"{broken} is not a Record of this version" in err and len(err.splitlines()) == 1
    assert loose_and_packed(tmp_path) == (21, 0)
    for more in (["placement=ddp"], ["--export", "x.csv"], ["--traced"], ["--trace-summary", "abc"]):
        code, _, err = run(capsys, "--records", str(tmp_path), "records", "--pack", *more)
        assert code == 2 and "--pack packs every Record that is loose" in err


def test_a_traces_summary_is_printed_and_written(capsys, tmp_path) -> None:
    """Steps 0 to 39 are warm-up and timed, 40 warms the profiler up, 41 and 42 are traced; or those from where the Run says."""
    fields = {"workload": "deepconn", "placement": "single", "devices": 1, "scaling": "strong", "processes": "one", "traced_steps": 2}
    record, late = (
        make_record(**fields, **more, measurement={"trace": trace_of(1, 0, 0, sparse_ms=1.5)}) for more in ({}, {"traced_from": 90})
    )
    folder = ("--records", str(plant(RecordStore(tmp_path / "runs"), [record, late, make_record()]).root), "records")
    code, out, _ = run(capsys, *folder, "--traced")
    assert code == 0 and record.key in out and make_record().key not in out
    code, out, _ = run(capsys, *folder, "--trace-summary", record.key)
    assert code == 0 and "UnsortedSegmentCustomKernel" in out and "time_percent" in out
    for one, first in ((record, 41), (late, 90)):
        target = tmp_path / f"{first}.csv"
        code, out, _ = run(capsys, *folder, "--trace-summary", one.key, "--export", str(target))
        table = pd.read_csv(target)
        assert code == 0 and str(target) in out and set(table["key"]) == {one.key}
        assert set(table["first_step"]) == {first} and set(table["last_step"]) == {first + 1} and table["time_s"].iloc[0] == 0.0015
    for words, said in (
        (("--trace-summary", "nothing"), "'nothing'"),
        (("--trace-summary", make_record().key), "holds no trace"),
        (("--trace-summary", record.key, "--export", str(tmp_path / "trace.txt")), "trace.txt"),
    ):
        code, _, err = run(capsys, *folder, *words)
        assert code == 2 and said in err and len(err.strip().splitlines()) == 1


@pytest.mark.parametrize(("command", "key"), [("explain", "points"), ("advise", "jobs")])
def test_explain_and_advise(capsys, tmp_path, command, key) -> None:
    records = [make_record(placement="ddp"), make_record(placement="exp4", units_per_s=5e5), make_record(devices=1)]
    folder = ("--records", str(plant(RecordStore(tmp_path / "runs"), records).root), command)
    code, out, _ = run(capsys, *folder, "workload=nmt", "devices=2", "--format", "json", "--limit", "2")
    assert code == 0 and len(json.loads(out)[key]) == (2 if command == "explain" else 1)
    code, out, _ = run(capsys, *folder, "workload=nmt", "devices=2", "--limit", "1")
    assert code == 0 and out.splitlines()[0].endswith(".")
    for words, said in (("workload=tea", "unknown workload 'tea'"), ("execution=fast", "compiled"), ("fast", "'fast'")):
        code, _, err = run(capsys, *folder, "workload=nmt", words)
        assert code == 2 and said in err and len(err.strip().splitlines()) == 1


def test_claims_in_lines_and_in_full(capsys, tmp_path) -> None:
    code, out, _ = run(capsys, "--records", str(tmp_path), "claims")
    assert code == 0 and [line.split()[0] for line in out.splitlines() if line.startswith("C")] == [one.number for one in all_claims()]
    assert len(json.loads(run(capsys, "--records", str(tmp_path), "claims", "--format", "json")[1])) == len(all_claims())
    code, out, _ = run(capsys, "--records", str(tmp_path), "claims", "c25", "C26")
    assert code == 0 and [line.split(":")[0] for line in out.splitlines() if line.startswith("C")] == ["C25", "C26"]
    ascii_only = os.environ | {"PYTHONIOENCODING": "ascii"}
    words = [sys.executable, "-m", "multigpu", "--records", str(tmp_path), "claims", "C25"]
    assert "Verdict" in subprocess.run(words, env=ascii_only, capture_output=True, text=True, check=True).stdout
    code, _, err = run(capsys, "claims", "C0")
    assert code == 2 and "unknown claim 'C0'" in err and len(err.strip().splitlines()) == 1


def test_claims_read_all_reduces_from_their_own_folder(capsys, tmp_path) -> None:
    times = {(method, devices): 1.0 for method in ("ring", "central_server") for devices in (2, 8)}
    for record in planted_all_reduces(times, (1.0,)):
        CollectiveStore(tmp_path / "alone").write(record)
    words = ("--records", str(tmp_path / "none"), "claims", "--format", "json", "--hosts")
    counts = {}
    for folder in ("none", "nothing"):
        (tmp_path / folder).mkdir()
    for folder in ("alone", "nothing"):
        code, out, _ = run(capsys, *words, str(tmp_path / folder))
        assert code == 0
        counts[folder] = next(len(verdict["record_keys"]) for verdict in json.loads(out) if verdict["claim"]["number"] == "C25")
    assert counts == {"alone": 4, "nothing": 0}


@pytest.mark.parametrize(
    "words",
    [
        ("--records", "{typo}", "records"),
        ("--records", "{typo}", "records", "--trace-summary", "key"),
        ("--records", "{typo}", "explain", "key"),
        ("--records", "{typo}", "advise", "workload=nmt"),
        ("--records", "{typo}", "claims"),
        ("claims", "--hosts", "{typo}"),
        ("claims", "--synchrony", "{typo}"),
        ("claims", "--training", "{typo}"),
    ],
)
def test_a_folder_that_is_named_and_not_there_is_no_empty_study(words: Sequence[str], capsys, tmp_path) -> None:
    typo = str(tmp_path / "typo")
    code, out, err = run(capsys, *(word.replace("{typo}", typo) for word in words))
    assert (code, out) == (2, "") and re.fullmatch(rf"multigpu: --\w+ {re.escape(typo)}: there is no such folder\n", err)


@pytest.mark.parametrize("bad", ["0", "-1", "1e12", "nan", "inf", "soon"])
def test_no_span_of_time_without_an_end_or_a_beginning(bad: str, capsys, monkeypatch) -> None:
    for words in (["measure", "--timeout"], ["measure", "--budget-s"], ["train", "--budget-s"], ["collectives", "--budget-s"]):
        with pytest.raises(SystemExit) as stopped:
            main([*words, bad])
        assert stopped.value.code == 2 and f"{bad!r} is no span of time: give seconds, above 0" in capsys.readouterr().err
    with pytest.raises(ValueError, match="timeout_s"):
        Item(run=Run(**parse_fields(TINY)), timeout_s=float(bad) if bad != "soon" else "soon")


@pytest.mark.parametrize(
    "words",
    [
        ["measure", "--repeats", "0"],
        ["collectives", "--repeats", "-1"],
        ["interference", "--rounds", "-1"],
        ["hosts", "--repeats", "x"],
        ["advise", "--limit", "0"],
    ],
)
def test_no_count_below_one(words: Sequence[str], capsys) -> None:
    with pytest.raises(SystemExit) as stopped:
        main(words)
    assert stopped.value.code == 2 and f"{words[-1]!r} is not a whole number from 1 to" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["measure", "train", "synchrony", "study"])
def test_an_empty_grid_is_not_the_default(command: str, capsys) -> None:
    with pytest.raises(SystemExit) as stopped:
        main([command, "--grid", ""])
    assert stopped.value.code == 2 and "an empty name was given" in capsys.readouterr().err


def test_a_field_without_a_value_is_named(capsys) -> None:
    code, _, err = run(capsys, "measure", "--dry-run", "workload=nmt", "placement=ddp", "batch_size=4")
    assert (code, err) == (2, "multigpu: model has no value: give it one\n")


def test_a_path_that_cannot_be_is_one_sentence(capsys, tmp_path) -> None:
    long = str(tmp_path / ("x" * 300))
    for words in (
        ["measure", "--dry-run", *fields("inputs=image_folder", f"data={long}", base=IMAGES)],
        ["records", "--export", f"{long}.csv"],
    ):
        code, _, err = run(capsys, *words)
        assert code == 2 and err.count("\n") == 1 and "x" * 300 in err, err


@pytest.mark.parametrize("name", ["a\0b", "caf\udce9", "a\nb"])
def test_a_path_that_no_record_could_hold_is_refused(name: str, capsys) -> None:
    code, _, err = run(capsys, "measure", "--dry-run", *fields("inputs=image_folder", f"data=/x/{name}", base=IMAGES))
    assert code == 2 and err.count("\n") == 1 and "no text of a line in UTF-8" in err


def test_a_link_to_nothing_among_cifars_files_is_named(capsys, tmp_path) -> None:
    (tmp_path / "data_batch_1.bin").symlink_to("/nowhere.bin")
    code, _, err = run(capsys, "measure", "--dry-run", *fields("inputs=cifar10", f"data={tmp_path}", base=IMAGES))
    assert (code, err) == (2, f"multigpu: {tmp_path}/data_batch_1.bin cannot be read: No such file or directory\n")


def test_digits_of_other_scripts_are_no_counts(capsys) -> None:
    for words in (["measure", "--grid", "cpu_study", "--devices", "²"], ["collectives", "--sizes", "²K"]):
        code, _, err = run(capsys, *words)
        assert code == 2 and "²" in err and "invalid literal" not in err


def test_a_sweep_of_failures_ends_with_one_and_says_how_to_go_on(capsys, monkeypatch, tmp_path) -> None:
    for statuses, code in (({"failed": 1, "ok": 1}, 1), ({"timeout": 2}, 1), ({"ok": 1, "out_of_memory": 1, "unsupported": 1}, 0)):
        monkeypatch.setattr("multigpu.cli_measure.measure", lambda *_, statuses=statuses: Summary(Counter(statuses)))
        found, out, _ = run(capsys, "--records", str(tmp_path), "measure", *TINY)
        again = [f"--retry {status}" for status in ("failed", "timeout") if status in statuses]
        assert found == code and all(option in out for option in again) and ("--retry" in out) == bool(again)


def test_collectives_forwards_its_words(capsys) -> None:
    code, out, _ = run(capsys, "collectives", "--devices", "3", "--device-type", "cpu", "--sizes", "4", "--methods", "ring", "--dry-run")
    assert (code, out) == (0, "ring 4 B x3 fp32 eager\n")
    code, _, err = run(capsys, "collectives", "--sizes", "4Q")
    assert code == 2 and err == "multigpu: '4Q' is no size: use bytes with K, M or G, such as 4,64K,1M,1G\n"
    with pytest.raises(SystemExit) as stopped:
        run(capsys, "doctor", "--devices", "3")
    assert stopped.value.code == 2 and "unrecognized arguments: --devices 3" in capsys.readouterr().err


def test_doctor_says_what_is_there(capsys, tmp_path) -> None:
    code, out, _ = run(capsys, "--records", str(tmp_path), "doctor")
    assert code == 0
    for word in ("machine", "placement   ddp", "workload    nmt", "records     none yet"):
        assert word in out


def test_a_grid_is_restricted_by_fields(capsys, tmp_path) -> None:
    words = ["--records", str(tmp_path), "measure", "--grid", "cpu_study,cnn_small", "--devices", "1", "--dry-run"]
    _, every, _ = run(capsys, *words)
    code, out, _ = run(capsys, *words, "workload=cnn", "execution=eager")
    listed = [line for line in out.splitlines() if line.startswith("launch")]
    assert code == 0 and 0 < len(listed) < sum(line.startswith("launch") for line in every.splitlines())
    assert all("eager" in line and "nmt" not in line for line in listed) and not list(tmp_path.iterdir())


def measured_here(run: Run, repeat: int = 0, **more: Any) -> Record:
    """A planted Record of this machine, of the PyTorch that is installed and of today's timer, unless `more` says otherwise."""
    fields: dict[str, Any] = run.model_dump(exclude={"placement", "devices"})
    fields |= {"machine": make_machine(0, this_machine().name), "timing_version": TIMING_VERSION}
    return make_record(run.placement, run.devices, repeat=repeat, **fields | {"versions": {"torch": framework_version("torch")}} | more)


def listed(out: str) -> Sequence[str]:
    """The labels of a dry run's measurements."""
    return [line.partition("  ")[2] for line in out.splitlines() if line.startswith("launch ")]


def test_a_budget_is_for_what_would_be_measured(capsys, tmp_path) -> None:
    """Known is what this PyTorch and this timer have a Record of, unless it is to be measured again; only that tells the pace."""
    planned = find_grid("cpu_study", [1])
    failed, upgraded, retimed, *rest = [entry for entry in planned if entry.run.framework == "torch"]
    records = [
        measured_here(failed.run, status="failed"),
        measured_here(upgraded.run, versions={"torch": "0.1"}, measurement={"total_s": 1000.0}),
        measured_here(retimed.run, timing_version=TIMING_VERSION + 1, measurement={"total_s": 1000.0}),
        measured_here(rest[0].run, status="failed"),  # the first attempt of what was measured in the end
        measured_here(rest[0].run, attempt=1, measurement={"total_s": rest[0].cost_s / 4}),
        *(measured_here(entry.run, measurement={"total_s": entry.cost_s / 4}) for entry in rest[1:]),
    ]
    store, every = plant(RecordStore(tmp_path / "runs"), records), 3 + len(rest)
    words = ["--records", str(store.root), "measure", "--grid", "cpu_study", "--devices", "1", "--budget-s", "600", "--dry-run"]
    for retry, chosen in ((), [upgraded, retimed]), (("failed",), [failed, upgraded, retimed]), (("ok",), [upgraded, retimed, *rest]):
        again = [word for status in retry for word in ("--retry", status)]
        code, out, _ = run(capsys, *words, *again, "framework=torch")
        assert code == 0 and listed(out) == [entry.run.label() for entry in chosen]
        known = every - len(chosen)
        assert f"600.0 s allow {len(chosen)} of {every} measurements ({known} are known; they take 0.25 of what the grid says)" in out


def test_what_claims_need_is_what_would_be_measured(capsys, tmp_path, monkeypatch) -> None:
    """A failure of this PyTorch is known unless it is retried; one of another PyTorch never is."""
    for name in ("HOSTS", "SYNCHRONY", "TRAINING"):
        monkeypatch.setattr(f"multigpu.paths.{name}", tmp_path / name)
    runs = [entry.run for entry in find_grid("headline", [1, 2])]

    def needed(*more: str, **planted: Any) -> list[str]:
        root = tmp_path / ("none" if not planted else planted["versions"]["torch"])
        if planted and not root.exists():
            plant(RecordStore(root), [measured_here(one, repeat, status="failed", **planted) for one in runs for repeat in range(8)])
        words = ["--records", str(root), "measure", "--undecided", "--grid", "headline", "--devices", "1,2", "--dry-run", *more]
        return [line for line in run(capsys, *words)[1].splitlines() if " in torch: " in line]

    here = {"torch": framework_version("torch")}
    from_nothing = needed()
    assert len(from_nothing) > 1 and needed(versions=here) == []
    assert needed("--retry", "failed", versions=here) == from_nothing
    assert needed(versions={"torch": "0.1"}) == from_nothing


def test_only_statuses_that_there_are_can_be_retried(capsys) -> None:
    for command in ("measure", "train"):
        with pytest.raises(SystemExit) as stopped:
            main([command, "--grid", "cpu_study", "--retry", "fialed", "--dry-run"])
        assert stopped.value.code == 2
        error = capsys.readouterr().err
        assert "invalid choice: 'fialed'" in error and "out_of_memory" in error and "'ok'" in error


@pytest.mark.parametrize(
    ("more", "words"),
    [
        (["--nnodes", "2", "--rendezvous", "here"], "cannot be used with several hosts"),
        (["--traces", "profiles"], "--traces watches Runs"),
        (["--tensorboard", "logs"], "--tensorboard watches Runs"),
    ],
)
def test_what_cannot_be_shared_is_refused_in_one_sentence(capsys, tmp_path, more, words) -> None:
    code, _, err = run(capsys, "--records", str(tmp_path / "runs"), "measure", "--share", *more, *TINY)
    assert code == 2 and words in err and err.count("\n") == 1


def test_sharing_says_who_is_alone_and_why(capsys, tmp_path) -> None:
    code, out, _ = run(
        capsys, "--records", str(tmp_path / "runs"), "measure", "--grid", "cpu_study", "--devices", "1", "--share", "--dry-run"
    )
    assert code == 0 and "measurements share the machine" in out and "variables, merges or updates on the host)" in out
