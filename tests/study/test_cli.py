"""The study's commands, and what it adds to those of the tool."""

import json
from pathlib import Path

import pytest

from multigpu.records.collective import CollectiveStore
from multigpu_study.claims import all_claims
from tests.command_line import Ran, refused_words
from tests.study.claims.test_other_records import reduced as planted_all_reduces

REFUSED = [
    ("claims C0", ["unknown claim 'C0'"]),
    (
        "collectives --sizes 4Q",
        ["multigpu: '4Q' is no size: use bytes with K, M or G, such as 4,64K,1M,1G\n"],
    ),
    ("train --grid=", ["an empty name was given"]),
    ("collectives --budget-s=0", ["'0' is no span of time: give seconds, above 0"]),
    ("collectives --repeats 0", ["'0' is not a whole number from 1 to"]),
    ("--records {here}/typo claims", ["{here}/typo: there is no such folder\n"]),
    *(
        (f"claims --{kind} {{here}}/typo", ["{here}/typo: there is no such folder\n"])
        for kind in ("hosts", "synchrony", "training")
    ),
]


@pytest.mark.parametrize(("line", "said"), REFUSED, ids=range(len(REFUSED)))
def test_what_cannot_be_is_refused_in_one_sentence(
    line: str, said: list[str], run: Ran, here: Path
) -> None:
    refused_words(line.split(), said, run, here)


@pytest.mark.parametrize("words", ["--records {here} train", "train --records {here}"])
def test_records_are_named_before_and_behind_a_command_with_its_own_parser(
    words: str, run: Ran, here: Path
) -> None:
    line = f"{words} --grid training_cpu --budget-s 0.001 --dry-run"
    assert run(*line.format(here=here).split())[0] == 0


def test_what_a_dry_run_of_all_reduces_says(run: Ran) -> None:
    line = "collectives --devices 3 --device-type cpu --sizes 4 --methods ring --dry-run"
    code, out, _ = run(*line.split())
    assert code == 0 and "ring 4 B x3 fp32 eager\n" in out


def test_claims_in_lines_and_in_full(run, here, elsewhere) -> None:
    """All-reduces are read from a folder of their own."""
    for record in planted_all_reduces(
        {(method, devices): 1.0 for method in ("ring", "central_server") for devices in (2, 8)},
        (1.0,),
    ):
        CollectiveStore(here / "alone").write(record)
    words = [
        "claims",
        *(
            f"--{kind}={here / 'alone' if kind == 'hosts' else here / 'runs'}"
            for kind in ("hosts", "synchrony", "training")
        ),
    ]
    code, out, _ = run(*words)
    assert code == 0 and [line.split()[0] for line in out.splitlines() if line.startswith("C")] == [
        one.number for one in all_claims()
    ]
    verdicts = {
        one["claim"]["number"]: one for one in json.loads(run(*words, "--format", "json")[1])
    }
    assert len(verdicts) == len(all_claims()) and len(verdicts["C25"]["record_keys"]) == 4
    code, out, _ = run(*words, "c25", "C26")
    assert code == 0 and [
        line.split(":")[0] for line in out.splitlines() if line.startswith("C")
    ] == ["C25", "C26"]
